//! Benchmark of the loader against decoding alone, the upper bound of its speed.
//!
//! ```text
//! DSCONVERT_BENCH_IMAGES=folder DSCONVERT_BENCH_CORPUS=corpus.jsonl DSCONVERT_BENCH_TOKENIZER=gpt2.json \
//!     cargo bench --bench loader
//! ```
//!
//! Images: records of 256 pixels on the shorter side, JPEG of quality 90, cropped to the center 224×224, in batches of
//! 64. *decode alone* runs the same decoder over the same bytes in as many bare threads, into one buffer each.
//! *libjpeg-turbo alone* decodes whole images and copies out the center. Tokens: random padded batches of 32. Rounds
//! are interleaved. The best round of each counts; the second column is the mean per second of CPU time. Without the
//! variables, the files of `fixtures/` are used, with bytes as tokens.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs, unreachable_pub, dead_code)]

mod common;

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use common::{convert_images, convert_text, path_or_fixture, tokenizer};
use dsconvert::decode::{Size, SourceRegion, Stored};
use dsconvert::format::Format;
use dsconvert::reader::batch::{BatchOptions, BatchSize, Batching, Oversize, PackOptions};
use dsconvert::reader::loader::{Crop, ImageBatchOptions, Loader, LoaderOptions};
use dsconvert::reader::{Dataset, Split};
use dsconvert::transform::image::ImageOptions;
use dsconvert::transform::text::{Tokenizer, TokenizerOptions};
use libjpeg_turbo_rs::{Decoder, PixelFormat};

const ROUNDS: usize = 30;
const CROP: usize = 224;

fn main() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let dir = tempfile::tempdir().unwrap();
    images(dir.path(), threads);
    tokens(dir.path(), threads);
}

/// Name and function of a run. The function returns the number of records.
type Run<'a> = (&'a str, Box<dyn FnMut() -> u64 + 'a>);

/// Runs each of `runs` in turn, and prints the rates of its fastest round.
fn best_of(runs: &mut [Run<'_>], unit: &str) {
    let mut best = vec![f64::INFINITY; runs.len()];
    let mut counts = vec![0; runs.len()];
    let mut cpu = vec![0.0; runs.len()];
    for _ in 0..ROUNDS {
        for (n, (_, run)) in runs.iter_mut().enumerate() {
            let (start, cpu_start) = (Instant::now(), cpu_seconds());
            counts[n] = run();
            best[n] = best[n].min(start.elapsed().as_secs_f64());
            cpu[n] += cpu_seconds() - cpu_start;
        }
    }
    for (n, (name, _)) in runs.iter().enumerate() {
        let (per_second, per_cpu) = (counts[n] as f64 / best[n], (counts[n] * ROUNDS as u64) as f64 / cpu[n]);
        println!("{name:28} {per_second:>10.0} {unit}/s {per_cpu:>10.0} per CPU second");
    }
}

/// Returns the CPU seconds of this process, on Linux. Other load affects them less than elapsed time.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The process name, in parentheses, may contain spaces and parentheses.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}

fn epoch(loader: &mut Loader) -> u64 {
    loader.next_epoch().unwrap();
    let mut rows = 0;
    while let Some(batch) = loader.next_batch().unwrap() {
        rows += black_box(&batch).rows() as u64;
    }
    rows
}

fn images(dir: &Path, threads: usize) {
    let path = path_or_fixture("DSCONVERT_BENCH_IMAGES", "photos");
    let out = dir.join("images");
    let options = ImageOptions { resize: "shorter:256".parse().unwrap(), ..ImageOptions::default() };
    drop(convert_images(&path, options, Format::Arrow, &out, threads));
    let split = Dataset::open(&out).unwrap().split("train").unwrap();
    let files: Vec<_> = split.iter().map(|r| r.unwrap().image().unwrap().clone()).collect();
    let loader = |threads| {
        let crop = Crop::center(CROP as u32, CROP as u32);
        let options = LoaderOptions {
            threads,
            image: ImageBatchOptions { crop, ..ImageBatchOptions::default() },
            ..LoaderOptions::new(BatchOptions::new(BatchSize::BatchSize(64)))
        };
        Loader::new(split.clone(), options).unwrap()
    };
    let (mut one, mut many) = (loader(0), loader(threads));
    println!("{} images, {threads} threads", files.len());
    let per_thread = files.len().div_ceil(threads);
    let bare = |decode: fn(&[u8], &mut Vec<u8>)| {
        let files = &files;
        move || {
            std::thread::scope(|scope| {
                for files in files.chunks(per_thread) {
                    scope.spawn(move || {
                        let mut buffer = Vec::new();
                        files.iter().for_each(|file| decode(file, &mut buffer));
                    });
                }
            });
            files.len() as u64
        }
    };
    best_of(
        &mut [
            ("loader", Box::new(|| epoch(&mut many))),
            ("loader, no threads", Box::new(|| epoch(&mut one))),
            ("libjpeg-turbo alone", Box::new(bare(decode_whole))),
            ("decode alone", Box::new(bare_crops(&split, threads))),
        ],
        "images",
    );
}

/// Decodes a whole file, then copies the center crop.
fn decode_whole(file: &[u8], buffer: &mut Vec<u8>) {
    let mut decoder = Decoder::new(file).unwrap();
    decoder.set_stop_on_warning(true);
    decoder.set_output_format(PixelFormat::Rgb);
    let (width, height) = (decoder.output_width(), decoder.output_height());
    buffer.resize(width * height * 3 + CROP * CROP * 3, 0);
    let (whole, middle) = buffer.split_at_mut(width * height * 3);
    decoder.decode_image_into(whole).unwrap();
    let (w, h) = (width.min(CROP), height.min(CROP));
    let rows = whole.chunks_exact(width * 3).skip((height - h) / 2);
    for (to, from) in middle.chunks_exact_mut(w * 3).take(h).zip(rows) {
        to.copy_from_slice(&from[(width - w) / 2 * 3..][..w * 3]);
    }
    black_box(middle);
}

/// Runs only the loader's own decoder.
fn bare_crops(split: &Split, threads: usize) -> impl FnMut() -> u64 {
    let records: Vec<_> = split.iter().map(Result::unwrap).collect();
    let target = Size::new(CROP as u32, CROP as u32);
    move || {
        std::thread::scope(|scope| {
            for records in records.chunks(records.len().div_ceil(threads)) {
                scope.spawn(move || {
                    let mut decoder = dsconvert::decode::Decoder::default();
                    let mut out = vec![0; CROP * CROP * 3];
                    for record in records {
                        let size = Size::new(record.width().unwrap(), record.height().unwrap());
                        let image = Stored { bytes: record.image().unwrap(), size, raw_channels: None };
                        let region = center_region(size);
                        decoder.decode(image, region, target, 3, &mut out).unwrap();
                        black_box(&out);
                    }
                });
            }
        });
        records.len() as u64
    }
}

/// Returns the center crop of an image or, if it is too small, its largest centered square.
fn center_region(Size { width, height }: Size) -> SourceRegion {
    let side = width.min(height).min(CROP as u32);
    let (left, top) = ((width - side) / 2, (height - side) / 2);
    SourceRegion { left: left.into(), top: top.into(), width: side.into(), height: side.into() }
}

fn tokens(dir: &Path, threads: usize) {
    let path = path_or_fixture("DSCONVERT_BENCH_CORPUS", "corpus/stories.jsonl");
    let tokenizer = match std::env::var_os("DSCONVERT_BENCH_TOKENIZER") {
        Some(file) => tokenizer(Path::new(&file)),
        None => Tokenizer::bytes(TokenizerOptions::default()).unwrap(),
    };
    let out = dir.join("text");
    drop(convert_text(&path, tokenizer, Format::Arrow, &out, threads));
    let split = Dataset::open(&out).unwrap().split("train").unwrap();
    println!("{} documents", split.len());
    let loader = |batching: Batching, fields: &[&str]| {
        let fields = Some(fields.iter().map(|f| (*f).to_owned()).collect());
        Loader::new(split.clone(), LoaderOptions { threads, fields, ..LoaderOptions::new(batching) }).unwrap()
    };
    let padded = || BatchOptions::new(BatchSize::BatchSize(32)).into();
    let mut ids = loader(padded(), &["input_ids", "lengths"]);
    let mut all = loader(padded(), &["input_ids", "attention_mask", "labels", "lengths"]);
    let names = ["input_ids", "attention_mask", "labels", "lengths"];
    let budget =
        BatchOptions { oversize: Oversize::Truncate, ..BatchOptions::new(BatchSize::MaxTokens(16_384)) };
    let mut buckets = loader(budget.into(), &names);
    let mut packed =
        loader(PackOptions::new(2048, 8).into(), &["input_ids", "labels", "position_ids", "cu_seqlens"]);
    let records = split.len();
    best_of(
        &mut [
            ("ids of padded batches of 32", Box::new(|| epoch(&mut ids))),
            ("all arrays of those batches", Box::new(|| epoch(&mut all))),
            ("buckets of 16,384 tokens", Box::new(|| epoch(&mut buckets))),
            (
                "packed rows of 2048",
                Box::new(|| {
                    epoch(&mut packed);
                    records
                }),
            ),
        ],
        "records",
    );
}
