//! Existing files in the output directory are neither lost nor mixed with those of a new dataset.

use crate::support::*;

#[test]
fn a_non_empty_directory_is_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("precious.txt"), "mine").unwrap();
    for options in ["--tokenizer bytes", "--tokenizer bytes --resume", "--tokenizer bytes --overwrite"] {
        convert("text", &fixture("corpus"), &out, options).exits(2).says(&["choose another --out"]);
        assert_eq!(tree(&out).into_keys().collect::<Vec<_>>(), ["precious.txt"]);
    }
}

#[test]
fn overwrite_replaces_a_dataset_and_leaves_other_files() {
    let dir = tempfile::tempdir().unwrap();
    let (out, clean) = (dir.path().join("out"), dir.path().join("clean"));
    let source = dir.path().join("c.jsonl");
    corpus(&source, 200);
    convert("text", &source, &out, "--tokenizer bytes --shard-records 20 --format arrow").exits(0);
    convert("text", &source, &out, "--tokenizer bytes").exits(2).says(&["--overwrite"]);
    std::fs::write(out.join("notes.txt"), "mine").unwrap();
    std::fs::write(out.join("train/notes.txt"), "mine").unwrap();
    convert("text", &source, &out, "--tokenizer bytes --overwrite").exits(0);
    convert("text", &source, &clean, "--tokenizer bytes").exits(0);
    let mut left = tree(&out);
    assert!(left.remove("notes.txt").is_some() && left.remove("train/notes.txt").is_some());
    assert_same(&left, &tree(&clean));
}

#[test]
fn resuming_a_complete_dataset_changes_nothing_and_needs_the_same_options_and_sources() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let source = dir.path().join("c.jsonl");
    corpus(&source, 50);
    convert("text", &source, &out, "--tokenizer bytes --resume").exits(0);
    let before = tree(&out);
    let again = convert("text", &source, &out, "--tokenizer bytes --resume --threads 1").exits(0);
    assert!(again.stdout.contains("already complete"), "{}", again.stdout);
    convert("text", &source, &out, "--tokenizer bytes --resume --shuffle").exits(2).says(&["shuffle"]);
    corpus(&source, 51);
    convert("text", &source, &out, "--tokenizer bytes --resume").exits(2).says(&["sources"]);
    assert_same(&before, &tree(&out));
}

#[test]
fn output_and_source_may_not_overlap() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("a.txt"), "text").unwrap();
    convert("text", &source, &source.join("out"), "--tokenizer bytes").exits(2).says(&["overlap"]);
    convert("text", &source, &source, "--tokenizer bytes").exits(2).says(&["overlap"]);
    assert_eq!(tree(&source).len(), 1);
}

#[test]
fn a_listed_file_may_not_be_in_the_output() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let out = dir.join("w/ds");
    copy_dir(&fixture("photos/dunes"), &dir.join("w/photos"));
    convert("images", &dir.join("w/photos"), &out, "").exits(0);
    let photo = std::fs::read_dir(dir.join("w/photos")).unwrap().next().unwrap().unwrap().path();
    std::fs::create_dir(out.join("kept")).unwrap();
    std::fs::copy(photo, out.join("kept/a.jpg")).unwrap();
    std::fs::write(dir.join("w/corpus.txt"), "text").unwrap();
    std::fs::write(dir.join("list"), "corpus.txt\nds/rejects.jsonl\n").unwrap();
    std::fs::write(dir.join("images"), "ds/kept/a.jpg\n").unwrap();
    std::fs::write(dir.join("table.csv"), "file_name\nds/kept/a.jpg\n").unwrap();
    // Links to a folder and to a file in the output.
    for (source, link, target) in [("into", "link", "kept"), ("file", "link.jsonl", "rejects.jsonl")] {
        std::fs::create_dir(dir.join(source)).unwrap();
        std::os::unix::fs::symlink(out.join(target), dir.join(source).join(link)).unwrap();
    }
    let before = tree(dir);
    for line in [
        "text w --files-from list -t bytes",
        "images w --files-from images",
        "images w --metadata table.csv",
        "images into --follow-symlinks",
        "text file --follow-symlinks -t bytes",
        "plan images w --files-from images",
    ] {
        let run = |options: &str| {
            let line = format!("{line} --out w/ds {options}");
            Ran::of(command(line.split_whitespace()).current_dir(dir).output().unwrap())
        };
        run("--overwrite").exits(2).says(&["w/ds: the output directory and the source", "overlap"]);
        assert_same(&tree(dir), &before);
        let dry = run("--overwrite --dry-run").exits(0).says(&["would be refused", "overlap"]);
        assert_eq!(dry.stderr.matches("would be refused").count(), 1, "{}", dry.stderr);
    }
    // Not in the output, in spite of its name; and a name without a file.
    std::os::unix::fs::symlink("w/ds", dir.join("other")).unwrap();
    std::fs::write(dir.join("list"), "photos/../photos/none.txt\ncorpus.txt\nds/none.txt\n").unwrap();
    let mut command =
        command(["text", "w", "--files-from", "list", "-t", "bytes", "--out", "other", "--overwrite"]);
    let ran = Ran::of(command.args(["--max-rejects", "2"]).current_dir(dir).output().unwrap());
    ran.exits(0);
    assert_eq!(only_texts(&out), ["text"]);
}

#[test]
fn a_file_that_an_option_names_may_not_be_in_the_dataset_that_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::copy(fixture("tokenizers/wordpiece.json"), dir.join("tokenizer.json")).unwrap();
    std::fs::create_dir_all(dir.join("w/photos")).unwrap();
    std::fs::write(dir.join("w/a.txt"), "text").unwrap();
    let out = dir.join("ds");
    convert("text", &dir.join("w"), &out, &format!("-t {}", dir.join("tokenizer.json").display())).exits(0);
    std::fs::write(out.join("list"), "a.txt\n").unwrap();
    std::fs::write(out.join("table.csv"), "file_name\na.jpg\n").unwrap();
    std::os::unix::fs::symlink("ds/tokenizer.json", dir.join("link.json")).unwrap();
    let before = tree(dir);
    for (line, parts) in [
        ("text w -t ds", ["--tokenizer: ", "tokenizer.json"]),
        ("text w -t link.json", ["--tokenizer: ", "link.json"]),
        ("text w -t bytes --files-from ds/list", ["--files-from: ", "ds/list"]),
        ("images w --metadata ds/table.csv", ["--metadata: ", "ds/table.csv"]),
        ("images w --classes ds/list", ["--classes: ", "ds/list"]),
    ] {
        let line = format!("{line} --out ds --overwrite");
        let ran = Ran::of(command(line.split_whitespace()).current_dir(dir).output().unwrap());
        ran.exits(2).says(&parts).says(&["copy it to another place"]);
        assert_same(&tree(dir), &before);
    }
    // A resumed run removes nothing.
    convert("text", &dir.join("w"), &out, &format!("-t {} --resume", out.display())).exits(0);
}

#[test]
fn a_dry_run_prints_the_plan_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let ran = convert("images", &fixture("photos"), &out, "--dry-run").exits(0);
    for word in ["items", "units", "bytes", "classes"] {
        assert!(ran.stdout.contains(word), "{}", ran.stdout);
    }
    assert!(!out.exists());
}

#[test]
fn a_dry_run_warns_of_a_resume_that_would_be_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("in"), dir.path().join("out"));
    std::fs::create_dir(&source).unwrap();
    for name in ["a.txt", "b.txt"] {
        std::fs::write(source.join(name), "some words").unwrap();
    }
    let run = |options: &str| convert("text", &source, &out, &format!("--tokenizer bytes {options}"));
    // A plan without converted units, as after a run that was interrupted early.
    let mut plan = command(["plan", "text"]);
    plan.arg(&source).arg("--out").arg(&out).args(["--tokenizer", "bytes"]);
    Ran::of(plan.output().unwrap()).exits(0);
    let dry = |options: &str| run(&format!("--resume --dry-run {options}")).exits(0).stderr;
    assert_eq!(dry(""), "");
    let refused = dry("--max-length 3");
    assert!(
        refused.contains("would be refused: cannot resume: --max-length was not given and is now 3; repeat"),
        "{refused}"
    );
    std::fs::remove_file(source.join("b.txt")).unwrap();
    let refused = dry("");
    assert!(refused.contains("cannot resume: the source file in/b.txt is gone; restore"), "{refused}");
    std::fs::write(source.join("b.txt"), "some words").unwrap();
    let refused = dry("");
    assert!(refused.contains("the source file in/b.txt was written to since; restore"), "{refused}");
    run("--overwrite").exits(0);
    assert_eq!(dry(""), "");
    let refused = dry("--max-length 3");
    assert!(refused.contains("would be refused: ") && refused.contains("already exists, but"), "{refused}");
}

#[test]
fn strict_reports_rejects_by_the_exit_status() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    corpus(&source, 50);
    let mut text = std::fs::read_to_string(&source).unwrap();
    text.push_str("not json\n");
    std::fs::write(&source, text).unwrap();
    convert("text", &source, &dir.path().join("a"), "--tokenizer bytes --strict").exits(1);
    convert("text", &source, &dir.path().join("b"), "--tokenizer bytes").exits(0);
    assert_outcomes(&dir.path().join("a"), [50, 0, 0, 1]);
}
