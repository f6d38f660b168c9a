//! `dsconvert bench A --against B` and the pairing of their items.

use std::fs;
use std::path::Path;

use crate::bench::{assert_sane, bench, measurements, number, photos, run};
use crate::support::*;

#[test]
fn a_dataset_is_compared_with_its_source() {
    let photos = photos("--resize shorter:48 --format msgpack");
    let found = manifest(&photos.dataset);
    // The pixel options come from the dataset.
    let both: [&Path; 3] = [&photos.dataset, Path::new("--against"), &photos.raw];
    let report = bench(&both, "--threads 1,2 --no-probe");
    assert_sane(&report);
    assert_eq!(
        (&report["paired_items"], &report["checked_items"]),
        (&found["converted"], &found["converted"])
    );
    let comparison = report["comparison"].as_array().unwrap();
    assert_eq!(comparison.len(), 4);
    for row in comparison {
        let [min, median, max] = ["min", "median", "max"].map(|part| number(&row["speedup"][part]));
        assert!(0.0 < min && min <= median && median <= max);
    }
    // Items that the conversion rejected are not read.
    assert!(report["targets"].as_array().unwrap().iter().all(|t| t["failures"]["count"] == 0));
    let reads = |target: usize| measurements(&report).iter().filter(|m| m["target"] == target).count();
    assert_eq!((reads(0), reads(1)), (4, 4));
    let text = run("bench", &both, "--items 8 --repeat 1 --threads 1").exits(0).stdout;
    assert!(text.contains("times as fast as") && text.contains("plain reads of"), "{text}");
    assert!(text.contains("\none round; after a warm-up\n") && !text.contains('±'), "{text}");

    run("bench", &both, "--resize shorter:32").exits(2).says(&["cannot be compared", "pixels in the"]);
    fs::remove_file(photos.raw.join("dunes/ridge.jpg")).unwrap();
    run("bench", &both, "").exits(2).says(&["cannot be compared", "left out"]);
    run("bench", &[&photos.dataset, Path::new("--against"), &fixture("corpus")], "")
        .exits(2)
        .says(&["one is a set of images, the other a corpus of text"]);
}

#[test]
fn tokens_are_compared_id_by_id() {
    let dir = tempfile::tempdir().unwrap();
    let (raw, dataset, other) =
        (dir.path().join("a.jsonl"), dir.path().join("ids"), dir.path().join("other"));
    corpus(&raw, 60);
    let tokenizer = |name: &str| format!("--tokenizer {}", fixture(name).display());
    convert("text", &raw, &dataset, &tokenizer("tokenizers/bpe.json")).exits(0);
    convert("text", &raw, &other, "--tokenizer bytes --format arrow").exits(0);
    // The tokenizer comes from the dataset.
    let report = bench(&[&raw, Path::new("--against"), &dataset], "--threads 1 --no-probe");
    assert_sane(&report);
    assert_eq!(report["checked_items"], 60);
    let mut tokens = measurements(&report).iter().map(|m| !m["tokens_per_second"].is_null());
    assert!(tokens.all(|has_tokens| has_tokens));
    run("bench", &[&raw, Path::new("--against"), &dataset], "--tokenizer bytes").exits(2).says(&[
        "cannot be compared",
        "tokens",
        "in the second",
    ]);
    run("bench", &[&dataset, Path::new("--against"), &other], "").exits(2).says(&["cannot be compared"]);
}

/// The default label of a folder may contain `#`, which otherwise starts the offset of a document.
#[test]
fn sources_with_unusual_names_are_paired() {
    let dir = tempfile::tempdir().unwrap();
    let (raw, dataset) = (dir.path().join("te#xt"), dir.path().join("ids"));
    fs::create_dir_all(raw.join("sub")).unwrap();
    corpus(&raw.join("a.jsonl"), 30);
    corpus(&raw.join("sub/b#c.jsonl"), 20);
    convert("text", &raw, &dataset, "--tokenizer bytes").exits(0);
    let report = bench(&[&dataset, Path::new("--against"), &raw], "--threads 1 --no-probe");
    assert_eq!((&report["paired_items"], &report["checked_items"]), (&50.into(), &50.into()));
}

#[test]
fn items_of_several_sources_are_paired_by_their_whole_names() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (folder, text) in [("a", "short"), ("b", "a much longer document")] {
        std::fs::create_dir(at(folder)).unwrap();
        std::fs::write(at(folder).join("x.txt"), text).unwrap();
    }
    let convert_to = |sources: &[std::path::PathBuf], out: &str| {
        let mut command = command(["text", "--tokenizer", "bytes", "--out"]);
        Ran::of(command.arg(at(out)).args(sources).output().unwrap()).exits(0);
    };
    // Both sources have a file x.txt.
    convert_to(&[at("a"), at("b")], "both");
    convert_to(&[at("b"), at("a")], "swapped");
    // A folder, and its file as a source.
    convert_to(&[at("a")], "folder");
    convert_to(&[at("a/x.txt")], "file");
    for (first, second, items) in [("both", "swapped", 2), ("folder", "file", 1), ("file", "folder", 1)] {
        let report = bench(&[&at(first), Path::new("--against"), &at(second)], "--threads 1 --no-probe");
        assert_eq!(
            (&report["paired_items"], &report["checked_items"]),
            (&items.into(), &items.into()),
            "{first}, {second}"
        );
    }
}
