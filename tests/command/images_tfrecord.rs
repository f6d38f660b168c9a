//! Images in TFRecord files, which TensorFlow has written (`fixtures/tfrecord`), and in damaged copies of them.

use std::path::Path;

use dsconvert::sample::Value;

use crate::images_sources::{column, run, texts};
use crate::support::*;

/// A folder with copies of some of the fixtures, whose names start with `start`.
fn sources(start: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in tree(&fixture("tfrecord")) {
        if name.starts_with(start) {
            let to = dir.path().join("in").join(&name);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::write(to, bytes).unwrap();
        }
    }
    dir
}

fn file(dir: &Path, name: &str) -> Vec<u8> {
    std::fs::read(dir.join("in").join(name)).unwrap()
}

fn prints(ran: &Ran, parts: &[&str]) {
    for part in parts {
        assert!(ran.stdout.contains(part), "{part:?} is not in: {}", ran.stdout);
    }
}

fn numbers(value: &Value) -> Vec<u8> {
    let Value::Bytes(bytes) = value else { unreachable!("{value:?} is no list of numbers") };
    bytes.to_vec()
}

/// The boxes of all records of a split: x and y of the top left and bottom right corners.
fn boxes(out: &Path, split: &str) -> Vec<Vec<f32>> {
    let of = |value: &Value| {
        let bytes = numbers(value);
        bytes.chunks(4).map(|number| f32::from_le_bytes(number.try_into().unwrap())).collect()
    };
    column(out, split, "boxes").iter().map(of).collect()
}

fn integers(out: &Path, split: &str, name: &str) -> Vec<Vec<i64>> {
    let of = |value: &Value| {
        let bytes = numbers(value);
        bytes.chunks(8).map(|number| i64::from_le_bytes(number.try_into().unwrap())).collect()
    };
    column(out, split, name).iter().map(of).collect()
}

#[test]
fn boxes_of_the_object_detection_api_follow_the_image_and_names_are_splits() {
    let dir = sources("coco");
    let out = dir.path().join("out");
    let resized = ["in", "--out", "out", "--resize", "exact:12x8"];
    let said = run(dir.path(), b"", &resized).exits(0);
    prints(&said, &["train (2 files), validation (1 file)", "4 boxes with a mask", "1 image without boxes"]);
    said.says(&["image/object/area"]);
    assert_outcomes(&out, [4, 0, 0, 0]);
    assert_eq!(manifest(&out)["schema"]["class_names"], serde_json::json!(["cat", "dog"]));
    assert_eq!(
        boxes(&out, "train"),
        [vec![3.0, 4.0, 9.0, 8.0], vec![0.0, 0.0, 6.0, 4.0, 6.0, 2.0, 12.0, 6.0], vec![]]
    );
    assert_eq!(integers(&out, "train", "labels"), [vec![1], vec![0, 1], vec![]]);
    assert_eq!(integers(&out, "train", "iscrowd"), [vec![0], vec![1, 1], vec![]]);
    assert_eq!(boxes(&out, "validation"), [[1.5, 2.0, 6.0, 8.0]]);
    assert_eq!(texts(&out, "train", "image_source_id"), ["100", "101", "102"]);
    let keys = texts(&out, "train", "key");
    assert_eq!(keys[1], "in/coco-train.tfrecord-00000-of-00002#1");
    // Features of objects are fields only if the user names them.
    let kept = ["in", "--out", "kept", "--keep-fields", "area=image/object/area,image/source_id"];
    run(dir.path(), b"", &kept).exits(0);
    assert_eq!(texts(&dir.path().join("kept"), "train", "area"), ["[1.5]", "[1.5,1.5]", "Null"]);
}

#[test]
fn labels_have_the_names_that_tensorflow_datasets_lists() {
    let dir = sources("tfds");
    let out = dir.path().join("out");
    prints(
        &run(dir.path(), b"", &["in/tfds", "--out", "out"]).exits(0),
        &["cat 1, dog 2", "1 record without a label"],
    );
    assert_eq!(column(&out, "train", "label"), [Value::Int(1), Value::Int(0)]);
    assert_eq!(column(&out, "test", "label"), [Value::Int(1), Value::Null]);
    assert_eq!(texts(&out, "test", "file_name"), ["test 0", "test 1"]);
    std::fs::remove_file(dir.path().join("in/tfds/label.labels.txt")).unwrap();
    run(dir.path(), b"", &["in/tfds", "--out", "numbers", "--max-rejects", "50%"]).exits(0);
    assert_eq!(manifest(&dir.path().join("numbers"))["schema"]["class_names"], serde_json::json!(["0", "1"]));
    assert_eq!(rejects(&dir.path().join("numbers"))[0].1, "unknown-label");
}

#[test]
fn a_compressed_file_has_names_of_classes_masks_and_fields() {
    let dir = sources("classes");
    let out = dir.path().join("out");
    prints(
        &run(dir.path(), b"", &["in/classes.tfrecord.gz", "--out", "out"]).exits(0),
        &["goldfish 1, tench 2"],
    );
    assert_eq!(column(&out, "train", "label"), [1, 0, 1].map(Value::Int));
    assert_eq!(texts(&out, "train", "embedding"), ["[0.5,0.0]", "[0.5,1.0]", "[0.5,2.0]"]);
    assert_eq!(column(&out, "train", "weight")[1], Value::Float(f64::from(0.1f32)));
    assert_eq!(column(&out, "train", "image_class_label"), [1, 2, 3].map(Value::Int));
    let field = manifest(&out)["schema"]["fields"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&field["name"], &field["type"]), (&"image_segmentation_class".into(), &"mask".into()));
    // The same file without compression gives the same records.
    let mut plain = Vec::new();
    let zipped = file(dir.path(), "classes.tfrecord.gz");
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&zipped[..]), &mut plain).unwrap();
    std::fs::create_dir(dir.path().join("plain")).unwrap();
    std::fs::write(dir.path().join("plain/classes.tfrecord"), &plain).unwrap();
    run(dir.path(), b"", &["plain", "--out", "same"]).exits(0);
    assert_eq!(column(&dir.path().join("same"), "train", "image"), column(&out, "train", "image"));
    // Numbers from 1 are no ordinals of a list.
    std::fs::write(dir.path().join("names"), "a\nb\nc\n").unwrap();
    let shifted = ["plain", "--out", "o", "--label-field", "image/class/label", "--classes", "names"];
    run(dir.path(), b"", &shifted).exits(2).says(&["count from 1 to 3", "--classes", "for the number 0"]);
    run(dir.path(), b"", &["plain", "--out", "o", "--label-field", "lable"])
        .exits(2)
        .says(&["no feature \"lable\"", "weight"]);
    run(dir.path(), b"", &["plain", "--out", "o", "--image-fields", "none"])
        .exits(0)
        .says(&["image/segmentation/class/encoded"]);
}

#[test]
fn damage_rejects_a_record_or_the_rest_and_names_the_offset() {
    let dir = sources("coco-train.tfrecord-00000");
    let name = "coco-train.tfrecord-00000-of-00002";
    let whole = file(dir.path(), name);
    let second = 16 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let check = |bytes: &[u8], code: &str, says: &str, outcomes: [u64; 4]| {
        std::fs::write(dir.path().join("in").join(name), bytes).unwrap();
        let args = ["in", "--out", "out", "--overwrite", "--max-rejects", "100%"];
        let status = if outcomes[0] == 0 { 3 } else { 0 };
        run(dir.path(), b"", &args).exits(status);
        if status == 0 {
            let out = dir.path().join("out");
            assert_outcomes(&out, outcomes);
            let text = std::fs::read_to_string(out.join("rejects.jsonl")).unwrap();
            assert!(text.contains(code) && text.contains(says) && text.contains(name), "{text}");
        }
    };
    let changed = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    check(&changed(100), "corrupt", "the checksum of the record at byte 0 is wrong", [1, 0, 0, 1]);
    check(&changed(second - 1), "corrupt", "the checksum of the record at byte 0 is wrong", [1, 0, 0, 1]);
    let at_second = format!("of the record at byte {second} is wrong, so nothing after it");
    check(&changed(second + 2), "corrupt", &at_second, [1, 0, 0, 1]);
    let cut = format!("the record at byte {second} is cut off");
    check(&whole[..second + 5], "truncated", &cut, [1, 0, 0, 1]);
    check(&whole[..whole.len() - 1], "truncated", &cut, [1, 0, 0, 1]);
    check(&changed(1), "corrupt", "", [0, 0, 0, 1]);
    for end in (0..second).step_by(211) {
        check(&whole[..end], "", "", [0, 0, 0, 0]);
    }
    let zlib = [0x78, 0x9c, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
    std::fs::write(dir.path().join("in").join(name), zlib).unwrap();
    run(dir.path(), b"", &["in", "--out", "zlib"]).exits(3).says(&["compressed with ZLIB"]);
}

#[test]
fn files_without_images_or_beside_others_are_refused() {
    let dir = sources("tfds");
    std::fs::write(dir.path().join("in/a.jpg"), crate::images_sources::image(0)).unwrap();
    run(dir.path(), b"", &["in", "--out", "o"])
        .exits(2)
        .says(&["some images are in TFRecord files", "in/a.jpg"]);
    let dir = sources("tfds/pets-test");
    let test = "in/tfds/pets-test.tfrecord-00000-of-00001";
    run(dir.path(), b"", &[test, "--out", "o", "--image-fields", "image=label"])
        .exits(2)
        .says(&["no feature \"label\""]);
    let text = command(["text", test, "-t", "bytes", "--out", "o"]).current_dir(dir.path()).output().unwrap();
    Ran::of(text).exits(2).says(&["TFRecord", "dsconvert images"]);
    let annotated = [test, "--out", "o", "--companion", "mask={dir}/{stem}.png"];
    run(dir.path(), b"", &annotated).exits(2).says(&["TFRecord files"]);
    // A record that TensorFlow has written, whose only feature is a number.
    let record = b"\x0e\x00\x00\x00\x00\x00\x00\x00\xc5\xe5\x69\x3f\x0a\x0c\x0a\x0a\
        \x0a\x01\x61\x12\x05\x1a\x03\x0a\x01\x07\xfa\x9a\xa8\x04";
    std::fs::write(dir.path().join("n.tfrecord"), record).unwrap();
    let none = run(dir.path(), b"", &["n.tfrecord", "--out", "o"]);
    none.exits(2).says(&["n.tfrecord", "no feature of the examples", "\"a\"", "--image-fields"]);
}

#[test]
fn a_sample_predicts_the_records() {
    let dir = sources("coco");
    let said = run(dir.path(), b"", &["in", "--dry-run", "--sample", "100"]).exits(0);
    prints(&said, &["found    4", "records  4"]);
}
