//! Tests that compare predictions with runs.

use super::*;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::ErrorKind;
use crate::format::Format;
use crate::options::{OutputOptions, RunOptions, SourceSpec};
use crate::packing::Packing;
use crate::pipeline::predict::testing;
use crate::pipeline::{Estimate, Progress, RunOutcome, TextOptions, TextShape};
use crate::transform::text::{Tokenizer, TokenizerOptions};

/// Creates documents of different lengths.
fn documents(count: u64) -> Vec<String> {
    let hash = |i: u64, seed| xxh3_64_with_seed(&i.to_le_bytes(), seed);
    // About as compressible as words.
    (0..count).map(|i| (0..=hash(i, 7) % 25).map(|word| format!("{:x}", hash(i, word))).collect()).collect()
}

fn json_lines(documents: &[String]) -> String {
    documents.iter().map(|text| format!("{{\"text\": \"{text}\"}}\n")).collect()
}

fn job(source: &Path, shape: TextShape, output: OutputOptions) -> TextJob {
    let sources = vec![SourceSpec { label: "in".to_owned(), path: source.to_owned() }];
    let tokenizer = Tokenizer::bytes(TokenizerOptions::default()).unwrap();
    let mut options = TextOptions::new(sources, tokenizer, output);
    options.recipe.pack = shape.pack.map(|(length, _)| length);
    options.recipe.packing = shape.pack.map(|(_, packing)| packing);
    TextJob::plan(options).unwrap()
}

/// Returns a prediction and the outcome of the run.
fn compare(source: &Path, shape: TextShape, output: OutputOptions, sample: u64) -> (Prediction, RunOutcome) {
    testing::compare(&job(source, shape, output), sample)
}

/// Returns records, tokens, bytes and shards of a run.
fn totals(outcome: &RunOutcome) -> [f64; 4] {
    let splits = || outcome.manifest.splits.values();
    [
        splits().map(|s| s.records).sum::<u64>(),
        splits().map(|s| s.length.total).sum(),
        splits().map(|s| s.bytes).sum(),
        splits().map(|s| s.shards).sum(),
    ]
    .map(|n| n as f64)
}

fn predicted(prediction: &Prediction) -> [Estimate; 4] {
    [prediction.records, prediction.tokens.unwrap(), prediction.bytes, prediction.shards]
}

#[test]
fn a_complete_sample_predicts_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let text = json_lines(&documents(300)) + "not json\n";
    std::fs::write(dir.path().join("a.jsonl"), &text).unwrap();
    let (prediction, outcome) = compare(dir.path(), TextShape::default(), OutputOptions::default(), 100_000);
    assert_eq!(prediction.sampled, 301);
    for (estimate, truth) in predicted(&prediction).into_iter().zip(totals(&outcome)) {
        // The sample has another order, so a few bytes compress differently.
        assert!((estimate.value / truth - 1.0).abs() < 0.01, "{estimate:?} {truth}");
        assert!((estimate.high - estimate.low).abs() < 1.0, "{estimate:?}");
    }
    assert_eq!(prediction.reject_codes.into_iter().collect::<Vec<_>>(), [("invalid-json", 1)]);
}

#[test]
fn a_partial_sample_of_every_kind_of_file_predicts_the_run() {
    let all = documents(9000);
    let lines = json_lines(&all);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(lines.as_bytes()).unwrap();
    let column: ArrayRef = Arc::new(StringArray::from(all.clone()));
    let batch = RecordBatch::try_from_iter([("text", column)]).unwrap();
    // Without a dictionary, the sizes of row groups are those of their texts.
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(100));
    let properties = properties.set_dictionary_enabled(false).build();
    let mut parquet = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    parquet.write(&batch).unwrap();
    for (name, bytes) in [
        ("a.jsonl", lines.clone().into_bytes()),
        ("a.jsonl.gz", gzip.finish().unwrap()),
        ("a.parquet", parquet.into_inner().unwrap()),
    ] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(name), bytes).unwrap();
        let (prediction, outcome) = compare(dir.path(), TextShape::default(), OutputOptions::default(), 400);
        // The start of a compressed file is read in large steps, which here cover the whole file.
        let is_all = prediction.sampled == 9000;
        assert!(prediction.sampled >= 400 && (is_all == name.ends_with(".gz")), "{name}: {prediction:?}");
        let [records, tokens, bytes, shards] = totals(&outcome);
        let [about_records, about_tokens, about_bytes, about_shards] = predicted(&prediction);
        for (estimate, truth) in [(about_records, records), (about_tokens, tokens), (about_bytes, bytes)] {
            assert!((estimate.value / truth - 1.0).abs() < 0.15, "{name}: {estimate:?} {truth}");
            assert_eq!(
                estimate.low < estimate.value && estimate.value < estimate.high,
                !is_all,
                "{name}: {estimate:?}"
            );
        }
        assert_eq!(about_shards.value, shards, "{name}");
    }
}

#[test]
fn packed_rows_are_predicted() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.jsonl"), json_lines(&documents(8000))).unwrap();
    let packed = TextShape { pack: Some((1024, Packing::Concat)), ..TextShape::default() };
    let output = OutputOptions { shard_records: Some(100), ..OutputOptions::default() };
    let (prediction, outcome) = compare(dir.path(), packed, output, 500);
    let [records, tokens, ..] = totals(&outcome);
    let [about_records, about_tokens, ..] = predicted(&prediction);
    for (estimate, truth) in [(about_records, records), (about_tokens, tokens)] {
        assert!((estimate.value / truth - 1.0).abs() < 0.1, "{estimate:?} {truth}");
    }
    assert!(about_records.value < prediction.found.value / 2.0, "{prediction:?}");
    assert!(prediction.shards.low <= totals(&outcome)[3] && totals(&outcome)[3] <= prediction.shards.high);
}

/// Documents, one with as many tokens as a hundred of the others, in two kinds of files, which are sampled at
/// different rates.
fn long_and_short_documents(dir: &Path) {
    let words = documents(2_000).concat();
    let of_length = |count: usize, bytes: usize| -> Vec<String> {
        let start = |i: usize| 37 * i % (words.len() - bytes);
        (0..count).map(|i| words[start(i)..][..bytes].to_owned()).collect()
    };
    std::fs::write(dir.join("a.jsonl"), json_lines(&of_length(600, 10_000))).unwrap();
    let rows: String = of_length(20_000, 98).into_iter().map(|row| row + "\n").collect();
    std::fs::write(dir.join("b.csv"), format!("text\n{rows}")).unwrap();
}

#[test]
fn kinds_of_files_have_their_own_rates() {
    let dir = tempfile::tempdir().unwrap();
    long_and_short_documents(dir.path());
    let contains = |estimate: Estimate, truth: f64| estimate.low <= truth && truth <= estimate.high;
    for packing in [Packing::Concat, Packing::BestFit] {
        let shape = TextShape { pack: Some((2048, packing)), ..TextShape::default() };
        let (prediction, outcome) = compare(dir.path(), shape, OutputOptions::default(), 200);
        let [records, ..] = totals(&outcome);
        assert!((prediction.records.value / records - 1.0).abs() < 0.05, "{prediction:?} {records}");
        assert!(contains(prediction.records, records), "{prediction:?} {records}");
    }
    let output = OutputOptions { shard_records: Some(1000), ..OutputOptions::default() };
    let (prediction, outcome) = compare(dir.path(), TextShape::default(), output, 200);
    let [records, _, _, shards] = totals(&outcome);
    assert!(contains(prediction.records, records), "{prediction:?} {records}");
    assert!((prediction.shards.value - shards).abs() <= 1.0, "{prediction:?} {shards}");
}

/// Short texts of frequent and rare words.
fn short_texts(count: u64) -> Vec<String> {
    let hash = |i: u64, seed| xxh3_64_with_seed(&i.to_le_bytes(), seed);
    let word = |i: u64, at: u64| {
        let rank = (1.0 / (1.0 + (hash(i, at) % 4000) as f64 / 100.0) * 4000.0) as u64;
        format!("{:x}", hash(rank, 1) % (1 << (8 + hash(rank, 2) % 24)))
    };
    (0..count).map(|i| (0..3 + hash(i, 9) % 28).map(|at| word(i, at)).collect::<Vec<_>>().join(" ")).collect()
}

/// Documents of one length. Some compress much better than others.
fn compressible_texts(count: u64) -> Vec<String> {
    let hash = |i: u64, word: u64| xxh3_64_with_seed(&i.to_le_bytes(), 1_000 + word);
    let text = |i| {
        let varied = hash(i, 99) % 60;
        (0..60).map(|word| format!("{:016x}", if word < varied { hash(i, word) } else { 0 })).collect()
    };
    (0..count).map(text).collect()
}

/// Returns in how many samples the intervals of records, tokens and bytes contain the result of the run.
fn covered(texts: &[String], output: &OutputOptions, samples: u64) -> [u64; 3] {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.jsonl"), json_lines(texts)).unwrap();
    let job = |seed| job(dir.path(), TextShape::default(), OutputOptions { seed, ..output.clone() });
    let out = tempfile::tempdir().unwrap();
    let run =
        job(0).run(&RunOptions::for_test(out.path(), 2), &Progress::default(), &Stop::default()).unwrap();
    let truth = totals(&run);
    let mut covered = [0; 3];
    for seed in 0..samples {
        let prediction =
            job(seed).predict(200, &RunOptions::for_test(out.path(), 2), &Stop::default()).unwrap();
        let estimates = predicted(&prediction);
        assert!(prediction.sampled * 2 < texts.len() as u64, "{prediction:?}");
        for (covered, (estimate, truth)) in covered.iter_mut().zip(estimates.into_iter().zip(truth)) {
            *covered += u64::from(estimate.low <= truth && truth <= estimate.high);
        }
    }
    covered
}

#[test]
fn most_intervals_contain_the_result_of_the_run() {
    for (texts, format) in
        [(short_texts(30_000), Format::Parquet), (compressible_texts(3_000), Format::Arrow)]
    {
        let covered = covered(&texts, &OutputOptions { format, ..OutputOptions::default() }, 10);
        assert!(covered.iter().all(|&n| n >= 8), "{format:?}: {covered:?} of 10");
    }
    // Many small shards.
    let output = OutputOptions { shard_records: Some(20), ..OutputOptions::default() };
    let covered = covered(&compressible_texts(3_000), &output, 10);
    assert!(covered.iter().all(|&n| n >= 8), "{covered:?} of 10");
}

/// Many tiny documents and a long one, in one file and as files of their own.
#[test]
fn a_long_document_among_tiny_ones_does_not_hide_them() {
    let mut texts: Vec<String> = (0..3_000).map(|i| format!("tiny document number {i} of many")).collect();
    texts.insert(1_234, "long words ".repeat(380_000));
    let lines = tempfile::tempdir().unwrap();
    std::fs::write(lines.path().join("a.jsonl"), json_lines(&texts)).unwrap();
    let files = tempfile::tempdir().unwrap();
    for (number, text) in texts.iter().enumerate() {
        std::fs::write(files.path().join(format!("{number}.txt")), text).unwrap();
    }
    let out = tempfile::tempdir().unwrap();
    for (dir, seeds) in [(&lines, 5), (&files, 2)] {
        let truth = [texts.len() as f64, texts.iter().map(String::len).sum::<usize>() as f64];
        let mut covered = [0; 2];
        for seed in 0..seeds {
            let job =
                job(dir.path(), TextShape::default(), OutputOptions { seed, ..OutputOptions::default() });
            let prediction =
                job.predict(200, &RunOptions::for_test(out.path(), 2), &Stop::default()).unwrap();
            let estimates = [prediction.records, prediction.tokens.unwrap()];
            for (covered, (estimate, truth)) in covered.iter_mut().zip(estimates.into_iter().zip(truth)) {
                *covered += u64::from(estimate.low <= truth && truth <= estimate.high);
            }
        }
        assert!(covered.iter().all(|&n| n + 1 >= seeds), "{covered:?} of {seeds} in {dir:?}");
    }
}

#[test]
#[ignore = "takes minutes: cargo test -p dsconvert --lib in_90_of_100_samples -- --ignored --nocapture"]
fn intervals_contain_the_result_in_90_of_100_samples() {
    for (name, texts) in [
        ("short", short_texts(30_000)),
        ("compressible", compressible_texts(3_000)),
        ("hexadecimal", documents(12_000)),
    ] {
        for format in [Format::Parquet, Format::Arrow, Format::Msgpack] {
            let covered = covered(&texts, &OutputOptions { format, ..OutputOptions::default() }, 100);
            println!("{name}, {format:?}: records, tokens, bytes in {covered:?} of 100");
            assert!(covered.iter().all(|&n| n >= 90), "{name}, {format:?}: {covered:?} of 100");
        }
    }
}

#[test]
#[ignore = "takes minutes: cargo test -p dsconvert --lib in_90_of_100_samples -- --ignored --nocapture"]
fn intervals_contain_the_result_of_many_small_shards_in_90_of_100_samples() {
    for (name, texts) in [("short", short_texts(20_000)), ("compressible", compressible_texts(3_000))] {
        for format in [Format::Parquet, Format::Arrow, Format::Msgpack] {
            for shard_records in [10, 100] {
                let output =
                    OutputOptions { format, shard_records: Some(shard_records), ..OutputOptions::default() };
                let covered = covered(&texts, &output, 100);
                println!("{name}, {format:?}, {shard_records}: {covered:?} of 100");
                assert!(covered.iter().all(|&n| n >= 90), "{name}, {format:?}: {covered:?} of 100");
            }
        }
    }
}

#[test]
fn samples_that_are_too_small_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.jsonl"), "{\"text\": \"a\"}\n").unwrap();
    let job = job(dir.path(), TextShape::default(), OutputOptions::default());
    let error = job.predict(3, &RunOptions::for_test(dir.path(), 1), &Stop::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
}
