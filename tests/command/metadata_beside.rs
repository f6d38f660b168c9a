//! Metadata files found beside the images of a folder, used like `ImageFolder` of Hugging Face `datasets` does.

use std::path::Path;

use dsconvert::sample::Value;
use serde_json::json;

use crate::images_sources::{column, image, owned, run, texts};
use crate::support::*;

/// Writes images and tables into the folder `dir`.
fn files(dir: &Path, images: &[&str], tables: &[(&str, &str)]) {
    let images = images.iter().enumerate().map(|(number, name)| (name, image(number)));
    for (name, bytes) in images.chain(tables.iter().map(|(name, text)| (name, text.as_bytes().to_vec()))) {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

#[test]
fn one_table_at_the_root_names_the_items() {
    let dir = tempfile::tempdir().unwrap();
    let csv = "file_name,caption\nb.jpg,two\na.jpg,one\n";
    files(&dir.path().join("s"), &["a.jpg", "b.jpg", "c.jpg"], &[("metadata.csv", csv)]);
    let ran = run(dir.path(), b"", &["s", "--out", "used"]).exits(0);
    let used = dir.path().join("used");
    assert_eq!(texts(&used, "train", "key"), ["s/b.jpg", "s/a.jpg"]);
    assert_eq!(texts(&used, "train", "caption"), ["two", "one"]);
    assert_outcomes(&used, [2, 0, 0, 0]);
    assert_eq!(manifest(&used)["sources"]["skipped"], 2, "the table and the image that it does not name");
    assert!(ran.stdout.contains("metadata: s/metadata.csv (fields caption)"), "{}", ran.stdout);
    ran.says(&["1 image has no row in the metadata", "s/c.jpg", "--metadata none"]);
    let ran = run(dir.path(), b"", &["s", "--out", "no", "--dry-run"]).exits(0);
    assert!(ran.stdout.contains("metadata s/metadata.csv (fields caption)"), "{}", ran.stdout);

    // An explicit table gives the same records.
    run(dir.path(), b"", &["--metadata", "s/metadata.csv", "--out", "named"]).exits(0);
    assert_eq!(records(&used), records(&dir.path().join("named")));
    // A run with a changed table cannot be resumed.
    std::fs::write(dir.path().join("s/metadata.csv"), csv.replace("two", "three")).unwrap();
    run(dir.path(), b"", &["s", "--out", "used", "--resume"]).exits(2).says(&["metadata"]);

    let ran = run(dir.path(), b"", &["s", "--out", "walked", "--metadata", "none"]).exits(0);
    assert_eq!(ran.stderr, "");
    assert_eq!(texts(&dir.path().join("walked"), "train", "key"), ["s/a.jpg", "s/b.jpg", "s/c.jpg"]);
    // An explicit table takes precedence.
    std::fs::write(dir.path().join("s/other.csv"), "file_name,n\nc.jpg,3\n").unwrap();
    run(dir.path(), b"", &["--metadata", "s/other.csv", "--out", "other"]).exits(0);
    assert_eq!(texts(&dir.path().join("other"), "train", "n"), ["3"]);
}

#[test]
fn one_table_per_split_makes_one_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let train = "{\"file_name\": \"0.jpg\", \"label\": \"dog\", \"n\": 1, \"boxes\": [1]}\n\
                 {\"file_name\": \"deep/1.jpg\", \"label\": \"cat\", \"n\": 2, \"boxes\": []}\n";
    // The columns are in a different order, and one row points outside the folder.
    let test = "{\"boxes\": [3], \"n\": 3, \"label\": \"ant\", \"file_name\": \"0.jpg\"}\n\
                {\"file_name\": \"../train/0.jpg\"}\n";
    files(
        &dir.path().join("s"),
        &["train/0.jpg", "train/deep/1.jpg", "test/0.jpg"],
        &[("train/metadata.jsonl", train), ("test/metadata.jsonl", test)],
    );
    let args = ["s", "--out", "out", "--max-rejects", "100%"];
    let ran = run(dir.path(), b"", &args).exits(0);
    let out = dir.path().join("out");
    assert_eq!(texts(&out, "train", "key"), ["s/train/0.jpg", "s/train/deep/1.jpg"]);
    assert_eq!(texts(&out, "test", "key"), ["s/test/0.jpg"]);
    assert_eq!(manifest(&out)["schema"]["class_names"], json!(["ant", "cat", "dog"]));
    assert_eq!(column(&out, "train", "label"), [Value::Int(2), Value::Int(1)]);
    assert_eq!(column(&out, "test", "label"), [Value::Int(0)]);
    assert_eq!(texts(&out, "train", "boxes"), ["[1]", "[]"]);
    assert_eq!(texts(&out, "test", "boxes"), ["[3]"]);
    assert_eq!(texts(&out, "test", "n"), ["3"]);
    assert_eq!(rejects(&out), owned(&[("s/test/../train/0.jpg", "unsafe-path")]));
    assert_eq!(manifest(&out)["splits"]["test"]["rejected"], 1, "a row is in the split of its table");
    let ran = ran.says(&[
        "the class \"ant\" occurs only in test, the classes \"cat\", \"dog\" occur only in train",
        "--classes FILE",
        "--layout flat",
    ]);
    assert!(!ran.stderr.contains("row"), "every image is in a row: {}", ran.stderr);
}

#[test]
fn folders_beside_metadata_become_classes_only_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let csv = "my_file_name,caption\ncat/a.jpg,one\ndog/b.jpg,two\n";
    files(&dir.path().join("s"), &["cat/a.jpg", "dog/b.jpg"], &[("metadata.csv", csv)]);
    let ran = run(dir.path(), b"", &["s", "--out", "plain"]).exits(0);
    ran.says(&["\"cat\", \"dog\" are not classes", "--layout labels"]);
    assert_eq!(manifest(&dir.path().join("plain"))["schema"]["class_names"], serde_json::Value::Null);
    assert_eq!(texts(&dir.path().join("plain"), "train", "caption"), ["one", "two"]);

    let classes = dir.path().join("classes.txt");
    std::fs::write(&classes, "dog\ncat\n").unwrap();
    for (out, more, labels) in [
        ("labels", ["--layout", "labels"], [0, 1]),
        ("classes", ["--classes", classes.to_str().unwrap()], [1, 0]),
    ] {
        let ran = run(dir.path(), b"", &[&["s", "--out", out], &more[..]].concat()).exits(0);
        assert_eq!(ran.stderr, "");
        assert_eq!(column(&dir.path().join(out), "train", "label"), labels.map(Value::Int));
        assert_eq!(texts(&dir.path().join(out), "train", "caption"), ["one", "two"]);
    }
    std::fs::write(dir.path().join("s/metadata.csv"), "file_name,label\ncat/a.jpg,x\ndog/b.jpg,y\n").unwrap();
    let ran = run(dir.path(), b"", &["s", "--out", "no", "--layout", "labels"]).exits(2);
    ran.says(&["the metadata has labels", "--metadata none"]);
}

#[test]
fn several_rows_for_one_image_are_separate_records_in_the_same_split() {
    let dir = tempfile::tempdir().unwrap();
    let rows: Vec<String> =
        (0..20).map(|i| format!("{},{i}", if i % 3 == 0 { "b.jpg" } else { "a.jpg" })).collect();
    let csv = format!("file_name,caption\n{}\n", rows.join("\n"));
    files(&dir.path().join("s"), &["a.jpg", "b.jpg"], &[("metadata.csv", &csv)]);
    let out = dir.path().join("out");
    run(dir.path(), b"", &["s", "--out", "out", "--split", "one=0.5,two=0.5"]).exits(0);
    let mut captions = Vec::new();
    for split in ["one", "two"].into_iter().filter(|split| manifest(&out)["splits"][split]["records"] != 0) {
        let keys = texts(&out, split, "key");
        let of_split = texts(&out, split, "caption");
        // The captions of an image are numbered in the order of its rows.
        for (key, caption) in keys.iter().zip(&of_split) {
            let number: usize = key.rsplit_once('#').map_or(1, |(_, number)| number.parse().unwrap());
            let (row, is_b) = (caption.parse::<usize>().unwrap(), key.starts_with("s/b.jpg"));
            assert_eq!(is_b, row % 3 == 0);
            assert_eq!(number, if is_b { row / 3 + 1 } else { row - row / 3 });
        }
        for image in ["s/a.jpg", "s/b.jpg"] {
            assert!(
                [0, 7, 13].contains(&keys.iter().filter(|key| key.starts_with(image)).count()),
                "{keys:?}"
            );
        }
        captions.extend(of_split);
    }
    captions.sort_by_key(|caption| caption.parse::<usize>().unwrap());
    assert_eq!(captions, (0..20).map(|i| i.to_string()).collect::<Vec<_>>());
}

#[test]
fn tables_that_do_not_match_the_images_are_refused_with_a_way_out() {
    for (tables, parts) in [
        (&[("metadata.csv", "id,n\na,1\n")][..], &["no column \"file_name\"", "id, n"][..]),
        (&[("metadata.csv", "file_names,n\na,1\n")], &["file_names", "lists of paths", "--path-field"]),
        (&[("metadata.csv", "file_name,width\ntrain/a.jpg,1\n")], &["\"width\""]),
        (
            &[("metadata.csv", "file_name\ntrain/a.jpg\n"), ("train/metadata.csv", "file_name\na.jpg\n")],
            &["s/metadata.csv: line 2 and line 2 of s/train/metadata.csv both name s/train/a.jpg"],
        ),
        (
            &[("test/metadata.csv", "file_name,n\nb.jpg,1\n"), ("train/metadata.csv", "file_name\na.jpg\n")],
            &["s/train/metadata.csv", "s/test/metadata.csv", "\"n\" is in only one"],
        ),
        (
            &[
                ("test/metadata.csv", "file_name,label\nb.jpg,1\n"),
                ("train/metadata.csv", "file_name\na.jpg\n"),
            ],
            &["\"label\" is in only one"],
        ),
        (
            &[
                ("test/metadata.csv", "file_name,n\nb.jpg,1\n"),
                ("train/metadata.jsonl", "{\"file_name\": \"a.jpg\", \"n\": []}\n"),
            ],
            &["\"n\" is json in one and string in the other"],
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        files(&dir.path().join("s"), &["train/a.jpg", "test/b.jpg"], tables);
        let ran = run(dir.path(), b"", &["s", "--out", "out"]).exits(2);
        ran.says(parts).says(&["--metadata none", "--metadata FILE"]);
        run(dir.path(), b"", &["s", "--out", "out", "--metadata", "none"]).exits(0);
    }
    let dir = tempfile::tempdir().unwrap();
    files(&dir.path().join("s"), &["a.jpg"], &[]);
    let args = ["s", "--out", "out", "--metadata", "none", "--keep-fields", "n"];
    run(dir.path(), b"", &args).exits(2).says(&["--keep-fields", "--metadata none"]);
}

#[test]
fn metadata_beside_tar_files_is_ignored_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    files(&dir.path().join("s"), &["a.jpg"], &[("metadata.csv", "file_name,caption\na.jpg,one\n")]);
    let mut tar = tar::Builder::new(std::fs::File::create(dir.path().join("s/x.tar")).unwrap());
    tar.append_path_with_name(dir.path().join("s/a.jpg"), "b.jpg").unwrap();
    tar.finish().unwrap();
    let ran = run(dir.path(), b"", &["s", "--out", "out"]).exits(0);
    ran.says(&["s/metadata.csv", "not used", "--metadata none"]);
    assert_eq!(texts(&dir.path().join("out"), "train", "key"), ["s/a.jpg", "s/x.tar#b"]);
    assert_eq!(run(dir.path(), b"", &["s", "--out", "told", "--metadata", "none"]).exits(0).stderr, "");
}

#[test]
fn list_fields_collect_the_rows_of_an_image() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("s");
    std::fs::create_dir(&root).unwrap();
    for name in ["a.jpg", "b.jpg", "c.jpg"] {
        std::fs::write(root.join(name), image(0)).unwrap();
    }
    let csv = "file_name,caption,by,n\na.jpg,\"o\"\"ne\",x,1\nb.jpg,two,y,2\n./a.jpg,\"th,ree\",x,3\nb.jpg,,y,4\n\
               c.jpg,five,z,5\na.jpg,fünf,x,6\nc.jpg,six,other,7\ngone.jpg,seven,,8\ngone.jpg,eight,,9\n";
    std::fs::write(root.join("metadata.csv"), csv).unwrap();
    let listed = ["--list-fields", "caption,n", "--max-rejects", "50%"];
    run(dir.path(), b"", &[&["s", "--out", "out"], &listed[..]].concat()).exits(0);
    let out = dir.path().join("out");
    assert_eq!(texts(&out, "train", "key"), ["s/a.jpg", "s/b.jpg"]);
    assert_eq!(texts(&out, "train", "caption"), [r#"["o\"ne","th,ree","fünf"]"#, r#"["two",null]"#]);
    assert_eq!(texts(&out, "train", "n"), [r#"["1","3","6"]"#, r#"["2","4"]"#]);
    assert_eq!(texts(&out, "train", "by"), ["x", "y"]);
    let fields = manifest(&out)["schema"]["fields"].clone();
    let types =
        |name: &str| fields.as_array().unwrap().iter().find(|f| f["name"] == name).unwrap()["type"].clone();
    assert_eq!((types("caption"), types("by")), ("json".into(), "string".into()));
    assert_eq!(rejects(&out), owned(&[("s/c.jpg", "invalid-value"), ("s/gone.jpg", "missing-file")]));
    assert_outcomes(&out, [2, 0, 0, 2]);

    // With `--metadata`, columns declared as numbers give lists of numbers.
    let named = ["s", "--metadata", "s/metadata.csv", "--keep-fields", "n:int32,by", "--list-fields", "n"];
    run(dir.path(), b"", &[&named[..], &["--out", "named", "--max-rejects", "50%"]].concat()).exits(0);
    assert_eq!(texts(&dir.path().join("named"), "train", "n"), ["[1,3,6]", "[2,4]"]);

    let refused = |args: &[&str]| run(dir.path(), b"", &[args, &["--out", "no"]].concat()).exits(2);
    let typo = ["s", "--metadata", "s/metadata.csv", "--list-fields", "captoin"];
    refused(&typo).says(&["\"captoin\"", "did you mean \"caption\"?"]);
    refused(&["s", "--metadata", "none", "--list-fields", "caption"]).says(&["--list-fields"]);
    let other = [&named[..5], &["--list-fields", "n,caption"]].concat();
    refused(&other).says(&["--list-fields: the column \"caption\" is not in --keep-fields"]);
    let path = ["s", "--list-fields", "file_name"];
    refused(&path).says(&["--list-fields: the column \"file_name\" holds the paths", "leave it out"]);
    for (table, beside) in [("labels.csv", false), ("s/metadata.csv", true)] {
        std::fs::write(dir.path().join(table), "file_name,label\na.jpg,x\n").unwrap();
        let given = if beside { &["s"][..] } else { &["s", "--metadata", table] };
        let label = [given, &["--list-fields", "label"]].concat();
        refused(&label).says(&[
            &format!("{table}: --list-fields: the column \"label\" is the class"),
            "rename the column",
        ]);
        refused(&[given, &["--list-fields", "caption"]].concat()).says(&["there are no others"]);
    }
}
