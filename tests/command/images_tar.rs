//! Images from tar files: valid, hostile and damaged ones.

use std::io::Write;
use std::path::Path;

use dsconvert::sample::Value;
use tar::{EntryType, Header};

use crate::images_sources::{column, image, owned, run, texts};
use crate::support::*;

/// A tar file under construction.
#[derive(Default)]
pub(crate) struct Tar(pub(crate) Vec<u8>);

impl Tar {
    pub(crate) fn entry(&mut self, kind: EntryType, name: &[u8], bytes: &[u8]) -> &mut Self {
        let mut header = Header::new_ustar();
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.set_entry_type(kind);
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn file(&mut self, name: &str, bytes: &[u8]) -> &mut Self {
        self.entry(EntryType::Regular, name.as_bytes(), bytes)
    }

    pub(crate) fn end(&self) -> Vec<u8> {
        [self.0.as_slice(), &[0; 1024]].concat()
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The smallest image of the fixtures that can be decoded.
fn small() -> Vec<u8> {
    (0..100).map(image).min_by_key(Vec::len).unwrap()
}

pub(crate) fn put(dir: &Path, name: &str, bytes: &[u8]) {
    std::fs::write(dir.join(name), bytes).unwrap();
}

#[test]
fn members_with_the_same_stem_form_one_sample() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = Tar::default();
    first.entry(EntryType::Directory, b"./d/", b"");
    first.file("./d/0.jpg", &image(0)).file("./d/0.json", b" {\"a\": [1]}\n").file("./d/0.cls", b"7\n");
    first.file("d/1.txt", "fünf".as_bytes()).file("d/1.png", &image(1)).file("d/1.other", b"\0");
    let mut second = Tar::default();
    let long = format!("{}/2", "long".repeat(40));
    second.entry(EntryType::GNULongName, b"././@LongLink", format!("{long}.jpg\0").as_bytes());
    second.file("cut", &image(2));
    second.entry(EntryType::XHeader, b"pax", "17 path=tiny/3.x\n".as_bytes());
    second.file("cut", &image(3));
    let tars = [first.end(), second.end()];
    type Compress = fn(&[u8]) -> Vec<u8>;
    let compress: [Compress; 3] = [|b| b.to_vec(), gzip, |b| zstd::stream::encode_all(b, 1).unwrap()];
    for (end, compress) in ["tar", "tar.gz", "tar.zst"].into_iter().zip(compress) {
        for (number, tar) in tars.iter().enumerate() {
            put(dir.path(), &format!("s-0{number}.{end}"), &compress(tar));
        }
        let source = format!("s-{{00..01}}.{end}");
        run(dir.path(), b"", &[&source, "--out", end, "--threads", "3"]).exits(0);
        let out = dir.path().join(end);
        let keys = ["#d/0", "#d/1"].map(|k| format!("s-00.{end}{k}"));
        let more = [format!("s-01.{end}#{long}"), format!("s-01.{end}#tiny/3")];
        assert_eq!(texts(&out, "train", "key"), [keys, more].concat());
        assert_eq!(texts(&out, "train", "json"), ["{\"a\": [1]}", "Null", "Null", "Null"]);
        assert_eq!(texts(&out, "train", "txt"), ["Null", "fünf", "Null", "Null"]);
        assert_eq!(column(&out, "train", "cls"), [Value::Int(7), Value::Null, Value::Null, Value::Null]);
        assert_outcomes(&out, [4, 0, 0, 0]);
        assert!(tree(&out).keys().any(|name| name.contains("train-000001-00")), "one tar is one unit");
        let again = format!("{end}-again");
        run(dir.path(), b"", &[&source, "--out", &again, "--threads", "1"]).exits(0);
        assert_same(&tree(&out), &tree(&dir.path().join(again)));
    }
    run(dir.path(), b"", &["s-{00..02}.tar", "--out", "no"]).exits(2).says(&["s-02.tar", "no such source"]);
    run(dir.path(), b"", &["s-{01..00}.tar", "--out", "no"]).exits(2).says(&["{01..00}", "range"]);
}

#[test]
fn a_zstd_window_that_is_too_large_is_unsupported() {
    let dir = tempfile::tempdir().unwrap();
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(29).unwrap();
    encoder.write_all(&Tar::default().file("0.jpg", &small()).end()).unwrap();
    put(dir.path(), "t.tar.zst", &encoder.finish().unwrap());
    run(dir.path(), b"", &["t.tar.zst", "--out", "out"]).exits(3).says(&[
        "t.tar.zst: a zstd frame has a window of 512 MiB",
        "zstd --long=27",
        "(unsupported)",
    ]);
}

#[test]
fn with_a_list_of_classes_the_cls_member_becomes_the_label() {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = Tar::default();
    for (i, class) in ["1\n", "zebra", "ant", "2", "bee", "-1"].into_iter().enumerate() {
        tar.file(&format!("{i}.jpg"), &small()).file(&format!("{i}.cls"), class.as_bytes());
    }
    tar.file("6.jpg", &small()).file("6.txt", b"no class");
    put(dir.path(), "s.tar", &tar.end());
    put(dir.path(), "classes.txt", b"zebra\nant\n");
    let options = ["s.tar", "--out", "out", "--classes", "classes.txt", "--max-rejects", "3"];
    run(dir.path(), b"", &options).exits(0);
    let out = dir.path().join("out");
    assert_eq!(manifest(&out)["schema"]["class_names"], serde_json::json!(["zebra", "ant"]));
    let labels = [Value::Int(1), Value::Int(0), Value::Int(1), Value::Null];
    assert_eq!(column(&out, "train", "label"), labels);
    assert_eq!(texts(&out, "train", "txt"), ["Null", "Null", "Null", "no class"]);
    let unknown = |number: u32| (format!("s.tar#{number}"), "unknown-label".to_owned());
    assert_eq!(rejects(&out), [3, 4, 5].map(unknown));
}

#[test]
fn tar_files_mix_with_image_folders_and_follow_split_folders() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    for folder in ["train/a", "val"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    put(&root, "train/a/x.jpg", &image(0));
    put(&root, "train/y.tar", &Tar::default().file("0.jpg", &image(1)).file("0.txt", b"t").end());
    put(&root, "val/z.tar", &Tar::default().file("0.jpg", &image(2)).end());
    run(dir.path(), b"", &["root", "--out", "out"]).exits(0);
    let out = dir.path().join("out");
    assert_eq!(texts(&out, "train", "key"), ["root/train/a/x.jpg", "root/train/y.tar#0"]);
    assert_eq!(texts(&out, "train", "txt"), ["Null", "t"]);
    assert_eq!(texts(&out, "validation", "key"), ["root/val/z.tar#0"]);
}

#[test]
fn invalid_members_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (image(0), image(1));
    let mut tar = Tar::default();
    tar.file("good.jpg", &a);
    tar.file("../up.jpg", &a).file("/etc/abs.jpg", &a).file("x/../y.jpg", &a);
    tar.entry(EntryType::Symlink, b"soft.jpg", b"").entry(EntryType::Link, b"hard.jpg", b"");
    tar.file("twice.jpg", &a).file("twice.jpg", &b);
    tar.file("two.jpg", &a).file("two.png", &b);
    tar.file("lonely.txt", b"no image");
    tar.file("class.jpg", &a).file("class.cls", b"cat");
    tar.file("broken.jpg", &a).file("broken.json", b"{");
    tar.file("text.jpg", &a).file("text.txt", b"\xff");
    tar.file("half.jpg", &a[..a.len() / 2]);
    tar.file("good.png", &b);
    tar.file(".hidden.jpg", &a).file("__meta__.json", b"{}").file("README.md", b"hello");
    tar.entry(EntryType::Fifo, b"fifo.jpg", b"");
    tar.entry(EntryType::Regular, b"caf\xe9.jpg", &b);
    put(dir.path(), "t.tar", &tar.end());
    run(dir.path(), b"", &["t.tar", "--out", "out", "--max-rejects", "100%", "--encode", "png"]).exits(0);
    let out = dir.path().join("out");
    assert_eq!(texts(&out, "train", "key"), ["t.tar#good", "t.tar#caf%E9"]);
    let mut found = rejects(&out);
    found.sort();
    let half = found.iter().find(|(origin, _)| origin == "t.tar#half").unwrap().1.clone();
    assert!(["truncated", "corrupt"].contains(&half.as_str()), "{half}");
    let expected = owned(&[
        ("t.tar#../up.jpg", "unsafe-path"),
        ("t.tar#/etc/abs.jpg", "unsafe-path"),
        ("t.tar#broken", "invalid-json"),
        ("t.tar#class", "invalid-value"),
        ("t.tar#good", "corrupt"),
        ("t.tar#half", &half),
        ("t.tar#hard.jpg", "unsafe-path"),
        ("t.tar#lonely", "missing-field"),
        ("t.tar#soft.jpg", "unsafe-path"),
        ("t.tar#text", "invalid-utf8"),
        ("t.tar#twice", "corrupt"),
        ("t.tar#two", "unsupported"),
        ("t.tar#x/../y.jpg", "unsafe-path"),
    ]);
    assert_eq!(found, expected);
    assert_outcomes(&out, [2, 0, 0, 13]);
    // The two samples whose members may be elsewhere in the file.
    let messages = std::fs::read_to_string(out.join("rejects.jsonl")).unwrap();
    assert_eq!(messages.matches("`tar --sort=name`").count(), 2, "{messages}");
    assert_eq!(manifest(&out)["sources"]["skipped"], 4);
}

#[test]
fn a_damaged_tar_keeps_the_samples_before_the_damage() {
    let dir = tempfile::tempdir().unwrap();
    let photo = small();
    let mut tar = Tar::default();
    let mut ends = Vec::new();
    for number in 0..4 {
        tar.file(&format!("{number}.jpg"), &photo);
        ends.push(tar.0.len());
    }
    let whole = tar.end();
    let cases = [
        (ends[1] + 100, "#none", 2),       // in a header
        (ends[1], "#none", 2),             // between members
        (ends[3], "#none", 4),             // only the end-of-archive marker is missing
        (ends[1] + 512 + 9, "t.tar#2", 2), // in a member
    ];
    for (number, (cut, origin, kept)) in cases.into_iter().enumerate() {
        put(dir.path(), "t.tar", &whole[..cut]);
        let out = format!("cut-{number}");
        run(dir.path(), b"", &["t.tar", "--out", &out, "--max-rejects", "100%"]).exits(0);
        let out = dir.path().join(out);
        assert_outcomes(&out, [kept, 0, 0, 1]);
        let origin = if origin == "#none" { "t.tar" } else { origin };
        assert_eq!(rejects(&out), owned(&[(origin, "truncated")]), "cut at {cut}");
    }
    // A sample is rejected if any of its members is cut off.
    let mut pair = Tar::default();
    pair.file("0.jpg", &photo).file("1.jpg", &photo).file("1.txt", b"caption");
    put(dir.path(), "t.tar", &pair.0[..pair.0.len() - 510]);
    run(dir.path(), b"", &["t.tar", "--out", "pair", "--max-rejects", "100%"]).exits(0);
    assert_eq!(texts(&dir.path().join("pair"), "train", "key"), ["t.tar#0"]);
    assert_eq!(rejects(&dir.path().join("pair")), owned(&[("t.tar#1", "truncated")]));

    // Damage anywhere in compressed data causes at least one reject, and never a crash.
    let zstd = {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        encoder.include_checksum(true).unwrap();
        encoder.write_all(&whole).unwrap();
        encoder.finish().unwrap()
    };
    for (name, bytes) in [("t.tar.gz", gzip(&whole)), ("t.tar.zst", zstd)] {
        for (part, damage) in [(2, "cut"), (3, "flip"), (4, "flip")] {
            let mut bytes = bytes.clone();
            let at = bytes.len() * (part - 1) / part;
            if damage == "cut" {
                bytes.truncate(at)
            } else {
                bytes[at] ^= 0x55
            }
            put(dir.path(), name, &bytes);
            let out = format!("{name}-{part}");
            let ran = run(dir.path(), b"", &[name, "--out", &out, "--max-rejects", "100%"]);
            let out = dir.path().join(out);
            match ran.status {
                0 => assert!(!rejects(&out).is_empty(), "{name} {part}"),
                3 => drop(ran.says(&["rejected"])),
                other => panic!("{name} {part}: {other}"),
            }
        }
    }
}

#[test]
fn a_decompression_bomb_in_a_tar_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..5].copy_from_slice(b"1.jpg");
    header.set_entry_type(EntryType::Regular);
    header.set_size(8 << 30);
    header.set_cksum();
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    encoder.write_all(&Tar::default().file("0.jpg", &small()).0).unwrap();
    encoder.write_all(header.as_bytes()).unwrap();
    let zeros = vec![0; 1 << 20];
    for _ in 0..512 {
        encoder.write_all(&zeros).unwrap();
    }
    put(dir.path(), "bomb.tar.zst", &encoder.finish().unwrap());
    run(dir.path(), b"", &["bomb.tar.zst", "--out", "out", "--max-rejects", "100%"]).exits(0);
    let out = dir.path().join("out");
    assert_outcomes(&out, [1, 0, 0, 1]);
    assert_eq!(rejects(&out), owned(&[("bomb.tar.zst#1", "truncated")]));
    let line = std::fs::read_to_string(out.join("rejects.jsonl")).unwrap();
    assert!(line.contains("1000 times"), "{line}");
}

/// The samples read from a damaged gzip member or zstd frame are counted; those from earlier members or frames are not.
#[test]
fn samples_from_a_damaged_gzip_member_or_zstd_frame_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let image = small();
    let mut tar = Tar::default();
    for number in 0..40 {
        tar.file(&format!("{number:02}.jpg"), &image);
    }
    let sample = tar.0.len() / 40;
    let all = tar.end();
    let damaged = |mut bytes: Vec<u8>, checksum: usize| {
        let at = bytes.len() - checksum;
        bytes[at] ^= 1;
        bytes
    };
    let zstd = |bytes: &[u8]| {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(true).unwrap();
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    type Compress<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;
    let compressors: [(&str, usize, Compress<'_>); 2] = [("tar.gz", 8, &gzip), ("tar.zst", 4, &zstd)];
    let mut flipped = all.clone();
    // A tar header is damaged, and is read before the checksum of the compressed data.
    flipped[30 * sample] ^= 1;
    for (end, checksum, compress) in compressors {
        let parts = |bytes: &[u8], cut: usize| {
            [compress(&bytes[..cut]), damaged(compress(&bytes[cut..]), checksum)].concat()
        };
        for (name, bytes, converted, rejected, after) in [
            ("whole", compress(&all), 40, 0, None),
            ("alone", damaged(compress(&all), checksum), 40, 1, Some(40)),
            // The second member or frame starts inside a sample, between two samples, at the end-of-archive marker.
            ("inside", parts(&all, 17 * sample + 700), 40, 1, Some(23)),
            ("between", parts(&all, 17 * sample), 40, 1, Some(23)),
            ("end", parts(&all, 40 * sample), 40, 1, None),
            ("header", parts(&flipped, 17 * sample), 30, 1, Some(13)),
            ("only-header", compress(&flipped), 30, 1, None),
        ] {
            let source = format!("{name}.{end}");
            put(dir.path(), &source, &bytes);
            for threads in ["1", "3"] {
                let out = format!("{name}-{end}-{threads}");
                let ran = run(dir.path(), b"", &[&source, "--out", &out, "--threads", threads]).exits(0);
                let out = dir.path().join(&out);
                assert_outcomes(&out, [converted, 0, 0, rejected]);
                assert_eq!(manifest(&out)["notes"]["after_damage"].as_u64(), after, "{source}");
                assert_eq!(
                    ran.stdout.contains("turned out to be damaged"),
                    after.is_some(),
                    "{}",
                    ran.stdout
                );
            }
        }
    }
}

/// A pax header with `records` before the next member.
fn pax(tar: &mut Tar, records: &[(&str, &[u8])]) {
    let mut body = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        // The length counts its own digits.
        let length = (rest..).find(|length| length.to_string().len() + rest == *length).unwrap();
        body.extend_from_slice(format!("{length} {key}=").as_bytes());
        body.extend_from_slice(value);
        body.push(b'\n');
    }
    tar.entry(EntryType::XHeader, b"pax", &body);
}

#[test]
fn values_of_pax_headers_are_arbitrary_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let photo = small();
    let mut tar = Tar::default();
    tar.file("0.jpg", &photo);
    pax(
        &mut tar,
        &[
            ("SCHILY.xattr.user.note", b"line 1\nline 2\n9 path=no\n\xff\0"),
            ("path", b"folder/long=1.jpg"),
            ("comment", b""),
        ],
    );
    tar.file("short.jpg", &photo).file("2.jpg", &photo);
    put(dir.path(), "t.tar", &tar.end());
    run(dir.path(), b"", &["t.tar", "--out", "out", "--layout", "flat"]).exits(0);
    let out = dir.path().join("out");
    assert_eq!(texts(&out, "train", "key"), ["t.tar#0", "t.tar#folder/long=1", "t.tar#2"]);

    // The length of a record is wrong.
    let mut tar = Tar::default();
    tar.file("0.jpg", &photo).entry(EntryType::XHeader, b"pax", b"99 path=x\n").file("1.jpg", &photo);
    put(dir.path(), "t.tar", &tar.end());
    run(dir.path(), b"", &["t.tar", "--out", "damaged", "--max-rejects", "100%"]).exits(0);
    assert_outcomes(&dir.path().join("damaged"), [1, 0, 0, 1]);
}

#[test]
fn sparse_members_are_skipped_whole() {
    let dir = tempfile::tempdir().unwrap();
    let photo = small();
    let mut tar = Tar::default();
    tar.file("0.jpg", &photo);
    // The old GNU format: further segments are in blocks after the header.
    let start = tar.0.len();
    tar.entry(EntryType::GNUSparse, b"old.npy", &[7; 100]);
    let mut header = Header::from_byte_slice(&tar.0[start..start + 512]).clone();
    header.as_mut_bytes()[482] = 1;
    header.set_cksum();
    tar.0[start..start + 512].copy_from_slice(header.as_bytes());
    let mut blocks = vec![1; 1024];
    blocks[1023 - 7] = 0;
    tar.0.splice(start + 512..start + 512, blocks);
    tar.file("1.jpg", &photo);
    // The pax format: the member starts with the list of its segments.
    pax(
        &mut tar,
        &[("GNU.sparse.major", b"1"), ("GNU.sparse.name", b"new.jpg"), ("path", b"GNUSparse/new.jpg")],
    );
    tar.file("GNUSparse/new.jpg", &[0; 600]).file("2.jpg", &photo);
    put(dir.path(), "t.tar", &tar.end());
    run(dir.path(), b"", &["t.tar", "--out", "out"]).exits(0);
    let out = dir.path().join("out");
    assert_eq!(texts(&out, "train", "key"), ["t.tar#0", "t.tar#1", "t.tar#2"]);
    assert_eq!(manifest(&out)["sources"]["skipped"], 2);
}

#[test]
fn joined_archives_are_read_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let photo = small();
    let archive = |name: &str| Tar::default().file(name, &photo).end();
    let joined = [archive("0.jpg"), vec![0; 10 << 10], archive("1.jpg"), archive("2.jpg")].concat();
    let compressed = [gzip(&archive("0.jpg")), gzip(&archive("1.jpg")), gzip(&archive("2.jpg"))].concat();
    for (name, bytes) in [("t.tar", joined), ("t.tar.gz", compressed)] {
        put(dir.path(), name, &bytes);
        let out = format!("out-{name}");
        run(dir.path(), b"", &[name, "--out", &out]).exits(0);
        let keys = [0, 1, 2].map(|number| format!("{name}#{number}"));
        assert_eq!(texts(&dir.path().join(out), "train", "key"), keys);
    }
    let followed = [archive("0.jpg"), b"something else".repeat(100)].concat();
    put(dir.path(), "t.tar", &followed);
    run(dir.path(), b"", &["t.tar", "--out", "followed", "--max-rejects", "100%", "-vv"])
        .exits(0)
        .says(&["there is data after its end"]);
    assert_outcomes(&dir.path().join("followed"), [1, 0, 0, 1]);
}

#[test]
fn a_compressed_tar_of_image_folders_causes_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let photo = small();
    let mut folders = Tar::default();
    for name in ["ifd/train/c0/0.jpg", "ifd/train/c1/1.jpg", "ifd/val/c0/2.jpg"] {
        folders.file(name, &photo);
    }
    put(dir.path(), "ifd.tar.gz", &gzip(&folders.end()));
    let ran = run(dir.path(), b"", &["ifd.tar.gz", "--out", "out"]).exits(0);
    let parts = ["ifd.tar.gz is compressed and read as WebDataset", "ifd/train/c0", "gzip -d", "zip archive"];
    ran.says(&parts).says(&["--layout flat"]);
    let mut classes = Tar::default();
    for i in 0..3 {
        classes.file(&format!("train/{i}.jpg"), &photo).file(&format!("train/{i}.cls"), b"1");
    }
    put(dir.path(), "classes.tar", &classes.end());
    put(dir.path(), "photos.tar", &Tar::default().file("./photos/0.jpg", &photo).end());
    put(dir.path(), "plain.tar", &Tar::default().file("0.jpg", &photo).file("notes/a.txt", b"x").end());
    let cases =
        [("ifd.tar.gz", "flat"), ("classes.tar", "auto"), ("photos.tar", "auto"), ("plain.tar", "auto")];
    for (source, layout) in cases {
        let ran = run(dir.path(), b"", &[source, "--dry-run", "--layout", layout]).exits(0);
        assert!(!ran.stderr.contains("WebDataset"), "{source}: {}", ran.stderr);
    }
}

#[test]
fn numbers_that_only_python_writes_are_null_in_json_members() {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = Tar::default();
    tar.file("0.jpg", &small()).file("0.json", b" {\"similarity\": NaN, \"name\": \"NaN\"}\n");
    put(dir.path(), "t.tar", &tar.end());
    run(dir.path(), b"", &["t.tar", "--out", "out"]).exits(0);
    let json = texts(&dir.path().join("out"), "train", "json");
    assert_eq!(json, ["{\"similarity\": null, \"name\": \"NaN\"}"]);
}

#[test]
fn json_members_may_have_large_numbers_and_all_members_a_byte_order_mark() {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = Tar::default();
    let json = "{\"id\": 123456789012345678901234567890, \"loss\": 1e400}";
    let marked = |text: &str| format!("\u{feff}{text}").into_bytes();
    tar.file("0.jpg", &small()).file("0.json", &marked(json)).file("0.txt", &marked("a caption"));
    tar.file("0.cls", &marked("7"));
    put(dir.path(), "t.tar", &tar.end());
    run(dir.path(), b"", &["t.tar", "--out", "out"]).exits(0);
    let out = dir.path().join("out");
    assert_eq!(texts(&out, "train", "json"), [json]);
    assert_eq!(texts(&out, "train", "txt"), ["a caption"]);
    assert_eq!(column(&out, "train", "cls"), [Value::Int(7)]);
}
