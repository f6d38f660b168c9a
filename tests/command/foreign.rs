//! Data of other tools as sources: the message names the tool and the way. Patterns of images.

use std::path::Path;

use crate::support::*;

fn write(dir: &Path, name: &str, bytes: &[u8]) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

fn run(dir: &Path, args: &str) -> Ran {
    let output = command(args.split_whitespace()).current_dir(dir).output().unwrap();
    Ran::of(output)
}

#[test]
fn data_of_other_tools_is_refused_with_its_name_and_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let mds =
        br#"{"shards": [{"format": "mds", "raw_data": {"basename": "shard.00000.mds"}}], "version": 2}"#;
    write(dir.path(), "mds/index.json", mds);
    write(dir.path(), "mds/shard.00000.mds", b"\x01\0\0\0");
    write(dir.path(), "nested/train/index.json", mds);
    write(dir.path(), "mega/a.idx", b"MMIDIDX\0\0\x01");
    write(dir.path(), "mega/a.bin", b"\x07\x01\x09\0");
    write(dir.path(), "gpt/train.bin", b"\x07\x01\x09\0");
    write(dir.path(), "tfds/features.json", br#"{"pythonClassName": "tensorflow_datasets.core"}"#);
    write(dir.path(), "tfds/label.labels.txt", b"cat\n");
    let text = "-t bytes --out o";
    for (args, status, parts) in [
        (format!("text mds {text}"), 2, &["mds", "MosaicML Streaming (MDS)", "StreamingDataset"][..]),
        ("images mds --out o".to_owned(), 2, &["MosaicML Streaming (MDS)", "StreamingDataset"]),
        ("images mds/shard.00000.mds --out o".to_owned(), 2, &["MosaicML Streaming (MDS)"]),
        (format!("plan text mds {text}"), 2, &["MosaicML Streaming (MDS)"]),
        (format!("text nested {text}"), 3, &["nothing was found", "nested/train is", "MosaicML"]),
        ("images nested --out o".to_owned(), 3, &["nested/train is", "MosaicML", "StreamingDataset"]),
        (format!("text mega/a.bin {text}"), 2, &["Megatron-LM", "token ids", "add --ids-field ids"]),
        (format!("text mega/a.idx {text}"), 2, &["Megatron-LM", "add --ids-field ids"]),
        (format!("text mega/a.bin --input-format txt {text}"), 2, &["Megatron-LM", "export"]),
        (format!("text mega/*.bin --input-format txt {text}"), 2, &["Megatron-LM"]),
        (format!("text gpt/train.bin --input-format txt {text}"), 2, &["nanoGPT", "same tokenizer"]),
        (format!("text tfds {text}"), 2, &["TensorFlow Datasets", "tfds.load"]),
        (format!("text hf://datasets/org/name {text}"), 2, &["hf download org/name --repo-type dataset"]),
        ("images org/name --out o".to_owned(), 2, &["no such source", "hf download org/name"]),
        ("inspect mds".to_owned(), 3, &["not a dataset of dsconvert", "MosaicML Streaming (MDS)"]),
        ("inspect org/name".to_owned(), 3, &["hf download org/name"]),
    ] {
        run(dir.path(), &args).exits(status).says(parts);
        assert!(!dir.path().join("o").exists(), "{args}");
    }
    // One such file among others hides nothing.
    write(dir.path(), "mixed/a.txt", b"text");
    write(dir.path(), "mixed/more/index.json", mds);
    run(dir.path(), "text mixed -t bytes --out mixed-out").exits(0);
    assert_eq!(only_texts(&dir.path().join("mixed-out")), ["text"]);
}

#[test]
fn quoted_patterns_of_images_are_what_a_shell_makes_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let png = std::fs::read(
        fixture("photos")
            .read_dir()
            .unwrap()
            .flat_map(|entry| entry.unwrap().path().read_dir().into_iter().flatten())
            .map(|entry| entry.unwrap().path())
            .find(|path| path.extension().is_some_and(|extension| extension == "png" || extension == "jpg"))
            .unwrap(),
    )
    .unwrap();
    for name in ["photos/cat/a.jpg", "photos/cat/b.jpg", "photos/dog/c.jpg"] {
        write(dir.path(), name, &png);
    }
    write(dir.path(), "photos/cat/notes.txt", b"no image");
    run(dir.path(), "images photos/*/*.jpg --out quoted").exits(0);
    assert_outcomes(&dir.path().join("quoted"), [3, 0, 0, 0]);
    let keys = |name: &str| {
        records(&dir.path().join(name)).iter().map(|r| r.key().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(keys("quoted"), ["cat/a.jpg", "cat/b.jpg", "dog/c.jpg"]);
    // Other files that match are skipped and counted, as of text.
    run(dir.path(), "images photos/** --out all").exits(0);
    assert_outcomes(&dir.path().join("all"), [3, 0, 0, 0]);
    run(dir.path(), "images photos/cat/* --out cats").exits(0);
    assert_eq!(manifest(&dir.path().join("cats"))["sources"]["skipped"], 1);
    run(dir.path(), "images photos/*.gif --out none").exits(2).says(&["nothing matches this pattern"]);
    // Folders that match are folders of a class each, as with a shell.
    run(dir.path(), "images photos/* --out folders").exits(0);
    run(dir.path(), "images photos/cat photos/dog --out shell").exits(0);
    assert_eq!(keys("folders"), keys("shell"));
    assert_eq!(
        manifest(&dir.path().join("folders"))["schema"]["class_names"],
        manifest(&dir.path().join("shell"))["schema"]["class_names"]
    );
}

#[test]
fn words_that_are_no_commands_and_options_of_other_tools_get_tips() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "PHOTOS/a.jpg", b"x");
    for (args, parts) in [
        ("PHOTOS", &["'dsconvert images PHOTOS --out DIR'", "'dsconvert text PHOTOS"][..]),
        ("image PHOTOS --out o", &["use 'dsconvert images SRC --out DIR'"]),
        ("verify PHOTOS", &["use 'dsconvert inspect DATASET --verify'"]),
        ("info PHOTOS", &["use 'dsconvert inspect DATASET'"]),
        ("images PHOTOS --out o --field text", &["use '--keep-fields text'"]),
        ("text PHOTOS --out o -t bytes --field body", &["use '--text-field body'"]),
        ("text PHOTOS --out o -t bytes --train-on-last-turn", &["use '--train-on last'"]),
    ] {
        let ran = run(dir.path(), args).exits(2);
        assert!(!ran.stderr.contains("similar subcommands"), "{}", ran.stderr);
        ran.says(parts);
    }
}
