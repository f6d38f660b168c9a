//! `--resume=repair`: damaged shards of a committed dataset are made again, with the bytes that were committed.

use std::path::{Path, PathBuf};

use crate::support::*;

const TEXT: &str = "--tokenizer bytes --unit-bytes 4096 --shard-records 8 --dedup exact --shuffle --pack 64 \
                    --split train=0.7,validation=0.3 --max-rejects 50%";

/// A dataset of several units, and its sources.
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

fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn damaged_and_missing_shards_are_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = dataset(dir.path());
    let whole = tree(&out);
    let shards = shards(&out);
    let repair = || convert("text", &source, &out, &format!("{TEXT} --resume=repair"));
    assert!(repair().exits(0).stdout.contains("is complete already"));

    flip(&out.join(&shards[0]));
    std::fs::write(out.join(&shards[1]), b"short").unwrap();
    std::fs::remove_dir_all(out.join("validation")).unwrap();
    verify(&out).exits(3);
    convert("text", &source, &out, &format!("{TEXT} --resume=verify")).exits(3).says(&["--resume=repair"]);
    let lost = shards.iter().filter(|name| name.starts_with("validation/")).count();
    let repaired = repair().exits(0).says(&["c.jsonl"]);
    let made = format!("is repaired: {} files made again", lost + 2);
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

#[test]
fn what_is_left_of_an_interrupted_repair_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = dataset(dir.path());
    let whole = tree(&out);
    let shard = &shards(&out)[0];
    // A unit of another run, and an attempt that was cut short.
    flip(&out.join(shard));
    let work = out.join(".dsconvert/units/000000/done");
    std::fs::create_dir_all(&work).unwrap();
    std::fs::write(work.join("unit.json"), "{}").unwrap();
    std::fs::create_dir_all(out.join(".dsconvert/units/000001/12345")).unwrap();
    convert("text", &source, &out, &format!("{TEXT} --resume=repair")).exits(0);
    assert_same(&tree(&out), &whole);
}

#[test]
fn a_shard_that_comes_out_differently_is_not_replaced() {
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
        "does not come out as it was committed",
        &shards[0],
        "--overwrite",
    ]);
    assert_same(&tree(&out), &damaged);
}

#[test]
fn the_tokenizer_is_written_again_and_indexes_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let tokenizer = fixture("tokenizers").join("bpe.json");
    let options = format!("--tokenizer {}", tokenizer.display());
    convert("text", &fixture("corpus"), &out, &options).exits(0);
    let whole = tree(&out);
    let repair = || convert("text", &fixture("corpus"), &out, &format!("{options} --resume=repair"));
    flip(&out.join("tokenizer.json"));
    let repaired = repair().exits(0).says(&["is written again"]);
    assert!(repaired.stdout.contains("1 file made again"), "{}", repaired.stdout);
    assert_same(&tree(&out), &whole);

    let index = whole.keys().find(|name| name.contains(".lengths-")).unwrap();
    flip(&out.join(index));
    let damaged = tree(&out);
    repair().exits(3).says(&[index, "only shards and the tokenizer can be repaired"]);
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
