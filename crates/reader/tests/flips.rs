//! Flipped bits in a shard cause errors, never a wrong record, and never end the process.
//!
//! A failed allocation or a stack overflow aborts the process, so the flips are made in child processes with a limited
//! address space. They run this test binary again.

#![allow(clippy::unwrap_used)] // The exception for tests does not cover helpers.
#![cfg(target_os = "linux")]

#[allow(dead_code)] // This test uses only a part.
mod testing {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/testing/dataset.rs"));
}

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dsconvert_reader::batch::{BatchOptions, BatchSize};
use dsconvert_reader::format::Format;
use dsconvert_reader::loader::{Column, ImageBatchOptions, Loader, LoaderOptions};
use dsconvert_reader::sample::{self, Value};
use dsconvert_reader::schema::{INPUT_IDS, Kind};
use dsconvert_reader::{Dataset, Record};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Number of bytes at either end of a shard in which a bit of every byte is flipped.
const DENSE_BYTES: u64 = 1 << 10;
/// Number of bytes at either end of a shard in which a bit of some bytes is flipped.
const END_BYTES: u64 = 2 << 10;
/// Distance of the flipped bytes outside of [`DENSE_BYTES`]. Odd, so that all bits of lengths are covered.
const STEP: u64 = 5;
/// Address space of a process: far above what these shards need, far below what damage may claim.
const ADDRESS_SPACE: u64 = 3 << 30;
/// Time limit for the flips of one dataset, generous enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(900);
/// Records of a dataset, all in one shard.
const RECORDS: u64 = 10;
/// Environment variable that names the dataset for a child.
const CASE: &str = "DSCONVERT_FLIPS_CASE";
/// Environment variable that names the file to which a child writes its progress and failures.
const REPORT: &str = "DSCONVERT_FLIPS_REPORT";

/// Returns record `i`, with enough bytes for several pages.
fn record(kind: Kind, i: u64) -> sample::Record {
    let mut record = testing::record(kind, i);
    if kind == Kind::Images {
        record.values[1] = Value::Bytes((0..4000 + i).map(|k| (k * k % 251 + i) as u8).collect());
    }
    record
}

fn cases() -> Vec<(Format, Kind)> {
    Format::ALL.into_iter().flat_map(|format| [Kind::Images, Kind::Text].map(|kind| (format, kind))).collect()
}

#[test]
fn flips_at_both_ends_of_a_shard_are_errors() {
    let mut waiting: Vec<usize> = (0..cases().len()).collect();
    let mut running: Vec<(usize, Child, Instant)> = Vec::new();
    let most = std::thread::available_parallelism().map_or(2, usize::from);
    let mut failed = Vec::new();
    let reports = tempfile::tempdir().unwrap();
    let report = |case: usize| reports.path().join(case.to_string());
    while !(waiting.is_empty() && running.is_empty()) {
        while running.len() < most
            && let Some(case) = waiting.pop()
        {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "one_process", "--ignored", "--nocapture"]);
            command.env(CASE, case.to_string()).env(REPORT, report(case)).env("RUST_BACKTRACE", "0");
            let child =
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            running.push((case, child, Instant::now()));
        }
        std::thread::sleep(Duration::from_millis(50));
        running.retain_mut(|(case, child, started)| {
            if started.elapsed() > TIMEOUT {
                child.kill().unwrap();
            }
            let Some(status) = child.try_wait().unwrap() else { return true };
            if !status.success() {
                let noted = std::fs::read_to_string(report(*case)).unwrap_or_default();
                failed.push((cases()[*case], status, noted));
            }
            false
        });
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// One dataset, in a process started by the test above.
#[test]
#[ignore = "started by flips_at_both_ends_of_a_shard_are_errors"]
fn one_process() {
    let Some(case) = std::env::var(CASE).ok().and_then(|case| case.parse::<usize>().ok()) else { return };
    let (format, kind) = cases()[case];
    let report = std::path::PathBuf::from(std::env::var_os(REPORT).unwrap());
    limit_address_space();
    // Third-party decoders panic on some damage; the reader catches these panics. Printing each one would drown the
    // output.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let flipped = std::panic::catch_unwind(|| flip_all(format, kind, &report));
    std::panic::set_hook(hook);
    match flipped {
        Ok(failed) => {
            std::fs::write(&report, failed.join("\n")).unwrap();
            assert!(failed.is_empty());
        }
        Err(_) => panic!("{format} {kind:?}: a panic outside of the reader"),
    }
}

fn limit_address_space() {
    let limit = Rlimit { current: Some(ADDRESS_SPACE), maximum: Some(ADDRESS_SPACE) };
    setrlimit(Resource::As, limit).unwrap();
}

fn flip_all(format: Format, kind: Kind, report: &Path) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let schema = testing::schema(kind).unwrap();
    testing::write_records(dir.path(), format, schema, &[&[RECORDS]], |i| record(kind, i)).unwrap();
    let expected: Vec<sample::Record> = (0..RECORDS).map(|i| record(kind, i)).collect();
    let shard = dir.path().join(format!("train/train-000000-00.{}", format.extension()));
    assert_eq!(use_dataset(dir.path(), kind, &expected), Ok(true), "before any flip");
    let file = File::options().read(true).write(true).open(&shard).unwrap();
    let len = file.metadata().unwrap().len();
    let report = File::create(report).unwrap();
    let mut failed = Vec::new();
    let mut errors = 0;
    let is_flipped = |at: &u64| {
        let from_end = (*at).min(len - 1 - at);
        from_end < DENSE_BYTES || (from_end < END_BYTES && from_end.is_multiple_of(STEP))
    };
    for at in (0..len).filter(is_flipped) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        // Neighboring bytes get different bits flipped, so that all bits of lengths are covered.
        let flipped = [byte[0] ^ 1 << (at * 5 % 8)];
        file.write_all_at(&flipped, at).unwrap();
        report.write_all_at(format!("byte {at:8}").as_bytes(), 0).unwrap();
        match std::panic::catch_unwind(|| use_dataset(dir.path(), kind, &expected)) {
            Ok(Ok(whole)) => errors += u32::from(!whole),
            Ok(Err(wrong)) => failed.push(format!("byte {at}: {wrong}")),
            Err(_) => failed.push(format!("byte {at}: panic")),
        }
        file.write_all_at(&byte, at).unwrap();
    }
    assert!(errors > 100, "the flips are detected");
    failed
}

/// Reads everything in every way. Returns whether nothing failed, or the description of a wrong record.
fn use_dataset(dir: &Path, kind: Kind, expected: &[sample::Record]) -> Result<bool, String> {
    let Ok(dataset) = Dataset::open(dir) else { return Ok(false) };
    let Ok(split) = dataset.split("train") else { return Ok(false) };
    let mut whole = true;
    let mut check = |ordinal: u64, values: Option<&[Value]>| match values {
        Some(values) if values == expected[ordinal as usize].values => Ok(()),
        Some(_) => Err(format!("record {ordinal} is wrong")),
        None => {
            whole = false;
            Ok(())
        }
    };
    for i in [0, 7, RECORDS - 1] {
        check(i, split.get(i).ok().as_ref().map(Record::values))?;
    }
    let slice = [3, 9, 4, 3];
    let records = split.get_many(&slice).ok();
    for (slot, &i) in slice.iter().enumerate() {
        check(i, records.as_ref().map(|records| records[slot].values()))?;
    }
    for (i, record) in (0..).zip(split.iter()) {
        check(i, record.ok().as_ref().map(Record::values))?;
    }
    let projected = split.select(&["key"]).map_err(|e| e.to_string())?;
    if let Ok(record) = projected.get(5)
        && record.values() != &expected[5].values[..1]
    {
        return Err("the projection of record 5 is wrong".to_owned());
    }
    let image = ImageBatchOptions { decode: false, ..ImageBatchOptions::default() };
    let batches = BatchOptions::new(BatchSize::BatchSize(4));
    let options = LoaderOptions { image, threads: 1, ..LoaderOptions::new(batches) };
    let mut loader = Loader::new(split, options).map_err(|e| e.to_string())?;
    loop {
        match loader.next_batch() {
            Ok(None) => return Ok(whole),
            Err(_) => return Ok(false),
            Ok(Some(batch)) => {
                for (row, &ordinal) in batch.records().iter().enumerate() {
                    let written = &expected[ordinal as usize].values;
                    let right = match (kind, batch.get("image")) {
                        (Kind::Images, Some(Column::Bytes(images))) => {
                            images[row].as_ref().map(|image| Value::Bytes(image.clone())).as_ref()
                                == Some(&written[1])
                        }
                        (Kind::Images, _) => false,
                        (Kind::Records, _) => false,
                        (Kind::Text, _) => ids_of_row(&batch, row) == ids(&written[1]),
                    };
                    if !right {
                        return Err(format!("record {ordinal} of a batch is wrong"));
                    }
                }
            }
        }
    }
}

fn ids(value: &Value) -> Option<Vec<i64>> {
    match value {
        Value::Ids(ids) => Some(ids.iter().map(i64::from).collect()),
        _ => None,
    }
}

/// Returns the ids of a row of a padded batch, without the padding.
fn ids_of_row(batch: &dsconvert_reader::loader::Batch, row: usize) -> Option<Vec<i64>> {
    let ids = batch.array(INPUT_IDS)?.as_slice::<i64>()?;
    let lengths = batch.array("lengths")?.as_slice::<i64>()?;
    let width = ids.len() / lengths.len();
    Some(ids[row * width..][..lengths[row] as usize].to_vec())
}
