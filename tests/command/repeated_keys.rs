//! Files that have the key of an item in a tar or Parquet file beside them.

use std::path::Path;

use crate::images_sources::{image, owned, run, texts};
use crate::images_tar::{Tar, put};
use crate::support::*;

/// Checks that the files of `source` are refused, by a run and by a plan, with these parts of the message.
fn refused(dir: &Path, source: &str, parts: &[&str]) {
    let all = [parts, &["rename the file", "keys must be unique"]].concat();
    run(dir, b"", &[source, "--out", "never"]).exits(2).says(&all);
    let mut plan = command(["plan", "images", source, "--out", "never"]);
    Ran::of(plan.current_dir(dir).output().unwrap()).exits(2).says(&all);
    assert!(!dir.join("never").exists());
}

#[test]
fn a_file_with_the_key_of_a_sample_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (root, source) = (dir.path(), dir.path().join("s"));
    std::fs::create_dir(&source).unwrap();
    let tar = Tar::default().file("b.jpg", &image(0)).file("b.txt", b"text").file("d/c.jpg", &image(1)).end();
    put(&source, "a.tar", &tar);
    put(&source, "a.tar#b", &image(2));
    refused(root, "s", &["the key \"s/a.tar#b\" may occur twice: for s/a.tar#b and for an item in s/a.tar"]);
    std::fs::remove_file(source.join("a.tar#b")).unwrap();
    std::fs::create_dir(source.join("a.tar#d")).unwrap();
    put(&source.join("a.tar#d"), "c", &image(2));
    refused(root, "s", &["the key \"s/a.tar#d/c\" may occur twice"]);
    std::fs::remove_dir_all(source.join("a.tar#d")).unwrap();
    put(&source, "a.tar#d.tar", &tar);
    refused(root, "s", &["keys that start with \"s/a.tar#d.tar#\" may occur twice"]);
    std::fs::remove_file(source.join("a.tar#d.tar")).unwrap();
    // No sample has a dot in its name, and a file that is not an image has no key.
    put(&source, "a.tar#b.jpg", &image(2));
    put(&source, "a.tar#notes", b"text");
    put(&source, "x#b", &image(3));
    run(root, b"", &["s", "--out", "out"]).exits(0);
    let keys = ["s/a.tar#b", "s/a.tar#d/c", "s/a.tar#b.jpg", "s/x#b"];
    assert_eq!(texts(&root.join("out"), "train", "key"), keys);
}

#[test]
fn a_file_with_the_key_of_a_row_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (root, source) = (dir.path(), dir.path().join("s"));
    std::fs::create_dir(&source).unwrap();
    put(root, "x.jpg", &image(0));
    run(root, b"", &["x.jpg", "--out", "made"]).exits(0);
    std::fs::copy(root.join("made/train/train-000000-00.parquet"), source.join("x.parquet")).unwrap();
    put(&source, "x.parquet#00", &image(1));
    run(root, b"", &["s", "--out", "out"]).exits(0);
    assert_eq!(texts(&root.join("out"), "train", "key"), ["s/x.parquet#0", "s/x.parquet#00"]);
    put(&source, "x.parquet#0", &image(1));
    refused(root, "s", &["the key \"s/x.parquet#0\" may occur twice", "an item in s/x.parquet"]);
}

/// An image with an extension, one without, and files that are no images.
#[test]
fn files_that_are_not_converted_are_not_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (root, source) = (dir.path(), dir.path().join("s"));
    std::fs::create_dir(&source).unwrap();
    put(&source, "a.jpg", &image(0));
    put(&source, "b", &image(1));
    put(&source, "broken.jpg", b"\xff\xd8\xff");
    put(&source, "notes.txt", b"text");
    let options = ["s", "--out", "out", "--max-rejects", "50%"];
    let ran = run(root, b"", &options).exits(0);
    assert!(ran.stdout.contains("  splits: train (3 files)\n"), "{}", ran.stdout);
    let planned = run(root, b"", &["s", "--dry-run"]).exits(0);
    // The content of files without the name of an image is read in the run.
    assert!(planned.stdout.contains("splits   train (2 files)\n"), "{}", planned.stdout);
    let tars = root.join("t");
    std::fs::create_dir(&tars).unwrap();
    put(&tars, "a.tar", &Tar::default().file("0.jpg", &image(0)).file("1.jpg", &image(1)).end());
    put(&tars, "a.idx", b"index");
    let ran = run(root, b"", &["t", "--out", "from-tar"]).exits(0);
    assert!(ran.stdout.contains("  splits: train (1 file)\n"), "{}", ran.stdout);
    assert_eq!(rejects(&root.join("out")), owned(&[("s/broken.jpg", "truncated")]));
}
