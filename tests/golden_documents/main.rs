//! What becomes of documents is a promise: fields from every kind of source, pieces of long documents, packed rows.
//!
//! As with `tests/golden`, neither the files in `fixtures/golden/documents` nor this one are edited once committed. Shards
//! and lists of outcomes are compared byte for byte; of the manifest, what does not depend on encoded indexes.
//!
//! A case that has no files yet is written by `DSCONVERT_WRITE_GOLDEN=1 cargo test --test golden_documents`.

#![allow(clippy::unwrap_used, reason = "this is a test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Name of the dataset and options.
const CASES: [(&str, &str); 5] = [
    (
        "fields",
        "--text-field body.text --key-field meta.id --keep-fields meta.lang,score:float64,meta.id --documents blank-line",
    ),
    ("pieces", "--text-field body.text --documents blank-line --add-bos --max-length 16 --overflow split:4"),
    ("best-fit", "--text-field body.text --documents blank-line --add-eos --pack 24 --packing best-fit"),
    (
        "concat",
        "--text-field body.text --documents line --add-eos --pack 24 --packing concat --shuffle --seed 3",
    ),
    ("distinct", "--text-field body.text --normalize nfc --dedup exact --filter-length 8:60"),
];

/// Members of the manifest that nothing but a promise decides.
const MEMBERS: [&str; 10] = [
    "schema",
    "options",
    "found",
    "converted",
    "filtered",
    "duplicates",
    "rejected",
    "reject_codes",
    "notes",
    "sources",
];

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/golden/documents")
}

fn convert(options: &str, out: &Path) {
    let output = Command::new(env!("CARGO_BIN_EXE_dsconvert"))
        .args([
            "text",
            "--tokenizer",
            "bytes",
            "--format",
            "msgpack",
            "--quiet",
            "--max-rejects",
            "90%",
            "--out",
        ])
        .arg(out)
        .arg(golden().join("source"))
        .args(options.split_whitespace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What is compared of a dataset: files by name, and the manifest as text.
fn promised(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for folder in [dir.to_owned(), dir.join("train")] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
            if name.ends_with(".msgpack") || name.ends_with(".jsonl") {
                files.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    let json = std::fs::read(dir.join("manifest.json")).unwrap();
    let mut manifest: Value = serde_json::from_slice(&json).unwrap();
    // Its version changes with the build.
    manifest["options"]["reference"] = Value::Null;
    let members: BTreeMap<&str, &Value> = MEMBERS.iter().map(|&name| (name, &manifest[name])).collect();
    let text = serde_json::to_string_pretty(&members).unwrap();
    files.insert("manifest".to_owned(), text.into_bytes());
    files
}

#[test]
fn documents_become_what_they_always_became() {
    let dir = tempfile::tempdir().unwrap();
    for (name, options) in CASES {
        let then = golden().join(name);
        if !then.exists() && std::env::var_os("DSCONVERT_WRITE_GOLDEN").is_some() {
            convert(options, &dir.path().join("new"));
            for (file, bytes) in promised(&dir.path().join("new")) {
                let path = then.join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, bytes).unwrap();
            }
            std::fs::remove_dir_all(dir.path().join("new")).unwrap();
        }
        let out = dir.path().join(name);
        convert(options, &out);
        for (file, now) in promised(&out) {
            let then = std::fs::read(then.join(&file)).unwrap();
            assert!(then == now, "{name}: {file} differs: {}", String::from_utf8_lossy(&now));
        }
    }
}
