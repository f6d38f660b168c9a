//! Image fields of tar samples: masks and additional images, transformed like the main image.

use std::io::Cursor;
use std::path::Path;

use dsconvert::sample::Value;
use image::{DynamicImage, GrayImage, ImageFormat, Luma, Rgb, RgbImage};

use crate::images_sources::{column, owned, run, texts};
use crate::images_tar::{Tar, put};
use crate::support::*;

/// The class of a pixel, constant in blocks of 8 × 8.
fn class(x: u32, y: u32) -> u8 {
    (x / 8 + y / 8 * 5) as u8
}

fn encoded(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    image.into().write_to(&mut out, format).unwrap();
    out.into_inner()
}

fn photo(width: u32, height: u32) -> Vec<u8> {
    encoded(RgbImage::from_fn(width, height, |x, y| Rgb([class(x, y) * 4; 3])), ImageFormat::Png)
}

fn mask(width: u32, height: u32) -> Vec<u8> {
    encoded(GrayImage::from_fn(width, height, |x, y| Luma([class(x, y)])), ImageFormat::Png)
}

/// Three samples: an image with a mask and a caption, an image with a mask, and an image alone.
fn tar() -> Tar {
    let mut tar = Tar::default();
    tar.file("0.png", &photo(64, 48)).file("0.seg.png", &mask(64, 48)).file("0.txt", b"blocks");
    tar.file("1.seg.png", &mask(32, 80)).file("1.png", &photo(32, 80));
    tar.file("2.png", &photo(48, 48));
    tar
}

fn fields(out: &Path) -> Vec<(String, String)> {
    let manifest = manifest(out);
    let fields = manifest["schema"]["fields"].as_array().unwrap().iter();
    fields.map(|f| (f["name"].as_str().unwrap().to_owned(), f["type"].as_str().unwrap().to_owned())).collect()
}

fn image_of(value: &Value) -> Option<DynamicImage> {
    match value {
        Value::Bytes(bytes) => Some(image::load_from_memory(bytes).unwrap()),
        _ => None,
    }
}

#[test]
fn masks_become_fields_with_the_geometry_of_their_image() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "s.tar", &tar().end());
    for format in ["parquet", "arrow", "msgpack", "protobuf"] {
        let options =
            ["--format", format, "--encode", "png", "--resize", "shorter:24", "--crop", "center:24x20"];
        let ran = run(dir.path(), b"", &[&["s.tar", "--out", format], &options[..]].concat()).exits(0);
        assert!(ran.stdout.contains("  images: image, seg (mask)\n"), "{}", ran.stdout);
        let out = dir.path().join(format);
        assert_eq!(fields(&out).last().unwrap(), &("seg".to_owned(), "mask".to_owned()));
        let options = &manifest(&out)["options"]["image_fields"];
        let expected = serde_json::json!([{ "name": "seg", "member": "seg.png", "type": "mask" }]);
        assert_eq!(options, &expected);
        assert_eq!(texts(&out, "train", "txt"), ["blocks", "Null", "Null"]);
        let images = column(&out, "train", "image");
        let masks = column(&out, "train", "seg");
        assert_eq!(masks[2], Value::Null);
        for (image, mask) in images.iter().zip(&masks).take(2) {
            let image = image_of(image).unwrap().to_luma8();
            let mask = image_of(mask).unwrap();
            assert!(matches!(mask, DynamicImage::ImageLuma8(_)), "{:?}", mask.color());
            let mask = mask.to_luma8();
            assert_eq!((mask.width(), mask.height()), (24, 20));
            assert_eq!(mask.dimensions(), image.dimensions());
            // Away from block edges, a pixel of the image is four times its class.
            let same =
                mask.pixels().zip(image.pixels()).filter(|(m, i)| (m[0] * 4).abs_diff(i[0]) < 4).count();
            assert!(same > 24 * 20 / 3, "{same}");
        }
    }
    assert_same_records(dir.path(), &["parquet", "arrow", "msgpack", "protobuf"]);
    // Without a transformation, masks keep the bytes of their files.
    run(dir.path(), b"", &["s.tar", "--out", "same"]).exits(0);
    let masks = column(&dir.path().join("same"), "train", "seg");
    assert_eq!(masks[..2], [Value::Bytes(mask(64, 48).into()), Value::Bytes(mask(32, 80).into())]);
    run(dir.path(), b"", &["s.tar", "--out", "same", "--resume"]).exits(0);
    // A process that runs a part takes the image fields from the plan.
    let plan =
        command(["plan", "images", "s.tar", "--out", "parts"]).current_dir(dir.path()).output().unwrap();
    Ran::of(plan).exits(0);
    for arguments in [&["run", "parts", "--part", "1/1"][..], &["merge", "parts"]] {
        Ran::of(command(arguments).current_dir(dir.path()).output().unwrap()).exits(0);
    }
    assert_same(&tree(&dir.path().join("same")), &tree(&dir.path().join("parts")));
}

fn assert_same_records(dir: &Path, outs: &[&str]) {
    for name in ["image", "seg", "txt"] {
        let columns: Vec<Vec<Value>> = outs.iter().map(|out| column(&dir.join(out), "train", name)).collect();
        assert!(columns.windows(2).all(|pair| pair[0] == pair[1]), "{name}");
    }
}

#[test]
fn image_fields_can_be_named_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = tar();
    tar.file("3.png", &photo(64, 48)).file("3.Right.jpg", &photo(64, 48)).file("3.seg.png", &mask(64, 48));
    put(dir.path(), "s.tar", &tar.end());
    let listed = "right.jpg,mask=seg.png";
    let options = ["--image-fields", listed, "--resize", "longer:32", "--format", "msgpack"];
    run(dir.path(), b"", &[&["s.tar", "--out", "out"], &options[..]].concat()).exits(0);
    let out = dir.path().join("out");
    assert_eq!(fields(&out)[8..], owned(&[("right", "image"), ("mask", "mask")]));
    let (images, right) = (column(&out, "train", "image"), column(&out, "train", "right"));
    assert_eq!(right[..3], [Value::Null, Value::Null, Value::Null]);
    assert_eq!(right[3], images[3], "an additional image is converted like the main one");

    let refused = ["s.tar", "--out", "no", "--max-rejects", "100%", "--image-fields", "none"];
    run(dir.path(), b"", &refused).exits(0);
    let rejected =
        ["s.tar#0", "s.tar#1", "s.tar#3"].map(|origin| (origin.to_owned(), "unsupported".to_owned()));
    assert_eq!(rejects(&dir.path().join("no")), rejected);
    for (fields, message) in [
        ("seg", "\"seg\" does not have an image extension"),
        ("seg.png:masks", "expected mask or image"),
        ("width=seg.png", "\"width\" is the name of another field"),
    ] {
        run(dir.path(), b"", &["s.tar", "--out", "never", "--image-fields", fields])
            .exits(2)
            .says(&[message]);
    }
    put(dir.path(), "x.png", &photo(8, 8));
    let without_tar =
        run(dir.path(), b"", &["x.png", "--out", "never", "--image-fields", "seg.png"]).exits(2);
    without_tar.says(&["no source is a tar file"]);
}

/// `seg.jpg` in one sample, `seg.png` in another, both in a third, in this order or backwards.
#[test]
fn additional_images_that_differ_by_extension_are_two_fields() {
    let dir = tempfile::tempdir().unwrap();
    let image = photo(16, 16);
    let samples: [(&str, &[&str]); 3] =
        [("a", &["seg.jpg"]), ("b", &["seg.png"]), ("c", &["seg.png", "seg.jpg"])];
    let write = |name: &str, samples: &mut dyn Iterator<Item = &(&str, &[&str])>| {
        let mut tar = Tar::default();
        for (sample, members) in samples {
            tar.file(&format!("{sample}.png"), &image);
            for member in *members {
                let bytes = if member.ends_with("jpg") { image.clone() } else { mask(16, 16) };
                tar.file(&format!("{sample}.{member}"), &bytes);
            }
        }
        put(dir.path(), name, &tar.end());
    };
    write("up.tar", &mut samples.iter());
    write("down.tar", &mut samples.iter().rev());
    let expected = owned(&[("seg_image", "image"), ("seg_mask", "mask")]);
    for first in ["up.tar", "down.tar"] {
        let second = if first == "up.tar" { "down.tar" } else { "up.tar" };
        let (auto, listed) = (format!("{first}.auto"), format!("{first}.listed"));
        run(dir.path(), b"", &[first, second, "--out", &auto]).exits(0);
        let out = dir.path().join(&auto);
        assert_eq!(fields(&out)[8..], expected);
        assert_eq!(rejects(&out), []);
        let is_null = |name: &str| -> Vec<bool> {
            column(&out, "train", name).iter().map(|value| *value == Value::Null).collect()
        };
        let (without_image, without_mask) = (is_null("seg_image"), is_null("seg_mask"));
        assert_eq!(without_image.iter().filter(|null| **null).count(), 2);
        assert_eq!(without_mask.iter().filter(|null| **null).count(), 2);
        assert!(without_image.iter().zip(&without_mask).all(|(image, mask)| !(*image && *mask)));
        let list = ["--image-fields", "seg.jpg,seg.png"];
        run(dir.path(), b"", &[&[first, second, "--out", &listed], &list[..]].concat()).exits(0);
        assert_same(&tree(&out), &tree(&dir.path().join(&listed)));
    }
    let taken = ["up.tar", "--out", "never", "--image-fields", "seg=seg.jpg,seg.png"];
    let says = [
        "--image-fields: ",
        "\"seg.jpg\" and \"seg.png\" would both be the field \"seg\"",
        "choose two names",
    ];
    run(dir.path(), b"", &taken).exits(2).says(&says);
}

#[test]
fn damaged_additional_images_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let whole = encoded(RgbImage::from_fn(64, 48, |x, y| Rgb([(x * y) as u8; 3])), ImageFormat::Png);
    let mut tar = Tar::default();
    tar.file("0.png", &photo(64, 48)).file("0.left.png", &whole[..whole.len() / 2]);
    tar.file("1.png", &photo(64, 48)).file("1.left.png", &whole);
    put(dir.path(), "s.tar", &tar.end());
    let options = ["s.tar", "--out", "out", "--lenient", "--image-fields", "left.png:image"];
    run(dir.path(), b"", &options).exits(0);
    let out = dir.path().join("out");
    assert_eq!(texts(&out, "train", "key").len(), 2);
    assert_eq!(manifest(&out)["notes"]["damaged_kept"], 1);
}

/// Both files are stored upside down. Only the first one says so.
#[test]
fn additional_images_are_turned_like_their_image() {
    let dir = tempfile::tempdir().unwrap();
    let upright = RgbImage::from_fn(64, 48, |x, y| Rgb([class(x, y) * 4; 3]));
    let stored = encoded(image::imageops::rotate180(&upright), ImageFormat::Png);
    // The eXIf chunk of an EXIF block with orientation 3.
    let exif = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x03\0\0\0\0\0\0\0";
    let mut chunk = (exif.len() as u32).to_be_bytes().to_vec();
    chunk.extend([&b"eXIf"[..], exif].concat());
    chunk.extend(crc32fast::hash(&chunk[4..]).to_be_bytes());
    let turned = [&stored[..33], &chunk, &stored[33..]].concat();
    let mut tar = Tar::default();
    tar.file("0.png", &turned).file("0.left.png", &stored);
    put(dir.path(), "s.tar", &tar.end());
    let options = ["s.tar", "--out", "out", "--encode", "png", "--image-fields", "left.png:image"];
    run(dir.path(), b"", &options).exits(0);
    for name in ["image", "left"] {
        let values = column(&dir.path().join("out"), "train", name);
        assert_eq!(image_of(&values[0]).unwrap().to_rgb8(), upright, "{name}");
    }
}

#[test]
fn an_invalid_mask_rejects_its_sample() {
    let dir = tempfile::tempdir().unwrap();
    let whole = mask(16, 16);
    let mut tar = Tar::default();
    tar.file("good.png", &photo(16, 16)).file("good.seg.png", &whole);
    tar.file("size.png", &photo(16, 16)).file("size.seg.png", &mask(16, 24));
    tar.file("half.png", &photo(16, 16)).file("half.seg.png", &whole[..whole.len() / 2]);
    let rgb = encoded(RgbImage::new(16, 16), ImageFormat::Png);
    tar.file("type.png", &photo(16, 16)).file("type.seg.png", b"GIF89a").file("rgb.png", &photo(16, 16));
    tar.file("rgb.seg.png", &rgb).file("alone.seg.png", &whole);
    put(dir.path(), "s.tar", &tar.end());
    run(dir.path(), b"", &["s.tar", "--out", "out", "--max-rejects", "100%", "--lenient"]).exits(0);
    let out = dir.path().join("out");
    assert_eq!(texts(&out, "train", "key"), ["s.tar#good", "s.tar#rgb"]);
    let found: Vec<(String, String)> = rejects(&out);
    let expected =
        [("s.tar#size", "invalid-value"), ("s.tar#half", "truncated"), ("s.tar#type", "truncated")];
    assert_eq!(found, owned(&[&expected[..], &[("s.tar#alone", "missing-field")]].concat()));
    let lines = std::fs::read_to_string(out.join("rejects.jsonl")).unwrap();
    assert!(
        lines.contains(r#"the member \"seg.png\": the mask has 16×24 pixels, its image 16×16"#),
        "{lines}"
    );
}

#[test]
fn notes_of_a_rejected_image_are_not_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = Tar::default();
    tar.file("0.png", &photo(64, 48)).file("0.seg.png", &mask(64, 48));
    // A mask of another size.
    tar.file("1.png", &photo(64, 48)).file("1.seg.png", &mask(10, 10));
    put(dir.path(), "s.tar", &tar.end());
    let options = ["s.tar", "--out", "out", "--encode", "keep", "--max-rejects", "100%"];
    run(dir.path(), b"", &options).exits(0);
    let out = dir.path().join("out");
    assert_outcomes(&out, [1, 0, 0, 1]);
    assert_eq!(manifest(&out)["notes"]["passed_through"], 1);
}

#[test]
fn listed_image_fields_are_repaired() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "s.tar", &tar().end());
    let args = [
        "s.tar",
        "--out",
        "out",
        "--encode",
        "png",
        "--format",
        "msgpack",
        "--image-fields",
        "depth=seg.png:mask",
    ];
    run(dir.path(), b"", &args).exits(0);
    let out = dir.path().join("out");
    let whole = tree(&out);
    std::fs::remove_file(out.join("train/train-000000-00.msgpack")).unwrap();
    let mut command = command(["inspect", "out", "--verify", "--repair", "s.tar"]);
    Ran::of(command.current_dir(dir.path()).output().unwrap()).exits(0);
    assert_same(&tree(&out), &whole);
}

#[test]
fn a_damaged_mask_is_found_in_a_single_shard() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "s.tar", &tar().end());
    run(dir.path(), b"", &["s.tar", "--out", "out", "--encode", "png", "--format", "arrow"]).exits(0);
    let shard = dir.path().join("out/train/train-000000-00.arrow");
    let verify = || Ran::of(command(["inspect", shard.to_str().unwrap(), "--verify"]).output().unwrap());
    verify().exits(0);
    let mut bytes = std::fs::read(&shard).unwrap();
    // Columns follow each other: the three images, then the two masks.
    let starts: Vec<usize> = memchr::memmem::find_iter(&bytes, b"IDAT").collect();
    assert_eq!(starts.len(), 5);
    bytes[starts[3] + 8] ^= 0xff;
    std::fs::write(&shard, bytes).unwrap();
    let ran = verify().exits(3);
    assert!(ran.stdout.contains("record 0: the mask \"seg\" does not decode"), "{}", ran.stdout);
}

#[test]
fn classes_that_become_a_field_and_no_label_are_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = Tar::default();
    tar.file("0.png", &photo(16, 16)).file("0.cls", b"1");
    put(dir.path(), "s.tar", &tar.end());
    put(dir.path(), "names.txt", b"ant\nbee\n");
    let stderr = |args: &[&str]| {
        run(dir.path(), b"", &[args, &["--out", "out", "--dry-run"]].concat()).exits(0).stderr
    };
    let found = stderr(&["s.tar"]);
    for part in [
        "s.tar: the class of each sample (.cls) becomes the field \"cls\"",
        "--classes FILE makes it the label",
    ] {
        assert!(found.contains(part), "{found}");
    }
    assert_eq!(stderr(&["s.tar", "--classes", "names.txt"]), "");
    // With images outside tar files, labels come from folders.
    for folder in ["both/a", "both/b"] {
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
    }
    put(dir.path(), "both/a/s.tar", &tar.end());
    put(dir.path(), "both/a/x.png", &photo(16, 16));
    put(dir.path(), "both/b/x.png", &photo(16, 16));
    assert_eq!(stderr(&["both"]), "");
}

#[test]
fn samples_with_different_numbers_of_images_have_nulls() {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = Tar::default();
    tar.file("0.1.png", &photo(16, 16)).file("0.10.png", &photo(24, 8)).file("0.2.png", &photo(8, 8));
    tar.file("1.1.png", &photo(16, 24)).file("2.2.png", &photo(8, 16)).file("2.1.png", &photo(8, 8));
    put(dir.path(), "s.tar", &tar.end());
    for format in ["parquet", "arrow", "msgpack", "protobuf"] {
        let options = ["--format", format, "--encode", "png", "--resize", "longer:12"];
        let ran = run(dir.path(), b"", &[&["s.tar", "--out", format], &options[..]].concat()).exits(0);
        assert!(ran.stdout.contains("  images: image, 2 (image), 10 (image)\n"), "{}", ran.stdout);
        assert_eq!(ran.stderr, "");
        let out = dir.path().join(format);
        let sizes = |name: &str| -> Vec<Option<(u32, u32)>> {
            let values = column(&out, "train", name);
            values.iter().map(|v| image_of(v).map(|i| (i.width(), i.height()))).collect()
        };
        // Each image is resized on its own.
        assert_eq!(sizes("image"), [Some((12, 12)), Some((8, 12)), Some((8, 8))]);
        assert_eq!(sizes("2"), [Some((8, 8)), None, Some((6, 12))]);
        assert_eq!(sizes("10"), [Some((12, 4)), None, None]);
        let mut inspect = command(["inspect", format, "--verify"]);
        Ran::of(inspect.current_dir(dir.path()).output().unwrap()).exits(0);
    }
    // Samples without a header have the size of their record only.
    let raw = ["s.tar", "--out", "raw", "--encode", "raw", "--max-rejects", "100%"];
    run(dir.path(), b"", &raw).exits(0);
    assert_eq!(texts(&dir.path().join("raw"), "train", "key"), ["s.tar#1"]);
    let lines = std::fs::read_to_string(dir.path().join("raw/rejects.jsonl")).unwrap();
    assert!(lines.contains("`encode raw` have no size of their own"), "{lines}");
    run(dir.path(), b"", &[&raw[..], &["--overwrite", "--resize", "exact:8x8"]].concat()).exits(0);
    assert_eq!(texts(&dir.path().join("raw"), "train", "key").len(), 3);
}

#[test]
fn the_main_image_is_chosen_with_a_warning_or_by_the_option() {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = Tar::default();
    tar.file("0.right.jpg", &photo(8, 16)).file("0.left.jpg", &photo(16, 16));
    put(dir.path(), "s.tar", &tar.end());
    let sizes = |out: &str| {
        let out = dir.path().join(out);
        let size = |name: &str| image_of(&column(&out, "train", name)[0]).map(|i| (i.width(), i.height()));
        let names = fields(&out).into_iter().filter(|(_, ty)| ty == "image").map(|(name, _)| name);
        names.map(|name| (size(&name), name)).collect::<Vec<_>>()
    };
    let (left, right) = (Some((16, 16)), Some((8, 16)));
    let named = |size, name: &str| (size, name.to_owned());
    let auto = run(dir.path(), b"", &["s.tar", "--out", "auto", "--encode", "png"]).exits(0);
    auto.says(&["\"left.jpg\" is the main image", "\"right.jpg\"", "--image-fields image=NAME,…"]);
    assert_eq!(sizes("auto"), [named(left, "image"), named(right, "right")]);
    let options =
        ["s.tar", "--encode", "png", "--out", "chosen", "--image-fields", "image=right.jpg,other=left.jpg"];
    assert_eq!(run(dir.path(), b"", &options).exits(0).stderr, "");
    assert_eq!(sizes("chosen"), [named(right, "image"), named(left, "other")]);
    // With a named main image, those that are not listed are left out and counted.
    let options = ["s.tar", "--encode", "png", "--out", "one", "--image-field", "image=right.jpg"];
    let one = run(dir.path(), b"", &options).exits(0);
    assert_eq!(sizes("one"), [named(right, "image")]);
    assert!(one.stdout.contains("1 file skipped: 1 .jpg\n"), "{}", one.stdout);
    assert!(one.stdout.contains("warning: 1 sample member is left out"), "{}", one.stdout);
    for out in ["auto", "chosen", "one"] {
        assert_repaired(dir.path(), out, "s.tar");
    }
}

/// Removes a shard of the dataset `out` and repairs it from `source`.
fn assert_repaired(dir: &Path, out: &str, source: &str) {
    let whole = tree(&dir.join(out));
    std::fs::remove_file(dir.join(out).join("train/train-000000-00.parquet")).unwrap();
    let mut command = command(["inspect", out, "--verify", "--repair", source]);
    Ran::of(command.current_dir(dir).output().unwrap()).exits(0);
    assert_same(&tree(&dir.join(out)), &whole);
}

/// The values of a field, as text or as the bytes of binary fields.
fn shown(out: &Path, name: &str) -> Vec<String> {
    let text = |value: Value| match value {
        Value::Text(text) => text.as_str().to_owned(),
        Value::Bytes(bytes) => bytes.escape_ascii().to_string(),
        other => format!("{other:?}"),
    };
    column(out, "train", name).into_iter().map(text).collect()
}

#[test]
fn members_of_text_are_fields_and_others_are_counted_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = Tar::default();
    tar.file("0.png", &photo(8, 8)).file("0.caption", "é".as_bytes()).file("0.NPY", b"\x93NUMPY\0");
    tar.file("0.en.txt", b"one").file("0.meta.json", b"{\"a\": NaN}").file("0.label", b"cat");
    tar.file("1.png", &photo(8, 8))
        .file("1.npy", b"\x93NUMPY\x01")
        .file("1.en.txt", b"two")
        .file("1.id", b"7");
    put(dir.path(), "a.tar", &tar.end());
    // In the last tar file only.
    put(dir.path(), "b.tar", &Tar::default().file("0.png", &photo(8, 8)).file("0.url", b"http://x").end());
    let types = |out: &str| -> Vec<String> {
        let all = fields(&dir.path().join(out)).into_iter().skip(5);
        all.map(|(name, ty)| format!("{name}:{ty}")).collect()
    };
    let three = ["json:json", "txt:string", "cls:int64"];
    let found = [
        "caption:string",
        "en_txt:string",
        "id:string",
        "label_string:string",
        "meta_json:json",
        "url:string",
    ];
    for format in ["parquet", "arrow", "msgpack", "protobuf"] {
        let ran = run(dir.path(), b"", &["a.tar", "b.tar", "--out", format, "--format", format]).exits(0);
        let ran = ran.says(&["left out: \"npy\"", "--keep-fields json,txt,cls,", ",npy:binary"]);
        assert!(ran.stdout.contains("2 files skipped: 2 .npy\n"), "{}", ran.stdout);
        assert!(ran.stdout.contains("2 sample members are left out: --keep-fields"), "{}", ran.stdout);
        assert!(ran.stdout.contains("  fields: json, txt, cls, caption, en_txt, id,"), "{}", ran.stdout);
        assert_eq!(types(format), [&three[..], &found[..]].concat());
        let out = dir.path().join(format);
        assert_eq!(shown(&out, "caption"), ["é", "Null", "Null"]);
        assert_eq!(shown(&out, "en_txt"), ["one", "two", "Null"]);
        assert_eq!(shown(&out, "meta_json"), ["{\"a\": null}", "Null", "Null"]);
        assert_eq!(shown(&out, "label_string"), ["cat", "Null", "Null"]);
        assert_eq!(shown(&out, "url"), ["Null", "Null", "http://x"]);
    }
    let kept = ["--keep-fields", "text=en.txt,npy:binary,id:int32"];
    let sources = ["a.tar", "b.tar"];
    for format in ["arrow", "msgpack", "protobuf", "parquet"] {
        let out = ["--out", "kept", "--overwrite", "--format", format];
        let ran = run(dir.path(), b"", &[&sources[..], &out[..], &kept[..]].concat()).exits(0);
        assert_eq!(types("kept"), ["text:string", "npy:binary", "id:int32"]);
        assert!(
            ran.stdout.contains("4 files skipped: 1 .caption, 1 .json, 1 .label, 1 .url\n"),
            "{}",
            ran.stdout
        );
        let out = dir.path().join("kept");
        assert_eq!(shown(&out, "text"), ["one", "two", "Null"]);
        assert_eq!(shown(&out, "npy"), ["\\x93NUMPY\\x00", "\\x93NUMPY\\x01", "Null"]);
        assert_eq!(column(&out, "train", "id")[..2], [Value::Null, Value::Int(7)]);
    }
    let plan = [&["plan", "images"][..], &sources[..], &["--out", "parts"], &kept[..]].concat();
    let commands = [
        &plan[..],
        &["run", "parts", "--part", "1/2"],
        &["run", "parts", "--part", "2/2"],
        &["merge", "parts"],
    ];
    for arguments in commands {
        Ran::of(command(arguments).current_dir(dir.path()).output().unwrap()).exits(0);
    }
    assert_same(&tree(&dir.path().join("kept")), &tree(&dir.path().join("parts")));
    // Fields that are listed as they are found give the same dataset.
    let same = "json,txt,cls,caption,en.txt,id,label,meta.json,url";
    run(dir.path(), b"", &[&sources[..], &["--out", "same", "--keep-fields", same]].concat()).exits(0);
    assert_same(&tree(&dir.path().join("parquet")), &tree(&dir.path().join("same")));
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    for (options, message) in [
        ("a.tar --keep-fields x=id,x=url", "two members would be the field \"x\""),
        ("a.tar --keep-fields id:image", "unknown type"),
        (
            "x.png --keep-fields id",
            "no source is a tar file, a TFRecord file, or a Parquet or Arrow file with images",
        ),
    ] {
        put(dir.path(), "x.png", &photo(8, 8));
        let arguments: Vec<&str> = options.split(' ').chain(["--out", "never"]).collect();
        run(dir.path(), b"", &arguments).exits(2).says(&["--keep-fields", message]);
    }
    let unseen = run(dir.path(), b"", &["a.tar", "--out", "unseen", "--keep-fields", "idd"]).exits(0);
    unseen.says(&["none of the first samples has the field \"idd\""]);
    for out in ["parquet", "kept"] {
        let whole = tree(&dir.path().join(out));
        std::fs::remove_file(dir.path().join(out).join("train/train-000000-00.parquet")).unwrap();
        let mut command = command(["inspect", out, "--verify", "--repair", "a.tar", "b.tar"]);
        Ran::of(command.current_dir(dir.path()).output().unwrap()).exits(0);
        assert_same(&tree(&dir.path().join(out)), &whole);
    }
}
