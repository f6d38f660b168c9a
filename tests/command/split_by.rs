//! `--split-by`: records with the same value of a field are in one split.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::chats::write_lines;
use crate::images_sources::{image, run};
use crate::images_tar::{Tar, put};
use crate::support::*;

/// The splits of the records by the author in their text, which is `AUTHOR TEXT`.
fn splits_of_authors(out: &std::path::Path) -> BTreeMap<String, Vec<String>> {
    let dataset = dsconvert::reader::Dataset::open(out).unwrap();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in ["train", "test"] {
        for record in dataset.split(name).unwrap().iter() {
            let text: String =
                record.unwrap().input_ids().unwrap().iter().map(|id| id as u8 as char).collect();
            let author = text.split(' ').next().unwrap().to_owned();
            let splits = found.entry(author).or_default();
            if splits.last().map(String::as_str) != Some(name) {
                splits.push(name.to_owned());
            }
        }
    }
    found
}

fn rows() -> Vec<Json> {
    (0..60).map(|n| json!({"text": format!("a{} text {n}", n % 12), "author": n % 12, "id": n})).collect()
}

#[test]
fn records_of_a_group_are_in_one_split() {
    let dir = tempfile::tempdir().unwrap();
    let source = write_lines(&dir.path().join("texts.jsonl"), &rows());
    let out = dir.path().join("out");
    let options = "--tokenizer bytes --split train=0.5,test=0.5 --overwrite";
    let table = dir.path().join("texts.csv");
    let lines = (0..60).map(|n| format!("a{} text {n},{}\n", n % 12, n % 12)).collect::<String>();
    std::fs::write(&table, format!("text,author\n{lines}")).unwrap();
    let mut fingerprints = Vec::new();
    for (source, more) in [
        (&source, "--split-by author"),
        (&source, "--split-by author --keep-fields id,author"),
        (&source, "--split-by author --key-field id"),
        (&table, "--split-by author"),
    ] {
        convert("text", source, &out, &format!("{options} {more}")).exits(0);
        let found = splits_of_authors(&out);
        assert!(found.len() == 12 && found.values().all(|splits| splits.len() == 1), "{more}: {found:?}");
        let splits: Vec<&String> = found.values().flatten().collect();
        assert!(splits.contains(&&"train".to_owned()) && splits.contains(&&"test".to_owned()));
        fingerprints.push(found);
        let kept = more.contains("--keep-fields");
        let names = manifest(&out)["schema"]["fields"].to_string();
        assert_eq!(names.contains("author"), kept, "only kept fields are stored");
    }
    // Neither keys nor the kind of file matter.
    assert!(fingerprints.windows(2).all(|pair| pair[0] == pair[1]));
    convert("text", &source, &out, options).exits(0);
    assert!(splits_of_authors(&out).values().any(|splits| splits.len() == 2));
    let like = dir.path().join("like");
    convert("text", &source, &out, &format!("{options} --split-by author")).exits(0);
    convert("text", &source, &like, &format!("--like {}", out.display())).exits(0);
    assert_eq!(manifest(&like)["fingerprint"], manifest(&out)["fingerprint"]);
}

#[test]
fn a_group_is_named_and_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = rows();
    all[7]["author"] = Json::Null;
    all[8]["author"] = json!(["a", "b"]);
    let source = write_lines(&dir.path().join("texts.jsonl"), &all);
    let (out, options) = (dir.path().join("out"), "--tokenizer bytes --overwrite");
    convert("text", &source, &out, &format!("{options} --split train=0.5,test=0.5 --split-by author"))
        .exits(0);
    let codes: Vec<String> = rejects(&out).into_iter().map(|(_, code)| code).collect();
    assert_eq!(codes, ["missing-field", "invalid-value"]);
    let ran =
        convert("text", &source, &out, &format!("{options} --split train=0.5,test=0.5 --split-by writer"))
            .exits(2);
    assert!(
        ran.stderr.contains("no row has the field \"writer\"") && ran.stderr.contains("--split-by"),
        "{}",
        ran.stderr
    );
    let ran = convert("text", &source, &out, &format!("{options} --split-by author")).exits(2);
    assert!(ran.stderr.contains("--split"), "{}", ran.stderr);
}

/// The splits of the images by the patient that they are of.
fn splits_of_patients(out: &std::path::Path) -> BTreeMap<String, Vec<String>> {
    let dataset = dsconvert::reader::Dataset::open(out).unwrap();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in ["train", "test"] {
        for record in dataset.split(name).unwrap().iter() {
            let splits = found.entry(record.unwrap().text("patient").unwrap().to_owned()).or_default();
            if splits.last().map(String::as_str) != Some(name) {
                splits.push(name.to_owned());
            }
        }
    }
    found
}

#[test]
fn images_of_a_group_are_in_one_split() {
    let dir = tempfile::tempdir().unwrap();
    let (mut csv, mut tar) = (String::from("file_name,patient\n"), Tar::default());
    std::fs::create_dir_all(dir.path().join("scans")).unwrap();
    for number in 0..36 {
        let (name, patient) = (format!("{number:02}.jpg"), format!("p{}", number % 9));
        std::fs::write(dir.path().join("scans").join(&name), image(number)).unwrap();
        csv += &format!("{name},{patient}\n");
        tar.file(&name, &image(number)).file(&format!("{number:02}.patient.txt"), patient.as_bytes());
    }
    std::fs::write(dir.path().join("scans/metadata.csv"), &csv).unwrap();
    put(dir.path(), "samples.tar", &tar.end());
    let split = ["--split", "train=0.5,test=0.5"];
    let mut found = Vec::new();
    for (source, more) in [
        ("scans", &["--split-by", "patient"][..]),
        ("samples.tar", &["--split-by", "patient", "--keep-fields", "patient=patient.txt"]),
    ] {
        let out = format!("{source}-out");
        run(dir.path(), b"", &[&[source, "--out", &out], &split[..], more].concat()).exits(0);
        let out = dir.path().join(out);
        let splits = splits_of_patients(&out);
        assert!(splits.len() == 9 && splits.values().all(|splits| splits.len() == 1), "{source}: {splits:?}");
        found.push(splits);
    }
    // The group decides, whatever the kind of source.
    assert_eq!(found[0], found[1]);
    assert!(found[0].values().flatten().any(|split| split == "train"));
    assert!(found[0].values().flatten().any(|split| split == "test"));
    run(dir.path(), b"", &[&["scans", "--out", "by-key"], &split[..]].concat()).exits(0);
    assert!(splits_of_patients(&dir.path().join("by-key")).values().any(|splits| splits.len() == 2));
    let like = dir.path().join("scans-out");
    run(dir.path(), b"", &["scans", "--out", "again", "--like", &like.to_string_lossy()]).exits(0);
    assert_eq!(manifest(&dir.path().join("again"))["fingerprint"], manifest(&like)["fingerprint"]);
    for (more, message) in [
        (&["--split-by", "doctor"][..], "the records have no field \"doctor\"; there are \"patient\""),
        (&["--split-by", "patient"], "--split"),
    ] {
        let splits = if more[1] == "doctor" { &split[..] } else { &[] };
        let ran = run(dir.path(), b"", &[&["scans", "--out", "none"], splits, more].concat()).exits(2);
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
    }
    // An image without a group is rejected.
    std::fs::write(dir.path().join("scans/metadata.csv"), csv.replace("00.jpg,p0", "00.jpg,")).unwrap();
    run(dir.path(), b"", &[&["scans", "--out", "null", "--split-by", "patient"], &split[..]].concat())
        .exits(0);
    assert_eq!(
        rejects(&dir.path().join("null")).into_iter().map(|(_, code)| code).collect::<Vec<_>>(),
        ["missing-field"]
    );
}
