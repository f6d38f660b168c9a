//! Archives of image folders: zip archives, and tar files without compression.

use std::io::Write;
use std::path::Path;

use dsconvert::sample::Value;
use serde_json::json;

use crate::images_sources::{column, image, owned, run, texts};
use crate::images_tar::{Tar, put};
use crate::support::*;
use crate::text_zip::zip;

/// The files of a folder with splits and classes.
fn pets() -> Vec<(String, Vec<u8>)> {
    let mut files = vec![
        ("train/.hidden.jpg".to_owned(), image(0)),
        ("train/cat/broken.jpg".to_owned(), image(1)[..200].to_vec()),
    ];
    for number in 0..23 {
        let split = if number % 4 == 0 { "val" } else { "train" };
        let class = ["cat", "dog", "owl"][number % 3];
        files.push((format!("{split}/{class}/{number:02}.jpg"), image(number)));
    }
    files
}

/// Writes `files` into the folder `dir`.
fn unpack(dir: &Path, files: &[(String, Vec<u8>)]) {
    for (name, bytes) in files {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

fn tar(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut tar = Tar::default();
    for (name, bytes) in files {
        tar.file(name, bytes);
    }
    tar.end()
}

/// A tar file of images with these paths.
fn images(paths: &[&str]) -> Vec<u8> {
    let files: Vec<_> = paths.iter().enumerate().map(|(at, path)| ((*path).to_owned(), image(at))).collect();
    tar(&files)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn classes(out: &Path) -> serde_json::Value {
    manifest(out)["schema"]["class_names"].clone()
}

fn labels(out: &Path, split: &str) -> Vec<Value> {
    column(out, split, "label")
}

#[test]
fn an_archive_gives_the_dataset_of_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    let files = pets();
    unpack(&dir.path().join("pets"), &files);
    // The order of the members does not matter.
    let mut shuffled = files.clone();
    shuffled.reverse();
    put(dir.path(), "pets.tar", &tar(&shuffled));
    let wrapped: Vec<_> = files.iter().map(|(name, bytes)| (format!("./{name}"), bytes.clone())).collect();
    put(dir.path(), "dotted.tar", &tar(&wrapped));
    let borrowed: Vec<_> = files.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
    put(dir.path(), "pets.zip", &zip(&borrowed, true));
    let options = [
        "",
        "--format msgpack --resize shorter:24 --shuffle --seed 3 --unit-bytes 60000 --threads 3",
        "--layout labels --split train=0.7,val=0.3 --shard-records 4",
        "--sample 20 --dry-run",
    ];
    for options in options {
        let options: Vec<&str> = options.split_whitespace().chain(["--max-rejects", "2"]).collect();
        let convert = |source: &str, out: &str| {
            run(dir.path(), b"", &[&[source, "--out", out, "--overwrite"], &options[..]].concat()).exits(0)
        };
        let folder = convert("pets", "folder");
        for archive in ["pets.tar", "dotted.tar", "pets.zip"] {
            let ran = convert(&format!("pets={archive}"), "archive");
            if options.contains(&"--dry-run") {
                let plan = |ran: &Ran| ran.stdout.lines().take(7).map(str::to_owned).collect::<Vec<_>>();
                assert_eq!(plan(&ran), plan(&folder));
                assert!(plan(&ran).contains(&"classes  3 (cat, dog, owl)".to_owned()), "{}", ran.stdout);
                continue;
            }
            assert_same(&tree(&dir.path().join("folder")), &tree(&dir.path().join("archive")));
        }
    }
    let out = dir.path().join("out");
    run(dir.path(), b"", &["pets.tar", "--out", "out", "--max-rejects", "2"]).exits(0);
    assert_eq!(classes(&out), json!(["cat", "dog", "owl"]));
    assert_eq!(texts(&out, "validation", "key")[0], "pets.tar/val/cat/00.jpg");
    assert_eq!(rejects(&out)[0].0, "pets.tar/train/cat/broken.jpg");
    assert_outcomes(&out, [23, 0, 0, 1]);
    assert_eq!(manifest(&out)["sources"]["skipped"], 1);
    run(dir.path(), b"", &["pets.tar", "--out", "no", "--dedup", "bytes"]).exits(2).says(&["--dedup"]);
}

#[test]
fn archives_in_a_folder_are_splits_or_classes() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    let convert = |arguments: &str| {
        let _ = std::fs::remove_dir_all(dir.path().join("out"));
        let arguments: Vec<&str> = arguments.split_whitespace().chain(["--out", "out"]).collect();
        run(dir.path(), b"", &arguments).exits(0)
    };
    let out = dir.path().join("out");
    put("data/train.tar", &images(&["train/cat/1.jpg", "train/dog/2.jpg"]));
    put("data/val.tar", &images(&["cat/1.jpg"]));
    put("data/test.zip", &zip(&[("dog/1.jpg", image(3))], false));
    convert("data");
    assert_eq!(classes(&out), json!(["cat", "dog"]));
    assert_eq!(
        texts(&out, "train", "key"),
        ["data/train.tar/train/cat/1.jpg", "data/train.tar/train/dog/2.jpg"]
    );
    assert_eq!([labels(&out, "validation"), labels(&out, "test")], [[Value::Int(0)], [Value::Int(1)]]);

    // A folder that holds the whole archive.
    put("v1.tar", &images(&["pets/dog/1.jpg", "pets/cat/2.jpg"]));
    convert("v1.tar");
    assert_eq!(classes(&out), json!(["cat", "dog"]));

    // The tar files of ImageNet, one for each class.
    for (class, number) in [("n01440764", 1), ("n01443537", 2)] {
        put(&format!("imagenet/{class}.tar"), &images(&[&format!("{class}_{number}.jpg"), "x.jpg"]));
    }
    for sources in [
        "imagenet",
        "imagenet/n01440764.tar imagenet/n01443537.tar",
        "imagenet/n014{40764..40764}.tar a=imagenet",
    ] {
        let is_mixed = sources.contains("a=");
        convert(&format!("{sources} --layout labels"));
        assert_eq!(classes(&out), json!(["n01440764", "n01443537"]), "{sources}");
        assert_eq!(labels(&out, "train").len(), if is_mixed { 6 } else { 4 });
    }
    convert("imagenet/n01440764.tar imagenet/n01443537.tar --layout labels");
    assert_eq!(labels(&out, "train"), [0, 0, 1, 1].map(Value::Int));
    assert_eq!(texts(&out, "train", "key")[0], "n01440764.tar/n01440764_1.jpg");
    // Without the option, they may be a WebDataset.
    convert("imagenet");
    assert_eq!(texts(&out, "train", "key")[0], "imagenet/n01440764.tar#n01440764_1");

    // The tar file of ImageNet that contains them.
    let nested = ["n01440764", "n01443537"];
    let nested = nested.map(|class| (format!("{class}.tar"), images(&[&format!("{class}_1.jpg")])));
    put("train.tar", &tar(&nested));
    convert("train.tar");
    assert_eq!(classes(&out), json!(["n01440764", "n01443537"]));
    assert_eq!(texts(&out, "train", "key")[1], "train.tar/n01443537/n01443537_1.jpg");

    // A list of classes.
    put("classes.txt", b"dog\ncat\n");
    convert("v1.tar --classes classes.txt");
    assert_eq!(labels(&out, "train"), [1, 0].map(Value::Int));
}

#[test]
fn archives_beside_images_are_left_out_unless_named() {
    let dir = tempfile::tempdir().unwrap();
    unpack(&dir.path().join("data"), &[("cat/1.jpg".to_owned(), image(0))]);
    put(dir.path(), "data/packed.tar", &images(&["cat/1.jpg", "dog/2.jpg"]));
    put(dir.path(), "data/metadata.csv", b"file_name\n");
    let ran = run(dir.path(), b"", &["data", "--out", "out", "--metadata", "none"]).exits(0);
    ran.says(&["archives next to images are not read, such as data/packed.tar"]);
    assert_eq!(texts(&dir.path().join("out"), "train", "key"), ["data/cat/1.jpg"]);
    std::fs::remove_file(dir.path().join("data/metadata.csv")).unwrap();
    run(dir.path(), b"", &["data", "data/packed.tar", "--out", "both"]).exits(0);
    run(dir.path(), b"", &["x=data", "x=data/packed.tar", "--out", "no"])
        .exits(2)
        .says(&["two sources contain a file with the key \"x/cat/1.jpg\"", "packed.tar/cat/1.jpg"]);
    assert_eq!(texts(&dir.path().join("both"), "train", "key").len(), 3);

    let mut tar = Tar::default();
    tar.file("cat/1.jpg", &image(0)).file("metadata.csv", b"file_name,text\ncat/1.jpg,one\n");
    put(dir.path(), "described.tar", &tar.end());
    run(dir.path(), b"", &["described.tar", "--out", "described"]).exits(0);
    assert_eq!(texts(&dir.path().join("described"), "train", "text"), ["one"]);
}

#[test]
fn datasets_of_samples_are_still_read_as_such() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "bare.tar", &images(&["cat/1.jpg", "dog/2.jpg"]));
    let mut described = Tar::default();
    for number in 0..20 {
        described.file(&format!("cat/{number:02}.jpg"), &image(number));
    }
    described.file("cat/19.txt", b"a caption");
    put(dir.path(), "described.tar", &described.end());
    let cases = [
        ("bare.tar", "--layout flat", "bare.tar#cat/1"),
        ("bare.tar", "--image-fields none", "bare.tar#cat/1"),
        ("bare.tar", "--image-fields seg.png", "bare.tar#cat/1"),
        // A sample after those that are inspected has a text.
        ("described.tar", "", "described.tar#cat/00"),
        ("described.tar", "--layout labels", "described.tar#cat/00"),
        ("bare.tar described.tar", "", "bare.tar#cat/1"),
        ("x=described.tar", "", "x#cat/00"),
        ("x=bare.tar", "", "x/cat/1.jpg"),
    ];
    for (sources, options, key) in cases {
        let arguments: Vec<&str> = sources.split(' ').chain(options.split_whitespace()).collect();
        let ran = run(dir.path(), b"", &[&arguments[..], &["--out", "out", "--overwrite"]].concat()).exits(0);
        assert!(!ran.stderr.contains("WebDataset"), "{}", ran.stderr);
        let out = dir.path().join("out");
        assert_eq!(texts(&out, "train", "key")[0], key, "{sources} {options}");
        let has_texts = manifest(&out)["schema"].to_string().contains("\"txt\"");
        assert_eq!(has_texts, key.contains('#'), "{sources} {options}");
    }
}

#[test]
fn compressed_tar_files_cannot_have_labels() {
    let dir = tempfile::tempdir().unwrap();
    let folders = images(&["cat/1.jpg", "dog/2.jpg"]);
    std::fs::create_dir(dir.path().join("mixed")).unwrap();
    put(dir.path(), "folders.tar.gz", &gzip(&folders));
    put(dir.path(), "flat.tgz", &gzip(&images(&["1.jpg"])));
    put(dir.path(), "mixed/a.tar", &folders);
    put(dir.path(), "mixed/b.tar.zst", &zstd::encode_all(&folders[..], 1).unwrap());
    for (source, named) in
        [("folders.tar.gz", "folders.tar.gz"), ("flat.tgz", "flat.tgz"), ("mixed", "b.tar.zst")]
    {
        run(dir.path(), b"", &[source, "--out", "no", "--layout", "labels"]).exits(2).says(&[
            named,
            "--layout labels cannot take labels from a compressed tar file",
            "gzip -d or zstd -d",
        ]);
        assert!(!dir.path().join("no").exists());
    }
    let ran = run(dir.path(), b"", &["mixed", "--out", "mixed-out"]).exits(0);
    ran.says(&["mixed/b.tar.zst is compressed and read as WebDataset", "\"cat\"", "zstd -d"]);
    let keys = texts(&dir.path().join("mixed-out"), "train", "key");
    assert_eq!(keys[..3], ["mixed/a.tar#cat/1", "mixed/a.tar#dog/2", "mixed/b.tar.zst#cat/1"]);
    // A sample with a class is not labeled by its folder.
    let mut tar = Tar::default();
    tar.file("cat/1.jpg", &image(0)).file("cat/1.cls", b"3");
    put(dir.path(), "samples.tar.gz", &gzip(&tar.end()));
    run(dir.path(), b"", &["samples.tar.gz", "--out", "samples", "--layout", "labels"]).exits(0);
}

#[test]
fn images_before_damage_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = Tar::default();
    let mut ends = Vec::new();
    for path in ["train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg"] {
        tar.file(path, &image(2));
        ends.push(tar.0.len());
    }
    let whole = tar.end();
    let convert = |bytes: &[u8], source: &str| {
        std::fs::create_dir_all(dir.path().join("data")).unwrap();
        put(dir.path(), "data/train.tar", bytes);
        let _ = std::fs::remove_dir_all(dir.path().join("out"));
        run(dir.path(), b"", &[source, "--out", "out", "--max-rejects", "100%"]).exits(0);
        dir.path().join("out")
    };
    let (cut, padded) = (&whole[..ends[1] + 600], &whole[..ends[1] - 3]);
    // An image that is cut off is in the split of its folder; other damage is in the split of the archive.
    for (bytes, origin, split, kept) in [
        (cut, "data/train.tar/val/cat/3.jpg", "validation", 2),
        (padded, "data/train.tar", "train", 2),
        (&whole[..ends[2]], "data/train.tar", "train", 3),
    ] {
        let out = convert(bytes, "data");
        assert_outcomes(&out, [kept, 0, 0, 1]);
        assert_eq!(rejects(&out), owned(&[(origin, "truncated")]));
        assert_eq!(manifest(&out)["splits"][split]["rejected"], 1);
        let out = convert(bytes, "data/train.tar");
        assert_outcomes(&out, [kept, 0, 0, 1]);
    }
    let message = std::fs::read_to_string(dir.path().join("out/rejects.jsonl")).unwrap();
    assert!(message.contains("the tar file is broken: it has no end-of-archive marker"), "{message}");
    assert_eq!(texts(&dir.path().join("out"), "validation", "key"), ["train.tar/val/cat/3.jpg"]);
}

#[test]
fn a_planned_archive_is_converted_in_parts_and_resumed() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "pets.tar", &tar(&pets()));
    let dsconvert = |arguments: &str| {
        let mut command = command(arguments.split_whitespace());
        Ran::of(command.current_dir(dir.path()).output().unwrap())
    };
    let options = "--unit-bytes 40000 --shard-records 3 --shuffle --seed 5";
    dsconvert(&format!("images pets.tar --out whole {options} --max-rejects 1")).exits(0);
    let whole = tree(&dir.path().join("whole"));
    dsconvert(&format!("plan images pets.tar --out parts {options}")).exits(0);
    for part in ["2/3", "1/3", "3/3"] {
        dsconvert(&format!("run parts --part {part}")).exits(0);
    }
    dsconvert("merge parts --max-rejects 1").exits(0);
    assert_same(&whole, &tree(&dir.path().join("parts")));

    dsconvert(&format!("images pets.tar --out resumed {options} --max-rejects 0")).exits(3);
    dsconvert(&format!("images pets.tar --out resumed {options} --max-rejects 1 --resume")).exits(0);
    assert_same(&whole, &tree(&dir.path().join("resumed")));

    // A tar file that is changed after the plan is a failure to read, not a reject.
    dsconvert(&format!("plan images pets.tar --out changed {options}")).exits(0);
    put(dir.path(), "pets.tar", &tar(&pets()[..20]));
    dsconvert("run changed").exits(3).says(&["pets.tar", "when the run was planned"]);
    dsconvert(&format!("images pets.tar --out resumed {options} --max-rejects 1 --resume")).exits(2);
}
