//! Datasets of records that are neither images nor text: what the commands show of them, and what they refuse.

use std::path::{Path, PathBuf};

use crate::support::*;

/// A dataset of records in `format`, copied, because the commands may write into it.
fn records(dir: &Path, format: &str) -> PathBuf {
    let out = dir.join(format);
    copy_dir(&fixture(&format!("golden/v4/records-{format}")), &out);
    out
}

fn run(dir: &Path, args: &str) -> Ran {
    Ran::of(command(args.split_whitespace()).current_dir(dir).output().unwrap())
}

#[test]
fn records_are_inspected_verified_and_exported() {
    let dir = tempfile::tempdir().unwrap();
    for format in FORMATS {
        records(dir.path(), format);
        let shown = run(dir.path(), &format!("inspect {format}")).exits(0).stdout;
        assert!(shown.contains("records dataset") && shown.contains("image, may be missing"), "{shown}");
        assert!(shown.contains("bytes 69 to 128, mean 98.5"), "{shown}");
        let json = run(dir.path(), &format!("inspect {format} --json")).exits(0).stdout;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&json["kind"], &json["splits"]["test"]["length"]["unit"]),
            (&"records".into(), &"bytes".into())
        );
        let record = run(dir.path(), &format!("inspect {format} --record 3 --split train")).exits(0).stdout;
        assert!(record.contains("key: episode") && record.contains("reward: "), "{record}");
        let verified = run(dir.path(), &format!("inspect {format} --verify")).exits(0).stdout;
        assert!(verified.contains("intact; 14 files"), "{verified}");
        run(dir.path(), &format!("inspect {format} --html {format}.html")).exits(0);
        for to in ["hf", "webdataset"] {
            run(dir.path(), &format!("export {format} --to {to} --out {format}-{to}")).exits(0);
        }
        assert!(
            tree(&dir.path().join(format!("{format}-webdataset"))).keys().any(|name| name.ends_with(".tar"))
        );
        // The shard alone has the same kind.
        let shard =
            std::fs::read_dir(dir.path().join(format).join("train")).unwrap().next().unwrap().unwrap();
        let shown = run(dir.path(), &format!("inspect {}", shard.path().display())).exits(0).stdout;
        assert!(shown.contains("reward"), "{shown}");
    }
    let mixture = run(dir.path(), "inspect --mixture 1,2 arrow parquet").exits(0).stdout;
    assert!(mixture.contains("bytes") && !mixture.contains("pixels"), "{mixture}");
}

#[test]
fn commands_for_images_and_text_refuse_records_by_name() {
    let dir = tempfile::tempdir().unwrap();
    records(dir.path(), "arrow");
    std::fs::write(dir.path().join("a.txt"), "abc").unwrap();
    for (args, status, parts) in [
        ("inspect arrow --recipe", 3, &["a program wrote its records"][..]),
        ("inspect arrow --contact-sheet a.png", 2, &["needs images", "holds records"]),
        ("inspect arrow --text", 2, &["token ids"]),
        ("inspect arrow --record 0 --extract a.bin", 2, &["neither an image nor token ids"]),
        ("export arrow --to tokens --out t", 2, &["holds records", "--to webdataset"]),
        ("export arrow --to megatron --out t", 2, &["holds records", "--to webdataset"]),
        ("text a.txt --like arrow --out t", 2, &["holds records, not text", "no command makes"]),
        ("text a.txt -t bytes --exclude arrow --out t", 2, &["holds records, not text"]),
        ("bench arrow", 2, &["another kind than images and text"]),
    ] {
        let ran = run(dir.path(), args);
        assert!(parts.iter().all(|part| ran.stderr.contains(part)), "{args}: {}", ran.stderr);
        ran.exits(status);
    }
    assert!(!dir.path().join("t").exists());
    // Damage is reported, and cannot be repaired without the program.
    let shard = dir.path().join("arrow/train").read_dir().unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&shard).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&shard, bytes).unwrap();
    let ran = run(dir.path(), "inspect arrow --verify");
    assert!(ran.stdout.contains("SHA-256") || ran.stderr.contains("SHA-256"), "{ran:?}");
    ran.exits(3);
    let ran = run(dir.path(), "inspect arrow --verify --repair a.txt");
    assert!(ran.stderr.contains("a program wrote its records"), "{ran:?}");
}
