//! Datasets that were written once are read for ever, and today's converter still writes them.
//!
//! `fixtures/golden/v1` holds sources and the datasets made from them with manifests of version 1, `fixtures/golden/v2` and
//! `fixtures/golden/v3` the same datasets with manifests of versions 2 and 3, `fixtures/golden/v4` datasets with columns of the record
//! index, and of records of any kind. Committed files and cases are never edited: a new case gets a new name
//! (`CASES` of a new module, a new directory). Shards of msgpack and protobuf and the manifest are compared byte for byte;
//! Arrow, Parquet and the indexes, whose libraries may write the same content differently after an upgrade, by schema and
//! digest of the decoded records.
//!
//! Every version is read; only the newest is written. The shards of all versions are the same.
//!
//! A case that has no files yet is written by `DSCONVERT_WRITE_GOLDEN=1 cargo test --test golden`; existing files are never
//! replaced.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod arrays;
mod boxes;
mod image_lists;
mod index_columns;
mod records;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use dsconvert::format::Format;
use dsconvert::reader::{Dataset, VerifyOptions, verify};
use dsconvert::sample::{Ids, Record, Value as Field};
use dsconvert::schema::{IdWidth, Schema};
use dsconvert::writer::{DatasetWriter, Provenance, WriterOptions};
use serde_json::{Value, json};

/// A dataset to be made in every format.
struct Case {
    name: &'static str,
    kind: &'static str,
    source: &'static str,
    options: &'static str,
}

const CASES: [Case; 2] = [
    Case {
        name: "text",
        kind: "text",
        source: "text",
        options: "--tokenizer bytes --add-eos --key-field id --shard-records 3 --split train=0.5,test=0.5 --seed 2 \
                  --max-rejects 50%",
    },
    Case {
        name: "images",
        kind: "images",
        source: "photos",
        options: "--encode keep --shard-records 2 --max-rejects 50%",
    },
];

const FORMATS: [&str; 4] = ["parquet", "arrow", "msgpack", "protobuf"];

/// Versions of the manifest that are read, of datasets without columns of the record index; the last one is written.
const VERSIONS: [&str; 3] = ["v1", "v2", "v3"];

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/golden")
}

/// The golden dataset of every case and format.
fn datasets(version: &str) -> impl Iterator<Item = (&'static Case, &'static str, PathBuf)> {
    CASES.iter().flat_map(move |case| {
        FORMATS.iter().map(move |format| {
            (case, *format, golden().join(version).join(format!("{}-{format}", case.name)))
        })
    })
}

fn convert(case: &Case, format: &str, out: &Path) {
    let output = Command::new(env!("CARGO_BIN_EXE_dsconvert"))
        .args([case.kind, "--format", format, "--quiet", "--out"])
        .arg(out)
        .arg(golden().join("v1/source").join(case.source))
        .args(case.options.split_whitespace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Schema, and per split the checksum of each record's canonical form, its origin and its place in the length index.
fn digest(path: &Path) -> Value {
    let dataset = Dataset::open(path).unwrap();
    let mut splits = BTreeMap::new();
    for split in dataset.splits() {
        let records: Vec<Value> = split
            .iter()
            .map(|record| {
                let record = record.unwrap();
                json!([record.origin().unwrap(), record.into_inner().crc32c()])
            })
            .collect();
        let by_length: Vec<u64> = (0..split.len()).map(|rank| split.by_length(rank).unwrap()).collect();
        let lengths: Vec<u64> = (0..split.len()).map(|i| split.length(i).unwrap()).collect();
        let name = split.name().to_owned();
        splits.insert(name, json!({"records": records, "lengths": lengths, "by_length": by_length}));
    }
    json!({"schema": dataset.schema(), "splits": splits})
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
                files.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    files
}

#[test]
fn golden_datasets_are_read_as_they_were_written() {
    let digests_path = golden().join("v1/digests.json");
    if std::env::var_os("DSCONVERT_WRITE_GOLDEN").is_some() {
        let mut digests = BTreeMap::new();
        for (case, format, path) in datasets("v3") {
            if !path.exists() {
                convert(case, format, &path);
            }
            let old = digests.insert(case.name, digest(&path));
            // The content does not depend on the format.
            assert!(old.is_none_or(|old| old == digests[case.name]));
        }
        if !digests_path.exists() {
            std::fs::write(&digests_path, serde_json::to_string_pretty(&digests).unwrap() + "\n").unwrap();
        }
    }
    let digests: Value = serde_json::from_slice(&std::fs::read(&digests_path).unwrap()).unwrap();
    for (case, format, path) in VERSIONS.into_iter().flat_map(datasets) {
        assert_eq!(digest(&path), digests[case.name], "{format}");
        let report = verify(&Dataset::open(&path).unwrap(), &VerifyOptions::default());
        assert!(report.is_ok(), "{format}: {:?}", report.problems);
        assert!(report.unlisted.is_empty(), "{:?}", report.unlisted);
    }
}

#[test]
fn the_converter_still_writes_the_golden_datasets() {
    let dir = tempfile::tempdir().unwrap();
    for ((case, format, path), (.., first)) in datasets("v3").zip(datasets("v1")) {
        let out = dir.path().join(format!("{}-{format}", case.name));
        convert(case, format, &out);
        let (then, now) = (files(&path), files(&out));
        assert_eq!(then.keys().collect::<Vec<_>>(), now.keys().collect::<Vec<_>>());
        assert_eq!(digest(&out), digest(&path), "{format}");
        for (name, bytes) in &then {
            let by_byte = [".msgpack", ".pb", ".jsonl"].iter().any(|end| name.ends_with(end));
            assert!(!by_byte || bytes == &now[name], "{format}: {name} differs");
            assert!(
                !by_byte || *bytes == std::fs::read(first.join(name)).unwrap(),
                "{format}: {name} differs"
            );
        }
        assert_same_manifest(&then["manifest.json"], &now["manifest.json"]);
    }
}

/// Byte for byte, but for what an upgrade may change: the version, what is derived from it, and sizes and hashes of files
/// that other libraries encode.
fn assert_same_manifest(then: &[u8], now: &[u8]) {
    let neutral = |bytes: &[u8]| -> String {
        let mut manifest: Value = serde_json::from_slice(bytes).unwrap();
        let version = manifest["dsconvert"].as_str().unwrap().to_owned();
        assert!(!version.is_empty());
        // What is parsed and printed again is what was there: the layout is part of the promise.
        assert_eq!(serde_json::to_string_pretty(&manifest).unwrap() + "\n", String::from_utf8_lossy(bytes));
        for name in ["dsconvert", "fingerprint", "digest"] {
            manifest[name] = Value::Null;
        }
        blank(&mut manifest);
        manifest.to_string().replace(&format!("\"version\":\"{version}\""), "\"version\":\"\"")
    };
    assert_eq!(neutral(then), neutral(now));
}

/// Blanks sizes and hashes of Arrow and Parquet files.
fn blank(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(blank),
        Value::Object(members) => {
            if members.get("path").and_then(Value::as_str).is_some_and(|path| path.ends_with(".arrow")) {
                members["bytes"] = Value::Null;
                members["sha256"] = Value::Null;
            }
            if members.contains_key("shards") && members.contains_key("record_index") {
                members["bytes"] = Value::Null;
            }
            members.values_mut().for_each(blank);
        }
        _ => {}
    }
}

/// Writes a dataset whose records mark the tokens to train on, as a program does. It has records without any token, with
/// none and with only ones, and runs of 1 to 299 tokens.
fn write_masks(format: &str, out: &Path) {
    let schema = Schema::text(IdWidth::U32, Vec::new()).unwrap().with_assistant_masks().unwrap();
    let options = WriterOptions {
        format: format.parse::<Format>().unwrap(),
        splits: vec!["train".to_owned(), "test".to_owned()],
        shard_records: Some(5),
        ..WriterOptions::new(2, "masks")
    };
    let writer = DatasetWriter::open(out, &schema, &options).unwrap();
    for number in 0..2 {
        let mut unit = writer.unit(number).unwrap();
        for i in (0..14u32).filter(|i| i % 2 == number) {
            let tokens = i * i * 11 % 700;
            let ids: Vec<u32> = (0..tokens).map(|at| (at * 7919 + i * 104_729) % 151_936).collect();
            let masks: Vec<u8> = match i {
                3 => vec![0; ids.len()],
                5 => vec![1; ids.len()],
                _ => (0..tokens).map(|at| u8::from(at % (23 * i) >= 20 * i || at % 31 == i)).collect(),
            };
            let key = format!("chat-{i}");
            let record = Record {
                values: vec![
                    Field::Text(key.into()),
                    Field::Ids(Ids::pack(IdWidth::U32, &ids).unwrap()),
                    Field::UInt(tokens.into()),
                    Field::Text(format!("chats.jsonl#{}", i * 1000).into()),
                    Field::Bytes(masks.into()),
                ],
            };
            unit.push(record, if i % 5 == 4 { "test" } else { "train" }).unwrap();
        }
        unit.finish().unwrap();
    }
    writer.commit(&Provenance::default()).unwrap();
}

/// Records, and per split the number of tokens to train on, in the manifest and of each record in the index.
fn masks_digest(path: &Path) -> Value {
    let dataset = Dataset::open(path).unwrap();
    let trained = |split: dsconvert::reader::Split| {
        let of_record = |i| split.entry(i).unwrap().column(dataset.schema(), "trained");
        let records: Vec<Option<u32>> = (0..split.len()).map(of_record).collect();
        (split.name().to_owned(), json!({"all": split.info().unwrap().trained_tokens, "records": records}))
    };
    let trained: BTreeMap<String, Value> = dataset.splits().map(trained).collect();
    json!({"records": digest(path), "trained": trained})
}

#[test]
fn golden_masks_are_read_and_still_written() {
    check_golden("masks", write_masks, masks_digest);
}

/// Images as planes of luma and chroma, in every format.
const PLANES: Case = Case {
    name: "planes",
    kind: "images",
    source: "photos",
    options: "--encode yuv420 --shard-records 2 --max-rejects 50%",
};

#[test]
fn golden_planes_are_read_and_still_written() {
    check_case(&PLANES);
}

/// Checks the golden datasets of a case that only the newest version has.
fn check_case(case: &Case) {
    check_golden(case.name, |format, out| convert(case, format, out), digest);
}

/// Checks the golden datasets `name` that only the newest version has: `write` still writes what is read, and `digest`
/// describes what is compared in all formats.
fn check_golden(name: &str, write: impl Fn(&str, &Path), digest: impl Fn(&Path) -> Value) {
    check_golden_in("v3", &FORMATS, name, write, digest);
}

/// Like [`check_golden`], for a manifest of `version`, and records that only `formats` hold.
fn check_golden_in(
    version: &str,
    formats: &[&str],
    name: &str,
    write: impl Fn(&str, &Path),
    digest: impl Fn(&Path) -> Value,
) {
    let golden = golden().join(version);
    let digest_path = golden.join(format!("{name}-digest.json"));
    let dir = tempfile::tempdir().unwrap();
    for &format in formats {
        let path = golden.join(format!("{name}-{format}"));
        if std::env::var_os("DSCONVERT_WRITE_GOLDEN").is_some() {
            if !path.exists() {
                write(format, &path);
            }
            if !digest_path.exists() {
                let digest = serde_json::to_string_pretty(&digest(&path)).unwrap();
                std::fs::write(&digest_path, digest + "\n").unwrap();
            }
        }
        let expected: Value = serde_json::from_slice(&std::fs::read(&digest_path).unwrap()).unwrap();
        assert_eq!(digest(&path), expected, "{format}");
        let report = verify(&Dataset::open(&path).unwrap(), &VerifyOptions::default());
        assert!(report.is_ok() && report.unlisted.is_empty(), "{format}: {:?}", report.problems);
        let out = dir.path().join(format);
        write(format, &out);
        let (then, now) = (files(&path), files(&out));
        assert_eq!(then.keys().collect::<Vec<_>>(), now.keys().collect::<Vec<_>>());
        assert_eq!(digest(&out), expected, "{format}");
        for (file, bytes) in &then {
            let by_byte = [".msgpack", ".pb", ".jsonl"].iter().any(|end| file.ends_with(end));
            assert!(!by_byte || bytes == &now[file], "{format}: {file} differs");
        }
        assert_same_manifest(&then["manifest.json"], &now["manifest.json"]);
    }
}

/// Schema, and per split the key, the checksum, the length and what `more` returns of each record, and the order by length.
fn digest_of_records(path: &Path, more: impl Fn(&dsconvert::reader::Split, u64) -> Value) -> Value {
    let dataset = Dataset::open(path).unwrap();
    let of_split = |split: dsconvert::reader::Split| {
        let row = |i| {
            let record = split.get(i).unwrap();
            let key = record.key().unwrap().to_owned();
            let crc32c = record.into_inner().crc32c();
            json!([key, crc32c, split.length(i).unwrap(), more(&split, i)])
        };
        let by_length: Vec<u64> = (0..split.len()).map(|rank| split.by_length(rank).unwrap()).collect();
        let records: Vec<Value> = (0..split.len()).map(row).collect();
        (split.name().to_owned(), json!({"records": records, "by_length": by_length}))
    };
    let splits: BTreeMap<String, Value> = dataset.splits().map(of_split).collect();
    json!({"schema": dataset.schema(), "splits": splits})
}

/// Images in aspect-ratio buckets, with their sizes, in every format.
const BUCKETS: Case = Case {
    name: "buckets",
    kind: "images",
    source: "photos",
    options: "--buckets 48x32,32x48,40x40 --enlarge --encode raw --shard-records 2 --max-rejects 50%",
};

#[test]
fn golden_buckets_are_read_and_still_written() {
    check_case(&BUCKETS);
}
