//! `dsconvert export`: files for other trainers. `tests/python/test_export.py` reads them with their own packages.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::*;

/// `dsconvert export DATASET --to FORMAT --out OUT OPTIONS…`, not yet started.
fn export_command(dataset: &Path, format: &str, out: &Path, options: &str) -> Command {
    let mut export = command(["export"]);
    export.arg(dataset).args(["--to", format, "--out"]).arg(out).args(options.split_whitespace());
    export
}

fn export(dataset: &Path, format: &str, out: &Path, options: &str) -> Ran {
    Ran::of(export_command(dataset, format, out, options).output().unwrap())
}

/// All files of an export, compressed ones decompressed: a new version of the library may compress them in another way.
fn content(out: &Path) -> Tree {
    let decompressed = |name: &str, bytes: Vec<u8>| match name.ends_with(".gz") {
        true => {
            let mut content = Vec::new();
            flate2::read::GzDecoder::new(bytes.as_slice()).read_to_end(&mut content).unwrap();
            content
        }
        false => bytes,
    };
    tree(out).into_iter().map(|(name, bytes)| (name.clone(), decompressed(&name, bytes))).collect()
}

/// Exports of committed datasets. A new case gets a new name; `DSCONVERT_WRITE_GOLDEN=1` writes its files.
const GOLDEN: [(&str, &str, &str, &str); 8] = [
    ("tokens-nanogpt", "v3/text-arrow", "tokens", ""),
    ("tokens-llmc", "v3/text-arrow", "tokens", "--layout llmc"),
    ("tokens-olmo", "v3/text-arrow", "tokens", "--layout olmo"),
    ("tokens-without-end", "v3/text-msgpack", "tokens", "--eod none --split train"),
    ("megatron", "v3/text-parquet", "megatron", ""),
    ("megatron-parts", "v3/text-arrow", "megatron", "--parts 2 --eod <bos>"),
    ("webdataset-text", "v3/text-arrow", "webdataset", ""),
    ("webdataset-images", "v3/images-parquet", "webdataset", ""),
];

#[test]
fn the_bytes_of_every_format_never_change() {
    let dir = tempfile::tempdir().unwrap();
    for (name, dataset, format, options) in GOLDEN {
        let (golden, out) = (fixture("golden/export").join(name), dir.path().join(name));
        export(&fixture("golden").join(dataset), format, &out, options).exits(0);
        // It has the version of dsconvert.
        std::fs::remove_file(out.join("export.json")).unwrap();
        if !golden.exists() && std::env::var_os("DSCONVERT_WRITE_GOLDEN").is_some() {
            copy_dir(&out, &golden);
        }
        assert_same(&content(&golden), &content(&out));
    }
}

/// Datasets of text, packed rows, masks, boxes and images.
fn datasets(dir: &Path) -> [(PathBuf, &'static [(&'static str, &'static str)]); 5] {
    let [text, rows, photos] = ["text", "rows", "photos"].map(|name| dir.join(name));
    convert("text", &fixture("corpus"), &text, "--tokenizer bytes --shard-records 40 --max-rejects 50%")
        .exits(0);
    let packed = "--tokenizer bytes --add-eos --pack 128 --format arrow --max-rejects 50%";
    convert("text", &fixture("corpus"), &rows, packed).exits(0);
    convert("images", &fixture("photos"), &photos, "--encode keep --shard-records 9").exits(0);
    [
        (
            text,
            &[
                ("tokens", "--layout nanogpt"),
                ("tokens", "--layout llmc"),
                ("tokens", "--layout olmo --parts 3"),
                ("megatron", "--parts 7"),
                ("webdataset", "--parts 2"),
                ("hf", "--parts 2"),
            ],
        ),
        (rows, &[("megatron", ""), ("megatron-bridge", "--parts 2"), ("tokens", "--layout olmo")]),
        (fixture("golden/v3/masks-parquet"), &[("megatron-bridge", ""), ("hf", ""), ("webdataset", "")]),
        (fixture("golden/v3/boxes-parquet"), &[("hf", ""), ("webdataset", "")]),
        (photos, &[("webdataset", "--parts 3"), ("hf", "")]),
    ]
}

/// Checks that the files of an export are the same for 1, 2 and 7 threads.
pub(super) fn assert_same_for_any_threads(run: impl FnMut(&str) -> Tree) {
    let [one, two, seven] = ["1", "2", "7"].map(run);
    assert!(one.contains_key("export.json"), "{:?}", one.keys());
    assert_same(&one, &two);
    assert_same(&one, &seven);
}

#[test]
fn threads_do_not_change_a_byte() {
    let dir = tempfile::tempdir().unwrap();
    let mut count = 0;
    for (dataset, exports) in datasets(dir.path()) {
        for (format, options) in exports {
            assert_same_for_any_threads(|threads| {
                count += 1;
                let out = dir.path().join(format!("out-{count}"));
                export(&dataset, format, &out, &format!("{options} --quiet --threads {threads}")).exits(0);
                tree(&out)
            });
        }
    }
}

#[test]
fn what_a_format_cannot_hold_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let [photos, raw, planes] = ["photos", "raw", "planes"].map(|name| dir.path().join(name));
    convert("images", &fixture("photos/flowers"), &photos, "--encode keep").exits(0);
    convert("images", &fixture("photos/flowers"), &raw, "--encode raw --resize exact:8x8").exits(0);
    convert("images", &fixture("photos/flowers"), &planes, "--encode yuv420 --resize exact:8x8").exits(0);
    let [text, masks] = ["text-arrow", "masks-arrow"].map(|name| fixture("golden/v3").join(name));
    let out = dir.path().join("out");
    for (dataset, format, options, says) in [
        (&photos, "tokens", "", &["holds images", "--to webdataset"][..]),
        (&photos, "megatron", "", &["holds images"]),
        (&photos, "megatron-bridge", "", &["holds images"]),
        (&raw, "webdataset", "", &["raw pixels", "--encode png"]),
        (&raw, "hf", "", &["raw pixels"]),
        (&planes, "webdataset", "", &["raw pixels or planes"]),
        (&planes, "hf", "", &["raw pixels or planes"]),
        (&masks, "megatron", "--eod none", &["assistant_masks", "--to megatron-bridge"]),
        (&masks, "tokens", "--eod none", &["assistant_masks", "--to megatron-bridge"]),
        (&text, "megatron", "--layout llmc", &["--layout applies only to --to tokens"]),
        (&text, "hf", "--eod none", &["--eod applies only to"]),
        (&text, "megatron", "--eod <none>", &["no token \"<none>\""]),
        (&text, "megatron", "--split validation", &["no split \"validation\"", "test, train"]),
        (&text, "tokens", "--parts 3", &["split \"train\" has 2 records, too few for 3 parts"]),
        (&text, "tokens", "--scratch x", &["--scratch applies only to an output in object storage"]),
        (&text, "nothing", "", &["invalid value 'nothing'", "megatron-bridge"]),
        (&text, "tokens", "--parts 0", &["invalid value '0'"]),
    ] {
        export(dataset, format, &out, options).exits(2).says(says);
        assert!(!out.exists(), "{format} {options}");
    }
    // Without a tokenizer, no token is known to end documents.
    let plain = dir.path().join("plain");
    copy_dir(&text, &plain);
    export(&fixture("golden/v3/text-arrow"), "tokens", &plain.join("sub"), "")
        .exits(2)
        .says(&["the file would be inside this dataset"]);
    export(&text, "tokens", &plain, "").exits(2).says(&["inside this dataset"]);
    assert_same(&tree(&text), &tree(&plain));
    // Other content is not touched, either.
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("notes.txt"), "mine").unwrap();
    for options in ["", "--resume"] {
        export(&text, "tokens", &out, options)
            .exits(2)
            .says(&["--out: the directory or prefix is not empty"]);
        assert_eq!(tree(&out).len(), 1);
    }
    export(&text, "tokens", &out.join("notes.txt"), "").exits(2).says(&["this is a file"]);
}

#[test]
fn fields_that_are_left_out_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (source, data) = (dir.path().join("c.jsonl"), dir.path().join("data"));
    std::fs::write(&source, "{\"text\": \"abc\", \"url\": \"u\", \"score\": 0.5}\n".repeat(3)).unwrap();
    convert("text", &source, &data, "--tokenizer bytes --keep-fields url,score:float32").exits(0);
    for format in ["tokens", "megatron", "megatron-bridge"] {
        let ran = export(&data, format, &dir.path().join(format), "").exits(0);
        ran.says(&[&format!("warning: {format} has no place for 2 fields: url, score")]);
    }
    for format in ["webdataset", "hf"] {
        let ran = export(&data, format, &dir.path().join(format), "").exits(0);
        assert!(!ran.stderr.contains("no place"), "{}", ran.stderr);
    }
}

#[test]
fn fields_are_selected() {
    let dir = tempfile::tempdir().unwrap();
    let (source, data) = (dir.path().join("c.jsonl"), dir.path().join("data"));
    std::fs::write(&source, "{\"text\": \"abc\", \"url\": \"u\", \"score\": 0.5}\n".repeat(3)).unwrap();
    convert("text", &source, &data, "--tokenizer bytes --keep-fields url,score:float32").exits(0);
    let tar = |out: &Path| String::from_utf8_lossy(&tree(out)["train-000000.tar"]).into_owned();
    for (options, url, score) in
        [("", true, true), ("--fields url", true, false), ("--fields key", false, false)]
    {
        let out = dir.path().join(format!("out{options}"));
        export(&data, "webdataset", &out, options).exits(0);
        let found = tar(&out);
        assert_eq!(
            (found.contains("\"url\":\"u\""), found.contains("\"score\":0.5")),
            (url, score),
            "{options}"
        );
        assert!(found.contains("\"origin\":\"c.jsonl") && found.contains(".npy"), "{found}");
        let described = std::fs::read_to_string(out.join("export.json")).unwrap();
        assert_eq!(described.contains("\"fields\""), !options.is_empty(), "{described}");
    }
    let out = dir.path().join("selected");
    let ran = export(&data, "tokens", &out, "--fields key").exits(0);
    assert!(!ran.stderr.contains("no place"), "{}", ran.stderr);
    export(&data, "tokens", &out, "--resume").exits(2).says(&["was made with"]);
    export(&data, "tokens", &dir.path().join("none"), "--fields uri")
        .exits(2)
        .says(&["--fields: the dataset has no field \"uri\"", "url, score"]);
    // What masks token ids is never left out in silence.
    let masks = fixture("golden/v3/masks-parquet");
    export(&masks, "megatron", &dir.path().join("none"), "--fields key").exits(2).says(&["assistant_masks"]);
}

#[test]
fn the_token_that_ends_documents_is_added_only_where_it_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("c.jsonl"), dir.path().join("out"));
    std::fs::write(&source, "{\"text\": \"ab\"}\n{\"text\": \"c\"}\n").unwrap();
    let (ab, c, eos) = ([97u16, 98], [99u16], [257u16]);
    for (converted, options, expected) in [
        ("", "", [&ab[..], &eos, &c, &eos].concat()),
        ("--add-eos", "", [&ab[..], &eos, &c, &eos].concat()),
        ("--add-eos", "--eod none", [&ab[..], &eos, &c, &eos].concat()),
        ("", "--eod none", [&ab[..], &c].concat()),
        ("", "--eod <bos>", [&ab[..], &[256], &c, &[256]].concat()),
        ("", "--eod 99", [&ab[..], &[99], &c].concat()),
        ("", "--layout llmc", [&eos[..], &ab, &eos, &c].concat()),
        ("--add-eos", "--layout llmc", [&eos[..], &ab, &eos, &c].concat()),
        ("--add-bos", "--layout llmc --eod <bos>", [&[256], &ab[..], &[256], &c].concat()),
    ] {
        let data = dir.path().join("data");
        convert("text", &source, &data, &format!("--tokenizer bytes {converted}")).exits(0);
        export(&data, "tokens", &out, options).exits(0);
        let bytes = std::fs::read(out.join("train.bin")).unwrap();
        let header = if options.contains("llmc") { 1024 } else { 0 };
        let ids: Vec<u16> = bytes[header..].chunks(2).map(|id| u16::from_le_bytes([id[0], id[1]])).collect();
        assert_eq!(ids, expected, "{converted} {options}");
        [&data, &out].iter().for_each(|dir| std::fs::remove_dir_all(dir).unwrap());
    }
}

#[test]
fn a_killed_export_leaves_nothing_that_looks_complete_and_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    let (source, data) = (dir.path().join("c.jsonl"), dir.path().join("data"));
    corpus(&source, 300);
    convert("text", &source, &data, "--tokenizer bytes --add-eos").exits(0);
    for (format, options) in [("megatron", "--parts 5"), ("webdataset", "--parts 4"), ("hf", "--parts 3")] {
        let whole = dir.path().join(format!("{format}-whole"));
        export(&data, format, &whole, options).exits(0);
        for (place, at) in [("export part", 250), ("export part", 800), ("export commit", 250)] {
            let out = dir.path().join(format!("{format}-{}-{at}", place.len()));
            let mut export_to = export_command(&data, format, &out, options);
            let mut child = export_to.env("DSCONVERT_TEST_PAUSE", place).spawn().unwrap();
            // On a busy machine, it may take longer to start than the pause lasts.
            while !out.exists() && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(5));
            }
            // The pauses of half a second make it likely, not certain, that the process is in one of them.
            std::thread::sleep(Duration::from_millis(at));
            child.kill().unwrap();
            child.wait().unwrap();
            let left = tree(&out);
            if left.is_empty() || left.contains_key("export.json") {
                continue;
            }
            if place == "export part" {
                assert!(left.keys().all(|name| name.starts_with(".dsconvert/")), "{:?}", left.keys());
            }
            export(&data, format, &out, options).exits(2).says(&["has not finished", "--resume"]);
            assert_same(&left, &tree(&out));
            export(&data, format, &out, "--parts 2 --resume").exits(2).says(&["was made with"]);
            export(&data, format, &out, &format!("{options} --resume")).exits(0);
            assert_same(&tree(&whole), &tree(&out));
            export(&data, format, &out, &format!("{options} --resume")).exits(0);
            export(&data, format, &out, options).exits(2).says(&["an export already exists"]);
        }
    }
}

#[test]
fn an_export_that_cannot_be_written_is_finished_when_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let (source, data, out) = (dir.path().join("c.jsonl"), dir.path().join("data"), dir.path().join("out"));
    corpus(&source, 3000);
    convert("text", &source, &data, "--tokenizer bytes").exits(0);
    for format in ["tokens", "megatron", "webdataset", "hf", "megatron-bridge"] {
        let options = "--split train --parts 2";
        let export_to = export_command(&data, format, &out, options);
        let mut limited = Command::new("bash");
        // In KiB: less than one of the files.
        limited
            .args(["-c", "ulimit -f 40; exec \"$0\" \"$@\""])
            .arg(export_to.get_program())
            .args(export_to.get_args());
        let ran = Ran::of(limited.output().unwrap()).exits(3);
        assert!(ran.stderr.contains("cannot write"), "{}", ran.stderr);
        assert!(!out.join("export.json").exists());
        assert!(tree(&out).keys().all(|name| name.starts_with(".dsconvert/")), "{:?}", tree(&out).keys());
        export(&data, format, &out, &format!("{options} --resume")).exits(0);
        let whole = dir.path().join("whole");
        export(&data, format, &whole, options).exits(0);
        assert_same(&tree(&whole), &tree(&out));
        [&whole, &out].iter().for_each(|dir| std::fs::remove_dir_all(dir).unwrap());
    }
}
