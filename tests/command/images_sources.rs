//! Where images come from, beside folders: lists, metadata files, tar files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;

use dsconvert::reader::Dataset;
use dsconvert::sample::Value;

use crate::support::*;

/// Some image of the fixtures; equal numbers give equal bytes.
fn image(number: usize) -> Vec<u8> {
    let photos = tree(&fixture("photos"));
    let whole: Vec<_> = photos
        .into_values()
        .filter(|b| b.starts_with(b"\x89PNG") || (b.starts_with(b"\xff\xd8\xff") && b.ends_with(b"\xff\xd9")))
        .collect();
    whole[number % whole.len()].clone()
}

/// Writes images into the folder `dir`.
fn images(dir: &Path, names: &[&str]) {
    for (number, name) in names.iter().enumerate() {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, image(number)).unwrap();
    }
}

/// Runs `dsconvert images` with these arguments in the folder `dir`, with `input` as standard input.
fn run(dir: &Path, input: &[u8], args: &[&str]) -> Ran {
    use std::io::Write;
    let mut command = command(["images"].iter().chain(args));
    command.current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that is refused may not read its input at all.
    let _ = child.stdin.take().unwrap().write_all(input);
    Ran::of(child.wait_with_output().unwrap())
}

/// The field `name` of all records of a split, in order.
fn column(out: &Path, split: &str, name: &str) -> Vec<Value> {
    let dataset = Dataset::open(out).unwrap();
    let records = dataset.split(split).unwrap().iter();
    records.map(|r| r.unwrap().get(name).unwrap().clone()).collect()
}

fn texts(out: &Path, split: &str, name: &str) -> Vec<String> {
    let text = |value| match value {
        Value::Text(text) => text.as_str().to_owned(),
        other => format!("{other:?}"),
    };
    column(out, split, name).into_iter().map(text).collect()
}

fn own(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn a_list_names_files_in_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    images(&root, &["dog/a.png", "cat/b.jpg", "cat/c.jpg", "unlisted.jpg"]);
    let absolute = root.canonicalize().unwrap().join("cat/c.jpg");
    let list = format!("dog/a.png\r\n\n./cat/b.jpg\n{}\n", absolute.display());
    std::fs::write(root.join("list.txt"), &list).unwrap();
    let names = ["root/dog/a.png", "root/cat/b.jpg", "root/cat/c.jpg"];

    run(dir.path(), b"", &["--files-from", "root/list.txt", "--out", "out"]).exits(0);
    let out = dir.path().join("out");
    assert_eq!(texts(&out, "train", "key"), names);
    assert_eq!(manifest(&out)["schema"]["class_names"], serde_json::json!(["cat", "dog"]));
    assert_eq!(column(&out, "train", "label"), [Value::Int(1), Value::Int(0), Value::Int(0)]);

    // The same list from standard input, for the folder that is named; and relative to the working directory.
    run(dir.path(), list.as_bytes(), &["root", "--files-from", "-", "--out", "piped"]).exits(0);
    assert_same(&tree(&out), &tree(&dir.path().join("piped")));
    run(&root, list.as_bytes(), &["--files-from", "-", "--out", "inside", "--threads", "3"]).exits(0);
    assert_same(&tree(&out), &tree(&root.join("inside")));
    run(&root, list.as_bytes(), &["--files-from", "-", "--out", "inside", "--resume"]).exits(0);
    run(&root, b"dog/a.png", &["--files-from", "-", "--out", "inside", "--resume"]).exits(2);
}

#[test]
fn names_in_a_list_that_lead_to_no_image_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    images(&root, &["a.png", "new\nline.png"]);
    std::fs::write(dir.path().join("secret.png"), image(0)).unwrap();
    std::fs::write(root.join("notes.txt"), "no image").unwrap();
    std::fs::write(root.join(OsStr::from_bytes(b"caf\xe9.png")), image(1)).unwrap();
    std::os::unix::fs::symlink("../secret.png", root.join("link.png")).unwrap();
    std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
    let list =
        b"a.png\0new\nline.png\0caf\xe9.png\0gone.png\0../secret.png\0link.png\0loop/x.png\0notes.txt\0.\0";
    let args = ["root", "--files-from", "-", "-0", "--out", "out", "--max-rejects", "100%"];
    run(dir.path(), list, &args).exits(0);
    let out = dir.path().join("out");
    assert_eq!(texts(&out, "train", "origin"), ["root/a.png", "root/new\nline.png", "root/caf%E9.png"]);
    let rejected = own(&[
        ("root/gone.png", "missing-file"),
        ("root/../secret.png", "unsafe-path"),
        ("root/link.png", "unsafe-path"),
        ("root/loop/x.png", "unsafe-path"),
        ("root/notes.txt", "unknown-type"),
        ("root/.", "unsafe-path"),
    ]);
    assert_eq!(rejects(&out), rejected);
    assert_outcomes(&out, [3, 0, 0, 6]);

    let mut args = args;
    args[5] = "followed";
    run(dir.path(), list, &[&args[..], &["--follow-symlinks"]].concat()).exits(0);
    let followed = rejects(&dir.path().join("followed"));
    assert!(!followed.iter().any(|(origin, _)| origin == "root/link.png"), "{followed:?}");
    assert!(followed.contains(&("root/loop/x.png".into(), "missing-file".into())), "{followed:?}");
}

#[test]
fn lists_that_cannot_be_meant_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    images(dir.path(), &["a.png"]);
    let refused =
        |input: &[u8], args: &[&str]| run(dir.path(), input, &[args, &["--out", "out"]].concat()).exits(2);
    refused(b"a.png\n\n./a.png\n", &["--files-from", "-"]).says(&["line 1 and line 3", "a.png", "once"]);
    refused(b"a.png", &[".", "a.png", "--files-from", "-"]).says(&["one folder"]);
    refused(b"a.png", &["a.png", "--files-from", "-"]).says(&["not a folder"]);
    refused(b"a.png", &["none", "--files-from", "-"]).says(&["no such folder"]);
    refused(b"", &["."]).says(&["overlap"]);
    refused(b"", &[]).says(&["<SRC>"]);
    run(dir.path(), b"", &["--files-from", "none.txt", "--out", "out"]).exits(3).says(&["none.txt"]);
    run(dir.path(), b"\n", &["--files-from", "-", "--out", "out"]).exits(3).says(&["nothing was found"]);
    assert!(!dir.path().join("out").exists());
}
