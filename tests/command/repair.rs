//! `--resume=repair` and `inspect --repair` rebuild damaged files of a committed dataset with the committed bytes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::*;

const TEXT: &str = "--tokenizer bytes --unit-bytes 4096 --shard-records 8 --dedup exact --shuffle --pack 64 \
                    --split train=0.7,validation=0.3 --max-rejects 50% --format parquet";

/// Makes a dataset of several units; returns the paths of its source and its directory.
fn dataset(dir: &Path) -> (PathBuf, PathBuf) {
    let (source, out) = (corpus_with_rejects(dir, 80, 5, 40), dir.join("out"));
    convert("text", &source, &out, TEXT).exits(0);
    (source, out)
}

/// Names of the shards, in order.
fn shards(out: &Path) -> Vec<String> {
    let shards: Vec<String> = tree(out).into_keys().filter(|name| name.ends_with(".parquet")).collect();
    assert!(shards.len() > 4, "{shards:?}");
    shards
}

fn verify(out: &Path) -> Ran {
    Ran::of(command([Path::new("inspect"), out, Path::new("--verify")]).output().unwrap())
}

/// Flips a bit in the middle of a file.
fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn damaged_and_missing_shards_are_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = dataset(dir.path());
    let whole = tree(&out);
    let shards = shards(&out);
    let repair = || convert("text", &source, &out, &format!("{TEXT} --resume=repair"));
    assert!(repair().exits(0).stdout.contains("is already complete"));

    flip(&out.join(&shards[0]));
    std::fs::write(out.join(&shards[1]), b"short").unwrap();
    std::fs::remove_dir_all(out.join("validation")).unwrap();
    verify(&out).exits(3);
    convert("text", &source, &out, &format!("{TEXT} --resume=verify")).exits(3).says(&["--resume=repair"]);
    let lost = shards.iter().filter(|name| name.starts_with("validation/")).count();
    let repaired = repair().exits(0).says(&["c.jsonl"]);
    let made = format!("is repaired: {} files regenerated", lost + 2);
    assert!(repaired.stdout.contains(&made), "{}", repaired.stdout);
    for name in &shards[..2] {
        let unit: u32 = name.rsplit('-').nth(1).unwrap().parse().unwrap();
        let file = name.rsplit('/').next().unwrap();
        assert!(repaired.stderr.contains(file), "{}", repaired.stderr);
        assert!(
            repaired.stderr.contains(&format!("unit {unit} is converted again, from ")),
            "{}",
            repaired.stderr
        );
    }
    assert_same(&tree(&out), &whole);
    verify(&out).exits(0);
}

/// The parts of shuffled files are in another order than the files.
#[test]
fn a_repair_names_the_files_of_a_shuffled_unit() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("in"), dir.path().join("out"));
    std::fs::create_dir(&source).unwrap();
    // Three files per unit: a note names up to four.
    let names: Vec<String> = (0..24).map(|i| format!("part-{i:02}.txt")).collect();
    for name in &names {
        std::fs::write(source.join(name), name.repeat(120)).unwrap();
    }
    let options = "--tokenizer bytes --documents file --shuffle --unit-bytes 4096 --format msgpack";
    convert("text", &source, &out, options).exits(0);
    let shards: Vec<String> = tree(&out).into_keys().filter(|name| name.ends_with(".msgpack")).collect();
    assert!(shards.len() > 4, "{shards:?}");
    for shard in &shards {
        let bytes = std::fs::read(out.join(shard)).unwrap();
        // The key of a record contains the name of its file.
        let is_in = |name: &&String| bytes.windows(name.len()).any(|part| part == name.as_bytes());
        flip(&out.join(shard));
        let repaired = convert("text", &source, &out, &format!("{options} --resume=repair")).exits(0);
        let note = repaired.stderr.lines().find(|line| line.contains("is converted again")).unwrap();
        let named: Vec<&String> = names.iter().filter(|name| note.contains(name.as_str())).collect();
        assert_eq!(named, names.iter().filter(is_in).collect::<Vec<_>>(), "{note}");
    }
}

#[test]
fn leftovers_of_an_interrupted_repair_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = dataset(dir.path());
    let whole = tree(&out);
    let shard = &shards(&out)[0];
    // A unit of another run, and an interrupted attempt.
    flip(&out.join(shard));
    let work = out.join(".dsconvert/units/000000/done");
    std::fs::create_dir_all(&work).unwrap();
    std::fs::write(work.join("unit.json"), "{}").unwrap();
    std::fs::create_dir_all(out.join(".dsconvert/units/000001/12345")).unwrap();
    convert("text", &source, &out, &format!("{TEXT} --resume=repair")).exits(0);
    assert_same(&tree(&out), &whole);
}

#[test]
fn a_repair_continues_after_the_times_of_the_sources_have_changed() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = dataset(dir.path());
    let whole = tree(&out);
    flip(&out.join(&shards(&out)[0]));
    // The finished units of a repair before the source was copied again.
    let other = dir.path().join("other");
    let mut plan = command(["plan", "text"]);
    plan.arg(&source).arg("--out").arg(&other).args(TEXT.split_whitespace());
    Ran::of(plan.output().unwrap()).exits(0);
    Ran::of(command(["run"]).arg(&other).output().unwrap()).exits(0);
    copy_dir(&other.join(".dsconvert/units"), &out.join(".dsconvert/units"));
    let file = std::fs::File::options().append(true).open(&source).unwrap();
    file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(100)).unwrap();
    convert("text", &source, &out, &format!("{TEXT} --resume=repair")).exits(0);
    assert_same(&tree(&out), &whole);
}

#[test]
fn a_shard_that_cannot_be_reproduced_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = dataset(dir.path());
    let shards = shards(&out);
    flip(&out.join(&shards[0]));
    let damaged = tree(&out);
    // The same size, so that the plan is the same.
    let text = std::fs::read_to_string(&source).unwrap();
    let other = text.replace(" w1", " w2");
    assert_ne!(text, other);
    std::fs::write(&source, other).unwrap();
    convert("text", &source, &out, &format!("{TEXT} --resume=repair")).exits(3).says(&[
        "differs from the committed one",
        &shards[0],
        "--overwrite",
    ]);
    assert_same(&tree(&out), &damaged);
}

#[test]
fn a_damaged_tokenizer_is_rewritten() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let options =
        |name: &str| format!("--tokenizer {} --resume=repair", fixture("tokenizers").join(name).display());
    let repair = || convert("text", &fixture("corpus"), &out, &options("bpe.json"));
    convert("text", &fixture("corpus"), &out, &options("bpe.json").replace("=repair", "")).exits(0);
    let whole = tree(&out);
    flip(&out.join("tokenizer.json"));
    let repaired = repair().exits(0).says(&["is written again"]);
    assert!(repaired.stdout.contains("1 file regenerated"), "{}", repaired.stdout);
    assert_same(&tree(&out), &whole);
}

#[test]
fn every_index_and_list_is_rebuilt_from_all_units() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = dataset(dir.path());
    let whole = tree(&out);
    let repair = || convert("text", &source, &out, &format!("{TEXT} --resume=repair"));
    let derived: Vec<&String> =
        whole.keys().filter(|name| name.starts_with("index/") || name.ends_with(".jsonl")).collect();
    // Three index files for each of two splits, the shard table, rejects and duplicates.
    assert!(derived.len() >= 9, "{derived:?}");
    for (i, name) in derived.iter().enumerate() {
        // Every run detects a different size; only those that compare hashes detect different bytes.
        match i % 3 {
            0 => std::fs::write(out.join(name), b"short").unwrap(),
            1 => std::fs::remove_file(out.join(name)).unwrap(),
            _ if whole[*name].is_empty() => std::fs::write(out.join(name), b"{}").unwrap(),
            _ => flip(&out.join(name)),
        }
    }
    convert("text", &source, &out, &format!("{TEXT} --resume=verify")).exits(3).says(&["--resume=repair"]);
    let repaired = repair().exits(0).says(&["index/shards.arrow", "regenerated from all units"]);
    let made = format!("is repaired: {} files regenerated", derived.len());
    assert!(repaired.stdout.contains(&made), "{}", repaired.stdout);
    assert_same(&tree(&out), &whole);
    verify(&out).exits(0);
}

#[test]
fn without_the_shard_table_damaged_shards_are_found_and_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = dataset(dir.path());
    let whole = tree(&out);
    let shards = shards(&out);
    for damaged in ["index/shards.arrow", &shards[1]] {
        flip(&out.join(damaged));
    }
    std::fs::remove_file(out.join(&shards[2])).unwrap();
    let repaired = convert("text", &source, &out, &format!("{TEXT} --resume=repair")).exits(0);
    assert!(repaired.stdout.contains("3 files regenerated"), "{}", repaired.stdout);
    assert_same(&tree(&out), &whole);
}

#[test]
fn an_index_that_cannot_be_reproduced_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = dataset(dir.path());
    let index = "index/train.records-0000.arrow";
    flip(&out.join(index));
    let damaged = tree(&out);
    // The same size, so that the plan is the same.
    let text = std::fs::read_to_string(&source).unwrap();
    std::fs::write(&source, text.replace(" w1", " w2")).unwrap();
    convert("text", &source, &out, &format!("{TEXT} --resume=repair")).exits(3).says(&[
        "the regenerated units differ from the committed ones",
        index,
        "--overwrite",
    ]);
    assert_same(&tree(&out), &damaged);
}

#[test]
fn a_damaged_manifest_is_not_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = dataset(dir.path());
    flip(&out.join("manifest.json"));
    let damaged = tree(&out);
    convert("text", &source, &out, &format!("{TEXT} --resume=repair"))
        .exits(3)
        .says(&["manifest.json", "a manifest cannot be repaired"]);
    assert_same(&tree(&out), &damaged);
}

#[test]
fn images_are_repaired_from_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let options = "--resize shorter:32 --unit-bytes 65536 --format msgpack";
    convert("images", &fixture("photos"), &out, options).exits(0);
    let whole = tree(&out);
    let shard = whole.keys().rfind(|name| name.ends_with(".msgpack")).unwrap();
    std::fs::remove_file(out.join(shard)).unwrap();
    convert("images", &fixture("photos"), &out, &format!("{options} --resume=repair"))
        .exits(0)
        .says(&["is missing: unit", "photos/"]);
    assert_same(&tree(&out), &whole);
}

/// Damages the first shard and the shard table, and asserts that `inspect --repair` restores them from `source`.
fn assert_inspect_repairs(source: &Path, out: &Path, format: &str) {
    let whole = tree(out);
    let shard = whole.keys().find(|name| name.ends_with(format) && !name.starts_with("index/")).unwrap();
    flip(&out.join(shard));
    flip(&out.join("index/shards.arrow"));
    let inspect = |repair: bool| {
        let mut command = command([Path::new("inspect"), out, Path::new("--verify")]);
        if repair {
            command.arg("--repair").arg(source);
        }
        Ran::of(command.output().unwrap())
    };
    inspect(false).exits(3);
    let repaired = inspect(true).exits(0);
    assert!(repaired.stdout.contains("intact"), "{}", repaired.stdout);
    assert!(repaired.stderr.contains("is converted again, from "), "{}", repaired.stderr);
    assert_same(&tree(out), &whole);
}

/// Covers every option that a manifest stores; a repair with an option that is not restored from it would be refused.
#[test]
fn inspect_repairs_with_the_options_in_the_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let (photos, text) = (fixture("photos"), dir.path().join("c.jsonl"));
    let lines: String = (0..40)
        .map(|i| format!("{{\"body\": \"words of {i} and more\", \"id\": \"k{i}\", \"n\": {i}}}\n"))
        .collect();
    std::fs::write(&text, lines).unwrap();
    let images = [
        "--resize shorter:32 --enlarge --filter bilinear --crop center:24x24 --color gray --icc drop --animated reject \
         --encode png --lenient --max-pixels 5000000 --min-size 8 --max-aspect 9.5 --min-pixels 64 --layout flat \
         --unit-bytes 65536 --shard-bytes 20000 --shard-records 9 --shuffle --seed 7 --split train=0.8,test=0.2 \
         --format msgpack --follow-symlinks",
        "--resize longer:30 --pad 40x30:#102030 --background black --encode keep --keep-metadata --layout labels \
         --dedup bytes --format arrow",
        "--resize exact:32x32 --color rgba --encode raw --format parquet",
    ];
    for (number, options) in images.into_iter().enumerate() {
        let out = dir.path().join(format!("images-{number}"));
        convert("images", &photos, &out, &format!("{options} --max-rejects 50%")).exits(0);
        let format = manifest(&out)["format"].as_str().unwrap().to_owned();
        assert_inspect_repairs(&photos, &out, &format);
    }
    let tokenizer = fixture("tokenizers/bpe.json");
    let texts = [
        "--text-field body --key-field id --keep-fields n:int64 --max-document-bytes 4KiB --tokenizer bytes --normalize nfkc \
         --invalid-utf8 replace --dedup exact --filter-length 2:500 --max-length 9 --overflow split:2 --input-format jsonl \
         --unit-bytes 4KiB --format protobuf"
            .to_owned(),
        format!(
            "--text-field body --tokenizer {} --special-in-text error --engine reference --verify-ids all --pack 32 \
             --packing concat --max-reference-bytes 1MiB --format parquet",
            tokenizer.display()
        ),
    ];
    for (number, options) in texts.iter().enumerate() {
        let out = dir.path().join(format!("text-{number}"));
        convert("text", &text, &out, options).exits(0);
        let format = manifest(&out)["format"].as_str().unwrap().to_owned();
        let extension = if format == "protobuf" { "pb".to_owned() } else { format };
        assert_inspect_repairs(&text, &out, &extension);
    }
}

/// Earlier versions accepted these options, and stored them.
#[test]
fn inspect_repairs_datasets_with_options_without_effect() {
    let dir = tempfile::tempdir().unwrap();
    let (photos, out) = (fixture("photos"), dir.path().join("out"));
    let options =
        "--enlarge --filter box --encode png --color rgba --background black --seed 5 --max-rejects 50%";
    convert("images", &photos, &out, options).exits(2);
    // A repair accepts them, and starts if there is nothing to repair.
    convert("images", &photos, &out, &format!("{options} --resume=repair")).exits(0);
    assert_inspect_repairs(&photos, &out, "parquet");
}

#[test]
fn inspect_refuses_repairs_that_need_more_than_the_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("c.txt"), dir.path().join("out"));
    std::fs::write(&source, "some words").unwrap();
    let list = dir.path().join("list");
    std::fs::write(&list, "c.txt\n").unwrap();
    convert("text", dir.path(), &out, &format!("--tokenizer bytes --files-from {}", list.display())).exits(0);
    flip(&out.join("index/train.records-0000.arrow"));
    let inspect = |path: &Path, source: &Path| {
        let arguments = [Path::new("inspect"), path, Path::new("--verify"), Path::new("--repair"), source];
        Ran::of(command(arguments).output().unwrap())
    };
    let advice = verify(&out).exits(3).stdout;
    assert!(!advice.contains("--repair ") && advice.contains("again, with --resume=repair"), "{advice}");
    inspect(&out, dir.path()).exits(3).says(&["from a list of files", "--resume=repair"]);
    let named = dir.path().join("named");
    let label = std::ffi::OsString::from(format!("docs={}", source.display()));
    convert("text", Path::new(&label), &named, "--tokenizer bytes").exits(0);
    flip(&named.join("index/shards.arrow"));
    let refused = inspect(&named, &source).exits(2);
    let refused = refused
        .says(&["cannot be repaired, because its sources have the labels docs, and now c.txt", "LABEL=PATH"]);
    assert!(!refused.stderr.contains("--overwrite"), "{}", refused.stderr);
    inspect(&named, Path::new(&label)).exits(0);
    inspect(&out.join("train/train-000000-00.arrow"), dir.path()).exits(2).says(&["a single shard"]);
    inspect(Path::new("s3://bucket/set"), dir.path()).exits(2).says(&["object storage", "another prefix"]);
}

#[test]
fn a_quiet_repair_prints_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = dataset(dir.path());
    flip(&out.join(&shards(&out)[0]));
    let ran = convert("text", &source, &out, &format!("{TEXT} --resume=repair --quiet")).exits(0);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
    verify(&out).exits(0);
}

/// The class names are in the manifest, and metadata files that the dataset was made without are ignored again.
#[test]
fn inspect_repairs_with_classes_from_a_file_and_without_metadata() {
    let dir = tempfile::tempdir().unwrap();
    let photos = dir.path().join("photos");
    copy_dir(&fixture("photos"), &photos);
    std::fs::write(photos.join("metadata.csv"), "file_name,caption\ndunes/ridge.jpg,a ridge\n").unwrap();
    let classes = dir.path().join("classes.txt");
    std::fs::write(&classes, "signs, and more\nnight\nforest\nflowers\ndunes\n").unwrap();
    std::fs::rename(photos.join("signs"), photos.join("signs, and more")).unwrap();
    let out = dir.path().join("out");
    let options =
        format!("--resize shorter:32 --metadata none --layout labels --classes {}", classes.display());
    convert("images", &photos, &out, &format!("{options} --max-rejects 50%")).exits(0);
    assert_eq!(manifest(&out)["options"]["classes"].as_array().unwrap().len(), 5);
    std::fs::remove_file(&classes).unwrap();
    assert_inspect_repairs(&photos, &out, "parquet");
}

/// The shards of a dataset without its shard table are unknown, so `--overwrite` would refuse to remove them.
#[test]
fn overwriting_is_not_suggested_for_a_damaged_shard_table() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = dataset(dir.path());
    let (table, index) = (out.join("index/shards.arrow"), out.join("index/train.records-0000.arrow"));
    let resume = |check: &str| convert("text", &source, &out, &format!("{TEXT} {check}")).exits(3);
    flip(&index);
    resume("--resume=verify").says(&["--resume=repair", "--overwrite"]);
    std::fs::write(&table, "short").unwrap();
    for ran in [
        resume("--resume").says(&["has 5 bytes", "--resume=repair"]),
        resume("--resume=verify").says(&["2 files are damaged", "--resume=repair"]),
    ] {
        assert!(
            ran.stderr.contains("another --out") && !ran.stderr.contains("--overwrite"),
            "{}",
            ran.stderr
        );
    }
    let text = std::fs::read_to_string(&source).unwrap();
    std::fs::write(&source, text.replace(" w1", " w2")).unwrap();
    let ran = resume("--resume=repair").says(&["the regenerated units differ from the committed ones"]);
    assert!(ran.stderr.contains("another --out") && !ran.stderr.contains("--overwrite"), "{}", ran.stderr);
}

fn inspect_repair(out: &Path, options: &[&str]) -> Ran {
    let mut command = command([Path::new("inspect"), out, Path::new("--verify"), Path::new("--repair")]);
    Ran::of(command.args(options).output().unwrap())
}

#[test]
fn inspect_repairs_a_dataset_without_its_shard_table_with_few_threads() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = dataset(dir.path());
    let whole = tree(&out);
    std::fs::remove_file(out.join("index/shards.arrow")).unwrap();
    std::fs::remove_file(out.join(&shards(&out)[0])).unwrap();
    let ran = inspect_repair(&out, &[source.to_str().unwrap(), "--threads", "2"]).exits(0);
    assert!(ran.stdout.contains("shards.arrow") && ran.stdout.contains("intact"), "{}", ran.stdout);
    assert_same(&tree(&out), &whole);
    // A dataset that does not exist is not damaged.
    inspect_repair(&dir.path().join("none"), &[source.to_str().unwrap()]).exits(3);
}

#[test]
fn a_missing_index_is_one_problem() {
    let dir = tempfile::tempdir().unwrap();
    let (_, out) = dataset(dir.path());
    std::fs::remove_file(out.join("index/train.records-0000.arrow")).unwrap();
    let ran = verify(&out).exits(3);
    assert_eq!(ran.stdout.matches("train.records-0000.arrow").count(), 1, "{}", ran.stdout);
}

#[test]
fn inspect_does_not_repair_with_a_damaged_tokenizer() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("c.txt"), dir.path().join("out"));
    std::fs::write(&source, "some words").unwrap();
    let options = format!("--tokenizer {}", fixture("tokenizers/bpe.json").display());
    convert("text", &source, &out, &options).exits(0);
    let whole = tree(&out);
    flip(&out.join("tokenizer.json"));
    let repair = || inspect_repair(&out, &[source.to_str().unwrap()]).exits(3);
    let advice = verify(&out).exits(3).stdout;
    assert!(!advice.contains("--repair ") && advice.contains("again, with --resume=repair"), "{advice}");
    repair().says(&["its tokenizer.json is damaged", "--resume=repair"]);
    std::fs::remove_file(out.join("tokenizer.json")).unwrap();
    repair().says(&["its tokenizer.json is missing", "--resume=repair"]);
    convert("text", &source, &out, &format!("{options} --resume=repair")).exits(0);
    assert_same(&tree(&out), &whole);
}

#[test]
fn a_dataset_from_standard_input_is_not_said_to_be_repairable() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut text = command(["text", "-", "--input-format", "txt", "--tokenizer", "bytes", "--out"]);
    let mut child = text.arg(&out).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"some words").unwrap();
    assert!(child.wait().unwrap().success());
    flip(&out.join("train/train-000000-00.arrow"));
    let ran = verify(&out).exits(3);
    assert!(!ran.stdout.contains("--repair"), "{}", ran.stdout);
    assert!(ran.stdout.contains("convert again with --overwrite"), "{}", ran.stdout);
    inspect_repair(&out, &["c.txt"]).exits(2).says(&["c.txt: --repair: there is no such source"]);
    let source = dir.path().join("c.txt");
    std::fs::write(&source, "some words").unwrap();
    let ran = inspect_repair(&out, &[source.to_str().unwrap()]).exits(3);
    ran.says(&["from standard input", "--overwrite"]);
}
