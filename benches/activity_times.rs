//! Benchmark of the cost of activity times: conversions that alternate with and without them, and a single measurement.
//!
//! ```text
//! DSCONVERT_BENCH_IMAGES=folder DSCONVERT_BENCH_CORPUS=file.jsonl cargo bench --bench activity_times
//! ```
//!
//! Without the variables, the photographs and the corpus of `fixtures/` are used. The order within a pair alternates,
//! so that neither benefits from caches that the other has filled. CPU time is that of all threads.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs, unreachable_pub, dead_code)]

mod common;

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::{images_job, path_or_fixture, run_options, text_job, tokenizer};
use dsconvert::format::Format;
use dsconvert::options::RunOptions;
use dsconvert::pipeline::{Progress, Stop};
use dsconvert::transform::image::ImageOptions;

/// Number of pairs of runs.
const PAIRS: usize = 15;
/// Minimum duration of a measurement: conversions are repeated until then.
const AT_LEAST: Duration = Duration::from_millis(800);

fn main() {
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    one_measurement(1);
    one_measurement(threads);
    let images = path_or_fixture("DSCONVERT_BENCH_IMAGES", "photos");
    let options = ImageOptions { resize: "shorter:256".parse().unwrap(), ..ImageOptions::default() };
    for (name, options) in [("images, shorter:256", options), ("images, unchanged", ImageOptions::default())]
    {
        let job = images_job(&images, options, Format::Parquet);
        pairs(name, &|run, progress| drop(job.run(run, progress, &Stop::default()).unwrap()), threads);
    }
    let text = path_or_fixture("DSCONVERT_BENCH_CORPUS", "corpus/stories.jsonl");
    let tokenizer = tokenizer(&path_or_fixture("DSCONVERT_BENCH_TOKENIZER", "tokenizers/bpe.json"));
    let job = text_job(&text, tokenizer, Format::Parquet);
    pairs("text", &|run, progress| drop(job.run(run, progress, &Stop::default()).unwrap()), threads);
}

/// Prints the duration of one measurement: two clock reads, and an addition to a sum that all threads share.
fn one_measurement(threads: usize) {
    const TIMES: u64 = 2_000_000;
    let sum = AtomicU64::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..TIMES {
                    let started = black_box(Instant::now());
                    sum.fetch_add(started.elapsed().as_nanos() as u64, Relaxed);
                }
            });
        }
    });
    let each = started.elapsed().as_nanos() as f64 / TIMES as f64;
    println!("one measurement, {threads} at a time: {each:.0} ns");
}

/// Converts alternately with and without activity times, and prints the ratios of the time with to the time without.
fn pairs(name: &str, convert: &dyn Fn(&RunOptions, &Progress), threads: usize) {
    let dir = tempfile::tempdir().unwrap();
    let options = run_options(&dir.path().join("out"), threads);
    let mut repeats = 1;
    let run = |measured: bool, repeats: u32| {
        let (cpu, started) = (cpu_seconds(), Instant::now());
        for _ in 0..repeats {
            let progress = if measured { Progress::default() } else { Progress::without_activity_times() };
            convert(&options, &progress);
        }
        (cpu_seconds() - cpu, started.elapsed().as_secs_f64())
    };
    while run(true, repeats).1 < AT_LEAST.as_secs_f64() {
        repeats *= 2;
    }
    let (mut cpu, mut wall) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        let first = run(pair % 2 == 0, repeats);
        let second = run(pair % 2 == 1, repeats);
        let (with, without) = if pair % 2 == 0 { (first, second) } else { (second, first) };
        cpu.push(with.0 / without.0);
        wall.push(with.1 / without.1);
    }
    println!(
        "{name}: {PAIRS} pairs of {repeats} conversions, {threads} threads: with activity times, {} of the CPU time \
         and {} of the elapsed time without",
        spread(&mut cpu),
        spread(&mut wall)
    );
}

/// Formats ratios as `100.1% (99.2% to 101.3%)`: median and quartiles.
fn spread(ratios: &mut [f64]) -> String {
    ratios.sort_by(f64::total_cmp);
    let at = |quarter: usize| 100.0 * ratios[(ratios.len() - 1) * quarter / 4];
    format!("{:.1}% ({:.1}% to {:.1}%)", at(2), at(1), at(3))
}

/// Returns the CPU time of all threads of this process so far, in steps of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}
