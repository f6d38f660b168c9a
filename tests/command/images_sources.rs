//! Images from file lists and metadata tables, and `--dedup`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;

use dsconvert::reader::Dataset;
use dsconvert::sample::Value;

use crate::support::*;

/// An image of the fixtures that can be decoded; equal numbers give equal bytes.
pub(crate) fn image(number: usize) -> Vec<u8> {
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
pub(crate) fn run(dir: &Path, input: &[u8], args: &[&str]) -> Ran {
    use std::io::Write;
    let mut command = command(["images"].iter().chain(args));
    command.current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that is refused may not read its input at all.
    let _ = child.stdin.take().unwrap().write_all(input);
    Ran::of(child.wait_with_output().unwrap())
}

/// The values of the field `name` of all records of a split, in order.
pub(crate) fn column(out: &Path, split: &str, name: &str) -> Vec<Value> {
    let dataset = Dataset::open(out).unwrap();
    let records = dataset.split(split).unwrap().iter();
    records.map(|r| r.unwrap().get(name).unwrap().clone()).collect()
}

/// Like [`column`], as text; values of other types are in their `Debug` form.
pub(crate) fn texts(out: &Path, split: &str, name: &str) -> Vec<String> {
    let text = |value| match value {
        Value::Text(text) => text.as_str().to_owned(),
        other => format!("{other:?}"),
    };
    column(out, split, name).into_iter().map(text).collect()
}

pub(crate) fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn files_of_a_list_are_converted_in_its_order() {
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

    // The same list from standard input, relative to the folder given as SRC and to the working directory.
    run(dir.path(), list.as_bytes(), &["root", "--files-from", "-", "--out", "piped"]).exits(0);
    assert_same(&tree(&out), &tree(&dir.path().join("piped")));
    run(&root, list.as_bytes(), &["--files-from", "-", "--out", "inside", "--threads", "3"]).exits(0);
    assert_same(&tree(&out), &tree(&root.join("inside")));
    run(&root, list.as_bytes(), &["--files-from", "-", "--out", "inside", "--resume"]).exits(0);
    run(&root, b"dog/a.png", &["--files-from", "-", "--out", "inside", "--resume"]).exits(2);
}

#[test]
fn listed_paths_that_lead_to_no_image_are_rejected() {
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
    let rejected = owned(&[
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
fn invalid_lists_are_refused() {
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

#[test]
fn a_table_names_files_and_adds_its_columns() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    images(&root, &["x/a.png", "x/b.jpg", "c.jpg"]);
    let csv = "caption,file_name,n,label\n\"one, \"\"two\"\"\nthree\",x/b.jpg,7,dog\n,c.jpg,,cat\nfünf,x/a.png,-1,\n";
    let tsv = "\u{feff}file_name\tcaption\tn\tlabel\nx/b.jpg\t\"quoted\"\t7\tdog\nc.jpg\t\t\tcat\nx/a.png\tfünf\t-1\t\n";
    let jsonl = concat!(
        "{\"file_name\": \"x/b.jpg\", \"label\": \"dog\", \"boxes\": [[1, 2.50]], \"n\": 7}\n",
        "{\"n\": null, \"file_name\": \"c.jpg\", \"caption\": \"c\", \"label\": \"cat\"}\r\n",
        "{\"file_name\": \"./x/a.png\", \"boxes\": {\"a\": null}, \"n\": -1, \"caption\": true}",
    );
    for (name, text) in [("m.csv", csv), ("m.tsv", tsv), ("m.jsonl", jsonl)] {
        std::fs::write(root.join(name), text).unwrap();
    }
    let keys = ["root/x/b.jpg", "root/c.jpg", "root/x/a.png"];
    let n = [Value::Int(7), Value::Null, Value::Int(-1)];
    let labels = [Value::Int(1), Value::Int(0), Value::Null];
    for format in FORMATS {
        for (name, captions) in [
            ("m.csv", ["one, \"two\"\nthree", "Null", "fünf"]),
            ("m.tsv", ["\"quoted\"", "Null", "fünf"]),
            ("m.jsonl", ["Null", "c", "true"]),
        ] {
            let out = dir.path().join(format!("{name}-{format}"));
            let table = format!("root/{name}");
            let keep = if name == "m.jsonl" { "n:int64,boxes,caption" } else { "caption,n:int64" };
            let args = ["--metadata", &table, "--keep-fields", keep, "--format", format, "--out"];
            run(dir.path(), b"", &[&args[..], &[out.to_str().unwrap()]].concat()).exits(0);
            assert_eq!(texts(&out, "train", "key"), keys);
            assert_eq!(texts(&out, "train", "caption"), captions);
            assert_eq!(column(&out, "train", "n"), n);
            assert_eq!(column(&out, "train", "label"), labels);
            assert_eq!(manifest(&out)["schema"]["class_names"], serde_json::json!(["cat", "dog"]));
            if name == "m.jsonl" {
                assert_eq!(texts(&out, "train", "boxes"), ["[[1,2.5]]", "Null", "{\"a\":null}"]);
            }
        }
    }
    // Without `--keep-fields`, all are kept: nested ones as JSON, others as strings.
    let out = dir.path().join("all");
    run(dir.path(), b"", &["--metadata", "root/m.jsonl", "--out", "all", "--threads", "3"]).exits(0);
    let fields = manifest(&out)["schema"]["fields"].as_array().unwrap()[6..].to_vec();
    let shown: Vec<_> =
        fields.iter().map(|f| (f["name"].as_str().unwrap(), f["type"].as_str().unwrap())).collect();
    assert_eq!(shown, [("boxes", "json"), ("n", "string"), ("caption", "string")]);
    assert_eq!(texts(&out, "train", "n"), ["7", "Null", "-1"]);
    run(dir.path(), b"", &["--metadata", "root/m.jsonl", "--out", "again", "--threads", "1"]).exits(0);
    assert_same(&tree(&out), &tree(&dir.path().join("again")));

    // A changed table makes a different dataset, even if it names the same files.
    std::fs::write(root.join("m.jsonl"), jsonl.replace("\"c\"", "\"d\"")).unwrap();
    run(dir.path(), b"", &["--metadata", "root/m.jsonl", "--out", "all", "--resume"])
        .exits(2)
        .says(&["metadata"]);
}

#[test]
fn parquet_tables_keep_their_column_types() {
    use std::sync::Arc;

    use arrow_array::builder::{Int32Builder, ListBuilder};
    use arrow_array::{
        ArrayRef, BinaryArray, Float32Array, Int64Array, RecordBatch, StringArray, UInt8Array,
    };
    let dir = tempfile::tempdir().unwrap();
    images(dir.path(), &["a.png", "b.jpg"]);
    let mut boxes = ListBuilder::new(Int32Builder::new());
    boxes.append_value([Some(1), None, Some(3)]);
    boxes.append_null();
    let columns: [(&str, ArrayRef); 6] = [
        ("image_path", Arc::new(StringArray::from(vec!["b.jpg", "a.png"]))),
        ("label", Arc::new(Int64Array::from(vec![Some(2), None]))),
        ("score", Arc::new(Float32Array::from(vec![Some(f32::INFINITY), None]))),
        ("small", Arc::new(UInt8Array::from(vec![Some(255), None]))),
        ("raw", Arc::new(BinaryArray::from_opt_vec(vec![Some(b"\0\xff"), None]))),
        ("boxes", Arc::new(boxes.finish())),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap();
    let path = dir.path().join("m.parquet");
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();

    let args = ["--metadata", "m.parquet", "--path-field", "image_path", "--out"];
    run(dir.path(), b"", &[&args[..], &["out"]].concat()).exits(0);
    let out = dir.path().join("out");
    assert_eq!(column(&out, "train", "label"), [Value::Int(2), Value::Null]);
    assert_eq!(manifest(&out)["schema"]["class_names"], serde_json::json!(["0", "1", "2"]));
    assert_eq!(column(&out, "train", "score"), [Value::Float(f64::INFINITY), Value::Null]);
    assert_eq!(column(&out, "train", "small"), [Value::UInt(255), Value::Null]);
    assert_eq!(column(&out, "train", "raw"), [Value::Bytes(b"\0\xff".as_slice().into()), Value::Null]);
    assert_eq!(texts(&out, "train", "boxes"), ["[1,null,3]", "Null"]);

    let refused = |more: &[&str]| run(dir.path(), b"", &[&args[..], &["no"], more].concat()).exits(2);
    refused(&["--keep-fields", "score:int64"]).says(&["score", "float32"]);
    refused(&["--keep-fields", "none"]).says(&["\"none\"", "boxes"]);
    // A damaged byte anywhere is an error or harmless, but never a crash.
    let whole = std::fs::read(&path).unwrap();
    for at in (0..whole.len()).step_by(61) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        std::fs::write(&path, &bytes).unwrap();
        let ran = run(dir.path(), b"", &[&args[..], &["no", "--dry-run"]].concat());
        assert!([0, 2].contains(&ran.status), "byte {at}: {ran:?}");
    }
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    refused(&[]).says(&["m.parquet", "Parquet"]);
}

#[test]
fn invalid_rows_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    images(&root, &["a.png", "b.jpg", "c.jpg", "d.jpg", "e.jpg"]);
    let mut csv =
        b"file_name,n,t\na.png,1,x\ngone.png,2,x\n../a.png,3,x\n/etc/passwd,4,x\nb.jpg,five,x\n".to_vec();
    csv.extend_from_slice(b",6,x\nc.jpg,7\nd.jpg,8,\xff\ne.jpg,9,y\n");
    std::fs::write(root.join("m.csv"), &csv).unwrap();
    let args = ["--keep-fields", "n:int64,t", "--max-rejects", "100%"];
    run(dir.path(), b"", &[&args[..], &["--metadata", "root/m.csv", "--out", "csv"]].concat()).exits(0);
    let out = dir.path().join("csv");
    let rejected = owned(&[
        ("root/gone.png", "missing-file"),
        ("root/../a.png", "unsafe-path"),
        ("root//etc/passwd", "unsafe-path"),
        ("root/b.jpg", "invalid-value"),
        ("root/m.csv#79", "missing-field"),
        ("root/c.jpg", "invalid-value"),
        ("root/d.jpg", "invalid-utf8"),
    ]);
    assert_eq!(rejects(&out), rejected);
    assert_outcomes(&out, [2, 0, 0, 7]);
    assert_eq!(texts(&out, "train", "t"), ["x", "y"]);

    let lines: [&[u8]; 9] = [
        br#"{"file_name": "a.png", "n": 1, "t": "x"}"#,
        b"not json",
        b"",
        br#"{"file_name":[]}"#,
        br#"{"n": 5}"#,
        br#"{"file_name": "b.jpg", "n": 1.5}"#,
        br#"{"file_name": "gone.png"}"#,
        b"{\"file_name\": \"c.jpg\", \"t\": \"\xff\"}",
        br#"{"file_name": "d.jpg"}"#,
    ];
    std::fs::write(root.join("m.jsonl"), lines.join(&b'\n')).unwrap();
    run(dir.path(), b"", &[&args[..], &["--metadata", "root/m.jsonl", "--out", "jsonl"]].concat()).exits(0);
    let out = dir.path().join("jsonl");
    let rejected = owned(&[
        ("root/m.jsonl#41", "invalid-json"),
        ("root/m.jsonl#50", "empty"),
        ("root/m.jsonl#51", "wrong-type"),
        ("root/m.jsonl#68", "missing-field"),
        ("root/b.jpg", "invalid-value"),
        ("root/gone.png", "missing-file"),
        ("root/m.jsonl#136", "invalid-utf8"),
    ]);
    assert_eq!(rejects(&out), rejected);
    assert_outcomes(&out, [2, 0, 0, 7]);
}

#[test]
fn invalid_tables_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    images(dir.path(), &["a.png", "train/b.png"]);
    let table = dir.path().join("m.csv");
    let ran = |text: &str, more: &[&str]| {
        std::fs::write(&table, text).unwrap();
        run(dir.path(), b"", &[&["--metadata", "m.csv", "--out", "out"], more].concat())
    };
    for (text, more, parts) in [
        ("path\na.png\n", [].as_slice(), ["\"file_name\"", "path", "--path-field"].as_slice()),
        ("file_name,width\na.png,3\n", &[], &["\"width\"", "rename"]),
        ("file_name,x,x\na.png,3,4\n", &[], &["two columns", "\"x\""]),
        ("file_name,label\na.png,3\n", &["--keep-fields", "label"], &["class"]),
        ("file_name,label\na.png,3\n", &["--layout", "labels"], &["--layout"]),
        ("file_name,label\na.png,9999999\n", &[], &["9999999", "too large"]),
        ("file_name,x\na.png,3\n", &["--keep-fields", "x:number"], &["--keep-fields", "float64"]),
        ("", &[], &["m.csv", "empty"]),
        (
            "file_name,x\na.png,\"3\ntrain/b.png,4\n",
            &[],
            &["m.csv", "line 2: ", "the row at byte 12 is never closed; the last 23 bytes"],
        ),
    ] {
        ran(text, more).exits(2).says(parts);
        assert!(!dir.path().join("out").exists(), "{text}");
    }
    run(dir.path(), b"", &["--metadata", "a.png", "--out", "out"]).exits(2).says(&[".parquet"]);
    run(dir.path(), b"", &["--metadata", "none.csv", "--out", "out"]).exits(3).says(&["none.csv"]);

    // `--classes` defines the labels; a row with any other class is rejected.
    std::fs::write(dir.path().join("classes.txt"), "zebra\nant\n").unwrap();
    let text = "file_name,label\na.png,ant\ntrain/b.png,bee\n";
    ran(text, &["--classes", "classes.txt", "--max-rejects", "1"]).exits(0);
    let out = dir.path().join("out");
    assert_eq!(column(&out, "train", "label"), [Value::Int(1)]);
    let label = dir.path().file_name().unwrap().to_str().unwrap();
    assert_eq!(rejects(&out), [(format!("{label}/train/b.png"), "unknown-label".into())]);
}

#[test]
fn the_first_of_several_equal_files_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    // `zebra/last.jpg`, the last path, is a copy of `cat/a.jpg`, the first; `dog/other.jpg` has only the same size.
    images(&root, &["cat/a.jpg", "dog/b.jpg", "dog/d.jpg"]);
    for copy in ["cat/c.jpg", "dog/a.png", "zebra/last.jpg"] {
        std::fs::create_dir_all(root.join(copy).parent().unwrap()).unwrap();
        std::fs::write(root.join(copy), image(0)).unwrap();
    }
    let mut other = image(0);
    *other.last_mut().unwrap() ^= 1;
    std::fs::write(root.join("dog/other.jpg"), other).unwrap();
    for name in ["0_SUCCESS", "x.txt", "y.txt", "z.jpg", "empty.jpg", "void.jpg"] {
        let text = if name.len() == 5 { "no image" } else { "" };
        std::fs::write(root.join(name), text).unwrap();
    }
    let args = ["root", "--dedup", "bytes", "--max-rejects", "100%", "--unit-bytes", "4096", "--out"];
    run(dir.path(), b"", &[&args[..], &["out", "--threads", "1"]].concat()).exits(0);
    let out = dir.path().join("out");
    let lines = std::fs::read_to_string(out.join("duplicates.jsonl")).unwrap();
    let line = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let found: Vec<_> = lines.lines().map(line).collect();
    let expected = ["cat/c.jpg", "dog/a.png", "zebra/last.jpg"].map(|copy| {
        serde_json::json!({"origin": format!("root/{copy}"), "split": "train", "of": "root/cat/a.jpg"})
    });
    assert_eq!(found[..2], expected[..2]);
    assert!(found.contains(&expected[2]), "{found:?}");
    assert!(found.iter().any(|l| l["origin"] == "root/void.jpg" && l["of"] == "root/empty.jpg"));
    let manifest = manifest(&out);
    assert_eq!(manifest["duplicates"], 4);
    // Skipped files are not items, so they are not duplicates, and no item is a duplicate of them.
    assert_eq!((&manifest["found"], &manifest["sources"]["skipped"]), (&10.into(), &3.into()));
    assert!(rejects(&out).contains(&("root/z.jpg".to_owned(), "unknown-type".to_owned())));
    assert!(manifest["files"].as_array().unwrap().iter().any(|f| f["path"] == "duplicates.jsonl"));
    let kept = texts(&out, "train", "key");
    assert!(kept.contains(&"root/cat/a.jpg".into()) && !kept.contains(&"root/dog/a.png".into()), "{kept:?}");
    Ran::of(command(["inspect", out.to_str().unwrap(), "--verify"]).output().unwrap()).exits(0);

    run(dir.path(), b"", &[&args[..], &["again", "--threads", "3"]].concat()).exits(0);
    assert_same(&tree(&out), &tree(&dir.path().join("again")));
    run(dir.path(), b"", &["root", "--dedup", "pixels", "--out", "no"]).exits(2).says(&["--dedup", "bytes"]);
    std::fs::write(root.join("t.tar"), "").unwrap();
    run(dir.path(), b"", &["root", "--dedup", "bytes", "--out", "no"]).exits(2).says(&["tar"]);
}

#[test]
fn byte_order_marks_of_lists_are_ignored() {
    let dir = tempfile::tempdir().unwrap();
    images(&dir.path().join("root"), &["cat/1.png", "dog/2.png"]);
    std::fs::write(dir.path().join("classes.txt"), "\u{feff}cat\r\ndog\r\n").unwrap();
    std::fs::write(dir.path().join("list.txt"), "\u{feff}cat/1.png\r\ndog/2.png\r\n").unwrap();
    let args = [
        "root",
        "--files-from",
        "list.txt",
        "--layout",
        "labels",
        "--classes",
        "classes.txt",
        "--out",
        "out",
    ];
    run(dir.path(), b"", &args).exits(0);
    assert_outcomes(&dir.path().join("out"), [2, 0, 0, 0]);
    assert_eq!(manifest(&dir.path().join("out"))["schema"]["class_names"], serde_json::json!(["cat", "dog"]));
}

#[test]
fn an_image_of_an_unknown_class_does_not_replace_an_equal_one() {
    let dir = tempfile::tempdir().unwrap();
    images(&dir.path().join("root"), &["dog/1.png", "cat/2.png"]);
    std::fs::create_dir(dir.path().join("root/bird")).unwrap();
    std::fs::copy(dir.path().join("root/cat/2.png"), dir.path().join("root/bird/2.png")).unwrap();
    std::fs::write(dir.path().join("classes.txt"), "cat\ndog\n").unwrap();
    let args = [
        "root",
        "--dedup",
        "bytes",
        "--layout",
        "labels",
        "--classes",
        "classes.txt",
        "--max-rejects",
        "50%",
    ];
    run(dir.path(), b"", &[&args[..], &["--out", "out"]].concat()).exits(0);
    assert_eq!(records(&dir.path().join("out")).len(), 2);
    assert_eq!(rejects(&dir.path().join("out")).len(), 1);
}
