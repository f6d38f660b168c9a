//! Images without labels: the reason, the way to get some, and `--label-field`.

use std::path::Path;

use crate::images_sources::{image, texts};
use crate::support::*;

/// Runs `dsconvert images` with these arguments in the folder `dir`.
fn run(dir: &Path, args: &str) -> Ran {
    let mut command = command(["images"]);
    command.args(args.split_whitespace()).current_dir(dir);
    Ran::of(command.output().unwrap())
}

/// The lines of the summary that start with "no labels".
fn reasons(ran: &Ran) -> Vec<String> {
    let lines = ran.stdout.lines().chain(ran.stderr.lines()).map(str::trim);
    lines.filter(|line| line.starts_with("no labels")).map(str::to_owned).collect()
}

fn put(dir: &Path, name: &str, bytes: &[u8]) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

fn photos() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (number, name) in ["flat/a.png", "flat/b.jpg", "p/cat/a.png", "p/dog/b.jpg"].iter().enumerate() {
        put(dir.path(), name, &image(number));
    }
    let table = "filename,class,note\na.png,cat,x\nb.jpg,dog,y\n";
    put(dir.path(), "flat/t.csv", table.as_bytes());
    put(dir.path(), "flat/l.csv", table.replace("class", "label").as_bytes());
    dir
}

#[test]
fn the_summary_says_why_there_are_no_labels() {
    let photos = photos();
    let table = "--metadata flat/t.csv --path-field filename";
    let cases = [
        ("flat", "the images are in no class folders; make a folder for each class"),
        ("flat/a.png flat/b.jpg", "the images are in no class folders"),
        ("p/cat p/dog", "sources are not classes; if the 2 folders are, give p as the source"),
        (
            "p/cat other=flat",
            "sources are not classes; if the 2 folders are, give the folder that holds them",
        ),
        ("p --layout flat", "with --layout flat, folders have no meaning"),
        (table, "there is no column \"label\"; --label-field names another one: \"class\", \"note\""),
        (&format!("{table} --keep-fields note"), "--label-field names another one, such as \"note\""),
    ];
    for (number, (args, reason)) in cases.iter().enumerate() {
        for dry in ["", "--dry-run"] {
            let ran = run(photos.path(), &format!("{args} --out o{number} {dry}")).exits(0);
            let found = reasons(&ran);
            assert!(found.len() == 1 && found[0].contains(reason), "{args} {dry}: {found:?}");
        }
        let ran = run(photos.path(), &format!("{args} --out p{number} --quiet")).exits(0);
        assert!(reasons(&ran).is_empty() && ran.stdout.is_empty(), "{}", ran.stdout);
    }
    for args in ["p", "--metadata flat/l.csv --path-field filename"] {
        let ran = run(photos.path(), &format!("{args} --out l --overwrite")).exits(0);
        assert!(reasons(&ran).is_empty() && ran.stdout.contains("2 classes"), "{}", ran.stdout);
    }
}

#[test]
fn a_column_of_a_table_holds_the_classes() {
    let photos = photos();
    let out = photos.path().join("o");
    run(photos.path(), "--metadata flat/t.csv --path-field filename --label-field class --out o").exits(0);
    let made = manifest(&out);
    let schema = &made["schema"];
    assert_eq!(schema["class_names"], serde_json::json!(["cat", "dog"]));
    assert_eq!(texts(&out, "train", "label"), ["Int(0)", "Int(1)"]);
    assert_eq!(texts(&out, "train", "note"), ["x", "y"]);
    // It is part of the recipe, which another dataset takes over.
    assert_eq!(manifest(&out)["options"]["label_field"], "class");
    run(photos.path(), "--metadata flat/t.csv --like o --out like").exits(0);
    let like = manifest(&photos.path().join("like"));
    assert_eq!((&like["schema"], &like["options"]["label_field"]), (schema, &"class".into()));

    let refused = [
        ("--metadata flat/t.csv --path-field filename --label-field clas", "did you mean \"class\"?"),
        (
            "--metadata flat/t.csv --path-field filename --label-field filename",
            "holds the paths of the images",
        ),
        (
            "--metadata flat/l.csv --path-field filename --label-field note",
            "there is a column \"label\" beside",
        ),
        ("flat --label-field class", "no table describes or contains the images"),
    ];
    for (args, message) in refused {
        run(photos.path(), &format!("{args} --out no")).exits(2).says(&["--label-field", message]);
        assert!(!photos.path().join("no").exists(), "{args}");
    }
}

/// The columns of a table beside the images, and of a table with images.
#[test]
fn tables_that_are_found_have_a_column_of_classes() {
    let photos = photos();
    put(photos.path(), "beside/a.png", &image(0));
    put(photos.path(), "beside/metadata.csv", b"file_name,class\na.png,cat\n");
    run(photos.path(), "beside --label-field class --out o").exits(0);
    assert_eq!(manifest(&photos.path().join("o"))["schema"]["class_names"], serde_json::json!(["cat"]));

    run(photos.path(), "beside --metadata none --out plain").exits(0);
    let ran = run(photos.path(), "plain/train --out again").exits(0);
    assert!(reasons(&ran)[0].contains("there is no column \"label\""), "{}", ran.stdout);
    run(photos.path(), "plain/train --label-field width --out no").exits(0);
    run(photos.path(), "plain/train --label-field image --out no2").exits(2).says(&["holds no classes"]);
}
