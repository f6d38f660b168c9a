//! How the names of sources, folders, files and fields are interpreted, and the warnings about ambiguous ones.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::images_sources::{image, run as run_images};
use crate::support::*;

/// Writes files of one document each, whose text is the name of the file.
fn documents(dir: &Path, names: &[&str]) {
    for name in names {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text = match name.rsplit_once('.').unwrap().1 {
            "jsonl" => serde_json::json!({"text": name, "id": 1}).to_string() + "\n",
            "csv" => format!("id,text\n1,{name}\n"),
            _ => (*name).to_owned(),
        };
        std::fs::write(path, text).unwrap();
    }
}

/// Runs `dsconvert text` with the tokenizer `bytes` in the folder `dir`.
fn run_text(dir: &Path, args: &[&str]) -> Ran {
    let args = ["text", "--tokenizer", "bytes"].iter().chain(args);
    Ran::of(command(args).current_dir(dir).output().unwrap())
}

/// Origins of the records, by split.
fn origins(out: &Path) -> Vec<(String, Vec<String>)> {
    let dataset = dsconvert::reader::Dataset::open(out).unwrap();
    let origins = |split: dsconvert::reader::Split| {
        split.iter().map(|record| record.unwrap().origin().unwrap().to_owned()).collect()
    };
    dataset.splits().map(|split| (split.name().to_owned(), origins(split))).collect()
}

fn expected(splits: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
    let owned = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect();
    splits.iter().map(|&(split, names)| (split.to_owned(), owned(names))).collect()
}

#[test]
fn splits_of_text_come_from_the_names_of_folders_and_files() {
    for (names, by, splits) in [
        (
            &["train/a.txt", "val/b.txt", "test/c.txt"][..],
            "by first-level folders",
            &[
                ("test", &["s/test/c.txt"][..]),
                ("train", &["s/train/a.txt"]),
                ("validation", &["s/val/b.txt"]),
            ][..],
        ),
        (
            &["en/train.txt", "en/dev-00.txt"],
            "by the names of files",
            &[("train", &["s/en/train.txt"]), ("validation", &["s/en/dev-00.txt"])],
        ),
        (
            &["data/train-00000-of-00001.txt", "data/hard-00000-of-00001.txt"],
            "by the names of shards",
            &[("hard", &["s/data/hard-00000-of-00001.txt"]), ("train", &["s/data/train-00000-of-00001.txt"])],
        ),
        (
            &["x/train-clean/a.txt", "x/test-clean/b.txt"],
            "by the names of folders",
            &[("test", &["s/x/test-clean/b.txt"]), ("train", &["s/x/train-clean/a.txt"])],
        ),
        (&["a.txt", "b.txt"], "splits: train (2 files)\n", &[("train", &["s/a.txt", "s/b.txt"])]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        documents(&dir.path().join("s"), names);
        let planned = run_text(dir.path(), &["s", "--out", "out", "--dry-run"]).exits(0);
        assert!(planned.stdout.contains(by.trim_start_matches("splits: ").trim_end()), "{}", planned.stdout);
        let ran = run_text(dir.path(), &["s", "--out", "out"]).exits(0);
        assert_eq!(ran.stderr, "", "there must be no warning");
        assert!(ran.stdout.contains(by), "{}", ran.stdout);
        assert_eq!(origins(&dir.path().join("out")), expected(splits));
        run_text(dir.path(), &["s", "--out", "flat", "--layout", "flat"]).exits(0);
        assert_eq!(origins(&dir.path().join("flat")).len(), 1);
    }
}

#[test]
fn sources_labeled_as_splits_become_splits() {
    let dir = tempfile::tempdir().unwrap();
    documents(dir.path(), &["a.jsonl", "b.jsonl", "c/x.jsonl"]);
    run_text(dir.path(), &["train=a.jsonl", "validation=b.jsonl", "test=c", "--out", "out"]).exits(0);
    let splits =
        [("test", &["test/x.jsonl#0"][..]), ("train", &["train#0"]), ("validation", &["validation#0"])];
    assert_eq!(origins(&dir.path().join("out")), expected(&splits));
    let ran = run_text(dir.path(), &["train=a.jsonl", "other=b.jsonl", "--out", "mixed"]).exits(0);
    ran.says(&["warning", "\"train\"", "\"other\""]);
    assert_eq!(origins(&dir.path().join("mixed")).len(), 1);
    run_text(dir.path(), &["train=a.jsonl", "test=b.jsonl", "--out", "no", "--split", "a=0.5,b=0.5"])
        .exits(2)
        .says(&["already define the splits test, train", "--split", "--layout flat"]);
    // If `train` is the only split, it can be divided.
    let one = ["train=a.jsonl", "--out", "divided", "--split", "train=0.5,validation=0.5"];
    run_text(dir.path(), &one).exits(0);
    run_text(dir.path(), &["a.jsonl", "--out", "no", "--layout", "labels"])
        .exits(2)
        .says(&["--layout", "[possible values: auto, splits, flat]"]);

    for name in ["p/cat/x.jpg", "q/dog/y.jpg"] {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, image(0)).unwrap();
    }
    let ran = run_images(dir.path(), b"", &["train=p", "val=q", "--out", "images"]).exits(0);
    let splits = [("train", &["train/cat/x.jpg"][..]), ("validation", &["val/dog/y.jpg"])];
    assert_eq!(origins(&dir.path().join("images")), expected(&splits));
    assert!(ran.stdout.contains("2 classes: cat 1, dog 1"), "{}", ran.stdout);
    assert!(ran.stdout.contains("by the labels of the sources"), "{}", ran.stdout);
}

#[test]
fn well_known_names_in_the_split_option_are_those_of_folders() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..40).map(|i| format!("s/{i}.txt")).collect();
    documents(dir.path(), &names.iter().map(String::as_str).collect::<Vec<_>>());
    let split = |split: &str, out: &str, more: &[&str]| {
        run_text(dir.path(), &[&["s", "--out", out, "--split", split], more].concat())
    };
    split("train=0.5,val=0.5", "a", &[]).exits(0);
    split("train=0.5,validation=0.5", "b", &[]).exits(0);
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    assert_same(&tree(&a), &tree(&b));
    let splits: Vec<String> = origins(&a).into_iter().map(|(split, _)| split).collect();
    assert_eq!(splits, ["train", "validation"]);
    // Both spellings are the same option.
    split("train=0.5,validation=0.5", "a", &["--resume"]).exits(0);
    split("train=0.5,valid=0.5", "a", &["--resume"]).exits(0);
    split("dev=0.5,val=0.5", "c", &[]).exits(2).says(&["validation", "named twice"]);
}

#[test]
fn ambiguous_split_names_cause_a_warning() {
    for (names, splits, message) in [
        (
            &["Train/c/a.jpg", "Test/c/b.jpg"][..],
            &["test", "train"][..],
            &["\"Test\" is read as the split test"][..],
        ),
        (
            &["training/c/a.jpg", "testing/c/b.jpg"],
            &["test", "train"],
            &["\"testing\" is read as the split test"],
        ),
        (
            &["train/c/a.jpg", "dev/c/b.jpg"],
            &["train", "validation"],
            &["\"dev\" is read as the split validation"],
        ),
        (
            &["train/c/a.jpg", "val/c/b.jpg", "extra/c/d.jpg"],
            &["extra", "train", "validation"],
            &["\"extra\""],
        ),
        (
            &["train/c/a.jpg", "val/c/b.jpg", "d.jpg"],
            &["train", "validation"],
            &["1 of the files", "s/d.jpg"],
        ),
        (&["bus/a.jpg", "train/b.jpg"], &["train"], &["\"train\" is a class", "--layout splits"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        for name in names.iter().chain(&["README.md", "docs/notes.txt"]) {
            let path = dir.path().join("s").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, if name.ends_with("jpg") { image(0) } else { b"no image".to_vec() })
                .unwrap();
        }
        let planned = run_images(dir.path(), b"", &["s", "--out", "out", "--dry-run"]).exits(0).says(message);
        assert!(planned.stdout.contains("classes  "), "{}", planned.stdout);
        let ran = run_images(dir.path(), b"", &["s", "--out", "out"]).exits(0).says(message);
        ran.says(&["warning: "]);
        let found: Vec<String> = origins(&dir.path().join("out")).into_iter().map(|(name, _)| name).collect();
        assert_eq!(found, splits, "{names:?}");
        let quiet = run_images(dir.path(), b"", &["s", "--out", "quiet", "-q"]).exits(0);
        assert_eq!(quiet.stderr, "");
        assert_same(&tree(&dir.path().join("out")), &tree(&dir.path().join("quiet")));
    }
}

/// Writes images with these names.
fn photos(dir: &Path, names: &[&str]) {
    for name in names {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, image(0)).unwrap();
    }
}

#[test]
fn words_in_folder_names_at_any_level_are_splits() {
    for (names, by, splits, classes) in [
        (
            &["train2017/1.jpg", "val2017/2.jpg"][..],
            "train (1 file), validation (1 file), by first-level folders: train2017, val2017\n",
            &[("train", &["s/train2017/1.jpg"][..]), ("validation", &["s/val2017/2.jpg"])][..],
            None,
        ),
        (
            &["images/train/1.jpg", "images/val/2.jpg"],
            "by the names of folders: train, val\n",
            &[("train", &["s/images/train/1.jpg"]), ("validation", &["s/images/val/2.jpg"])],
            None,
        ),
        (
            &["seg_train/seg_train/ice/1.jpg", "seg_test/seg_test/ice/2.jpg"],
            "by first-level folders: seg_test, seg_train\n",
            &[("test", &["s/seg_test/seg_test/ice/2.jpg"]), ("train", &["s/seg_train/seg_train/ice/1.jpg"])],
            Some("1 class: ice 2"),
        ),
        (
            &["train_1.jpg", "test_2.jpg"],
            "by the names of files\n",
            &[("test", &["s/test_2.jpg"]), ("train", &["s/train_1.jpg"])],
            None,
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        photos(&dir.path().join("s"), names);
        let ran = run_images(dir.path(), b"", &["s", "--out", "out"]).exits(0);
        assert_eq!(ran.stderr, "", "there must be no warning");
        assert!(ran.stdout.contains(by), "{}", ran.stdout);
        let out = dir.path().join("out");
        assert_eq!(origins(&out), expected(splits));
        assert_eq!(classes.is_none(), ran.stdout.contains("no labels: "), "{}", ran.stdout);
        assert!(classes.is_none_or(|classes| ran.stdout.contains(classes)), "{}", ran.stdout);
        // The decisions are stored in the plan.
        for args in ["plan images s --out parts", "run parts", "merge parts"] {
            Ran::of(command(args.split(' ')).current_dir(dir.path()).output().unwrap()).exits(0);
        }
        assert_same(&tree(&out), &tree(&dir.path().join("parts")));
        run_images(dir.path(), b"", &["s", "--out", "no", "--split", "a=0.5,b=0.5"])
            .exits(2)
            .says(&["already define the splits", "--layout labels"]);
    }
}

#[test]
fn names_that_are_no_splits_cause_a_warning() {
    for (names, message) in [
        (
            &["train_station/1.jpg", "cat/2.jpg"][..],
            &["\"train_station\" is a class, not a split", "--layout splits"][..],
        ),
        (&["x/train/1.jpg", "x/extra/2.jpg"], &["\"train\" is a class", "\"extra\"", "train=DIR"]),
        (&["trainA/1.jpg", "testA/2.jpg"], &["\"testA\", \"trainA\" are not splits", "--layout splits"]),
        (&["train/train_1.jpg", "train/val_2.jpg"], &["all files are in train", "\"val_2.jpg\""]),
        (&["cat/train/1.jpg", "dog/train/2.jpg"], &["\"cat\", \"dog\" are not classes", "--layout labels"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        photos(&dir.path().join("s"), names);
        let ran = run_images(dir.path(), b"", &["s", "--out", "out"]).exits(0).says(message);
        ran.says(&["warning: "]);
        assert_eq!(origins(&dir.path().join("out")).len(), 1);
    }
    let dir = tempfile::tempdir().unwrap();
    photos(dir.path(), &["DIV2K_valid_HR/1.jpg", "coco/val2017/1.jpg"]);
    run_images(dir.path(), b"", &["DIV2K_valid_HR", "--out", "a"])
        .exits(0)
        .says(&["everything is in train", "validation=PATH"]);
    run_images(dir.path(), b"", &["coco/val2017", "--out", "b"])
        .exits(0)
        .says(&["everything is in the split validation"]);
    documents(dir.path(), &["t/cooking/1.txt", "t/test_tube/2.txt", "u/trainset.txt", "u/testset.txt"]);
    run_text(dir.path(), &["t", "--out", "t-out"]).exits(0).says(&["\"test_tube\" is not a split"]);
    run_text(dir.path(), &["u", "--out", "u-out"])
        .exits(0)
        .says(&["\"testset.txt\", \"trainset.txt\" are not"]);
}

#[test]
fn classes_that_may_be_unintended_cause_a_warning() {
    for (names, message) in [
        (
            &["train/cat/1.jpg", "val/images/2.jpg"][..],
            &[
                "the class \"cat\" occurs only in train",
                "\"images\" occurs only in validation",
                "--classes FILE",
            ][..],
        ),
        (
            &["JPEGImages/1.jpg", "SegmentationClass/2.jpg"],
            &["\"SegmentationClass\"", "masks or annotations", "--files-from FILE"],
        ),
        (&["1/1.jpg", "2/2.jpg", "10/3.jpg"], &["\"10\" comes before \"2\"", "--classes FILE"]),
        (
            &["fold1/cat/1.jpg", "fold1/dog/2.jpg", "fold2/cat/3.jpg", "fold2/dog/a/4.jpg"],
            &[
                "the folders \"fold1\", \"fold2\" are the classes",
                "the same folders are in all of them: \"cat\", \"dog\";",
                "name the former as sources",
                "--layout flat",
            ],
        ),
        (
            &["k/0/cat/1.jpg", "k/1/cat/2.jpg"],
            &["\"0\", \"1\" are the classes", "the same folder is in all of them: \"cat\";"],
        ),
        // One of three is not in all of them.
        (
            &["a/images/x/1.jpg", "a/images/y/1.jpg", "b/images/x/2.jpg", "b/images/y/2.jpg", "b/z/2.jpg"],
            &["in all of them: \"x\", \"y\";"],
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        photos(&dir.path().join("s"), names);
        run_images(dir.path(), b"", &["s", "--out", "out"]).exits(0).says(message);
    }
    // Folders that do differ, hold images of their own, or are called like folders of images.
    for names in [
        &["cat/a/1.jpg", "cat/b/2.jpg", "dog/a/3.jpg"][..],
        &["cat/a/1.jpg", "dog/2.jpg", "dog/a/3.jpg"],
        &["cat/images/1.jpg", "dog/images/2.jpg"],
        &["cat/a/1.jpg", "cat/a/2.jpg"],
        &["train/cat/a/1.jpg", "train/dog/a/1.jpg", "val/cat/a/2.jpg", "val/dog/b/2.jpg"],
    ] {
        let dir = tempfile::tempdir().unwrap();
        photos(&dir.path().join("s"), names);
        assert_eq!(run_images(dir.path(), b"", &["s", "--out", "out"]).exits(0).stderr, "", "{names:?}");
    }
    // What the warning advises, and what keeps the folders as classes without it.
    let dir = tempfile::tempdir().unwrap();
    let names = ["fold1/cat/1.jpg", "fold1/dog/2.jpg", "fold2/cat/3.jpg", "fold2/dog/4.jpg"];
    photos(&dir.path().join("s"), &names);
    let run = |args: &[&str]| run_images(dir.path(), b"", args).exits(0);
    assert!(run(&["s/fold1", "s/fold2", "--out", "sources"]).stdout.contains("2 classes: cat 2, dog 2"));
    let labels = run(&["s", "--layout", "labels", "--out", "labels"]);
    assert_eq!((labels.stderr.as_str(), labels.stdout.contains("fold1 2, fold2 2")), ("", true));
    let dir = tempfile::tempdir().unwrap();
    photos(dir.path(), &["s/1.jpg", "s/2.jpg"]);
    std::fs::write(dir.path().join("m.csv"), "file_name,label\n1.jpg,3.5\n2.jpg,4.0\n").unwrap();
    let run = |out| run_images(dir.path(), b"", &["s", "--metadata", "m.csv", "--out", out]).exits(0);
    run("fractions").says(&["fractions, such as 3.5", "names of 2 classes", "--metadata FILE"]);
    std::fs::write(dir.path().join("m.csv"), "file_name,label\n1.jpg,3.0\n2.jpg,4.0\n").unwrap();
    assert_eq!(run("integers").stderr, "");
}

#[test]
fn other_files_beside_images_are_neither_classes_nor_splits() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in [
        ("train/cat/a.jpg", image(0)),
        ("val/cat/b", image(1)),
        ("README.md", b"text".to_vec()),
        ("docs/notes.txt", b"text".to_vec()),
    ] {
        let path = dir.path().join("s").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    let ran = run_images(dir.path(), b"", &["s", "--out", "out"]).exits(0);
    assert_eq!(ran.stderr, "");
    let splits = [("train", &["s/train/cat/a.jpg"][..]), ("validation", &["s/val/cat/b"])];
    assert_eq!(origins(&dir.path().join("out")), expected(&splits));
    assert!(ran.stdout.contains("1 class: cat 2"), "{}", ran.stdout);
}

#[test]
fn unsupported_urls_are_refused_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    documents(dir.path(), &["a.jsonl"]);
    std::fs::write(dir.path().join("x.jpg"), image(0)).unwrap();
    let before = tree(dir.path());
    for (args, message) in [
        (&["ftp://host/x", "--out", "out"][..], "unsupported scheme ftp://"),
        (&["train=ftp://host/x", "--out", "out"], "unsupported scheme ftp://"),
        (&["hf://datasets/x/*.parquet", "--out", "out"], "unsupported scheme hf://"),
        (&["--files-from", "https://host/list", "--out", "out"], "is a URL"),
    ] {
        run_text(dir.path(), args).exits(2).says(&[message]);
        assert_same(&tree(dir.path()), &before);
        assert!(!dir.path().join("s3:").exists());
    }
    for (args, message) in [
        (&["x.jpg", "--out", "file:///tmp/x"][..], "unsupported scheme file://"),
        (&["x.jpg", "--out", "hf://datasets/x"], "unsupported scheme hf://"),
        (&["x.jpg", "--out", "out", "--classes", "s3://bucket/classes"], "is a URL"),
        (&["--metadata", "s3://bucket/m.csv", "--out", "out"], "is a URL"),
    ] {
        run_images(dir.path(), b"", args).exits(2).says(&[message]);
        assert_same(&tree(dir.path()), &before);
    }
    let ran = Ran::of(command(["inspect", "hf://bucket/x"]).current_dir(dir.path()).output().unwrap());
    ran.exits(2).says(&["unsupported scheme hf://"]);
}

#[test]
fn a_field_that_no_row_has_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let lines: String =
        (0..3000).map(|i| serde_json::json!({"id": i, "body": "x"}).to_string() + "\n").collect();
    std::fs::write(dir.path().join("a.jsonl"), &lines).unwrap();
    std::fs::write(dir.path().join("z.jsonl.zst"), zstd::encode_all(lines.as_bytes(), 3).unwrap()).unwrap();
    std::fs::write(dir.path().join("b.csv"), "id,body\n1,x\n").unwrap();
    std::fs::write(dir.path().join("c.tsv"), "id\tbody\n1\tx\n").unwrap();
    for name in ["a.jsonl", "z.jsonl.zst", "b.csv", "c.tsv"] {
        let run = |options: &[&str]| run_text(dir.path(), &[&[name, "--out", "out"][..], options].concat());
        run(&[]).exits(2).says(&["--text-field", "\"text\"", "\"body\"", "\"id\"", name]);
        run(&["--text-field", "body", "--key-field", "key"]).exits(2).says(&[
            "--key-field",
            "\"key\"",
            "\"id\"",
        ]);
        run(&["--text-field", "body", "--keep-fields", "id,lang"])
            .exits(2)
            .says(&["--keep-fields", "\"lang\""]);
        assert!(!dir.path().join("out").exists());
    }
    // The first rows of standard input are inspected, too, and still become records.
    let piped = |bytes: &[u8], options: &[&str]| {
        let mut command = command(["text", "-", "--tokenizer", "bytes"].iter().chain(options));
        command.current_dir(dir.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that is refused does not read its input to the end.
        let _ = child.stdin.take().unwrap().write_all(bytes);
        Ran::of(child.wait_with_output().unwrap())
    };
    for (format, name) in [("jsonl", "a.jsonl"), ("jsonl.zst", "z.jsonl.zst"), ("csv", "b.csv")] {
        let bytes = std::fs::read(dir.path().join(name)).unwrap();
        let run = |out: &str, options: &[&str]| {
            piped(&bytes, &[&["--input-format", format, "--out", out], options].concat())
        };
        run("out", &[]).exits(2).says(&["--text-field", "\"text\"", "\"body\"", "\"id\""]);
        let first = if format == "csv" { "no row" } else { "none of the first 1000 rows" };
        run("out", &["--text-field", "body", "--key-field", "key"]).exits(2).says(&["--key-field", first]);
        assert!(!dir.path().join("out").exists());
        run(&format!("read-{name}"), &["--text-field", "body"]).exits(0);
        let file = [name, "--out", "file", "--overwrite", "--text-field", "body"];
        run_text(dir.path(), &file).exits(0);
        let texts = |out: &str| only_texts(&dir.path().join(out));
        assert_eq!(texts(&format!("read-{name}")), texts("file"));
    }
    // A field with a declared type may be in later rows only, so it causes just a warning.
    let fields = ["a.jsonl", "--out", "out", "--text-field", "body", "--keep-fields", "lang:string"];
    run_text(dir.path(), &fields).exits(0).says(&["warning", "none of the first 1000 rows", "\"lang\""]);
    // If all rows were inspected, a declared type does not help.
    let fields = ["b.csv", "--out", "no", "--text-field", "body", "--keep-fields", "lang:string"];
    run_text(dir.path(), &fields).exits(2).says(&["--keep-fields"]);
    // Of many tables, the first lines of some are inspected.
    let tables: Vec<String> = (0..20).map(|i| format!("many/{i}.csv")).collect();
    documents(dir.path(), &tables.iter().map(String::as_str).collect::<Vec<_>>());
    tables.iter().for_each(|name| std::fs::write(dir.path().join(name), "id,body\n1,x\n2,y\n").unwrap());
    run_text(dir.path(), &["many", "--out", "no"])
        .exits(2)
        .says(&["none of the 16 files that were examined has the field \"text\""]);
    // If only some files lack a field, its name is not wrong.
    documents(dir.path(), &["t/good.jsonl", "t/odd.csv"]);
    std::fs::write(dir.path().join("t/odd.csv"), "id,body\n1,x\n").unwrap();
    run_text(dir.path(), &["t", "--out", "odd", "--max-rejects", "50%"]).exits(0);
    assert_outcomes(&dir.path().join("odd"), [1, 0, 0, 1]);
}

#[test]
fn names_that_are_equal_once_encoded_are_refused() {
    use std::os::unix::ffi::OsStrExt;

    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("s");
    std::fs::create_dir(&source).unwrap();
    for name in [&b"a\xff.txt"[..], b"a%FF.txt", b"b.txt"] {
        std::fs::write(source.join(std::ffi::OsStr::from_bytes(name)), "text").unwrap();
    }
    let help = "rename one of the files: in keys, names that are not UTF-8 are percent-encoded";
    let args = ["--out", "out"];
    let ran = run_text(dir.path(), &[&["s"], &args[..]].concat());
    ran.exits(2).says(&["two files have the key \"s/a%FF.txt\": s/a", " and s/a", help]);
    std::fs::write(dir.path().join("list"), b"s/a\xff.txt\ns/b.txt\ns/a%FF.txt\n").unwrap();
    let ran = run_text(dir.path(), &[&["--files-from", "list"], &args[..]].concat());
    ran.exits(2).says(&["line 1 and line 3 name two files with the key", "a%FF.txt\"", help]);
    assert!(!dir.path().join("out").exists());
    // One such name is no problem.
    std::fs::remove_file(source.join("a%FF.txt")).unwrap();
    run_text(dir.path(), &[&["s"], &args[..]].concat()).exits(0);
}

#[test]
fn names_with_control_characters_are_printed_as_escapes() {
    let dir = tempfile::tempdir().unwrap();
    let name = "a\n\u{1b}[31merror: fine\r";
    std::fs::create_dir(dir.path().join(name)).unwrap();
    let file = format!("{name}/{name}.jpg");
    std::fs::write(dir.path().join(&file), image(0)).unwrap();
    std::fs::create_dir_all(dir.path().join("s").join(name)).unwrap();
    std::fs::write(dir.path().join("s").join(&file), image(0)).unwrap();
    let clean = |text: &str| text.chars().all(|c| c == '\n' || !c.is_control());
    let check = |ran: Ran| {
        assert!(clean(&ran.stdout) && clean(&ran.stderr), "{ran:?}");
        assert!(!ran.stdout.contains("\nerror: fine") && !ran.stderr.contains("\nerror: fine"), "{ran:?}");
        ran
    };
    check(run_images(dir.path(), b"", &["s", "--out", name, "--dry-run"]).exits(0));
    check(run_images(dir.path(), b"", &["s", "--out", &format!("{name}/out")]).exits(0));
    check(run_images(dir.path(), b"", &["s", &format!("other=s/{name}"), "--out", name]).exits(2));
    check(run_images(dir.path(), b"", &["s", &format!("s=s/{name}/../../s"), "--out", "no"]).exits(2));
    check(run_images(dir.path(), b"", &[&format!("{name}/missing"), "--out", "no"]).exits(2));
    std::fs::write(dir.path().join("s").join(format!("{name}/bad.jpg")), b"\xff\xd8\xff\xe0 damaged")
        .unwrap();
    check(run_images(dir.path(), b"", &["s", "--out", "out"]).exits(3));
    for args in [&["inspect"][..], &["inspect", "--verify"], &["inspect", "--record", "0"]] {
        let out = format!("{name}/out");
        check(
            Ran::of(command(args.iter().chain(&[out.as_str()])).current_dir(dir.path()).output().unwrap())
                .exits(0),
        );
    }
}

#[test]
fn the_message_about_no_items_counts_the_skipped_files_by_type() {
    let dir = tempfile::tempdir().unwrap();
    documents(&dir.path().join("s"), &["a.pdf", "b.pdf", "c.md"]);
    run_text(dir.path(), &["s", "--out", "out"]).exits(3).says(&["in s", "3 files", "2 .pdf", "1 .md"]);
    run_images(dir.path(), b"", &["s", "--out", "out"])
        .exits(3)
        .says(&["in s", "3 files", "2 .pdf", "1 .md"]);
}

/// The records read from a damaged gzip member or zstd frame are counted; those from earlier members or frames are not.
#[test]
fn records_from_a_damaged_gzip_member_or_zstd_frame_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let lines = |from: usize, to: usize| -> String {
        (from..to)
            .map(|i| {
                serde_json::json!({"text": format!("document {i} {}", i * 7919 % 1009)}).to_string() + "\n"
            })
            .collect()
    };
    let gzip = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = |text: &str| {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(true).unwrap();
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let bzip2 = |text: &str| {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    type Compress<'a> = &'a dyn Fn(&str) -> Vec<u8>;
    let compressors: [(&str, usize, Compress<'_>); 2] = [("gz", 8, &gzip), ("zst", 4, &zstd)];
    for (name, checksum, compress) in compressors {
        // The first member ends in the middle of a line, which counts as the first record of the second.
        let (one, two) = (lines(0, 3000), lines(3000, 20_000));
        let cut = one.len() - 10;
        let all = [one.as_str(), two.as_str()].concat();
        let mut second = compress(&all[cut..]);
        let at = second.len() - checksum;
        second[at] ^= 1;
        for (file, bytes, converted, after) in [
            ("both", [compress(&all[..cut]), second.clone()].concat(), 20_000, Some(17_001)),
            (
                "alone",
                {
                    let mut whole = compress(&all);
                    let at = whole.len() - checksum;
                    whole[at] ^= 1;
                    whole
                },
                20_000,
                Some(20_000),
            ),
            ("garbage", [compress(&all), b"no compressed data".to_vec()].concat(), 20_000, None),
            ("whole", compress(&all), 20_000, None),
        ] {
            let source = dir.path().join(format!("{file}.jsonl.{name}"));
            std::fs::write(&source, bytes).unwrap();
            for threads in [1, 3] {
                let out = dir.path().join(format!("{file}-{name}-{threads}"));
                let ran = convert("text", &source, &out, &format!("--tokenizer bytes --threads {threads}"))
                    .exits(0);
                let rejected = u64::from(file != "whole");
                assert_outcomes(&out, [converted, 0, 0, rejected]);
                assert_eq!(manifest(&out)["notes"]["after_damage"].as_u64(), after, "{file}.{name}");
                assert_eq!(
                    ran.stdout.contains("turned out to be damaged"),
                    after.is_some(),
                    "{}",
                    ran.stdout
                );
            }
        }
    }
    let mut bytes = bzip2(&lines(0, 20_000));
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let source = dir.path().join("middle.jsonl.bz2");
    std::fs::write(&source, bytes).unwrap();
    let out = dir.path().join("middle");
    convert("text", &source, &out, "--tokenizer bytes").exits(0);
    let manifest = manifest(&out);
    assert_eq!(manifest["notes"]["after_damage"], manifest["converted"]);
}
