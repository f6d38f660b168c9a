//! Resumed runs check every file that they reuse, and `--overwrite` removes only files of the dataset.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::support::*;

const OPTIONS: &str = "--tokenizer bytes --unit-bytes 4096 --shard-records 8 --dedup exact --filter-length 30:9999 --format parquet";

/// Returns a source, the files of an uninterrupted run, and a directory whose units are all finished but not committed.
fn finished_units(dir: &Path) -> (PathBuf, BTreeMap<String, Vec<u8>>, PathBuf) {
    let source = corpus_with_rejects(dir, 80, 5, 40);
    let (whole, out) = (dir.join("whole"), dir.join("unfinished"));
    convert("text", &source, &whole, &format!("{OPTIONS} --max-rejects 50%")).exits(0);
    convert("text", &source, &out, OPTIONS).exits(3).says(&["--max-rejects"]);
    (source, tree(&whole), out)
}

#[test]
fn rates_of_a_resumed_run_exclude_the_units_that_were_finished_before() {
    let dir = tempfile::tempdir().unwrap();
    let (source, whole, out) = finished_units(dir.path());
    let report = dir.path().join("run.json");
    let resume = format!("{OPTIONS} --max-rejects 50% --resume --report {}", report.display());
    convert("text", &source, &out, &resume).exits(0);
    assert_same(&tree(&out), &whole);
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    assert!(report["records"].as_u64() > Some(0), "{report}");
    for rate in ["items", "bytes_in", "bytes_out", "tokens"] {
        assert_eq!(report["rates"][rate], 0.0, "{rate}: {report}");
    }
}

#[test]
fn a_finished_unit_with_a_damaged_file_is_converted_again() {
    let dir = tempfile::tempdir().unwrap();
    let (source, whole, unfinished) = finished_units(dir.path());
    let out = dir.path().join("out");
    let files: Vec<String> = tree(&unfinished).into_keys().filter(|name| name.contains("/done/")).collect();
    let mut kinds = std::collections::BTreeSet::new();
    for name in files {
        let path = out.join(&name);
        let is_shard = name.ends_with(".parquet");
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        // One non-empty file of every kind, from any unit.
        if tree(&unfinished)[&name].is_empty()
            || !kinds.insert(if is_shard { "shard".to_owned() } else { file })
        {
            continue;
        }
        let bytes = std::fs::read(unfinished.join(&name)).unwrap();
        for damage in ["missing", "short", "long", "altered", "a link", "a folder"] {
            let _ = std::fs::remove_dir_all(&out);
            copy_dir(&unfinished, &out);
            std::fs::remove_file(&path).unwrap();
            match damage {
                "missing" => {}
                "short" => std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap(),
                "long" => std::fs::write(&path, [&bytes[..], b"\n"].concat()).unwrap(),
                "altered" => {
                    let mut altered = bytes.clone();
                    altered[bytes.len() / 2] ^= 1;
                    std::fs::write(&path, altered).unwrap();
                }
                "a link" => symlink(unfinished.join(&name), &path).unwrap(),
                _ => std::fs::create_dir(&path).unwrap(),
            }
            let resume = if is_shard && damage == "altered" { "--resume=verify" } else { "--resume" };
            let resumed = convert("text", &source, &out, &format!("{OPTIONS} --max-rejects 50% {resume}"));
            if damage == "a link" {
                resumed.exits(2).says(&["symbolic link"]);
                continue;
            }
            resumed.exits(0).says(&["is converted again, because"]);
            assert_same(&tree(&out), &whole);
        }
    }
    let expected =
        ["duplicates.jsonl", "filtered.jsonl", "rejects.jsonl", "shard", "train.rows", "unit.json"];
    assert_eq!(kinds.iter().collect::<Vec<_>>(), expected);
    // Without damage, nothing is converted again.
    let _ = std::fs::remove_dir_all(&out);
    copy_dir(&unfinished, &out);
    let resumed =
        convert("text", &source, &out, &format!("{OPTIONS} --max-rejects 50% --resume=verify")).exits(0);
    assert_eq!(resumed.stderr, "");
    assert_same(&tree(&out), &whole);
}

#[test]
fn a_shard_that_was_already_moved_is_checked_at_its_final_path() {
    let dir = tempfile::tempdir().unwrap();
    let (source, whole, unfinished) = finished_units(dir.path());
    let out = dir.path().join("out");
    for (damage, resume) in [("none", "--resume"), ("short", "--resume"), ("altered", "--resume=verify")] {
        let _ = std::fs::remove_dir_all(&out);
        copy_dir(&unfinished, &out);
        std::fs::create_dir(out.join("train")).unwrap();
        let moved = out.join("train/train-000000-00.parquet");
        std::fs::rename(out.join(".dsconvert/units/000000/done/train-000000-00.parquet"), &moved).unwrap();
        let mut bytes = std::fs::read(&moved).unwrap();
        match damage {
            "short" => drop(bytes.pop()),
            "altered" => bytes[9] ^= 1,
            _ => {}
        }
        std::fs::write(&moved, bytes).unwrap();
        let resumed =
            convert("text", &source, &out, &format!("{OPTIONS} --max-rejects 50% {resume}")).exits(0);
        assert_eq!(
            resumed.stderr.contains("unit 0 is converted again"),
            damage != "none",
            "{}",
            resumed.stderr
        );
        assert_same(&tree(&out), &whole);
    }
}

#[test]
fn resume_detects_damaged_files_of_a_committed_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let source = corpus_with_rejects(dir.path(), 80, 5, 40);
    let out = dir.path().join("out");
    let options = format!("{OPTIONS} --max-rejects 50%");
    convert("text", &source, &out, &options).exits(0);
    for name in ["train/train-000000-00.parquet", "rejects.jsonl", "index/shards.arrow"] {
        let path = out.join(name);
        let bytes = std::fs::read(&path).unwrap();
        let mut altered = bytes.clone();
        altered[bytes.len() / 3] ^= 1;
        std::fs::write(&path, &altered).unwrap();
        convert("text", &source, &out, &format!("{options} --resume=verify")).exits(3).says(&[name]);
        std::fs::write(&path, &bytes[1..]).unwrap();
        convert("text", &source, &out, &format!("{options} --resume")).exits(3).says(&[name]);
        std::fs::write(&path, &bytes).unwrap();
        assert!(!out.join(".dsconvert").exists());
    }
    convert("text", &source, &out, &format!("{options} --resume=verify")).exits(0);
    convert("text", &source, &out, &format!("{options} --resume=trust")).exits(2);
}

/// Duplicates found by an unfinished run must not be reused for changed sources.
#[test]
fn overwriting_an_unfinished_run_discards_its_duplicates() {
    let dir = tempfile::tempdir().unwrap();
    let (source, _, out) = finished_units(dir.path());
    assert!(out.join(".dsconvert/duplicates").exists());
    // The former duplicates get different texts of the same size.
    let text = std::fs::read_to_string(&source).unwrap();
    let lines = text.lines().enumerate();
    let changed: String = lines
        .map(|(i, line)| {
            if (80..85).contains(&i) { format!("{}\n", line.replace('w', "v")) } else { format!("{line}\n") }
        })
        .collect();
    std::fs::write(&source, changed).unwrap();
    convert("text", &source, &out, &format!("{OPTIONS} --max-rejects 50% --overwrite")).exits(0);
    let filtered = manifest(&out)["filtered"].as_u64().unwrap();
    assert_outcomes(&out, [85 - filtered, filtered, 0, 40]);
}

#[test]
fn a_link_below_the_output_directory_is_refused_and_nothing_is_removed_through_it() {
    let dir = tempfile::tempdir().unwrap();
    let (source, whole, unfinished) = finished_units(dir.path());
    let elsewhere = dir.path().join("elsewhere");
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    std::fs::rename(unfinished.join(".dsconvert"), &elsewhere).unwrap();
    symlink(&elsewhere, out.join(".dsconvert")).unwrap();
    let before = tree(&elsewhere);
    for how in ["--resume", "--overwrite"] {
        convert("text", &source, &out, &format!("{OPTIONS} {how}"))
            .exits(2)
            .says(&["symbolic link", ".dsconvert"]);
        assert_same(&tree(&elsewhere), &before);
    }
    // The output directory itself may be a link, but no folder of the dataset.
    std::fs::remove_file(out.join(".dsconvert")).unwrap();
    convert("text", &source, &out, &format!("{OPTIONS} --max-rejects 50%")).exits(0);
    let link = dir.path().join("link");
    symlink(&out, &link).unwrap();
    convert("text", &source, &link, &format!("{OPTIONS} --max-rejects 50% --overwrite")).exits(0);
    assert_same(&tree(&out), &whole);
    std::fs::rename(out.join("train"), dir.path().join("train")).unwrap();
    symlink(dir.path().join("train"), out.join("train")).unwrap();
    convert("text", &source, &out, &format!("{OPTIONS} --overwrite")).exits(2).says(&["symbolic link"]);
    assert!(out.join("manifest.json").exists() && tree(&dir.path().join("train")).len() > 3);
}

#[test]
fn a_dataset_without_an_intact_shard_table_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let source = corpus_with_rejects(dir.path(), 80, 5, 40);
    let out = dir.path().join("out");
    let options = format!("{OPTIONS} --max-rejects 50%");
    convert("text", &source, &out, &options).exits(0);
    let whole = tree(&out);
    let table = out.join("index/shards.arrow");
    std::fs::remove_file(&table).unwrap();
    let overwrite = || convert("text", &source, &out, &format!("{options} --overwrite"));
    overwrite().exits(3).says(&["shards.arrow", "is missing", "--resume=repair", "by hand"]);
    // A damaged table could name any file.
    let intact = &whole["index/shards.arrow"];
    let renamed = String::from_utf8_lossy(intact).contains("train-000000-00");
    assert!(renamed);
    let mut bytes = intact.clone();
    let at = bytes.windows(15).position(|name| name == b"train-000000-00").unwrap();
    bytes[at + 14] = b'7';
    std::fs::write(out.join("train/train-000000-07.parquet"), "precious").unwrap();
    std::fs::write(&table, bytes).unwrap();
    overwrite().exits(3).says(&["shards.arrow", "does not match its SHA-256", "--resume=repair"]);
    std::fs::write(&table, "short").unwrap();
    overwrite().exits(3).says(&["shards.arrow", "has 5 bytes instead of", "--resume=repair"]);
    std::fs::remove_file(out.join("train/train-000000-07.parquet")).unwrap();
    std::fs::write(&table, intact).unwrap();
    assert_same(&tree(&out), &whole);
    convert("text", &source, &out, &format!("{options} --overwrite")).exits(0);
    assert_same(&tree(&out), &whole);
}

#[test]
fn foreign_files_make_verification_fail() {
    let dir = tempfile::tempdir().unwrap();
    let source = corpus_with_rejects(dir.path(), 80, 5, 40);
    let out = dir.path().join("out");
    convert("text", &source, &out, &format!("{OPTIONS} --max-rejects 50%")).exits(0);
    let verify = || Ran::of(command(["inspect", out.to_str().unwrap(), "--verify"]).output().unwrap());
    verify().exits(0);
    std::fs::write(out.join("train/train-000099-00.parquet"), "left by another run").unwrap();
    let ran = verify().exits(3);
    assert!(ran.stdout.contains("not part of this dataset: train/train-000099-00.parquet"), "{}", ran.stdout);
}

#[test]
fn the_source_file_that_changed_is_named_with_several_sources() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["z/1.txt", "z/2.txt", "a/1.txt"] {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, name).unwrap();
    }
    let [z, a] = ["z", "a"].map(|name| dir.path().join(name));
    let out = dir.path().join("out");
    let plan = |sources: [&Path; 2], options: &[&str]| {
        let mut command = command(["plan", "text"]);
        command.args(sources).arg("--out").arg(&out).args(["--tokenizer", "bytes"]).args(options);
        Ran::of(command.output().unwrap())
    };
    plan([&z, &a], &[]).exits(0);
    std::fs::write(dir.path().join("z/3.txt"), "new").unwrap();
    plan([&z, &a], &["--resume"]).exits(2).says(&["the source file z/3.txt is new"]);
    std::fs::remove_file(dir.path().join("z/3.txt")).unwrap();
    std::fs::remove_file(dir.path().join("z/2.txt")).unwrap();
    plan([&z, &a], &["--resume"]).exits(2).says(&["the source file z/2.txt is gone"]);
}
