//! Tests that compare predictions with runs.

use super::*;
use crate::error::ErrorKind;
use crate::format::Format;
use crate::options::{OutputOptions, RunOptions, SourceSpec};
use crate::pipeline::predict::testing;
use crate::pipeline::{Estimate, ImageInput, ImagesOptions, Progress, RunOutcome};
use crate::recipe::ImagesRecipe;
use crate::sample::RejectCode;
use std::path::Path;

/// Creates `count` noisy images of many sizes in `dir`, and truncates every tenth.
fn folder(dir: &Path, count: u32) {
    (0..count).for_each(|i| noisy(dir, i));
}

fn noisy(dir: &Path, i: u32) {
    let side = 20 + i * 7 % 50;
    let noise = |x: u32, y: u32, c: u8| {
        xxh3_64_with_seed(&[x as u8, y as u8, c], u64::from(i)) as u8 | 0x80 >> (i % 3)
    };
    let image = image::RgbImage::from_fn(side, side, |x, y| image::Rgb([0, 1, 2].map(|c| noise(x, y, c))));
    let path = dir.join(format!("{i:04}.png"));
    image.save(&path).unwrap();
    if i % 10 == 9 {
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    }
}

/// Packs the files of `dir` into a tar file.
fn pack(dir: &Path, tar: &Path) {
    let mut builder = tar::Builder::new(std::fs::File::create(tar).unwrap());
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    for file in files {
        builder.append_path_with_name(&file, file.file_name().unwrap()).unwrap();
    }
    builder.finish().unwrap();
}

fn job(source: &Path, output: OutputOptions) -> ImagesJob {
    ImagesJob::plan(ImagesOptions {
        annotations: Vec::new(),
        sources: vec![SourceSpec { label: "in".to_owned(), path: source.to_owned() }],
        input: ImageInput::Walk,
        exclude: Vec::new(),
        recipe: ImagesRecipe { output, ..ImagesRecipe::default() },
    })
    .unwrap()
}

/// Returns a prediction and the outcome of the run.
fn compare(source: &Path, output: OutputOptions, sample: u64) -> (Prediction, RunOutcome) {
    testing::compare(&job(source, output), sample)
}

fn totals(outcome: &RunOutcome) -> (f64, f64) {
    let splits = || outcome.manifest.splits.values();
    (splits().map(|s| s.bytes).sum::<u64>() as f64, splits().map(|s| s.shards).sum::<u64>() as f64)
}

#[test]
fn a_complete_sample_predicts_the_run_exactly() {
    let dir = tempfile::tempdir().unwrap();
    folder(dir.path(), 40);
    let (prediction, outcome) = compare(dir.path(), OutputOptions::default(), 1000);
    let exactly = |n: f64| Estimate { value: n, low: n, high: n };
    assert_eq!(prediction.sampled, 40);
    assert_eq!(prediction.found, exactly(40.0));
    for (predicted, n) in [(prediction.records, 36.0), (prediction.rejected, 4.0)] {
        assert!((predicted.low - n).abs() + (predicted.high - n).abs() < 1e-6, "{predicted:?}");
    }
    assert_eq!(
        prediction.reject_codes,
        outcome.manifest.reject_codes.iter().map(|(k, v)| (code(k), *v)).collect()
    );
    let (bytes, shards) = totals(&outcome);
    assert_eq!(prediction.shards, exactly(shards));
    assert!((prediction.bytes.value - bytes).abs() < 1.0, "{:?} {bytes}", prediction.bytes);
}

fn code(name: &str) -> &'static str {
    [RejectCode::Truncated, RejectCode::Corrupt]
        .map(RejectCode::name)
        .into_iter()
        .find(|n| *n == name)
        .unwrap()
}

#[test]
fn intervals_of_a_partial_sample_contain_the_result_of_the_run() {
    let dir = tempfile::tempdir().unwrap();
    folder(dir.path(), 300);
    let output = OutputOptions {
        shard_bytes: 200_000,
        unit_bytes: Some(1 << 20),
        format: Format::Msgpack,
        ..OutputOptions::default()
    };
    let (prediction, outcome) = compare(dir.path(), output, 100);
    let (bytes, shards) = totals(&outcome);
    for (what, estimate, truth) in [
        ("records", prediction.records, 270.0),
        ("rejected", prediction.rejected, 30.0),
        ("bytes", prediction.bytes, bytes),
        ("shards", prediction.shards, shards),
    ] {
        assert!(estimate.low <= truth && truth <= estimate.high, "{what}: {estimate:?}, not {truth}");
        assert!(estimate.high < 2.0 * truth, "{what}: {estimate:?} is too wide");
    }
    assert!(shards > 3.0);
}

/// Returns in how many samples the intervals of records and bytes contain the result of the run.
fn covered(source: &Path, format: Format, sample: u64, samples: u64) -> [u64; 2] {
    covered_with(source, &OutputOptions { format, ..OutputOptions::default() }, sample, samples)
}

fn covered_with(source: &Path, output: &OutputOptions, sample: u64, samples: u64) -> [u64; 2] {
    let of = |seed| job(source, OutputOptions { seed, ..output.clone() });
    let out = tempfile::tempdir().unwrap();
    let run =
        of(0).run(&RunOptions::for_test(out.path(), 2), &Progress::default(), &Stop::default()).unwrap();
    let truth = [run.manifest.splits.values().map(|s| s.records).sum::<u64>() as f64, totals(&run).0];
    let mut covered = [0; 2];
    for seed in 0..samples {
        let prediction =
            of(seed).predict(sample, &RunOptions::for_test(out.path(), 2), &Stop::default()).unwrap();
        let estimates = [prediction.records, prediction.bytes];
        for (covered, (estimate, truth)) in covered.iter_mut().zip(estimates.into_iter().zip(truth)) {
            *covered += u64::from(estimate.low <= truth && truth <= estimate.high);
        }
    }
    covered
}

#[test]
fn intervals_contain_the_result_in_most_samples() {
    let dir = tempfile::tempdir().unwrap();
    folder(dir.path(), 300);
    for format in [Format::Parquet, Format::Msgpack] {
        let covered = covered(dir.path(), format, 50, 20);
        assert!(covered.iter().all(|&n| n >= 17), "{format:?}: {covered:?} of 20");
    }
}

#[test]
#[ignore = "takes minutes: cargo test -p dsconvert --lib in_90_of_100_samples -- --ignored --nocapture"]
fn intervals_contain_the_result_in_90_of_100_samples() {
    let dir = tempfile::tempdir().unwrap();
    folder(dir.path(), 1_000);
    for sample in [20, 100] {
        for format in [Format::Parquet, Format::Arrow, Format::Msgpack] {
            let covered = covered(dir.path(), format, sample, 100);
            println!("{sample} items, {format:?}: records, bytes in {covered:?} of 100");
            assert!(covered.iter().all(|&n| n >= 90), "{format:?}: {covered:?} of 100");
        }
    }
}

/// Creates `tars` tar files in `source`, each with `images` images and more.
fn tar_files(dir: &Path, source: &Path, tars: u32, images: u32) {
    std::fs::create_dir_all(source).unwrap();
    for tar in 0..tars {
        let images_dir = dir.join(format!("images-{tar}"));
        std::fs::create_dir_all(&images_dir).unwrap();
        let count = images + tar % images;
        for i in 0..count {
            noisy(&images_dir, tar * 2 * images + i);
        }
        pack(&images_dir, &source.join(format!("{tar:02}.tar")));
    }
}

#[test]
fn intervals_contain_the_result_of_tar_files_in_most_samples() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    tar_files(dir.path(), &source, 30, 12);
    for (format, shard_records) in [(Format::Parquet, None), (Format::Msgpack, Some(5))] {
        let output = OutputOptions { format, shard_records, ..OutputOptions::default() };
        let covered = covered_with(&source, &output, 100, 20);
        assert!(covered.iter().all(|&n| n >= 17), "{format:?}: {covered:?} of 20");
    }
}

#[test]
#[ignore = "takes minutes: cargo test -p dsconvert --lib in_90_of_100_samples -- --ignored --nocapture"]
fn intervals_contain_the_result_of_tar_files_in_90_of_100_samples() {
    for (tars, images) in [(30, 20), (3, 300), (100, 4)] {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        tar_files(dir.path(), &source, tars, images);
        for (format, shard_records, sample) in [
            (Format::Parquet, None, 100),
            (Format::Msgpack, None, 100),
            (Format::Arrow, Some(7), 50),
            (Format::Parquet, Some(7), 200),
        ] {
            let output = OutputOptions { format, shard_records, ..OutputOptions::default() };
            let covered = covered_with(&source, &output, sample, 100);
            let what = format!("{tars} tar files, {sample} items, {format:?}, {shard_records:?}");
            println!("{what}: records, bytes in {covered:?} of 100");
            assert!(covered.iter().all(|&n| n >= 90), "{what}: {covered:?} of 100");
        }
    }
}

#[test]
fn the_first_samples_of_tar_files_predict_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let (images, source) = (dir.path().join("images"), dir.path().join("source"));
    std::fs::create_dir_all(&images).unwrap();
    std::fs::create_dir_all(&source).unwrap();
    folder(&images, 120);
    pack(&images, &source.join("a.tar"));
    pack(&images, &source.join("b.tar"));
    let (prediction, outcome) = compare(&source, OutputOptions::default(), 80);
    assert!((80..120).contains(&prediction.sampled), "{}", prediction.sampled);
    let (bytes, _) = totals(&outcome);
    assert!(prediction.found.low <= 240.0 && 240.0 <= prediction.found.high, "{:?}", prediction.found);
    assert!(
        prediction.bytes.low <= bytes && bytes <= prediction.bytes.high,
        "{:?} {bytes}",
        prediction.bytes
    );
}

#[test]
fn a_tar_file_in_the_folder_of_a_split_has_shards_only_there() {
    let dir = tempfile::tempdir().unwrap();
    let (images, source) = (dir.path().join("images"), dir.path().join("exp"));
    std::fs::create_dir_all(&images).unwrap();
    folder(&images, 30);
    for tar in ["train/a0.tar", "train/a1.tar", "train/a2.tar", "validation/b0.tar"] {
        let tar = source.join(tar);
        std::fs::create_dir_all(tar.parent().unwrap()).unwrap();
        pack(&images, &tar);
    }
    let (prediction, outcome) = compare(&source, OutputOptions::default(), 40);
    let (_, shards) = totals(&outcome);
    assert_eq!((prediction.shards.value, shards), (4.0, 4.0));
    // A split by hash divides every tar file.
    let split = Some("train=0.5,validation=0.5".parse().unwrap());
    let flat = dir.path().join("flat");
    std::fs::create_dir_all(&flat).unwrap();
    pack(&images, &flat.join("a.tar"));
    pack(&images, &flat.join("b.tar"));
    let (prediction, outcome) = compare(&flat, OutputOptions { split, ..OutputOptions::default() }, 40);
    let (_, shards) = totals(&outcome);
    assert_eq!((prediction.shards.value, shards), (4.0, 4.0));
}

#[test]
fn small_containers_are_replaced_until_the_sample_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let (images, source) = (dir.path().join("images"), dir.path().join("source"));
    std::fs::create_dir_all(&images).unwrap();
    std::fs::create_dir_all(&source).unwrap();
    folder(&images, 3);
    for tar in 0..30 {
        pack(&images, &source.join(format!("{tar:02}.tar")));
    }
    let (prediction, _) = compare(&source, OutputOptions::default(), 60);
    assert!((60..70).contains(&prediction.sampled), "{}", prediction.sampled);
    let (prediction, _) = compare(&source, OutputOptions::default(), 500);
    assert_eq!((prediction.sampled, prediction.found.low), (90, 90.0), "the sample is everything");
}

#[test]
fn files_that_are_no_images_widen_the_interval_of_those_found() {
    let dir = tempfile::tempdir().unwrap();
    folder(dir.path(), 40);
    for i in 0..60 {
        // Two thirds of the files without the name of an image are images.
        let content =
            if i % 3 == 0 { b"notes".to_vec() } else { std::fs::read(dir.path().join("0000.png")).unwrap() };
        std::fs::write(dir.path().join(format!("file-{i}")), content).unwrap();
    }
    let (prediction, _) = compare(dir.path(), OutputOptions::default(), 50);
    let found = prediction.found;
    assert!(found.low < 80.0 && 80.0 < found.high && found.low > 40.0 && found.high <= 100.0, "{found:?}");
    assert!(prediction.records.low <= 76.0 && 76.0 <= prediction.records.high, "{prediction:?}");
}

#[test]
fn a_sample_that_is_too_small_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    folder(dir.path(), 1);
    let job = job(dir.path(), OutputOptions::default());
    let error = job.predict(3, &RunOptions::for_test(dir.path(), 1), &Stop::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
}
