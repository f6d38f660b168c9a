//! Datasets written through the public interface: restarts, several processes, refusals, and the lists of items.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "this is a test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use dsconvert_reader::Dataset;
use dsconvert_writer::error::{Error, ErrorKind, Result};
use dsconvert_writer::format::Format;
use dsconvert_writer::sample::{Ids, Record, Reject, RejectCode, Value};
use dsconvert_writer::schema::{Field, FieldType, IdWidth, Schema};
use dsconvert_writer::{
    DatasetWriter, Existing, Placement, Provenance, ResumeCheck, UnitWriter, WriterOptions,
};

use crate::tree::tree;

#[allow(dead_code, reason = "its main function is not called")]
#[path = "../examples/write_and_read.rs"]
mod example;

#[allow(unreachable_pub, reason = "this is a test, not a library")]
#[path = "../../../tests/shared/tree.rs"]
mod tree;

const UNITS: u32 = 5;
/// Names the output directory of the child process of a test, and the number of records after which it dies.
const CHILD: [&str; 2] = ["DSCONVERT_TEST_OUT", "DSCONVERT_TEST_RECORDS"];
const RESUME: Existing = Existing::Resume(ResumeCheck::Sizes);

fn schema() -> Schema {
    let weight = Field::nullable("weight", FieldType::Float32);
    Schema::text(IdWidth::U16, vec![Field::nullable("score", FieldType::Float64), weight]).unwrap()
}

fn options(format: Format) -> WriterOptions {
    let splits = vec!["train".to_owned(), "test".to_owned()];
    WriterOptions {
        format,
        splits,
        existing: RESUME,
        shard_records: Some(4),
        ..WriterOptions::new(UNITS, "v1")
    }
}

/// Returns a record with `ids`, whose key is `key`.
fn record(key: &str, ids: &[u32]) -> Record {
    let length = Value::UInt(ids.len() as u64);
    let ids = Value::Ids(Ids::pack(IdWidth::U16, ids).unwrap());
    let (key, origin) = (Value::Text(key.into()), Value::Text("test".into()));
    Record { values: vec![key, ids, length, origin, Value::Null, Value::Null] }
}

/// Writes the records of unit `number`: 9 in one split, then 2 of one item in the other. Calls `before` each of the 9.
fn write_with(mut unit: UnitWriter, number: u32, mut before: impl FnMut()) -> Result<()> {
    for i in 0..9 {
        before();
        let ids: Vec<u32> = (0..=number * 9 + i).collect();
        unit.push(record(&format!("{number}-{i}"), &ids), "train")?;
    }
    unit.push(record(&format!("{number}-a"), &[7]), "test")?;
    unit.push(record(&format!("{number}-b"), &[8, 9]), Placement { split: "test", continues: true })?;
    unit.finish().map(drop)
}

fn write(unit: UnitWriter, number: u32) -> Result<()> {
    write_with(unit, number, || {})
}

fn write_all(out: &Path, format: Format) {
    let writer = DatasetWriter::open(out, &schema(), &options(format)).unwrap();
    for number in writer.unfinished().unwrap() {
        write(writer.unit(number).unwrap(), number).unwrap();
    }
    writer.commit(&Provenance::default()).unwrap();
}

fn assert_same(a: &Path, b: &Path) {
    let (a, b) = (tree(a), tree(b));
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (name, bytes) in &a {
        assert!(bytes == &b[name], "{name} differs");
    }
}

/// Checks that an operation is refused with a message that contains `what`.
#[track_caller]
fn refused<T>(result: Result<T>, kind: ErrorKind, what: &str) -> Error {
    let error = result.err().expect("it is refused");
    assert!(error.kind() == kind && error.to_string().contains(what), "{error}");
    error
}

#[test]
fn the_example_writes_what_it_reads() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let records = example::write_and_read(&dir.path().join("out")).unwrap();
        let keys: Vec<&str> = records.iter().filter_map(|record| record.split(':').next()).collect();
        let expected = [2, 4, 6, 8, 1, 3, 5, 7, 9].map(|n| format!("squares-{n}"));
        assert_eq!(keys, expected);
        assert_eq!(records[1], "squares-4: [0, 1, 4, 9]");
    }
}

#[test]
fn every_format_returns_the_records_and_their_order() {
    for format in Format::ALL {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        write_all(&out, format);
        let dataset = Dataset::open(&out).unwrap();
        let (train, test) = (dataset.split("train").unwrap(), dataset.split("test").unwrap());
        let lengths: Vec<u64> = (0..train.len()).map(|i| train.length(i).unwrap()).collect();
        assert_eq!(lengths, (1..=45).collect::<Vec<_>>());
        for (at, read) in train.iter().enumerate() {
            let read = read.unwrap();
            assert_eq!(read.key(), Some(format!("{}-{}", at / 9, at % 9).as_str()));
            assert_eq!(
                read.input_ids().unwrap().iter().collect::<Vec<_>>(),
                (0..=at as u32).collect::<Vec<_>>()
            );
        }
        assert_eq!(test.len(), 10);
        // 4 records per shard: 9 records of a unit are 3 shards, and 2 are one.
        assert_eq!((train.shards().len(), test.shards().len()), (15, 5));
        let counts = &dataset.manifest().counts;
        assert_eq!((counts.found, counts.converted, counts.rejected), (50, 50, 0));
        assert_eq!(test.info().unwrap().counts.converted, 5, "two records are of one item");
    }
}

/// Runs only as a child process of the next test: writes units, and dies without any cleanup.
#[test]
fn child_that_dies() {
    let [Some(out), Some(records)] = CHILD.map(std::env::var_os) else { return };
    let mut left: u32 = records.to_str().unwrap().parse().unwrap();
    let writer = DatasetWriter::open(out, &schema(), &options(Format::Msgpack)).unwrap();
    for number in writer.unfinished().unwrap() {
        let die = || match left.checked_sub(1) {
            Some(fewer) => left = fewer,
            None => std::process::abort(),
        };
        write_with(writer.unit(number).unwrap(), number, die).unwrap();
    }
    std::process::abort();
}

#[test]
fn a_writer_that_died_anywhere_is_continued_with_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, out) = (dir.path().join("whole"), dir.path().join("out"));
    write_all(&whole, Format::Msgpack);
    let mut finished = Vec::new();
    for records in [0, 5, 9, 14, 40] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "child_that_dies"]).env(CHILD[0], &out).env(CHILD[1], records.to_string());
        assert!(!child.output().unwrap().status.success());
        assert!(!out.join("manifest.json").exists());
        let writer = DatasetWriter::open(&out, &schema(), &options(Format::Msgpack)).unwrap();
        finished.push(UNITS as usize - writer.unfinished().unwrap().len());
    }
    assert_eq!(finished, [0, 0, 1, 2, 5], "each continues with the unfinished units");
    write_all(&out, Format::Msgpack);
    assert_same(&whole, &out);
}

#[test]
fn a_damaged_unit_is_listed_and_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, out) = (dir.path().join("whole"), dir.path().join("out"));
    write_all(&whole, Format::Arrow);
    let writer = DatasetWriter::open(&out, &schema(), &options(Format::Arrow)).unwrap();
    for number in 0..UNITS {
        write(writer.unit(number).unwrap(), number).unwrap();
    }
    let done = out.join(".dsconvert/units/000003/done");
    std::fs::remove_file(done.join("train-000003-01.arrow")).unwrap();
    assert_eq!(writer.unfinished().unwrap(), [3]);
    write(writer.unit(3).unwrap(), 3).unwrap();
    writer.commit(&Provenance::default()).unwrap();
    assert_same(&whole, &out);
}

#[test]
fn processes_that_join_write_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, out) = (dir.path().join("whole"), dir.path().join("out"));
    let (schema, options) = (schema(), options(Format::Parquet));
    write_all(&whole, Format::Parquet);
    let join = || DatasetWriter::join(&out, &schema, &options);
    refused(join(), ErrorKind::Usage, "no process has opened this output");
    let first = DatasetWriter::open(&out, &schema, &options).unwrap();
    refused(join(), ErrorKind::Usage, "another dsconvert");
    drop(first);
    let others = WriterOptions { fingerprint: "v2".into(), ..options.clone() };
    refused(DatasetWriter::join(&out, &schema, &others), ErrorKind::Usage, "with other options");
    let (one, two) = (join().unwrap(), join().unwrap());
    refused(DatasetWriter::open(&out, &schema, &options), ErrorKind::Usage, "another dsconvert");
    std::thread::scope(|scope| {
        // Unit 2 is written by both; the first result stays.
        scope.spawn(|| (0..3).for_each(|number| write(one.unit(number).unwrap(), number).unwrap()));
        scope.spawn(|| (2..UNITS).for_each(|number| write(two.unit(number).unwrap(), number).unwrap()));
    });
    let mut different = two.unit(2).unwrap();
    different.push(record("x", &[1]), "train").unwrap();
    refused(different.finish(), ErrorKind::NotCommitted, "with different records");
    refused(one.commit(&Provenance::default()), ErrorKind::Usage, "several processes");
    drop(two);
    let last = DatasetWriter::open(&out, &schema, &options).unwrap();
    assert!(last.unfinished().unwrap().is_empty());
    last.commit(&Provenance::default()).unwrap();
    assert_same(&whole, &out);
}

#[test]
fn a_committed_dataset_is_complete_for_the_same_options_only() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    write_all(&out, Format::Msgpack);
    let before = tree(&out);
    let same = DatasetWriter::open(&out, &schema(), &options(Format::Msgpack)).unwrap();
    assert_eq!(same.committed().unwrap().counts.found, 50);
    assert!(same.unfinished().unwrap().is_empty());
    refused(same.unit(0), ErrorKind::Usage, "already committed");
    assert_eq!(same.commit(&Provenance::default()).unwrap().counts.found, 50);
    let fewer = WriterOptions { units: 4, ..options(Format::Msgpack) };
    refused(DatasetWriter::open(&out, &schema(), &fewer), ErrorKind::Usage, "with other options");
    let new = WriterOptions { existing: Existing::Refuse, ..options(Format::Msgpack) };
    refused(DatasetWriter::open(&out, &schema(), &new), ErrorKind::Usage, "a dataset already exists");
    assert_eq!(tree(&out), before);
    let replaced = WriterOptions { existing: Existing::Overwrite, ..fewer };
    let writer = DatasetWriter::open(&out, &schema(), &replaced).unwrap();
    refused(writer.commit(&Provenance::default()), ErrorKind::NotCommitted, "4 of 4 units are not finished");
}

#[test]
fn the_fingerprint_depends_on_the_records() {
    let fingerprint = |ids: &[u32]| {
        let dir = tempfile::tempdir().unwrap();
        let options = WriterOptions::new(1, "v1");
        let writer = DatasetWriter::open(dir.path(), &schema(), &options).unwrap();
        let mut unit = writer.unit(0).unwrap();
        unit.push(record("a", ids), "train").unwrap();
        unit.finish().unwrap();
        writer.commit(&Provenance::default()).unwrap().fingerprint
    };
    assert_eq!(fingerprint(&[1, 2]), fingerprint(&[1, 2]));
    assert_ne!(fingerprint(&[1, 2]), fingerprint(&[1, 3]));
}

#[test]
fn a_key_that_occurs_twice_is_never_committed() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let writer = DatasetWriter::open(&out, &schema(), &options(Format::Arrow)).unwrap();
    for number in 0..UNITS {
        let mut unit = writer.unit(number).unwrap();
        // In different units and splits.
        let (key, split) = if number == 4 { ("1".into(), "test") } else { (number.to_string(), "train") };
        unit.push(record(&key, &[1]), split).unwrap();
        unit.finish().unwrap();
    }
    let error = refused(writer.commit(&Provenance::default()), ErrorKind::NotCommitted, "\"1\"");
    assert!(error.remedy().is_some());
    assert!(!out.exists(), "the units can never become a dataset");
}

#[test]
fn invalid_records_are_refused_and_the_unit_continues() {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions::new(1, "v1");
    let writer = DatasetWriter::open(dir.path(), &schema(), &options).unwrap();
    let mut unit = writer.unit(0).unwrap();
    let with = |at: usize, value: Value| {
        let mut record = record("k", &[1, 2]);
        record.values[at] = value;
        record
    };
    let wide = Ids::pack(IdWidth::U32, &[1, 2]).unwrap();
    for (invalid, what) in [
        (Record { values: vec![] }, "the record has 0 values, but its schema has 6 fields"),
        (with(0, Value::Null), "field \"key\" is null; expected required string"),
        (
            with(1, Value::Ids(wide)),
            "field \"input_ids\" holds ids of 4 bytes each; expected required ids<u16>",
        ),
        (with(2, Value::UInt(3)), "2 ids, but its length field is 3"),
        (with(3, Value::UInt(3)), "field \"origin\" holds 3; expected required string"),
        (with(4, Value::Text("x".into())), "field \"score\" holds text; expected float64"),
        (with(5, Value::Float(0.1)), "field \"weight\" holds 0.1; expected float32"),
    ] {
        refused(unit.push(invalid, "train"), ErrorKind::Usage, what);
    }
    refused(unit.push(record("k", &[1]), "tset"), ErrorKind::Usage, "the splits are train");
    unit.push(with(4, Value::Float(0.5)), "train").unwrap();
    unit.finish().unwrap();
    refused(writer.unit(1), ErrorKind::Usage, "there is no unit 1; the dataset has 1 unit");
    assert_eq!(writer.commit(&Provenance::default()).unwrap().counts.found, 1);
    for (wrong, what) in [
        (WriterOptions::new(0, "v1"), "at least one unit"),
        (WriterOptions { splits: vec![], ..WriterOptions::new(1, "v1") }, "at least one split"),
        (WriterOptions { splits: vec!["a".into(); 2], ..WriterOptions::new(1, "v1") }, "their names differ"),
        (WriterOptions { splits: vec!["a/b".into()], ..WriterOptions::new(1, "v1") }, "a/b"),
    ] {
        let out = dir.path().join("other");
        refused(DatasetWriter::open(&out, &schema(), &wrong), ErrorKind::Usage, what);
        assert!(!out.exists());
    }
}

#[test]
fn rejects_filtered_items_and_duplicates_are_counted_and_listed() {
    let dir = tempfile::tempdir().unwrap();
    let schema = schema();
    let open = |max: &str, existing| {
        let options =
            WriterOptions { max_rejects: max.parse().unwrap(), existing, ..WriterOptions::new(2, "v1") };
        DatasetWriter::open(dir.path(), &schema, &options).unwrap()
    };
    let writer = open("0", Existing::Refuse);
    for number in 0..2 {
        let mut unit = writer.unit(number).unwrap();
        unit.push(record(&format!("r{number}"), &[1]), "train").unwrap();
        let reject = Reject::new(RejectCode::InvalidValue, "no number");
        unit.reject(format!("a{number}"), reject, "train").unwrap();
        unit.filter(format!("b{number}"), "too short", "train").unwrap();
        unit.duplicate(format!("c{number}"), "r0", "train").unwrap();
        unit.finish().unwrap();
    }
    let error =
        refused(writer.commit(&Provenance::default()), ErrorKind::NotCommitted, "2 of 8 items were rejected");
    assert!(error.to_string().contains("a0: no number (invalid-value)"), "{error}");
    let manifest = open("2", RESUME).commit(&Provenance::default()).unwrap();
    let counts = &manifest.counts;
    assert_eq!(
        (counts.found, counts.converted, counts.rejected, counts.filtered, counts.duplicates),
        (8, 2, 2, 2, 2)
    );
    assert_eq!(manifest.reject_codes, BTreeMap::from([("invalid-value".to_owned(), 2)]));
    let list = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(list("duplicates.jsonl").lines().count(), 2);
    assert_eq!(
        list("filtered.jsonl").lines().next(),
        Some(r#"{"origin":"b0","split":"train","reason":"too short"}"#)
    );
    assert!(list("rejects.jsonl").contains(r#""origin":"a1","split":"train","code":"invalid-value""#));
}

#[test]
fn a_commit_that_fails_keeps_units_only_for_a_call_that_continues() {
    for is_resumable in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let options =
            WriterOptions { max_rejects: "0".parse().unwrap(), is_resumable, ..WriterOptions::new(1, "v1") };
        let writer = DatasetWriter::open(&out, &schema(), &options).unwrap();
        let mut unit = writer.unit(0).unwrap();
        unit.push(record("a", &[1]), "train").unwrap();
        unit.reject("b", Reject::new(RejectCode::InvalidValue, "no number"), "train").unwrap();
        unit.finish().unwrap();
        refused(writer.commit(&Provenance::default()), ErrorKind::NotCommitted, "1 of 2 items was rejected");
        assert_eq!(out.exists(), is_resumable);
    }
}

/// Returns a record whose masks are `masks`, with one id for each.
fn masked(key: &str, masks: &[u8]) -> Record {
    let ids: Vec<u32> = (0..masks.len() as u32).collect();
    let mut values = record(key, &ids).values;
    values.insert(4, Value::Bytes(masks.to_vec().into()));
    Record { values }
}

#[test]
fn masks_are_read_verified_and_counted_in_every_format() {
    let schema = schema().with_assistant_masks().unwrap();
    let masks =
        |i: usize| -> Vec<u8> { (0..i * 40 % 700).map(|at| u8::from(at % 97 > 10 * i % 97)).collect() };
    let ones = |range: std::ops::Range<usize>| -> Vec<u32> {
        range.map(|i| masks(i).iter().map(|&mask| u32::from(mask)).sum()).collect()
    };
    for format in Format::ALL {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let writer = DatasetWriter::open(&out, &schema, &options(format)).unwrap();
        for number in 0..UNITS as usize {
            let mut unit = writer.unit(number as u32).unwrap();
            for i in 10 * number..10 * number + 10 {
                unit.push(masked(&format!("{i}"), &masks(i)), if i % 10 < 8 { "train" } else { "test" })
                    .unwrap();
            }
            let mut wrong = masked("wrong", &[0, 1]);
            wrong.values[4] = Value::Bytes(vec![1].into());
            refused(
                unit.push(wrong, "train"),
                ErrorKind::Usage,
                "2 ids, but 1 values in \"assistant_masks\"",
            );
            refused(unit.push(masked("wrong", &[2]), "train"), ErrorKind::Usage, "other than 0 and 1");
            refused(unit.push(record("wrong", &[1]), "train"), ErrorKind::Usage, "6 values");
            unit.finish().unwrap();
        }
        writer.commit(&Provenance::default()).unwrap();
        let dataset = Dataset::open(&out).unwrap();
        let report = dsconvert_reader::verify(&dataset, &dsconvert_reader::VerifyOptions::default());
        assert!(report.is_ok(), "{format}: {:?}", report.problems);
        let train = dataset.split("train").unwrap();
        let expected: Vec<usize> = (0..50).filter(|i| i % 10 < 8).collect();
        for (at, &i) in expected.iter().enumerate() {
            let (read, entry) = (train.get(at as u64).unwrap(), train.entry(at as u64).unwrap());
            assert_eq!(read.bytes("assistant_masks").map(|masks| masks.to_vec()), Some(masks(i)), "{format}");
            assert_eq!(entry.column(&schema, "trained"), ones(i..i + 1).first().copied());
        }
        let all: u64 = expected.iter().flat_map(|&i| ones(i..i + 1)).map(u64::from).sum();
        assert_eq!(train.info().unwrap().trained_tokens, Some(all));
        let both: Option<u64> = dataset.manifest().splits.values().map(|split| split.trained_tokens).sum();
        assert_eq!(both, Some(ones(0..50).into_iter().map(u64::from).sum()));
        let path = out.join("manifest.json");
        let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        json["splits"]["train"]["trained_tokens"] = (all - 1).into();
        std::fs::write(&path, dsconvert_reader::manifest::resealed(&json).unwrap()).unwrap();
        let altered = Dataset::open(&out).unwrap();
        let report = dsconvert_reader::verify(&altered, &dsconvert_reader::VerifyOptions::default());
        let [problem] = &report.problems[..] else { panic!("{:?}", report.problems) };
        assert!(problem.to_string().contains("tokens to train on, but"), "{problem}");
    }
    // A schema whose manifest could not be read is refused before anything is written.
    let dir = tempfile::tempdir().unwrap();
    let mut wrong = schema;
    wrong.fields.swap(4, 5);
    let out = dir.path().join("out");
    refused(DatasetWriter::open(&out, &wrong, &options(Format::Arrow)), ErrorKind::Usage, "assistant_masks");
    assert!(!out.exists());
}

#[test]
fn fields_are_columns_of_the_record_index_in_every_format() {
    let fields =
        vec![Field::required("patches", FieldType::UInt32), Field::required("frames", FieldType::UInt64)];
    let schema = Schema::text(IdWidth::U16, fields).unwrap().with_indexed(&["frames", "patches"]).unwrap();
    let of = |i: u32, frames: u64| {
        let mut record = record(&format!("{i}"), &[1, 2]);
        record.values.splice(4.., [Value::UInt((i * 7).into()), Value::UInt(frames)]);
        record
    };
    for format in Format::ALL {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let options = WriterOptions { units: 2, ..options(format) };
        let writer = DatasetWriter::open(&out, &schema, &options).unwrap();
        for number in 0..2 {
            let mut unit = writer.unit(number).unwrap();
            let refused = unit.push(of(9, 1 << 32), "train").unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Usage);
            assert!(refused.to_string().contains("frames"), "{refused}");
            for i in 0..6 {
                unit.push(of(number * 6 + i, u64::from(i) + 1), "train").unwrap();
            }
            unit.finish().unwrap();
        }
        // Units of an interrupted run keep the columns.
        drop(writer);
        DatasetWriter::open(&out, &schema, &options).unwrap().commit(&Provenance::default()).unwrap();
        let dataset = Dataset::open(&out).unwrap();
        assert_eq!(dataset.manifest().manifest_version, 4);
        let split = dataset.split("train").unwrap();
        for i in 0..12u32 {
            assert_eq!(split.index_column(i.into(), "patches").unwrap(), Some(i * 7), "{format}");
            assert_eq!(split.index_column(i.into(), "frames").unwrap(), Some(i % 6 + 1), "{format}");
            assert_eq!(split.index_column(i.into(), "length").unwrap(), None);
            assert_eq!(
                split.select(&["key"]).unwrap().index_column(i.into(), "patches").unwrap(),
                Some(i * 7)
            );
        }
        let report = dsconvert_reader::verify(&dataset, &dsconvert_reader::VerifyOptions::default());
        assert!(report.is_ok(), "{format}: {:?}", report.problems);
        // Without the columns, it is another dataset.
        let plain = Schema { indexed: Vec::new(), ..schema.clone() };
        assert!(DatasetWriter::open(&out, &plain, &WriterOptions { existing: RESUME, ..options }).is_err());
    }
}
