//! Benchmark of random reads from the four formats: one record at a time, and batches of 256.
//!
//! ```text
//! DSCONVERT_BENCH_CORPUS=corpus.jsonl cargo bench --bench random_read
//! ```
//!
//! Without the variable, a corpus of `fixtures/` is used. The checksum of every record is verified. The order is
//! pseudo-random and fixed. Microseconds are per record, from the best of several rounds.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs, unreachable_pub, dead_code)]

mod common;

use std::hint::black_box;

use common::{best, convert_text, path_or_fixture};
use dsconvert::format::Format;
use dsconvert::reader::Dataset;
use dsconvert::transform::text::{Tokenizer, TokenizerOptions};

/// Reads per round.
const READS: u64 = 4096;
/// Records per `get_many`.
const BATCH: usize = 256;

fn main() {
    let path = path_or_fixture("DSCONVERT_BENCH_CORPUS", "corpus/stories.jsonl");
    let dir = tempfile::tempdir().unwrap();
    println!("{:10} {:>9} {:>12} {:>12} {:>12}", "format", "records", "open µs", "get µs", "get_many µs");
    for format in Format::ALL {
        let out = dir.path().join(format.name());
        let bytes = Tokenizer::bytes(TokenizerOptions::default()).unwrap();
        drop(convert_text(&path, bytes, format, &out, 2));
        let open = best(|| drop(Dataset::open(&out).unwrap().split("train").unwrap()));
        let split = Dataset::open(&out).unwrap().split("train").unwrap();
        let mut state = 7u64;
        let order: Vec<u64> = (0..READS)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % split.len()
            })
            .collect();
        let single = best(|| {
            for &record in &order {
                black_box(split.get(record).unwrap());
            }
        });
        let many = best(|| {
            for batch in order.chunks(BATCH) {
                black_box(split.get_many(batch).unwrap());
            }
        });
        let micros = |seconds: f64| seconds * 1e6 / READS as f64;
        println!(
            "{:10} {:>9} {:>12.0} {:>12.2} {:>12.2}",
            format.name(),
            split.len(),
            open * 1e6,
            micros(single),
            micros(many)
        );
    }
}
