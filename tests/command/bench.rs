//! `dsconvert bench` and `dsconvert headspace`: consistency of the reported numbers, and error messages. No test
//! asserts a duration.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::*;

/// Runs `dsconvert COMMAND PATHS… OPTIONS…`; `options` is split at whitespace.
pub(crate) fn run(name: &str, paths: &[&Path], options: &str) -> Ran {
    let mut command = command([name]);
    command.args(paths).args(options.split_whitespace());
    Ran::of(command.output().unwrap())
}

pub(crate) fn json(name: &str, paths: &[&Path], options: &str) -> Value {
    let ran = run(name, paths, &format!("{options} --json")).exits(0);
    serde_json::from_str(&ran.stdout).unwrap()
}

/// The report of `dsconvert bench` with two rounds of 40 items in batches of 8, unless `options` sets other numbers.
pub(crate) fn bench(paths: &[&Path], options: &str) -> Value {
    let items = if options.contains("--items") { "" } else { "--items 40" };
    let batch = if options.contains("--batch-size") { "" } else { "--batch-size 8" };
    json("bench", paths, &format!("{items} --repeat 2 {batch} {options}"))
}

#[track_caller]
pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().ok_or(value).unwrap()
}

pub(crate) fn measurements(report: &Value) -> &Vec<Value> {
    report["measurements"].as_array().unwrap()
}

/// Asserts the invariants of every measurement.
pub(crate) fn assert_sane(report: &Value) {
    assert!(!measurements(report).is_empty());
    for m in measurements(report) {
        let shares = m["shares"].as_object().unwrap();
        let names: Vec<&str> = shares.keys().map(String::as_str).collect();
        assert_eq!(names, ["open", "read", "decode", "transform", "collate", "other"]);
        let sum: f64 = shares.values().map(number).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{shares:?}");
        assert!(shares.values().all(|share| (0.0..=1.0).contains(&number(share))), "{shares:?}");
        for rate in ["items_per_second", "bytes_per_second"] {
            let [min, median, max] = ["min", "median", "max"].map(|part| number(&m[rate][part]));
            assert!(0.0 < min && min <= median && median <= max, "{m}");
            assert!((number(&m[rate]["spread"]) - (max - min) / median).abs() < 1e-6);
        }
        for times in ["item_ms", "batch_ms"] {
            assert!(number(&m[times]["p50"]) <= number(&m[times]["p99"]), "{m}");
        }
        assert!(number(&m["items"]) > 0.0 && number(&m["batches"]) > 0.0);
        if let Some(share) = m["residency"]["share"].as_f64() {
            assert!((0.0..=1.0).contains(&share));
        }
        assert_eq!(m["padding"].is_null(), m["tokens_per_second"].is_null());
        if let Some(padding) = m["padding"].as_f64() {
            assert!((0.0..1.0).contains(&padding));
        }
    }
}

/// A folder of photos, one of which cannot be decoded, and the dataset made from it.
pub(crate) struct Photos {
    _dir: tempfile::TempDir,
    pub(crate) raw: PathBuf,
    pub(crate) dataset: PathBuf,
}

pub(crate) fn photos(options: &str) -> Photos {
    let dir = tempfile::tempdir().unwrap();
    let (raw, dataset) = (dir.path().join("photos"), dir.path().join("dataset"));
    copy_dir(&fixture("photos/dunes"), &raw.join("dunes"));
    fs::create_dir(raw.join("night")).unwrap();
    for name in ["broken.jpg", "small.png"] {
        fs::copy(fixture("photos/night").join(name), raw.join("night").join(name)).unwrap();
    }
    convert("images", &raw, &dataset, &format!("--max-rejects 50% {options}")).exits(0);
    Photos { _dir: dir, raw, dataset }
}

#[test]
fn image_files_and_datasets_report_consistent_numbers() {
    for (format, access) in [("parquet", "--threads 1,2"), ("arrow", "--threads 2 --decode --no-decode")] {
        let photos = photos(&format!("--resize shorter:48 --format {format}"));
        let converted = number(&manifest(&photos.dataset)["converted"]);
        let report = bench(&[&photos.dataset], access);
        assert_sane(&report);
        let target = &report["targets"][0];
        assert_eq!((&target["kind"], number(&target["items"])), (&Value::from("image_dataset"), converted));
        assert_eq!(target["failures"]["count"], 0);
        // Two orders, each with two thread counts, or with and without decoding.
        assert_eq!(measurements(&report).len(), 4);
        for m in measurements(&report) {
            let decodes = m["decode"].as_bool().unwrap();
            assert_eq!(number(&m["shares"]["decode"]) > 0.0, decodes);
            assert_eq!(number(&m["shares"]["transform"]), 0.0, "images were resized at conversion");
            assert!(number(&m["items"]) >= 2.0 * 40.0);
            assert!(number(&m["device"]["fraction"]) > 0.0);
        }
    }
    let photos = photos("--resize shorter:48");
    let report = bench(&[&photos.raw], "--threads 1 --order random --resize shorter:48");
    assert_sane(&report);
    let target = &report["targets"][0];
    assert_eq!(target["kind"], "raw_images");
    assert_eq!(target["items"], manifest(&photos.dataset)["found"]);
    let m = &measurements(&report)[0];
    for stage in ["open", "read", "decode", "transform", "collate"] {
        assert!(number(&m["shares"][stage]) > 0.0, "{stage}");
    }
    // The truncated file is reported by name and is not fatal.
    assert_eq!(target["failures"]["count"], 1);
    let example = &target["failures"]["examples"][0];
    assert!(example[0].as_str().unwrap().ends_with("broken.jpg"), "{example}");
    assert!(example[1].as_str().unwrap().contains("ends inside"), "{example}");
    assert!(target["probe"]["random_read_bytes"].as_u64().unwrap().is_multiple_of(4096));
}

/// Token ids in Parquet have to be decoded; for images, the format makes no difference.
#[test]
fn a_faster_format_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (raw, photos) = (dir.path().join("a.jsonl"), fixture("photos/dunes"));
    corpus(&raw, 40);
    let hint = "times as fast from arrow (--format arrow)";
    for format in FORMATS {
        let (ids, images) = (dir.path().join(format), dir.path().join(format!("{format}-images")));
        convert("text", &raw, &ids, &format!("--tokenizer bytes --format {format}")).exits(0);
        convert("images", &photos, &images, &format!("--format {format}")).exits(0);
        for (out, expected) in [(&ids, format == "parquet"), (&images, false)] {
            let measured = run("bench", &[out], "--items 8 --repeat 1 --threads 1 --no-probe").exits(0);
            let shown = run("inspect", &[out], "").exits(0);
            for printed in [measured.stdout, shown.stdout] {
                assert_eq!(printed.contains(hint), expected, "{format}: {printed}");
            }
        }
        let report = bench(&[&ids], "--threads 1");
        assert_eq!(report["targets"][0]["format"], format);
    }
    assert!(bench(&[&raw], "--threads 1")["targets"][0]["format"].is_null());
}

#[test]
fn text_files_and_datasets_report_tokens_and_padding() {
    let dir = tempfile::tempdir().unwrap();
    let (raw, dataset) = (dir.path().join("a.jsonl"), dir.path().join("dataset"));
    corpus(&raw, 300);
    let tokenizer = fixture("tokenizers/bpe.json");
    let tokenizer = tokenizer.to_str().unwrap();
    convert("text", &raw, &dataset, &format!("--tokenizer {tokenizer}")).exits(0);
    let report = bench(&[&dataset], "--threads 1,2 --items 300");
    assert_sane(&report);
    assert_eq!(report["targets"][0]["items"], 300);
    let padding = |order: &str| {
        let found = measurements(&report).iter().find(|m| m["order"] == order).unwrap();
        number(&found["padding"])
    };
    assert!(padding("bucketed") < padding("random"), "{report}");

    let parsed = bench(&[&raw], "--threads 1 --no-probe");
    assert_sane(&parsed);
    assert!(measurements(&parsed)[0]["tokens_per_second"].is_null());
    assert!(measurements(&parsed)[0]["device"].is_null() && parsed["targets"][0]["probe"].is_null());
    assert_eq!(number(&measurements(&parsed)[0]["shares"]["transform"]), 0.0);

    let options = format!("--threads 2 --items 300 --tokenizer {tokenizer} --order random,bucketed");
    let tokenized = bench(&[&raw], &options);
    assert_sane(&tokenized);
    assert!(number(&measurements(&tokenized)[0]["shares"]["transform"]) > 0.0);

    let budget = json("bench", &[&dataset], "--items 300 --repeat 1 --batch-tokens 256 --threads 1");
    assert_sane(&budget);
    let longest = number(&manifest(&dataset)["splits"]["train"]["length"]["max"]);
    for m in measurements(&budget) {
        let (items, batches) = (number(&m["items"]), number(&m["batches"]));
        assert!(items / batches <= 256.0 && longest <= 256.0 && items >= 300.0);
    }
}

#[test]
fn compressed_text_is_read_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (raw, compressed) = (dir.path().join("a.jsonl"), dir.path().join("a.jsonl.zst"));
    corpus(&raw, 100);
    fs::write(&compressed, zstd::encode_all(&*fs::read(&raw).unwrap(), 3).unwrap()).unwrap();
    let report = bench(&[&compressed], "--threads 1,2 --no-probe");
    assert_sane(&report);
    assert_eq!(report["targets"][0]["items"], 100);
    assert!(measurements(&report).iter().all(|m| m["order"] == "sequential"));
    run("bench", &[&compressed], "--order random").exits(2).says(&["compressed", "random"]);
}

#[test]
fn the_items_of_several_processes_add_up() {
    let photos = photos("--resize shorter:48");
    let report = bench(&[&photos.dataset], "--jobs 2 --threads 1 --order random --no-probe");
    assert_sane(&report);
    assert_eq!(report["jobs"], 2);
    // Each process reads half of the 40 items of a round, in whole batches.
    assert!(number(&measurements(&report)[0]["items"]) >= 2.0 * 40.0);
}

#[test]
fn cold_rounds_read_every_item_at_most_once() {
    let photos = photos("--resize shorter:48");
    let found = number(&manifest(&photos.dataset)["converted"]);
    for processes in ["--jobs 1 --threads 2", "--jobs 2 --threads 1"] {
        let report = bench(&[&photos.dataset], &format!("--cold --items 1000 --batch-size 1 {processes}"));
        assert_sane(&report);
        assert_eq!(report["cold"], true);
        for m in measurements(&report) {
            assert_eq!(number(&m["items"]), 2.0 * found, "two rounds of one epoch");
        }
    }
}

#[test]
fn simulate_and_headspace_read_a_recorded_trace() {
    let photos = photos("--resize shorter:48");
    let trace = photos.raw.with_file_name("load.txt");
    let report = bench(&[&photos.dataset, Path::new("--trace"), &trace], "--threads 1,2 --no-probe");
    let text = fs::read_to_string(&trace).unwrap();
    let random = measurements(&report).iter().find(|m| m["order"] == "random" && m["threads"] == 1).unwrap();
    let lines = text.lines().filter(|line| line.starts_with('{')).count();
    assert_eq!(lines as f64, number(&random["batches"]));
    let simulate = ["simulate", "--step-ms", "5", "--workers", "2", "--json", "--load-trace"];
    let ran = Ran::of(command(simulate).arg(&trace).output().unwrap()).exits(0);
    assert!(serde_json::from_str::<Value>(&ran.stdout).unwrap()["batches"].as_u64().unwrap() > 0);
    let found = json("headspace", &[Path::new("--trace"), &trace], "--step-ms 1000000");
    assert_eq!((&found["verdict"], &found["loading"]["load"]["batches"]), (&"model".into(), &lines.into()));
}

#[test]
fn invalid_inputs_and_options_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (empty, other, unfinished) =
        (dir.path().join("empty"), dir.path().join("other"), dir.path().join("half"));
    fs::create_dir_all(&empty).unwrap();
    fs::create_dir_all(&other).unwrap();
    fs::create_dir_all(unfinished.join(".dsconvert")).unwrap();
    fs::write(other.join("a.bin"), "nothing").unwrap();
    fs::write(dir.path().join("table.csv"), "text\na\n").unwrap();
    fs::write(dir.path().join("none.jsonl"), "").unwrap();
    fs::write(dir.path().join("bad.jsonl"), "nonsense\n{}\n").unwrap();
    fs::write(dir.path().join("one.jsonl"), "{\"text\": \"one\"}\n").unwrap();
    for (name, status, message) in [
        ("missing", 2, "there is no such file or folder"),
        ("empty", 2, "the folder is empty"),
        ("other", 2, "its only file is not an image"),
        ("half", 3, "has not finished"),
        ("table.csv", 2, "only .jsonl and .txt"),
        ("none.jsonl", 2, "no document"),
        ("bad.jsonl", 2, "no item could be loaded"),
    ] {
        run("bench", &[&dir.path().join(name)], "--seconds 0.1 --repeat 1")
            .exits(status)
            .says(&[message, name]);
    }
    run("bench", &[Path::new("ftp://bucket/x")], "").exits(2).says(&["unsupported scheme", "https://"]);
    let one = dir.path().join("one.jsonl");
    for (options, message) in [
        ("--threads 0", "--threads: `0`"),
        ("--threads 1..100000", "--threads"),
        ("--threads x", "1,2,4"),
        ("--repeat 0", "--repeat must be at least 1"),
        ("--jobs 0", "--jobs must be at least 1"),
        ("--jobs 1000000", "--jobs must be at most "),
        ("--items 0", "--items must be at least 1"),
        ("--seconds 0", "--seconds must be above 0"),
        ("--seconds -1", "--seconds must be"),
        ("--seconds nan", "--seconds must be"),
        ("--batch-size 0", "--batch-size must be at least 1"),
        ("--batch-tokens 100", "need a tokenizer"),
        ("--order sorted", "unknown order `sorted`"),
        ("--order bucketed", "need a tokenizer"),
        ("--tokenizer /nonexistent.json", "no such tokenizer"),
        ("--resize big", "--resize"),
        ("--documents pages", "--documents"),
        ("--against /nonexistent", "there is no such file or folder"),
    ] {
        run("bench", &[&one], options).exits(2).says(&[message]);
    }
    let photos = photos("--resize shorter:48");
    run("bench", &[&photos.dataset], "--split test").exits(2).says(&["no split \"test\""]);
    run("bench", &[&photos.dataset], "--order bucketed").exits(2).says(&["images have no tokens"]);
}

#[test]
fn empty_splits_and_missing_indexes_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("a.jsonl"), dir.path().join("out"));
    corpus(&source, 40);
    convert("text", &source, &out, "--tokenizer bytes --split train=0.999999,test=0.000001").exits(0);
    for (name, options) in [("bench", "--split test"), ("headspace", "--split test --step-ms 10")] {
        run(name, &[&out], options).exits(2).says(&["split \"test\" has no records"]);
    }
    // `bench` plans batches from the lengths in the record index, so it needs neither of these two.
    for index in ["train.lengths-0000", "train.histogram"] {
        fs::remove_file(out.join(format!("index/{index}.arrow"))).unwrap();
        let report = bench(&[&out], "--split train --order bucketed --threads 1 --no-probe");
        assert_eq!(report["targets"][0]["failures"]["count"], 0, "{report}");
        run("headspace", &[&out], "--split train --items 30 --repeat 1 --step-ms 10").exits(0);
        let html = dir.path().join("page.html");
        run("inspect", &[&out, Path::new("--html"), &html], "").exits(0).says(&[index, "cannot be read"]);
        assert!(fs::read_to_string(html).unwrap().contains("cannot be read"));
        run("inspect", &[&out], "").exits(3).says(&[index]);
        run("inspect", &[&out], "--verify").exits(3);
        convert("text", &source, &dir.path().join(index), "--tokenizer bytes --split train=1").exits(0);
        fs::remove_dir_all(&out).unwrap();
        fs::rename(dir.path().join(index), &out).unwrap();
    }
    fs::remove_file(out.join("index/train.records-0000.arrow")).unwrap();
    for (name, options) in [("bench", "--seconds 0.1 --repeat 1 --no-probe"), ("headspace", "--step-ms 10")] {
        run(name, &[&out], options).exits(3).says(&["train.records-0000"]);
    }
}

#[test]
fn one_record_is_not_plural() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("a.jsonl"), dir.path().join("out"));
    corpus(&source, 1);
    convert("text", &source, &out, "--tokenizer bytes").exits(0);
    let both: [&Path; 3] = [&out, Path::new("--against"), &source];
    let text =
        run("bench", &both, "--items 1 --repeat 1 --no-probe --threads 1 --order random").exits(0).stdout;
    assert!(text.contains("1 item in ") && text.contains("both hold the same item,"), "{text}");
    run("inspect", &[&out], "--record 7").exits(2).says(&["split \"train\" has 1 record\n"]);
}

#[test]
fn datasets_in_object_storage_are_measured() {
    let setup = crate::remote_setup::Setup::new();
    let (raw, local) = (setup.path("a.jsonl"), setup.path("local"));
    corpus(&raw, 120);
    convert("text", &raw, &local, "--tokenizer bytes").exits(0);
    setup.run("a", &format!("text {} --tokenizer bytes --out s3://bucket/ids", raw.display())).exits(0);
    for (key, bytes) in tree(&local) {
        setup.server.put(&format!("web/sets/ids/{key}"), bytes);
    }
    let quick = "--items 40 --repeat 2 --batch-size 8 --threads 1";
    let web = format!("{}/sets/ids", setup.server.endpoint());
    for url in ["s3://bucket/ids", "s3://bucket/ids/manifest.json", &web] {
        let ran = setup.run("a", &format!("bench {url} {quick} --json")).exits(0);
        let report: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_sane(&report);
        let target = &report["targets"][0];
        assert_eq!((&target["remote"], &target["items"]), (&true.into(), &120.into()));
        assert!(target["probe"].is_null() && number(&target["bytes"]) > 0.0);
        assert_eq!(measurements(&report).len(), 3);
        for measurement in measurements(&report) {
            assert!(measurement["residency"].is_null() && measurement["device"].is_null());
        }
        let text = setup.run("a", &format!("bench {url} {quick} --cold --jobs 2")).exits(0).stdout;
        let expected = [
            "MB in object storage, found in",
            "  remote",
            "no page cache",
            "cold: nothing is kept in memory",
        ];
        for part in expected {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("plain reads of"), "{text}");
    }
    // Compared with the source, whose tokenizer is that of the dataset.
    let both = format!("s3://bucket/ids --against {}", raw.display());
    let ran = setup.run("a", &format!("bench {both} {quick} --json")).exits(0);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&report["paired_items"], &report["targets"][1]["remote"]), (&120.into(), &false.into()));
    let both = format!("{} --against s3://bucket/ids", raw.display());
    let ran = setup.run("a", &format!("headspace {both} --items 40 --repeat 1 --step-ms 1 --json")).exits(0);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["against"]["path"], "s3://bucket/ids");
    assert!(number(&report["against"]["load"]["mean_ms"]) > 0.0);
    // Raw files are not measured at a URL.
    setup.server.put("bucket/photos/a.jpg", "x");
    for name in ["bench", "headspace --step-ms 1"] {
        setup.run("a", &format!("{name} s3://bucket/photos")).exits(3).says(&[
            "there is no manifest.json",
            "s3://bucket/photos",
            "only a dataset can be measured at a URL",
        ]);
    }
}

#[test]
fn damaged_records_are_counted_and_named() {
    let photos = photos("--resize shorter:48 --format msgpack");
    let shard = tree(&photos.dataset).into_keys().find(|name| name.starts_with("train/")).unwrap();
    let shard = photos.dataset.join(shard);
    let mut bytes = fs::read(&shard).unwrap();
    let end = bytes.len() - 40;
    bytes[end] ^= 0xff;
    fs::write(&shard, bytes).unwrap();
    let report = bench(&[&photos.dataset], "--threads 1 --order sequential --no-probe");
    assert_sane(&report);
    let failures = &report["targets"][0]["failures"];
    assert_eq!(failures["count"], 1, "{failures}");
    assert!(failures["examples"][0][0].as_str().unwrap().starts_with("record "), "{failures}");
}

#[test]
fn every_command_on_the_reference_page_runs() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["photos", "corpus", "tokenizers"] {
        copy_dir(&fixture(name), &dir.path().join(name));
    }
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/bench.md")).unwrap();
    let mut in_shell = false;
    let mut ran = 0;
    for line in page.lines() {
        if line.starts_with("```") {
            in_shell = line == "```sh";
            continue;
        }
        let Some(text) = line.strip_prefix("dsconvert ").filter(|_| in_shell) else { continue };
        let quick = match text.split(' ').next() {
            Some("bench" | "headspace") if text.contains("--repeat") => "",
            Some("bench" | "headspace") if text.contains("--seconds") => "--repeat 1",
            Some("bench") if !text.contains("--threads") => "--items 8 --repeat 1 --threads 1",
            Some("bench" | "headspace") => "--items 8 --repeat 1",
            _ => "",
        };
        let mut run = command(text.split_whitespace().chain(quick.split_whitespace()));
        Ran::of(run.current_dir(dir.path()).output().unwrap()).exits(0);
        ran += 1;
    }
    assert_eq!(ran, 5);
}

#[test]
fn options_that_apply_to_none_of_the_targets_are_refused() {
    let photos = photos("--resize shorter:48");
    let corpus = fixture("corpus/stories.jsonl");
    for (path, options, messages) in [
        (&photos.raw, "--tokenizer bytes", ["--tokenizer: applies only to text files", ": image files)"]),
        (&photos.raw, "--split train", ["--split: applies only to datasets", ": image files)"]),
        (
            &photos.dataset,
            "--resize shorter:32",
            ["--resize: applies only to image files", ": dataset of images)"],
        ),
        (&corpus, "--crop center:8x8", ["--crop: applies only to image files", ": text files)"]),
    ] {
        run("bench", &[path], options).exits(2).says(&messages);
        run("headspace", &[path], &format!("{options} --step-ms 1")).exits(2).says(&messages[..1]);
    }
    // They apply to the files that the dataset is compared with.
    let both: [&Path; 3] = [&photos.dataset, Path::new("--against"), &photos.raw];
    run("bench", &both, "--resize shorter:48 --items 8 --repeat 1 --threads 1 --no-probe").exits(0);
}
