//! Sidecars (`a.txt` beside `a.jpg`), folders named like `10_cat`, tables in and beside archives, columns of paths, and
//! ids and absolute paths in tables.

use std::path::Path;

use dsconvert::sample::Value;
use serde_json::json;

use crate::images_sources::{column, image, owned, run, texts};
use crate::images_tar::Tar;
use crate::support::*;
use crate::text_zip::zip;

/// Writes `files` into the folder `dir`.
fn put(dir: &Path, files: &[(&str, Vec<u8>)]) {
    for (name, bytes) in files {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

/// Images with sidecars: `E.JPG` has two, `b.c.png` one, `d/f.jpg` an empty one, and `g.jpg` none.
fn captioned() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("E.JPG", image(0)),
        ("E.caption", b"upper".to_vec()),
        ("E.TXT", b"\xef\xbb\xbfa cat\n".to_vec()),
        ("annotations.json", b"{}".to_vec()),
        ("b.c.png", image(1)),
        ("b.c.txt", "zwei Pünktchen".into()),
        ("d/f.jpg", image(2)),
        ("d/f.txt", Vec::new()),
        ("g.jpg", image(3)),
        ("notes.txt", b"about the images".to_vec()),
    ]
}

const KEYS: [&str; 4] = ["E.JPG", "b.c.png", "d/f.jpg", "g.jpg"];
const TEXTS: [&str; 4] = ["a cat\n", "zwei Pünktchen", "", "Null"];

fn assert_captioned(out: &Path, prefix: &str) {
    assert_eq!(texts(out, "train", "key"), KEYS.map(|key| format!("{prefix}/{key}")));
    assert_eq!(texts(out, "train", "txt"), TEXTS);
    assert_eq!(texts(out, "train", "caption"), ["upper", "Null", "Null", "Null"]);
    assert_eq!(manifest(out)["options"]["sidecar"], json!(["txt", "caption"]));
    assert_eq!(manifest(out)["sources"]["skipped"], 2, "annotations.json and notes.txt");
    assert_outcomes(out, [4, 0, 0, 0]);
}

fn execute(dir: &Path, arguments: &str) -> Ran {
    Ran::of(command(arguments.split_whitespace()).current_dir(dir).output().unwrap())
}

#[test]
fn files_beside_images_are_fields() {
    let dir = tempfile::tempdir().unwrap();
    put(&dir.path().join("s"), &captioned());
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let ran = run(dir.path(), b"", &["s", "--out", "a", "--layout", "flat"]).exits(0);
    assert_captioned(&a, "s");
    assert_eq!(ran.stderr, "");
    for line in [
        "  sidecars: txt beside 3 of 4 images (1 missing, 1 empty, 1 without an image and skipped, such as s/notes.txt)\n",
        "  sidecars: caption beside 1 of 4 images (3 missing)\n",
        "2 files skipped: 1 .json, 1 .txt",
    ] {
        assert!(ran.stdout.contains(line), "{}", ran.stdout);
    }
    let ran = run(dir.path(), b"", &["s", "--out", "no", "--layout", "flat", "--dry-run"]).exits(0);
    assert!(ran.stdout.contains("items    4\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("\nsidecars txt beside 3 of 4 images"), "{}", ran.stdout);
    run(dir.path(), b"", &["s", "--out", "no", "--layout", "flat", "--dry-run", "--sample", "10"]).exits(0);

    // One thread, parts, and a resumed run give the same bytes.
    run(dir.path(), b"", &["s", "--out", "b", "--layout", "flat", "--threads", "1"]).exits(0);
    assert_same(&tree(&a), &tree(&b));
    execute(dir.path(), "plan images s --layout flat --out parts").exits(0);
    execute(dir.path(), "run parts --part 1/1").exits(0);
    execute(dir.path(), "merge parts").exits(0);
    assert_same(&tree(&a), &tree(&dir.path().join("parts")));
    run(dir.path(), b"", &["s", "--out", "a", "--layout", "flat", "--resume"]).exits(0);
    // A damaged shard is converted again, with its sidecars.
    let before = tree(&a);
    let shard = std::fs::read_dir(a.join("train")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&shard, b"damage").unwrap();
    execute(dir.path(), "inspect a --verify --repair s").exits(0);
    assert_same(&before, &tree(&a));

    // Files of one format are chosen by name, or none.
    run(dir.path(), b"", &["s", "--out", "c", "--layout", "flat", "--sidecar", ".Caption,json"]).exits(0);
    let c = dir.path().join("c");
    assert_eq!(manifest(&c)["options"]["sidecar"], json!(["caption", "json"]));
    assert_eq!(texts(&c, "train", "json"), ["Null"; 4]);
    assert_eq!(manifest(&c)["sources"]["skipped"], 5);
    run(dir.path(), b"", &["s", "--out", "none", "--layout", "flat", "--sidecar", "none"]).exits(0);
    for (name, _) in captioned() {
        let is_image = [".JPG", ".jpg", ".png"].iter().any(|end| name.ends_with(end));
        if !is_image {
            std::fs::remove_file(dir.path().join("s").join(name)).unwrap();
        }
    }
    // Without sidecars, `auto` changes nothing.
    run(dir.path(), b"", &["s", "--out", "bare", "--layout", "flat"]).exits(0);
    let fingerprint = |out: &str| manifest(&dir.path().join(out))["fingerprint"].clone();
    run(dir.path(), b"", &["s", "--out", "bare-none", "--layout", "flat", "--sidecar", "none"]).exits(0);
    assert_eq!(fingerprint("bare"), fingerprint("bare-none"));
    assert!(manifest(&dir.path().join("bare"))["options"].get("sidecar").is_none());
}

#[test]
fn archives_have_sidecars_like_folders() {
    let dir = tempfile::tempdir().unwrap();
    let files = captioned();
    std::fs::write(dir.path().join("s.zip"), zip(&files, true)).unwrap();
    run(dir.path(), b"", &["s.zip", "--out", "zip", "--layout", "flat"]).exits(0);
    assert_captioned(&dir.path().join("zip"), "s.zip");
    std::fs::create_dir(dir.path().join("z")).unwrap();
    std::fs::rename(dir.path().join("s.zip"), dir.path().join("z/s.zip")).unwrap();
    run(dir.path(), b"", &["z", "--out", "walked", "--layout", "flat"]).exits(0);
    assert_captioned(&dir.path().join("walked"), "z/s.zip");
    // A tar file of folders: its files are in no particular order.
    let mut tar = Tar::default();
    let (images, others): (Vec<_>, Vec<_>) =
        files.iter().partition(|(name, _)| !name.ends_with("txt") && !name.ends_with("TXT"));
    for (name, bytes) in images.iter().chain(&others) {
        tar.file(&format!("root/{name}"), bytes);
    }
    // The first samples are bare.
    let mut all = Tar::default();
    all.file("root/cat/0.jpg", &image(4))
        .file("root/dog/1.jpg", &image(5))
        .file("root/cat/0.caption", b"zero");
    crate::images_tar::put(dir.path(), "t.tar", &all.end());
    run(dir.path(), b"", &["t.tar", "--out", "tar"]).exits(0);
    let out = dir.path().join("tar");
    assert_eq!(texts(&out, "train", "key"), ["t.tar/root/cat/0.jpg", "t.tar/root/dog/1.jpg"]);
    assert_eq!(texts(&out, "train", "caption"), ["zero", "Null"]);
    assert_eq!(manifest(&out)["schema"]["class_names"], json!(["cat", "dog"]));
    drop(tar);
    // Sidecars do not change which folders are around everything.
    let files = [
        ("pets/cat/1.jpg", image(0)),
        ("pets/dog/2.jpg", image(1)),
        ("README.txt", b"x".to_vec()),
        ("pets/dog/2.txt", b"d".to_vec()),
    ];
    std::fs::write(dir.path().join("p.zip"), zip(&files, false)).unwrap();
    run(dir.path(), b"", &["p.zip", "--out", "p"]).exits(0);
    assert_eq!(manifest(&dir.path().join("p"))["schema"]["class_names"], json!(["cat", "dog"]));
    assert_eq!(texts(&dir.path().join("p"), "train", "txt"), ["Null", "d"]);
    assert_eq!(manifest(&dir.path().join("p"))["sources"]["skipped"], 1);
}

#[test]
fn wrong_sidecars_are_rejects_and_changed_ones_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let files = [
        ("a.jpg", image(0)),
        ("a.json", b"{\"tags\": [1, NaN]}".to_vec()),
        ("b.jpg", image(1)),
        ("b.json", b"{\"tags\": ".to_vec()),
        ("c.jpg", image(2)),
        ("c.json", b" \n".to_vec()),
        ("d.jpg", image(3)),
        ("d.txt", b"caf\xe9".to_vec()),
    ];
    put(&dir.path().join("s"), &files);
    let ran = run(dir.path(), b"", &["s", "--out", "out", "--max-rejects", "100%"]).exits(0);
    let out = dir.path().join("out");
    assert_eq!(rejects(&out), owned(&[("s/b.jpg", "invalid-json"), ("s/d.jpg", "invalid-utf8")]));
    assert_eq!(texts(&out, "train", "json"), ["{\"tags\": [1, null]}", "Null"]);
    let reasons = std::fs::read_to_string(out.join("rejects.jsonl")).unwrap();
    assert!(reasons.contains("b.json") && reasons.contains("d.txt"), "{reasons}");
    assert!(ran.stdout.contains("1 file beside images with nothing but white space"), "{}", ran.stdout);
    execute(dir.path(), "plan images s --out parts --max-rejects 100%").exits(0);
    let text = dir.path().join("s/a.json");
    std::fs::write(&text, "{\"tags\": [1, 2, 3, 4]}").unwrap();
    execute(dir.path(), "run parts --part 1/1").exits(3).says(&["a.json", "bytes when the run was planned"]);
    std::fs::remove_file(&text).unwrap();
    execute(dir.path(), "run parts --part 1/1").exits(3).says(&["a.json"]);
    run(dir.path(), b"", &["s", "--out", "out", "--resume", "--max-rejects", "100%"])
        .exits(2)
        .says(&["sources"]);
}

#[test]
fn sidecars_work_with_lists_tables_duplicates_and_kept_files() {
    let dir = tempfile::tempdir().unwrap();
    let files = [
        ("a.jpg", image(0)),
        ("a.png", image(1)),
        ("a.txt", b"both".to_vec()),
        ("b.jpg", image(0)),
        ("b.jpg.txt", b"whole name".to_vec()),
        ("b.txt", b"stem".to_vec()),
    ];
    put(&dir.path().join("s"), &files);
    run(dir.path(), b"", &["s", "--out", "kept", "--encode", "keep", "--keep-metadata"]).exits(0);
    let kept = dir.path().join("kept");
    assert_eq!(texts(&kept, "train", "txt"), ["both", "both", "whole name"]);
    assert_eq!(column(&kept, "train", "image")[0], Value::Bytes(image(0).into()));
    run(dir.path(), b"", &["s", "--out", "dedup", "--dedup", "bytes"]).exits(0);
    assert_eq!(texts(&dir.path().join("dedup"), "train", "txt"), ["both", "both"]);
    assert_outcomes(&dir.path().join("dedup"), [2, 0, 1, 0]);
    run(dir.path(), b"", &["s", "--out", "shuffled", "--shuffle"]).exits(0);
    let pairs = |out: &Path| {
        let mut pairs: Vec<_> =
            texts(out, "train", "key").into_iter().zip(texts(out, "train", "txt")).collect();
        pairs.sort();
        pairs
    };
    assert_eq!(pairs(&dir.path().join("shuffled")), pairs(&kept));

    // Listed files have sidecars on request.
    let list = b"b.jpg\na.png\ngone.jpg\n";
    let arguments = ["s", "--files-from", "-", "--max-rejects", "1", "--out"];
    let ran = run(dir.path(), list, &[&arguments[..], &["auto"]].concat()).exits(0);
    ran.says(&["such as \"s/b.jpg.txt\", are not read", "--sidecar txt"]);
    assert!(manifest(&dir.path().join("auto"))["options"].get("sidecar").is_none());
    let ran =
        run(dir.path(), list, &[&arguments[..], &["listed", "--sidecar", "txt,tags"]].concat()).exits(0);
    assert_eq!(ran.stderr, "");
    assert_eq!(texts(&dir.path().join("listed"), "train", "txt"), ["whole name", "both"]);
    assert_eq!(texts(&dir.path().join("listed"), "train", "tags"), ["Null"; 2]);
    put(&dir.path().join("s"), &[("t.csv", b"file_name,n\nb.jpg,1\na.jpg,2\n".to_vec())]);
    run(dir.path(), b"", &["--metadata", "s/t.csv", "--out", "table", "--sidecar", "txt"]).exits(0);
    let table = dir.path().join("table");
    assert_eq!(texts(&table, "train", "n"), ["1", "2"]);
    assert_eq!(texts(&table, "train", "txt"), ["whole name", "both"]);

    // Images that are sources.
    let ran = run(dir.path(), b"", &["s/a.jpg", "s/b.jpg", "--out", "named"]).exits(0);
    ran.says(&["\"s/a.txt\", are not read; name them, too, or the folder"]);
    let ran = run(dir.path(), b"", &["s/a.jpg", "s/a.txt", "--out", "both"]).exits(0);
    assert_eq!(ran.stderr, "");
    assert_eq!(texts(&dir.path().join("both"), "train", "txt"), ["both"]);

    // A table beside the images, and a field of the same name.
    put(&dir.path().join("s"), &[("metadata.csv", b"file_name,n\nb.jpg,1\nb.jpg,2\n".to_vec())]);
    run(dir.path(), b"", &["s", "--out", "beside"]).exits(0);
    assert_eq!(texts(&dir.path().join("beside"), "train", "txt"), ["whole name"; 2]);
    put(&dir.path().join("s"), &[("metadata.csv", b"file_name,txt\nb.jpg,1\n".to_vec())]);
    run(dir.path(), b"", &["s", "--out", "no"]).exits(2).says(&["\"txt\"", "--sidecar none"]);
    run(dir.path(), b"", &["s", "--out", "beside-none", "--sidecar", "none"]).exits(0);
    run(dir.path(), b"", &["s", "--out", "no", "--sidecar", "label"])
        .exits(2)
        .says(&["\"label\"", "--sidecar"]);
    for wrong in ["jpg", "", "txt,txt"] {
        run(dir.path(), b"", &["s", "--out", "no", "--sidecar", wrong]).exits(2).says(&["--sidecar"]);
    }
    put(
        dir.path(),
        &[("w.tar", {
            let mut tar = Tar::default();
            tar.file("0.jpg", &image(0)).file("0.txt", b"x");
            tar.end()
        })],
    );
    run(dir.path(), b"", &["w.tar", "--out", "no", "--sidecar", "txt"])
        .exits(2)
        .says(&["--sidecar", "tar files"]);
}

#[test]
fn units_and_blocks_never_divide_an_image_and_its_sidecars() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..700).map(|number| format!("{number:04}")).collect();
    let image = image(0);
    for name in &names {
        put(
            &dir.path().join("s"),
            &[
                (&format!("{name}.jpg"), image.clone()),
                (&format!("{name}.caption"), format!("caption {name}").into()),
                (&format!("{name}.txt"), format!("text {name}").into()),
            ],
        );
    }
    // A unit is full after any file.
    let bytes = (image.len() + 9).to_string();
    run(dir.path(), b"", &["s", "--out", "out", "--unit-bytes", &bytes, "--resize", "longer:8"]).exits(0);
    let out = dir.path().join("out");
    assert_eq!(
        texts(&out, "train", "txt"),
        names.iter().map(|name| format!("text {name}")).collect::<Vec<_>>()
    );
    assert_eq!(
        texts(&out, "train", "caption"),
        names.iter().map(|name| format!("caption {name}")).collect::<Vec<_>>()
    );
}

#[test]
fn folders_with_repeats_have_fields_for_their_parts() {
    let dir = tempfile::tempdir().unwrap();
    let files = [
        ("train/10_cat/a.jpg", image(0)),
        ("train/10_cat/a.txt", b"c1".to_vec()),
        ("train/3_red dog_2/b.jpg", image(1)),
        ("val/3_red dog_2/c.jpg", image(2)),
    ];
    put(&dir.path().join("s"), &files);
    let ran = run(dir.path(), b"", &["s", "--out", "out"]).exits(0);
    ran.says(&["named like \"10_cat\"", "\"repeats\"", "\"concept\"", "--layout splits keeps"]);
    let out = dir.path().join("out");
    assert_eq!(texts(&out, "train", "concept"), ["cat", "red dog_2"]);
    assert_eq!(column(&out, "train", "repeats"), [10, 3].map(Value::UInt));
    assert_eq!(column(&out, "validation", "repeats"), [Value::UInt(3)]);
    assert_eq!(column(&out, "train", "label"), [0, 1].map(Value::Int));
    assert_eq!(texts(&out, "train", "txt"), ["c1", "Null"]);
    execute(dir.path(), "plan images s --out parts").exits(0);
    execute(dir.path(), "run parts --part 1/1").exits(0);
    execute(dir.path(), "merge parts").exits(0);
    assert_same(&tree(&out), &tree(&dir.path().join("parts")));
    let fields = |out: &str| manifest(&dir.path().join(out))["schema"]["fields"].to_string();
    let ran = run(dir.path(), b"", &["s", "--out", "off", "--layout", "splits"]).exits(0);
    assert!(!ran.stderr.contains("repeats") && !fields("off").contains("repeats"), "{}", ran.stderr);
    // One other class, and the rule does not apply.
    put(&dir.path().join("s"), &[("train/other/d.jpg", image(3))]);
    run(dir.path(), b"", &["s", "--out", "other"]).exits(0);
    assert!(!fields("other").contains("repeats"));
}

#[test]
fn tables_in_and_beside_archives_describe_their_images() {
    let dir = tempfile::tempdir().unwrap();
    let images = |names: &[&'static str]| {
        names.iter().enumerate().map(|(n, name)| (*name, image(n))).collect::<Vec<_>>()
    };
    let table = |rows: &str| format!("file_name,text\n{rows}").into_bytes();
    let texts_of = |source: &str, out: &str| {
        let ran = run(dir.path(), b"", &[source, "--out", out]).exits(0);
        assert!(!ran.stderr.contains("not used"), "{}", ran.stderr);
        let (keys, texts) =
            (texts(&dir.path().join(out), "train", "key"), texts(&dir.path().join(out), "train", "text"));
        keys.into_iter().zip(texts).collect::<Vec<_>>()
    };
    // In the archive: next to the images, and above them.
    let mut files = images(&["a/1.jpg", "a/2.jpg"]);
    files.push(("a/metadata.csv", table("2.jpg,two\n1.jpg,one\n")));
    put(&dir.path().join("x"), &[("in.zip", zip(&files, true))]);
    assert_eq!(texts_of("x", "o1"), owned(&[("x/in.zip/a/2.jpg", "two"), ("x/in.zip/a/1.jpg", "one")]));
    let mut files = images(&["a/1.jpg", "a/2.jpg", "unnamed.jpg"]);
    files.push(("a/1.txt", b"sidecar".to_vec()));
    files.push(("metadata.jsonl", b"{\"file_name\": \"a/1.jpg\", \"text\": \"one\"}\n".to_vec()));
    put(dir.path(), &[("above.zip", zip(&files, false))]);
    let ran = run(dir.path(), b"", &["above.zip", "--out", "o2"]).exits(0);
    ran.says(&["2 images have no row in the metadata"]);
    assert_eq!(texts(&dir.path().join("o2"), "train", "text"), ["one"]);
    assert_eq!(texts(&dir.path().join("o2"), "train", "txt"), ["sidecar"]);
    run(dir.path(), b"", &["above.zip", "--out", "o3", "--metadata", "none"]).exits(0);
    assert_outcomes(&dir.path().join("o3"), [3, 0, 0, 0]);
    // Beside the archive, with every way to write a name.
    let files = images(&["pics/1.jpg", "pics/2.jpg", "pics/3.jpg", "pics/4.jpg"]);
    let rows = "pics/1.jpg,one\n2.jpg,two\nimages/3.jpg,three\nimages.zip/pics/4.jpg,four\n4,again\n";
    put(&dir.path().join("y"), &[("images.zip", zip(&files, true)), ("metadata.csv", table(rows))]);
    let key = |name: &str| format!("y/images.zip/pics/{name}");
    let expected =
        [("1.jpg", "one"), ("2.jpg", "two"), ("3.jpg", "three"), ("4.jpg", "four"), ("4.jpg#2", "again")];
    assert_eq!(texts_of("y", "o4"), expected.map(|(name, text)| (key(name), text.to_owned())));
    // An archive that is given with a table.
    put(dir.path(), &[("m.csv", table("1.jpg,one\npics/2.jpg,two\n"))]);
    run(dir.path(), b"", &["y/images.zip", "--metadata", "m.csv", "--out", "o5"]).exits(0);
    assert_eq!(texts(&dir.path().join("o5"), "train", "text"), ["one", "two"]);
    run(dir.path(), b"", &["y", "--metadata", "m.csv", "--out", "o9"]).exits(0);
    assert_eq!(texts(&dir.path().join("o9"), "train", "text"), ["one", "two"]);
    // Names that lead nowhere, out of the folder, or to several archives.
    let other = zip(&images(&["pics/1.jpg"]), true);
    let rows = "pics/1.jpg,a\nother.zip/pics/1.jpg,b\n../x.jpg,c\n/pics/1.jpg,d\ngone.jpg,e\n";
    put(&dir.path().join("y"), &[("other.zip", other), ("metadata.csv", table(rows))]);
    run(dir.path(), b"", &["y", "--out", "o6", "--max-rejects", "100%"]).exits(0);
    let codes: Vec<String> = rejects(&dir.path().join("o6")).into_iter().map(|(_, code)| code).collect();
    assert_eq!(codes, ["invalid-value", "unsafe-path", "unsafe-path", "missing-file"]);
    assert_eq!(texts(&dir.path().join("o6"), "train", "text"), ["b"]);
    // WebDataset: the table is not used, and no tip promises otherwise.
    let mut tar = Tar::default();
    tar.file("0.jpg", &image(0)).file("0.txt", b"x");
    put(&dir.path().join("w"), &[("w.tar", tar.end()), ("metadata.csv", table("0.jpg,x\n"))]);
    let ran = run(dir.path(), b"", &["w", "--out", "o7"]).exits(0);
    ran.says(&[
        "w/metadata.csv: metadata next to WebDataset, Parquet or Arrow files is not used",
        "--metadata none",
    ]);
    let ran = run(dir.path(), b"", &["w", "--out", "o8"]).exits(0);
    assert!(!ran.stderr.contains("--metadata FILE"), "{}", ran.stderr);
}

#[test]
fn names_without_extension_and_absolute_names_lead_to_images() {
    let dir = tempfile::tempdir().unwrap();
    let files = [
        ("0a.jpg", image(0)),
        ("1.PNG", image(1)),
        ("2.jpg", image(2)),
        ("2.png", image(1)),
        ("v1.2.jpg", image(3)),
    ];
    put(&dir.path().join("train"), &files);
    let absolute = dir.path().canonicalize().unwrap().join("train/0a.jpg");
    let rows = format!("id,n\n0a,1\n1,2\n2,3\n3,4\nv1.2,5\n{},6\n/etc/passwd,7\n", absolute.display());
    put(dir.path(), &[("labels.csv", rows.into_bytes())]);
    let arguments =
        ["train", "--metadata", "labels.csv", "--path-field", "id", "--max-rejects", "100%", "--out", "out"];
    run(dir.path(), b"", &arguments).exits(0);
    let out = dir.path().join("out");
    assert_eq!(
        texts(&out, "train", "key"),
        ["train/0a.jpg", "train/1.PNG", "train/v1.2.jpg", "train/0a.jpg#2"]
    );
    assert_eq!(texts(&out, "train", "n"), ["1", "2", "5", "6"]);
    let expected =
        [("train/2", "missing-file"), ("train/3", "missing-file"), ("train//etc/passwd", "unsafe-path")];
    assert_eq!(rejects(&out), owned(&expected));
    put(dir.path(), &[("ids.jsonl", b"{\"id\": 1}\n{\"id\": 1.5}\n".to_vec())]);
    let arguments =
        ["train", "--metadata", "ids.jsonl", "--path-field", "id", "--max-rejects", "1", "--out", "ids"];
    run(dir.path(), b"", &arguments).exits(0);
    assert_eq!(texts(&dir.path().join("ids"), "train", "key"), ["train/1.PNG"]);
    let reasons = std::fs::read_to_string(out.join("rejects.jsonl")).unwrap();
    assert!(reasons.contains("several files") && reasons.contains("2.png"), "{reasons}");
}

#[test]
fn columns_and_lists_of_paths_are_images() {
    let dir = tempfile::tempdir().unwrap();
    let files = [("1.png", image(0)), ("2.jpg", image(1)), ("3.png", image(2))];
    put(&dir.path().join("s"), &files);
    let rows = "{\"input_file_name\": \"1.png\", \"edit_file_name\": \"2.jpg\", \"raw_file_name\": \"IMG_1.CR2\", \"t\": \"x\"}\n\
                {\"input_file_name\": \"3.png\", \"t\": \"y\"}\n\
                {\"input_file_name\": \"1.png\", \"edit_file_name\": \"gone.png\", \"t\": \"z\"}\n";
    put(&dir.path().join("s"), &[("metadata.jsonl", rows.as_bytes().to_vec())]);
    let arguments = ["s", "--encode", "keep", "--keep-metadata", "--max-rejects", "1", "--out"];
    let convert = |out: &str, more: &[&str]| run(dir.path(), b"", &[&arguments[..], &[out], more].concat());
    let ran = convert("pairs", &[]).exits(0);
    assert!(ran.stdout.contains("  images: image, edit (image)\n"), "{}", ran.stdout);
    let pairs = dir.path().join("pairs");
    let bytes = |number: usize| Value::Bytes(image(number).into());
    assert_eq!(column(&pairs, "train", "image"), [bytes(0), bytes(2)]);
    assert_eq!(column(&pairs, "train", "edit"), [bytes(1), Value::Null]);
    // No path of the column leads to a file.
    assert_eq!(texts(&pairs, "train", "raw_file_name"), ["IMG_1.CR2", "Null"]);
    assert_eq!(texts(&pairs, "train", "t"), ["x", "y"]);
    assert_eq!(rejects(&pairs), owned(&[("s/1.png#2", "missing-file")]));
    let reasons = std::fs::read_to_string(pairs.join("rejects.jsonl")).unwrap();
    assert!(reasons.contains("edit_file_name"), "{reasons}");
    execute(dir.path(), "plan images s --encode keep --keep-metadata --out parts").exits(0);
    execute(dir.path(), "run parts --part 1/1").exits(0);
    execute(dir.path(), "merge parts --max-rejects 1").exits(0);
    assert_same(&tree(&pairs), &tree(&dir.path().join("parts")));
    // A declared type keeps the text.
    let typed = ["--metadata", "s/metadata.jsonl", "--keep-fields", "t,edit_file_name:string"];
    convert("typed", &typed).exits(0);
    assert_eq!(texts(&dir.path().join("typed"), "train", "edit_file_name"), ["2.jpg", "Null", "gone.png"]);

    let rows = "{\"file_names\": [\"1.png\", \"2.jpg\"], \"n\": 1}\n{\"file_names\": [\"3.png\"], \"n\": 2}\n\
                {\"file_names\": [], \"n\": 3}\n";
    std::fs::write(dir.path().join("s/metadata.jsonl"), rows).unwrap();
    convert("lists", &[]).exits(0);
    let lists = dir.path().join("lists");
    assert_eq!(column(&lists, "train", "image"), [bytes(0), bytes(2)]);
    assert_eq!(column(&lists, "train", "images_1"), [bytes(1), Value::Null]);
    assert_eq!(texts(&lists, "train", "n"), ["1", "2"]);
    assert_eq!(rejects(&lists), owned(&[("s/metadata.jsonl#77", "missing-field")]));
    let rows = "{\"file_name\": \"1.png\", \"views_file_names\": [\"2.jpg\", null, \"3.png\"]}\n";
    std::fs::write(dir.path().join("s/metadata.jsonl"), rows).unwrap();
    convert("views", &[]).exits(0);
    let views = dir.path().join("views");
    assert_eq!(
        ["views_0", "views_1", "views_2"].map(|name| column(&views, "train", name)[0].clone()),
        [bytes(1), Value::Null, bytes(2)]
    );
}
