//! Layouts of public data sets that suggest another reading than that of `datasets`: what is read, and what is said.

use std::path::Path;

use crate::images_sources::{image, run, texts};
use crate::support::*;

/// Writes files with these contents below `dir`.
fn write(dir: &Path, files: &[(&str, &[u8])]) {
    for (name, bytes) in files {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

/// Writes images with these names below `dir`.
fn images(dir: &Path, names: &[&str]) {
    for (number, name) in names.iter().enumerate() {
        write(dir, &[(name, &image(number))]);
    }
}

#[test]
fn masks_beside_images_are_named_with_the_option_that_makes_them_fields() {
    let dir = tempfile::tempdir().unwrap();
    let mask = image::GrayImage::from_pixel(20, 10, image::Luma([1]));
    let photo = image::RgbImage::from_pixel(20, 10, image::Rgb([9, 8, 7]));
    let s = dir.path().join("s");
    std::fs::create_dir(&s).unwrap();
    for name in ["a", "b"] {
        mask.save(s.join(format!("{name}-masklabel.png"))).unwrap();
        photo.save(s.join(format!("{name}-condlabel.png"))).unwrap();
        photo.save(s.join(format!("{name}.png"))).unwrap();
    }
    let companions = "condlabel={dir}/{stem}-condlabel.png:image,masklabel={dir}/{stem}-masklabel.png";
    // As before, every image is an item.
    let ran = run(dir.path(), b"", &["s", "--out", "all"]).exits(0);
    assert_outcomes(&dir.path().join("all"), [6, 0, 0, 0]);
    ran.says(&["-masklabel.png", "s/a.png", &format!("--companion {companions}")]);
    // The option in the warning does what it says.
    let ran = run(dir.path(), b"", &["s", "--out", "two", "--companion", companions]).exits(0);
    assert_outcomes(&dir.path().join("two"), [2, 0, 0, 0]);
    assert_eq!(ran.stderr, "");
    let ran = run(dir.path(), b"", &["s", "--out", "one", "--companion", "m={stem}-masklabel.png?"]).exits(0);
    ran.says(&["-condlabel.png"]);
}

#[test]
fn parts_and_years_are_classes_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let s = dir.path().join("s");
    images(
        &s,
        &["HAM_images_part_1/ISIC_0.jpg", "HAM_images_part_1/ISIC_1.jpg", "HAM_images_part_2/ISIC_2.jpg"],
    );
    let ran = run(dir.path(), b"", &["s", "--out", "parts"]).exits(0);
    let classes = &manifest(&dir.path().join("parts"))["schema"]["class_names"];
    assert_eq!(*classes, serde_json::json!(["HAM_images_part_1", "HAM_images_part_2"]));
    ran.says(&["parts of one set", "--metadata FILE", "--layout flat"]);
    let ran = run(dir.path(), b"", &["s", "--layout", "flat", "--out", "flat"]).exits(0);
    assert_eq!(ran.stderr, "");
    images(&dir.path().join("photos"), &["2023/cat/a.jpg", "2023/emu/b.jpg", "2024/dog/c.jpg"]);
    let ran = run(dir.path(), b"", &["photos", "--out", "years"]).exits(0);
    ran.says(&["named like dates", "name them as sources"]);
    let ran = run(dir.path(), b"", &["photos/2023", "photos/2024", "--out", "folders"]).exits(0);
    assert_eq!(ran.stderr, "");
    let classes = &manifest(&dir.path().join("folders"))["schema"]["class_names"];
    assert_eq!(*classes, serde_json::json!(["cat", "dog", "emu"]));
}

#[test]
fn names_in_a_table_are_found_below_the_folder_if_they_are_unique() {
    let dir = tempfile::tempdir().unwrap();
    let s = dir.path().join("s");
    images(
        &s,
        &["part_1/I_0.jpg", "part_1/I_1.png", "part_2/I_2.jpg", "part_2/twice.jpg", "part_1/twice.jpg"],
    );
    let csv = "image_id,dx,label\nI_2,mel,b\nI_0.jpg,bkl,a\npart_1/I_1,nv,a\ntwice,nv,a\nI_9,nv,a\n";
    write(&s, &[("meta.csv", csv.as_bytes())]);
    let options = ["--metadata", "s/meta.csv", "--path-field", "image_id", "--max-rejects", "100%"];
    let ran = run(dir.path(), b"", &[&options[..], &["--out", "out"]].concat()).exits(0);
    let out = dir.path().join("out");
    assert_eq!(texts(&out, "train", "key"), ["s/part_2/I_2.jpg", "s/part_1/I_0.jpg", "s/part_1/I_1.png"]);
    assert_eq!(texts(&out, "train", "dx"), ["mel", "bkl", "nv"]);
    // The name of the third row is a path without extension.
    ran.says(&["2 rows name no file in the folder", "\"I_2\"", "\"s/part_2/I_2.jpg\""]);
    let found = rejects(&out);
    assert_eq!(found.len(), 2);
    assert!(found.iter().any(|(origin, code)| origin == "s/twice" && code == "missing-file"), "{found:?}");
    assert!(found.iter().any(|(origin, code)| origin == "s/I_9" && code == "missing-file"), "{found:?}");
    // A name that is exact needs no search.
    images(&s, &["I_0.jpg"]);
    write(&s, &[("meta.csv", b"image_id\nI_0\n")]);
    let ran = run(dir.path(), b"", &[&options[..], &["--out", "exact"]].concat()).exits(0);
    assert_eq!(texts(&dir.path().join("exact"), "train", "key"), ["s/I_0.jpg"]);
    assert_eq!(ran.stderr, "");
}

#[test]
fn official_lists_are_named_and_may_lack_extensions() {
    let dir = tempfile::tempdir().unwrap();
    let s = dir.path().join("food");
    images(&s, &["images/apple_pie/1000.jpg", "images/apple_pie/1001.jpg", "images/sushi/1000.png"]);
    write(
        &s,
        &[
            ("meta/train.txt", b"apple_pie/1000\nsushi/1000\n"),
            ("meta/test.txt", b"apple_pie/1001\n"),
            ("meta/classes.txt", b"apple_pie\nsushi\n"),
            ("meta/train-notes.txt", b"nothing is listed here\n"),
        ],
    );
    let ran = run(dir.path(), b"", &["food", "--out", "all"]).exits(0);
    ran.says(&["food/meta/test.txt", "food/meta/train.txt", "--files-from FILE"]);
    assert_outcomes(&dir.path().join("all"), [3, 0, 0, 0]);
    let list = ["food/images", "--files-from", "food/meta/train.txt", "--out", "train"];
    run(dir.path(), b"", &list).exits(0);
    let out = dir.path().join("train");
    assert_eq!(texts(&out, "train", "key"), ["images/apple_pie/1000.jpg", "images/sushi/1000.png"]);
    // Splits by hash, or by folders, need no list.
    let ran = run(dir.path(), b"", &["food", "--split", "train=0.5,test=0.5", "--out", "hash"]).exits(0);
    assert_eq!(ran.stderr, "");
    let ran = run(dir.path(), b"", &["food", "--layout", "flat", "--out", "flat"]).exits(0);
    assert_eq!(ran.stderr, "");
}

/// Writes a repository of the Hub with two configurations.
fn repository(dir: &Path, default: &str) {
    let card = format!(
        "---\nlicense: mit\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n    path: main/train-*\n  - split: \
         extra\n    path: main/test-*\n- config_name: socratic\n{default}  data_files:\n  - split: train\n    path: \
         socratic/train-*\n---\n# A card\n"
    );
    write(dir, &[("README.md", card.as_bytes())]);
    for (config, number) in [("main", 1), ("socratic", 2)] {
        for split in ["train", "test"] {
            let line = format!("{{\"text\": \"{config} {split} {number}\"}}\n");
            write(dir, &[(&format!("{config}/{split}-00000-of-00001.jsonl"), line.as_bytes())]);
        }
    }
}

#[test]
fn configurations_of_a_repository_are_not_merged() {
    let dir = tempfile::tempdir().unwrap();
    let repo = dir.path().join("repo");
    let out = |name: &str| dir.path().join(name);
    repository(&repo, "");
    let refused = convert("text", &repo, &out("no"), "--tokenizer bytes").exits(2);
    refused.says(&["several configurations", "\"main\", \"socratic\"", "--config NAME"]);
    assert!(!out("no").exists());
    // Files and splits are those of the card.
    let ran = convert("text", &repo, &out("main"), "--tokenizer bytes --config main").exits(0);
    assert!(ran.stdout.contains("by the configuration in README.md"), "{}", ran.stdout);
    let of_split = |split: &str| {
        let dataset = dsconvert::reader::Dataset::open(out("main")).unwrap();
        dataset.split(split).unwrap().len()
    };
    assert_eq!((of_split("train"), of_split("extra")), (1, 1));
    let found: Vec<String> = dsconvert::reader::Dataset::open(out("main"))
        .unwrap()
        .splits()
        .flat_map(|split| {
            split.iter().map(|record| record.unwrap().key().unwrap().to_owned()).collect::<Vec<_>>()
        })
        .collect();
    assert!(found.iter().all(|key| key.starts_with("repo/main/")), "{found:?}");
    assert_eq!(manifest(&out("main"))["options"]["config"], "main");
    assert_eq!(manifest(&out("main"))["sources"]["skipped"], 3, "the card, and the files of the other");
    convert("text", &repo, &out("x"), "--tokenizer bytes --config other").exits(2).says(&[
        "--config",
        "\"other\"",
        "\"main\", \"socratic\"",
    ]);
    convert("text", &repo.join("main"), &out("x"), "--tokenizer bytes --config main")
        .exits(2)
        .says(&["no source lists configurations"]);
    // A folder in it has no card.
    convert("text", &repo.join("socratic"), &out("folder"), "--tokenizer bytes").exits(0);
    // The default is what `datasets` loads.
    repository(&repo, "  default: true\n");
    let ran = convert("text", &repo, &out("default"), "--tokenizer bytes").exits(0);
    ran.says(&["the default, \"socratic\"", "\"main\"", "--config NAME"]);
    assert_outcomes(&out("default"), [1, 0, 0, 0]);
    convert("text", &repo, &out("chosen"), "--tokenizer bytes --config main").exits(0);
    // One configuration is the whole repository, as before.
    let one = b"---\nconfigs:\n- config_name: x\n  data_files: main/*\n---\n";
    write(&repo, &[("README.md", one)]);
    let ran = convert("text", &repo, &out("one"), "--tokenizer bytes").exits(0);
    assert_eq!(ran.stderr, "");
    assert_outcomes(&out("one"), [4, 0, 0, 0]);
    convert("text", &repo, &out("only"), "--tokenizer bytes --config x").exits(0);
    assert_outcomes(&out("only"), [2, 0, 0, 0]);
    // A card that cannot be read is no reason to merge.
    write(&repo, &[("README.md", b"---\nconfigs: [{a\n---\n")]);
    convert("text", &repo, &out("x"), "--tokenizer bytes").exits(2).says(&["README.md", "cannot be read"]);
}

#[test]
fn configurations_of_images_have_the_splits_and_classes_of_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let repo = dir.path().join("repo");
    let card = b"---\nconfigs:\n  - config_name: big\n    data_files:\n      - {split: train, path: \"big/train/**\"}\n      - split: \
                 held_out\n        path: [big/test/**]\n  - config_name: small\n    data_dir: small\n---\n";
    write(&repo, &[("README.md", card)]);
    images(
        &repo,
        &[
            "big/train/cat/a.jpg",
            "big/train/dog/b.jpg",
            "big/test/cat/c.jpg",
            "small/cat/d.jpg",
            "small/emu/e.jpg",
        ],
    );
    run(dir.path(), b"", &["repo", "--out", "no"]).exits(2).says(&["\"big\", \"small\""]);
    run(dir.path(), b"", &["repo", "--config", "big", "--out", "big"]).exits(0);
    let big = manifest(&dir.path().join("big"));
    assert_eq!(big["schema"]["class_names"], serde_json::json!(["cat", "dog"]));
    assert_eq!(big["splits"]["held_out"]["records"], 1);
    run(dir.path(), b"", &["repo", "--config", "small", "--out", "small"]).exits(0);
    let small = manifest(&dir.path().join("small"));
    assert_eq!(small["schema"]["class_names"], serde_json::json!(["cat", "emu"]));
    run(dir.path(), b"", &["repo", "--config", "big", "--files-from", "x", "--out", "x"]).exits(2);
}

#[test]
fn a_dry_run_promises_nothing_that_the_run_refuses() {
    let dir = tempfile::tempdir().unwrap();
    let s = dir.path().join("s");
    write(&s, &[("a.md", b"# A"), ("b.pdf", b"%PDF-"), ("c", b"nothing")]);
    for kind in ["images", "text --tokenizer bytes"] {
        let args = |more: &str| format!("{kind} s {more}");
        let ran = |more: &str| {
            Ran::of(command(args(more).split_whitespace()).current_dir(dir.path()).output().unwrap())
        };
        ran("--out out").exits(3).says(&["nothing was found to convert", "3 files were skipped"]);
        for more in ["--dry-run", "--dry-run --out out"] {
            let dry = ran(more).exits(0);
            dry.says(&["the run would be refused", "nothing was found to convert"]);
        }
    }
}

#[test]
fn a_split_by_hash_depends_on_the_label_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let lines: String = (0..400).map(|n| format!("{{\"id\": \"k{n}\", \"text\": \"text {n}\"}}\n")).collect();
    for folder in ["photos", "images"] {
        write(dir.path(), &[(&format!("{folder}/a.jsonl"), lines.as_bytes())]);
    }
    let keys = |source: &str, more: &str| -> (Vec<String>, String) {
        let out = dir.path().join(format!("out-{}", source.replace('=', "-")));
        let options =
            format!("text {source} --tokenizer bytes --split train=0.8,test=0.2 --overwrite {more} --out");
        let mut command = command(options.split_whitespace());
        let ran = Ran::of(command.arg(&out).current_dir(dir.path()).output().unwrap()).exits(0);
        let test = dsconvert::reader::Dataset::open(&out).unwrap().split("test").unwrap();
        let rest = |key: &str| key.rsplit('/').next().unwrap().to_owned();
        (test.iter().map(|record| rest(record.unwrap().key().unwrap())).collect(), ran.stdout)
    };
    let (photos, said) = keys("photos", "");
    assert!(said.contains("which starts with the source's label (photos; LABEL=PATH sets it)"), "{said}");
    assert!(keys("images", "").0 != photos);
    assert_eq!(keys("photos=images", "").0, photos);
    let (by_id, said) = keys("photos", "--key-field id");
    assert!(said.contains("by hash of the key\n"), "{said}");
    assert_eq!(keys("images", "--key-field id").0, by_id);
}
