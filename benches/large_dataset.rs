//! Benchmark of opening a dataset of ten million records and of reading single records.
//!
//! ```text
//! DSCONVERT_BENCH_RECORDS=10000000 cargo bench --bench large_dataset
//! ```
//!
//! Writes synthetic datasets of 10³, 10⁵ and the given number of records into a temporary directory (about 100 bytes
//! per record, so the largest needs a gigabyte at a time). Each is read in a separate process, so that memory from
//! writing does not count. *open* opens the dataset, a split and both indexes, and reads one length. *resident* is the
//! memory of the process after that (`VmRSS`). *get* reads a random record and verifies its checksum, in a first and a
//! second pass.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs, unreachable_pub, dead_code)]

#[path = "../crates/reader/src/testing/dataset.rs"]
mod testing;

use std::path::Path;
use std::time::Instant;

use dsconvert::format::Format;
use dsconvert::reader::Dataset;
use dsconvert::sample::{Ids, Record, Value};
use dsconvert::schema::{IdWidth, Schema};

/// Environment variable that names the dataset to a reading process.
const READ: &str = "DSCONVERT_BENCH_READ";
/// Records per shard.
const SHARD: u64 = 1_000_000;
const GETS: u64 = 20_000;

fn main() {
    if let Some(dir) = std::env::var_os(READ) {
        return read(Path::new(&dir));
    }
    let most = std::env::var("DSCONVERT_BENCH_RECORDS").map_or(10_000_000, |n| n.parse().unwrap());
    println!(
        "{:10} {:>10} {:>9} {:>12} {:>10} {:>10}",
        "format", "records", "open ms", "resident MB", "get µs", "again µs"
    );
    for format in [Format::Arrow, Format::Msgpack, Format::Protobuf] {
        for records in [1_000, 100_000, most] {
            let dir = tempfile::tempdir().unwrap();
            write(dir.path(), format, records);
            print!("{:10} {records:>10}", format.name());
            std::io::Write::flush(&mut std::io::stdout()).unwrap();
            let status =
                std::process::Command::new(std::env::current_exe().unwrap()).env(READ, dir.path()).status();
            assert!(status.unwrap().success());
        }
    }
}

fn write(dir: &Path, format: Format, records: u64) {
    let mut shards = vec![SHARD; (records / SHARD) as usize];
    shards.extend((!records.is_multiple_of(SHARD)).then_some(records % SHARD));
    let schema = Schema::text(IdWidth::U16, vec![]).unwrap();
    testing::write_records(dir, format, schema, &[&shards], |i| {
        let key = format!("{i}");
        let ids: Vec<u32> = (0..1 + i % 9).map(|k| (i + k) as u32 % 65_536).collect();
        Record {
            values: vec![
                Value::Text(key.as_str().into()),
                Value::Ids(Ids::pack(IdWidth::U16, &ids).unwrap()),
                Value::UInt(ids.len() as u64),
                Value::Text(key.as_str().into()),
            ],
        }
    })
    .unwrap();
}

fn read(dir: &Path) {
    let start = Instant::now();
    let split = Dataset::open(dir).unwrap().split("train").unwrap();
    split.length(split.len() / 2).unwrap();
    split.by_length(split.len() / 2).unwrap();
    let open = start.elapsed().as_secs_f64() * 1e3;
    let resident = resident_mb();
    let gets = || {
        let mut state = 7u64;
        let start = Instant::now();
        for _ in 0..GETS {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let record = (state >> 20) % split.len();
            assert_eq!(split.get(record).unwrap().ordinal(), record);
        }
        start.elapsed().as_secs_f64() * 1e6 / GETS as f64
    };
    let (first, again) = (gets(), gets());
    println!(" {open:>9.2} {resident:>12.1} {first:>10.2} {again:>10.2}");
}

/// Returns the resident memory of this process on Linux; elsewhere 0.
fn resident_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
    kilobytes.unwrap_or_default() / 1024.0
}
