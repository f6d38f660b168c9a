//! Every kind of bad input has one clear outcome, and nothing else is lost.

use std::path::Path;

use crate::support::*;

fn photo() -> Vec<u8> {
    let photos = tree(&fixture("photos"));
    photos
        .into_iter()
        .find(|(_, bytes)| bytes.starts_with(b"\xff\xd8\xff") && bytes.ends_with(b"\xff\xd9"))
        .unwrap()
        .1
}

fn png() -> Vec<u8> {
    let photos = tree(&fixture("photos"));
    photos.into_iter().find(|(_, bytes)| bytes.starts_with(b"\x89PNG")).unwrap().1
}

/// A PNG whose header declares `side` × `side` pixels.
fn huge_header(side: u32) -> Vec<u8> {
    let mut png = png();
    png[16..20].copy_from_slice(&side.to_be_bytes());
    png[20..24].copy_from_slice(&side.to_be_bytes());
    let crc = crc32(&png[12..29]);
    png[29..33].copy_from_slice(&crc.to_be_bytes());
    png
}

/// The CRC-32 of PNG chunks (ISO 3309), computed bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(
            crc ^ u32::from(byte),
            |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 },
        )
    })
}

#[test]
fn images_that_cannot_be_converted_are_rejected_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("photos");
    std::fs::create_dir(&source).unwrap();
    let whole = photo();
    let put = |name: &str, bytes: &[u8]| std::fs::write(source.join(name), bytes).unwrap();
    put("good.jpg", &whole);
    put("png-named.JPEG", &png());
    put("zero.jpg", b"");
    put("truncated.jpg", &whole[..whole.len() / 2]);
    put("page.jpg", b"<!DOCTYPE html><html>not found</html>");
    put("huge.png", &huge_header(30_000));
    put("notes.txt", b"not an image, and not named as one");
    let out = dir.path().join("out");
    convert("images", &source, &out, "--encode png --max-rejects 100%").exits(0);
    assert_outcomes(&out, [2, 0, 0, 4]);
    assert_eq!(
        rejects(&out),
        [
            ("photos/huge.png".into(), "too-large".into()),
            ("photos/page.jpg".into(), "unknown-type".into()),
            ("photos/truncated.jpg".into(), "truncated".into()),
            ("photos/zero.jpg".into(), "empty".into()),
        ]
    );
    assert_eq!(manifest(&out)["sources"]["skipped"], 1);
}

#[test]
fn image_files_of_terabytes_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("photos");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("good.jpg"), photo()).unwrap();
    // A sparse file, which takes no space.
    std::fs::File::create(source.join("huge.jpg")).unwrap().set_len(8 << 40).unwrap();
    let out = dir.path().join("out");
    convert("images", &source, &out, "--max-rejects 100%").exits(0);
    assert_outcomes(&out, [1, 0, 0, 1]);
    assert_eq!(rejects(&out), [("photos/huge.jpg".to_owned(), "too-large".to_owned())]);
}

#[test]
fn a_source_without_items_makes_no_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("empty");
    std::fs::create_dir(&source).unwrap();
    let out = dir.path().join("out");
    for kind in ["images", "text --tokenizer bytes"] {
        let (kind, options) = kind.split_once(' ').unwrap_or((kind, ""));
        convert(kind, &source, &out, options).exits(3).says(&["nothing was found", "check the sources"]);
        assert!(!out.exists());
    }
    convert("images", &dir.path().join("missing"), &out, "").exits(2).says(&["missing", "no such source"]);
}

#[test]
fn two_items_with_the_same_key_are_refused_until_a_source_gets_a_label() {
    let dir = tempfile::tempdir().unwrap();
    for parent in ["a", "b"] {
        let folder = dir.path().join(parent).join("photos");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("x.jpg"), photo()).unwrap();
    }
    let (a, b) = (dir.path().join("a/photos"), dir.path().join("b/photos"));
    let out = dir.path().join("out");
    let run = |second: &str| {
        let mut command =
            command(["images".as_ref(), a.as_os_str(), second.as_ref(), "--out".as_ref(), out.as_os_str()]);
        Ran::of(command.output().unwrap())
    };
    run(b.to_str().unwrap()).exits(2).says(&["photos/x.jpg", "LABEL=PATH"]);
    run(&format!("other={}", b.display())).exits(0);
    assert_outcomes(&out, [2, 0, 0, 0]);
}

#[test]
fn invalid_lines_are_rejected_with_their_byte_offset() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    let mut bytes = Vec::new();
    for (line, _) in LINES {
        bytes.extend_from_slice(line);
        bytes.push(b'\n');
    }
    std::fs::write(&source, &bytes).unwrap();
    let out = dir.path().join("out");
    convert("text", &source, &out, "--tokenizer bytes --max-rejects 100%").exits(0);
    let mut offset = 0;
    let mut expected = Vec::new();
    for (line, code) in LINES {
        if let Some(code) = code {
            expected.push((format!("c.jsonl#{offset}"), (*code).to_owned()));
        }
        offset += line.len() + 1;
    }
    assert_eq!(rejects(&out), expected);
    assert_outcomes(&out, [3, 0, 0, expected.len() as u64]);
}

const LINES: &[(&[u8], Option<&str>)] = &[
    (br#"{"text": "good"}"#, None),
    (b"not json", Some("invalid-json")),
    (br#"{"body": "x"}"#, Some("missing-field")),
    (br#"{"text": 7}"#, Some("wrong-type")),
    (b"{\"text\": \"\xff\xfe\"}", Some("invalid-utf8")),
    (b"", Some("empty")),
    (br#"{"text": ""}"#, Some("empty")),
    (br#"{"text": "\ud800"}"#, Some("invalid-json")),
    (b"{\"text\": \"carriage return\"}\r", None),
    ("{\"text\": \"naïve 😀\"}".as_bytes(), None),
];

#[test]
fn a_mistyped_text_field_makes_no_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    corpus(&source, 20);
    let out = dir.path().join("out");
    convert("text", &source, &out, "--tokenizer bytes --text-field txet").exits(2).says(&[
        "--text-field",
        "no row has the field \"txet\"",
        "\"text\"",
        "c.jsonl",
    ]);
    assert!(!out.exists());
}

#[test]
fn a_field_without_text_is_not_suggested() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    for (row, expected) in [
        (r#"{"messages": [{"role": "user", "content": "hi"}]}"#, "none of these holds text"),
        (r#"{"id": 7, "title": "x"}"#, "name one of these"),
        (r#"{"body": "x"}"#, "add --text-field body"),
        (r#"{"body": null}"#, "add --text-field body"),
    ] {
        std::fs::write(&source, row).unwrap();
        convert("text", &source, &dir.path().join("out"), "--tokenizer bytes").exits(2).says(&[expected]);
    }
}

#[test]
fn duplicate_keys_from_a_field_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    std::fs::write(
        &source,
        "{\"id\": 1, \"text\": \"a\"}\n{\"id\": 2, \"text\": \"b\"}\n{\"id\": \"1\", \"text\": \"c\"}\n",
    )
    .unwrap();
    let out = dir.path().join("out");
    for format in FORMATS {
        convert("text", &source, &out, &format!("--tokenizer bytes --key-field id --format {format}"))
            .exits(3)
            .says(&["key \"1\"", "c.jsonl#0", "c.jsonl#46"]);
        assert!(!out.exists());
    }
}

#[test]
fn unusable_tokenizers_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let file = dir.path().join("tokenizer.json");
    let run = |tokenizer: &Path| {
        convert("text", &fixture("corpus"), &out, &format!("--tokenizer {}", tokenizer.display())).exits(2)
    };
    run(&dir.path().join("none.json")).says(&["none.json", "no such tokenizer"]);
    for (content, part) in [
        ("{", "tokenizer.json"),
        ("{}", "model"),
        (r#"{"model": {"type": "Mystery", "vocab": {}}}"#, "Mystery"),
        (r#"{"model": {"type": "BPE", "merges": []}}"#, "vocab"),
        // Character maps that state 4 GiB, for which the reference would allocate 8 GiB.
        (
            r#"{"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////wAAAAAAAAAA"},
                "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]}}"#,
            "4294967295 bytes, but 8 follow",
        ),
        (
            r#"{"version": "1.0", "normalizer": {"type": "Sequence", "normalizers": [
                    {"type": "Precompiled", "precompiled_charsmap": "/////wAAAAAAAAAA"}]},
                "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}"#,
            "4294967295 bytes, but 8 follow",
        ),
    ] {
        std::fs::write(&file, content).unwrap();
        run(&file).says(&["tokenizer.json", part]);
    }
    assert!(!out.exists());
}

#[test]
fn invalid_option_values_are_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    for (options, parts) in [
        ("--split train=0.9,validation=0.2", ["--split", "add up to 1.1"]),
        ("--split train", ["--split", "NAME=FRACTION"]),
        ("--format csv", ["--format", "parquet"]),
        ("--resize tall:3", ["--resize", "shorter:"]),
        ("--encode jpeg:900", ["--encode", "jpeg:"]),
        ("--layout deep", ["--layout", "labels"]),
        ("--shard-bytes 12x", ["--shard-bytes", "size"]),
        ("--memory 1k", ["--memory", "below the minimum"]),
        ("--threads 0", ["--threads", "at least one"]),
        ("--max-rejects many", ["--max-rejects", "10%"]),
        ("--classes none.txt", ["classes", "none.txt"]),
    ] {
        let ran = convert("images", &fixture("photos"), &out, options);
        assert!([2, 3].contains(&ran.status), "{options}: {ran:?}");
        ran.says(&parts);
        assert!(!out.exists(), "{options}");
    }
}

#[test]
fn names_that_are_not_utf8_are_percent_encoded() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("t");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join(std::ffi::OsStr::from_bytes(b"caf\xe9.txt")), "text").unwrap();
    std::fs::write(source.join("empty.txt"), "").unwrap();
    let out = dir.path().join("out");
    convert("text", &source, &out, "--tokenizer bytes --format msgpack --max-rejects 100%").exits(0);
    let shard = tree(&out).into_iter().find(|(name, _)| name.ends_with("msgpack")).unwrap().1;
    assert!(shard.windows(13).any(|w| w == b"t/caf%E9.txt\xa9" || w.starts_with(b"t/caf%E9.txt")));
    assert_eq!(rejects(&out), [("t/empty.txt".into(), "empty".into())]);
}
