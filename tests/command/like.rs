//! `--like` converts with the options of another dataset, and `inspect --recipe` prints the command that made it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::*;

/// Runs what `inspect --recipe` prints for `dataset` in `dir`, with the placeholders replaced. Returns the fingerprint.
fn run_recipe(dataset: &Path, dir: &Path, placeholders: &[(&str, &str)]) -> String {
    let printed = Ran::of(command(["inspect", "--recipe"]).arg(dataset).output().unwrap()).exits(0).stdout;
    let out = dir.join(format!("{}-again", dataset.file_name().unwrap().to_str().unwrap()));
    let mut script = printed.replace("OUT", out.to_str().unwrap());
    for (placeholder, value) in placeholders {
        script = script.replace(placeholder, value);
    }
    let path = Path::new(env!("CARGO_BIN_EXE_dsconvert")).parent().unwrap();
    let path = format!("{}:{}", path.display(), std::env::var("PATH").unwrap());
    let ran = Command::new("sh").args(["-ec", &script]).current_dir(dir).env("PATH", path).output().unwrap();
    let ran = Ran::of(ran);
    assert_eq!(ran.status, 0, "{script}\n{}", ran.stderr);
    fingerprint(&out)
}

fn fingerprint(dataset: &Path) -> String {
    manifest(dataset)["fingerprint"].as_str().unwrap().to_owned()
}

/// A folder with lines of JSON, text files and a tokenizer.
fn text_sources(dir: &Path) {
    corpus(&dir.join("docs.jsonl"), 40);
    copy_dir(&fixture("corpus"), &dir.join("corpus"));
    std::fs::copy(fixture("tokenizers/bpe.json"), dir.join("bpe.json")).unwrap();
}

/// Runs the command in `dir`.
fn run(dir: &Path, args: &[&str]) -> Ran {
    Ran::of(command(args).current_dir(dir).output().unwrap())
}

#[test]
fn the_printed_command_makes_the_same_text() {
    let dir = tempfile::tempdir().unwrap();
    text_sources(dir.path());
    let cases: [&[&str]; 5] = [
        &[
            "docs.jsonl",
            "--tokenizer",
            "bytes",
            "--key-field",
            "id",
            "--dedup",
            "exact",
            "--shuffle",
            "--seed",
            "5",
            "--split",
            "train=0.5,test=0.5",
            "--shard-bytes",
            "8k",
            "--unit-bytes",
            "4096",
            "--max-document-bytes",
            "1MiB",
            "--format",
            "msgpack",
            "--input-format",
            "jsonl",
            "--keep-fields",
            "id:string",
            "--shard-records",
            "7",
            "--add-bos",
        ],
        &["corpus", "--tokenizer", "bpe.json", "--pack", "64", "--add-eos", "--eos-token", "<|endoftext|>"],
        &[
            "corpus",
            "--tokenizer",
            "bpe.json",
            "--pack",
            "64",
            "--packing",
            "concat",
            "--filter-length",
            "4:",
            "--invalid-utf8",
            "replace",
            "--normalize",
            "nfc",
            "--special-in-text",
            "parse",
        ],
        &[
            "corpus",
            "--tokenizer",
            "bpe.json",
            "--max-length",
            "16",
            "--overflow",
            "split:4",
            "--layout",
            "flat",
            "--follow-symlinks",
            "--encoding",
            "windows-1252",
            "--documents",
            r"separator:\n---\n' ",
        ],
        &[
            "corpus",
            "--tokenizer",
            "bpe.json",
            "--max-length",
            "16",
            "--engine",
            "reference",
            "--verify-ids",
            "all",
            "--max-reference-bytes",
            "1MiB",
            "--documents",
            "blank-line",
        ],
    ];
    for (i, args) in cases.iter().enumerate() {
        let out = dir.path().join(format!("text-{i}"));
        run(dir.path(), &[&["text"], *args, &["--out", out.to_str().unwrap()]].concat()).exits(0);
        assert_eq!(run_recipe(&out, dir.path(), &[("SRC…", args[0])]), fingerprint(&out), "{args:?}");
        // On the same sources, the options are the same, too.
        let like = dir.path().join(format!("text-{i}-like"));
        let like = [args[0], "--like", out.to_str().unwrap(), "--out", like.to_str().unwrap()];
        let ran = run(dir.path(), &[&["text"], &like[..]].concat()).exits(0);
        assert_eq!(fingerprint(Path::new(like[4])), fingerprint(&out), "{args:?}");
        assert!(!ran.stderr.contains("was "), "{}", ran.stderr);
    }
}

/// A folder with two classes of images, a table and a list of them, and names of classes.
fn image_sources(dir: &Path) {
    copy_dir(&fixture("photos"), &dir.join("photos"));
    let files: Vec<PathBuf> = tree(&dir.join("photos")).into_keys().map(PathBuf::from).collect();
    let names: Vec<&str> =
        files.iter().filter_map(|file| file.to_str()).filter(|name| name.ends_with(".jpg")).take(8).collect();
    std::fs::write(dir.join("list"), names.join("\n")).unwrap();
    let rows: String =
        names.iter().enumerate().map(|(i, name)| format!("{name},c{},n{i}\n", i % 2)).collect();
    std::fs::write(dir.join("table.csv"), format!("path,label,note\n{rows}")).unwrap();
    let mut classes: Vec<String> = files
        .iter()
        .filter_map(|file| Some(file.parent()?.to_str()?.to_owned()))
        .filter(|c| !c.is_empty())
        .collect();
    classes.sort();
    classes.dedup();
    classes.reverse();
    std::fs::write(dir.join("names"), classes.join("\n")).unwrap();
}

#[test]
fn the_printed_command_makes_the_same_images() {
    let dir = tempfile::tempdir().unwrap();
    image_sources(dir.path());
    let cases: [&[&str]; 6] = [
        &["photos"],
        &[
            "photos",
            "--resize",
            "shorter:32",
            "--enlarge",
            "--filter",
            "box",
            "--crop",
            "center:24x24",
            "--pad",
            "40x40:gray",
            "--color",
            "rgba",
            "--encode",
            "png",
            "--icc",
            "drop",
            "--animated",
            "reject",
            "--keep-metadata",
            "--lenient",
            "--max-pixels",
            "100000000",
            "--min-size",
            "2",
            "--max-aspect",
            "9.5",
            "--min-pixels",
            "3",
            "--dedup",
            "bytes",
            "--shuffle",
            "--split",
            "train=0.5,validation=0.5",
            "--layout",
            "flat",
            "--max-rejects",
            "100%",
        ],
        &[
            "photos",
            "--resize",
            "longer:32",
            "--background",
            "black",
            "--encode",
            "jpeg:80:444",
            "--baseline",
            "--restart-interval",
            "4",
            "--classes",
            "names",
        ],
        &["photos", "--files-from", "list", "--encode", "keep"],
        &[
            "photos",
            "--metadata",
            "table.csv",
            "--path-field",
            "path",
            "--keep-fields",
            "note",
            "--encode",
            "keep",
        ],
        &["photos", "--metadata", "none", "--sidecar", "none", "--encode", "keep"],
    ];
    let placeholders = [("SRC…", "photos"), ("LIST", "list"), ("TABLE", "table.csv")];
    for (i, args) in cases.iter().enumerate() {
        let out = dir.path().join(format!("images-{i}"));
        run(dir.path(), &[&["images"], *args, &["--out", out.to_str().unwrap()]].concat()).exits(0);
        assert_eq!(run_recipe(&out, dir.path(), &placeholders), fingerprint(&out), "{args:?}");
    }
}

#[test]
fn replaced_options_and_the_tokenizer_are_named() {
    let dir = tempfile::tempdir().unwrap();
    text_sources(dir.path());
    let path = |name: &str| dir.path().join(name);
    let first =
        ["text", "corpus", "--tokenizer", "bpe.json", "--max-length", "16", "--shuffle", "--out", "first"];
    run(dir.path(), &first).exits(0);
    // The tokenizer is that of the dataset, wherever the first one was.
    std::fs::remove_file(path("bpe.json")).unwrap();
    let second =
        ["text", "corpus", "--like", "first", "--max-length", "24", "--overflow", "split", "--out", "second"];
    run(dir.path(), &second).exits(0).says(&[
        "--max-length was 16 in first and is 24 here",
        "--overflow was truncate in first and is split here",
    ]);
    let (one, two) = (manifest(&path("first")), manifest(&path("second")));
    assert_eq!(one["tokenizer"], two["tokenizer"]);
    assert_eq!(two["options"]["max_length"], 24);
    assert_eq!(two["options"]["overflow"], "split");
    assert_eq!(two["options"]["output"]["shuffle"], true);
    // A value that the dataset has already is not replaced.
    let third = ["text", "corpus", "--like", "first", "--max-length", "16", "--out", "third"];
    assert!(!run(dir.path(), &third).exits(0).stderr.contains("max-length"));
    assert_eq!(fingerprint(&path("third")), fingerprint(&path("first")));
    // Without the dataset, the option that another one needs is missing.
    run(dir.path(), &["text", "corpus", "--tokenizer", "bytes", "--overflow", "split", "--out", "x"])
        .exits(2)
        .says(&["--max-length"]);
    run(dir.path(), &["text", "corpus", "--tokenizer", "bytes", "--out", "plain"]).exits(0);
    run(dir.path(), &["text", "corpus", "--like", "plain", "--overflow", "split", "--out", "x"])
        .exits(2)
        .says(&["--overflow applies only with --max-length"]);
    run(dir.path(), &["images", "corpus", "--like", "first", "--out", "x"])
        .exits(2)
        .says(&["holds text, not images"]);
    run(dir.path(), &["text", "corpus", "--out", "x"]).exits(2).says(&["--tokenizer"]);
    run(dir.path(), &["text", "corpus", "--like", "corpus", "--out", "x"]).says(&["--like"]);
}

#[test]
fn labels_keep_their_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let image = std::fs::read(
        tree(&fixture("photos")).into_keys().map(|n| fixture("photos").join(n)).next().unwrap(),
    )
    .unwrap();
    let folder = |name: &str, classes: &[&str]| {
        for class in classes {
            std::fs::create_dir_all(path(name).join(class)).unwrap();
            std::fs::write(path(name).join(class).join("a.jpg"), &image).unwrap();
        }
    };
    folder("animals", &["cat", "dog", "owl"]);
    folder("more", &["dog", "owl"]);
    let options = ["--resize", "shorter:16", "--format", "arrow"];
    run(dir.path(), &[&["images", "animals", "--out", "first"], &options[..]].concat()).exits(0);
    let like = ["images", "more", "--like", "first", "--resize", "shorter:8", "--out", "second"];
    run(dir.path(), &like)
        .exits(0)
        .says(&["--resize was shorter:16 in first and is shorter:8 here", "the classes are those of first"]);
    let (one, two) = (manifest(&path("first")), manifest(&path("second")));
    assert_eq!(two["schema"]["class_names"], one["schema"]["class_names"]);
    assert_eq!(two["format"], "arrow");
    let label = |name: &str, class: &str| {
        let of = |record: &dsconvert::reader::Record| record.origin().unwrap().contains(class);
        records(&path(name)).iter().find(|record| of(record)).unwrap().label()
    };
    assert_eq!(label("second", "dog"), label("first", "dog"));
    // A class that the first dataset does not have is no label of it.
    folder("more", &["fox"]);
    let other = ["images", "more", "--like", "first", "--out", "third"];
    run(dir.path(), &other).exits(3).says(&["fox"]);
    // A plan has the same options.
    std::fs::remove_dir_all(path("more/fox")).unwrap();
    run(dir.path(), &["plan", "images", "more", "--like", "second", "--out", "planned"]).exits(0);
    run(dir.path(), &["run", "planned"]).exits(0);
    run(dir.path(), &["merge", "planned"]).exits(0);
    assert_eq!(fingerprint(&path("planned")), fingerprint(&path("second")));
}

#[test]
fn what_is_not_in_the_dataset_is_said() {
    let dir = tempfile::tempdir().unwrap();
    image_sources(dir.path());
    let table = ["--metadata", "table.csv", "--path-field", "path", "--encode", "keep"];
    run(dir.path(), &[&["images", "photos", "--out", "rows"], &table[..]].concat()).exits(0);
    run(dir.path(), &["images", "photos", "--files-from", "list", "--encode", "keep", "--out", "listed"])
        .exits(0);
    let dry = |like: &str, more: &[&str]| {
        run(dir.path(), &[&["images", "photos", "--dry-run", "--like", like], more].concat())
    };
    dry("listed", &["--layout", "flat"])
        .says(&["made from a list of files, which it does not contain", "--files-from"]);
    dry("rows", &[]).says(&["made from a table, which it does not contain", "--metadata"]);
    // The column with the paths is that of the dataset.
    let again = ["images", "photos", "--like", "rows", "--metadata", "table.csv", "--out", "again"];
    run(dir.path(), &again).exits(0);
    assert_eq!(
        manifest(&dir.path().join("again"))["options"]["metadata"],
        manifest(&dir.path().join("rows"))["options"]["metadata"]
    );
}
