//! Tests of verification on intact, damaged and forged datasets.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use dsconvert_dataset::error::ErrorKind;
use dsconvert_dataset::manifest::resealed;
use dsconvert_dataset::schema::Kind;

use super::*;
use crate::tests::{all, copy, files, pristine};

fn check(dir: &Path) -> VerifyReport {
    verify(&Dataset::open(dir).unwrap(), &VerifyOptions::default())
}

#[test]
fn an_intact_dataset_has_no_problems_and_is_read_completely() {
    for (format, kind) in all() {
        let dir = copy(&pristine(format, kind));
        std::fs::write(dir.path().join("train/train-000009-00.pb"), "a leftover").unwrap();
        let dataset = Dataset::open(dir.path()).unwrap();
        let decoded = AtomicU64::new(0);
        let last = Mutex::new(None);
        let options = VerifyOptions {
            threads: 3,
            decode: Some(&|record| {
                assert!(
                    record.key().is_some_and(|key| key.ends_with(&record.ordinal().to_string()))
                        || record.ordinal() < 5
                );
                decoded.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }),
            progress: Some(&|progress| *last.lock().unwrap() = Some(progress)),
            ..VerifyOptions::default()
        };
        let report = verify(&dataset, &options);
        assert!(report.problems.is_empty() && !report.is_ok(), "{format} {kind:?}: {report:?}");
        assert_eq!((report.records, decoded.into_inner()), (28, 28));
        assert_eq!(report.unlisted, ["train/train-000009-00.pb"]);
        let last = last.into_inner().unwrap().unwrap();
        assert_eq!((last.total_bytes, last.total_records), (report.bytes, 28));
        assert_eq!(report.files, files(dir.path()).len() as u64 - 2); // the leftover and the manifest
        std::fs::remove_file(dir.path().join("train/train-000009-00.pb")).unwrap();
        assert!(check(dir.path()).is_ok());
    }
}

#[test]
fn unlisted_files_are_found_at_any_depth() {
    let dir = copy(&pristine(dsconvert_dataset::format::Format::Msgpack, Kind::Text));
    for folder in [".dsconvert/units", "train/deep/er", ".cache/huggingface/download"] {
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
    }
    // A working directory belongs to a run that will remove it.
    std::fs::write(dir.path().join(".dsconvert/units/x"), "x").unwrap();
    // Written by the client of the Hub.
    std::fs::write(dir.path().join(".cache/huggingface/download/x.lock"), "x").unwrap();
    assert!(check(dir.path()).is_ok());
    for file in ["NOTES.md", "index/.train.tmp", "train/deep/er/x"] {
        std::fs::write(dir.path().join(file), "x").unwrap();
    }
    std::os::unix::fs::symlink("/", dir.path().join("root")).unwrap();
    let report = check(dir.path());
    assert!(report.problems.is_empty() && !report.is_ok());
    assert_eq!(report.unlisted, ["NOTES.md", "index/.train.tmp", "root", "train/deep/er/x"]);
    let options = VerifyOptions { max_problems: 1, ..VerifyOptions::default() };
    let report = verify(&Dataset::open(dir.path()).unwrap(), &options);
    assert_eq!((report.unlisted.len(), report.more_unlisted, report.is_ok()), (1, 3, false));
}

#[test]
fn a_panic_in_a_check_is_a_problem() {
    let (format, kind) = all().next().unwrap();
    let dataset = Dataset::open(pristine(format, kind)).unwrap();
    for threads in [1, 3] {
        let decode = |record: &Record| {
            assert_ne!(record.ordinal(), 1, "deliberate test failure");
            Ok(())
        };
        let options = VerifyOptions { threads, decode: Some(&decode), ..VerifyOptions::default() };
        let report = verify(&dataset, &options);
        assert!(!report.is_ok());
        assert!(report.problems.iter().all(|e| e.kind() == ErrorKind::Internal), "{report:?}");
        assert!(report.problems[0].to_string().contains("deliberate test failure"), "{report:?}");
    }
}

#[test]
fn altered_and_missing_files_are_found() {
    for (format, kind) in all() {
        let dir = copy(&pristine(format, kind));
        for path in files(dir.path()) {
            let bytes = std::fs::read(&path).unwrap();
            if path.ends_with("manifest.json") || path.ends_with("shards.arrow") || bytes.is_empty() {
                continue; // checked when it is opened
            }
            for at in [0, bytes.len() / 3, bytes.len() - 1] {
                let mut altered = bytes.clone();
                altered[at] ^= 0x10;
                std::fs::write(&path, altered).unwrap();
                let report = check(dir.path());
                let name = path.file_name().unwrap().to_string_lossy();
                let names = |e: &Error| e.to_string().contains(name.as_ref());
                assert!(report.problems.iter().any(names), "{format} {name} {at}: {:?}", report.problems);
            }
            std::fs::remove_file(&path).unwrap();
            assert!(!check(dir.path()).is_ok(), "{}", path.display());
            std::fs::write(&path, bytes).unwrap();
        }
        assert!(check(dir.path()).is_ok());
    }
}

/// Writes `new` to `path` and the new hash to the manifest, so that only a check of the content detects it.
fn forge(dir: &Path, path: &str, new: &[u8]) {
    let manifest = dir.join("manifest.json");
    let json = std::fs::read_to_string(&manifest).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let written = dsconvert_dataset::storage::write_file(&dir.join(path), new).unwrap();
    fn replace(json: &mut serde_json::Value, path: &str, hash: &str, bytes: u64) {
        if json["path"] == path {
            json["sha256"] = hash.into();
            json["bytes"] = bytes.into();
        }
        match json {
            serde_json::Value::Array(values) => values.iter_mut().for_each(|v| replace(v, path, hash, bytes)),
            serde_json::Value::Object(values) => {
                values.values_mut().filter(|v| !v.is_null()).for_each(|v| replace(v, path, hash, bytes))
            }
            _ => {}
        }
    }
    for part in ["splits", "files"] {
        replace(&mut json[part], path, &written.sha256, written.bytes);
    }
    std::fs::write(manifest, resealed(&json).unwrap()).unwrap();
}

#[test]
fn inconsistent_indexes_are_found_even_if_their_hashes_match() {
    for (format, kind) in all() {
        for name in ["lengths-0000", "records-0000", "histogram"] {
            let dir = copy(&pristine(format, kind));
            let path = format!("index/validation.{name}.arrow");
            let mut bytes = std::fs::read(dir.path().join(&path)).unwrap();
            // The values: 5 numbers starting at 0, the ends of the runs, or the shard of each record.
            let footer = bytes.len()
                - 10
                - u32::from_le_bytes(bytes[bytes.len() - 10..][..4].try_into().unwrap()) as usize;
            let at = (0..footer - 8).rev().find(|&at| bytes[at] != 0 && bytes[at] != 0xff).unwrap();
            bytes[at] ^= 1;
            forge(dir.path(), &path, &bytes);
            let report = check(dir.path());
            assert!(!report.is_ok(), "{format} {kind:?} {name}");
            assert!(report.problems.iter().all(|e| e.kind() == ErrorKind::Corrupt));
            assert!(
                !report.problems.iter().any(|e| e.to_string().contains("SHA-256")),
                "{:?}",
                report.problems
            );
        }
    }
}

#[test]
fn counts_that_do_not_add_up_are_found() {
    let dir = copy(&pristine(dsconvert_dataset::format::Format::Msgpack, Kind::Text));
    forge(dir.path(), "rejects.jsonl", b"{}\n{}\n");
    let report = check(dir.path());
    assert_eq!(report.problems.len(), 1);
    assert!(report.problems[0].to_string().contains("rejects.jsonl"), "{:?}", report.problems);

    let dir = copy(&pristine(dsconvert_dataset::format::Format::Msgpack, Kind::Text));
    let path = dir.path().join("manifest.json");
    let json = std::fs::read_to_string(&path).unwrap();
    for (old, new) in [("\"empty\": 1", "\"empty\": 2"), ("\"p50\": ", "\"p50\": 1")] {
        let edited = serde_json::from_str(&json.replacen(old, new, 1)).unwrap();
        std::fs::write(&path, resealed(&edited).unwrap()).unwrap();
        assert_eq!(check(dir.path()).problems.len(), 1);
    }
}

#[test]
fn wrong_numbers_of_records_per_class_are_found() {
    for (format, kind) in all() {
        if kind != Kind::Images {
            continue;
        }
        let dir = copy(&pristine(format, kind));
        let path = dir.path().join("manifest.json");
        let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let counts = json["splits"]["train"]["class_counts"].as_array_mut().unwrap();
        counts.swap(0, 1);
        counts[0] = (counts[0].as_u64().unwrap() - 1).into();
        std::fs::write(&path, resealed(&json).unwrap()).unwrap();
        let problems = check(dir.path()).problems;
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert!(problem.to_string().contains("records per class of split \"train\""), "{problem}");
    }
}

#[test]
fn problems_do_not_depend_on_threads_and_are_counted_beyond_the_limit() {
    let dataset = Dataset::open(pristine(dsconvert_dataset::format::Format::Msgpack, Kind::Images)).unwrap();
    let decode: &DecodeFn<'_> = &|record| match record.ordinal() % 2 {
        0 => Ok(()),
        _ => Err("not an image".to_owned()),
    };
    let run = |threads, max_problems| {
        let options =
            VerifyOptions { threads, max_problems, decode: Some(decode), ..VerifyOptions::default() };
        let report = verify(&dataset, &options);
        (report.problems.iter().map(Error::to_string).collect::<Vec<_>>(), report.more_problems)
    };
    let (all, more) = run(1, 100);
    assert_eq!((all.len(), more), (13, 0));
    assert!(all[0].ends_with("train-000000-00.msgpack, row 1: not an image"), "{}", all[0]);
    assert_eq!(run(7, 100), (all.clone(), 0));
    assert_eq!(run(7, 4), (all[..4].to_vec(), 9));
}
