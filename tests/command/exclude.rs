//! `--exclude` leaves out the items that another dataset has: by key or, with `--dedup`, by content.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::remote_setup::{OUT, Setup};
use crate::support::*;

/// Runs `dsconvert ARGS` in `dir`; `args` is split at whitespace.
fn run_in(dir: &Path, args: &str) -> Ran {
    Ran::of(command(args.split_whitespace()).current_dir(dir).output().unwrap())
}

/// Writes a jsonl file with the given ids; the text of an id is always the same.
fn lines(path: &Path, ids: impl Iterator<Item = u32>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let line = |id: u32| json!({"id": format!("doc-{id}"), "text": text_of(id)}).to_string() + "\n";
    std::fs::write(path, ids.map(line).collect::<String>()).unwrap();
}

fn text_of(id: u32) -> String {
    format!("text {id} ").repeat(id as usize % 7 + 1)
}

/// The texts of a range of ids, in order.
fn texts_of(ids: impl Iterator<Item = u32>) -> Vec<String> {
    ids.map(text_of).collect()
}

/// The lines of `filtered.jsonl` as (origin, reason).
fn filtered(out: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(out.join("filtered.jsonl")).unwrap();
    let part = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|line| (part(&line, "origin"), part(&line, "reason"))).collect()
}

#[test]
fn what_was_added_to_a_folder_is_converted_alone() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = dir.path().join("corpus");
    lines(&corpus.join("a.jsonl"), 0..40);
    for format in FORMATS {
        lines(&corpus.join("a.jsonl"), 0..40);
        let _ = std::fs::remove_file(corpus.join("b.jsonl"));
        let old = format!("old-{format}");
        run_in(dir.path(), &format!("text corpus --out {old} --tokenizer bytes --format {format} --shuffle"))
            .exits(0);
        // One file grew, and one is new.
        lines(&corpus.join("a.jsonl"), 0..50);
        lines(&corpus.join("b.jsonl"), 100..130);
        let mut trees = Vec::new();
        for threads in [1, 4] {
            let new = dir.path().join(format!("new-{format}-{threads}"));
            let ran = run_in(
                dir.path(),
                &format!(
                    "text corpus --like {old} --exclude {old} --unit-bytes 4096 --threads {threads} --out {}",
                    new.display()
                ),
            );
            let ran = ran.exits(0);
            assert!(ran.stdout.contains("40 of 80 items converted, 40 filtered"), "{}", ran.stdout);
            assert!(ran.stdout.contains("  40 items in the excluded dataset\n"), "{}", ran.stdout);
            trees.push(tree(&new));
            let found: BTreeSet<String> = only_texts(&new).into_iter().collect();
            assert_eq!(found, texts_of((40..50).chain(100..130)).into_iter().collect());
            assert_outcomes(&new, [40, 40, 0, 0]);
            assert!(filtered(&new).iter().all(|(_, reason)| reason == "excluded"));
            let (new, old) = (manifest(&new), manifest(&dir.path().join(&old)));
            assert_eq!(new["notes"]["excluded"], 40);
            assert_eq!(new["options"]["exclude"], json!([old["fingerprint"]]));
        }
        assert_same(&trees[0], &trees[1]);
    }
}

#[test]
fn keys_are_compared_whole_and_the_label_is_part_of_them() {
    let dir = tempfile::tempdir().unwrap();
    lines(&dir.path().join("week1/a.jsonl"), 0..9);
    lines(&dir.path().join("week2/a.jsonl"), 0..9);
    run_in(dir.path(), "text week1 --out old --tokenizer bytes").exits(0);
    // Another label: none of the keys is the same.
    let ran = run_in(dir.path(), "text week2 --out other --like old --exclude old").exits(0);
    assert!(ran.stdout.contains("warning: no item is in the excluded dataset"), "{}", ran.stdout);
    assert_outcomes(&dir.path().join("other"), [9, 0, 0, 0]);
    // The same label: all of them are.
    let ran = run_in(dir.path(), "text week1=week2 --out same --like old --exclude old").exits(4);
    let ran = ran.says(&["9 filtered", "nothing new"]);
    assert!(!ran.stderr.contains("error"), "{}", ran.stderr);
    assert!(!dir.path().join("same/manifest.json").exists());
    // A field: the folder does not matter, and neither does the place in a file.
    run_in(dir.path(), "text week1 --out by-id --tokenizer bytes --key-field id").exits(0);
    lines(&dir.path().join("week2/a.jsonl"), (5..15).rev());
    run_in(dir.path(), "text week2 --out new-ids --like by-id --exclude by-id").exits(0);
    assert_eq!(only_texts(&dir.path().join("new-ids")), texts_of((9..15).rev()));
    // Keys of another kind can never be the same.
    run_in(dir.path(), "text week2 --out x --tokenizer bytes --exclude by-id").exits(2).says(&[
        "--exclude",
        "the field \"id\"",
        "file names and positions",
        "--like by-id",
    ]);
}

#[test]
fn pieces_stand_for_their_document_and_several_datasets_may_overlap() {
    let dir = tempfile::tempdir().unwrap();
    lines(&dir.path().join("s/a.jsonl"), 0..30);
    for (name, ids) in [("one", 0..12), ("two", 8..20)] {
        lines(&dir.path().join("part.jsonl"), ids);
        let options = "--tokenizer bytes --key-field id --max-length 9 --overflow split:2 --shard-records 7";
        run_in(dir.path(), &format!("text part.jsonl --out {name} {options}")).exits(0);
    }
    let records = records(&dir.path().join("one"));
    assert!(records.len() > 12 && records.iter().any(|record| record.key() == Some("doc-5@0")));
    let options = "--tokenizer bytes --key-field id --exclude one --exclude two";
    run_in(dir.path(), &format!("text s --out new {options} --exclude one")).exits(0);
    let new = dir.path().join("new");
    assert_eq!(only_texts(&new), texts_of(20..30));
    assert_eq!(manifest(&new)["options"]["exclude"].as_array().unwrap().len(), 2);
    // The order of the datasets does not matter.
    run_in(dir.path(), "text s --out again --tokenizer bytes --key-field id --exclude two --exclude one")
        .exits(0);
    assert_same(&tree(&new), &tree(&dir.path().join("again")));
}

/// Starts the command, kills it with SIGKILL after a while, and repeats until it ends. Returns the number of kills.
fn kill_until_done(dir: &Path, args: &str) -> u64 {
    let mut kills = 0;
    loop {
        let mut command = command(args.split_whitespace());
        command.current_dir(dir).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // Longer each time, so that a late one finishes even on a slow machine.
        std::thread::sleep(Duration::from_millis(10 + kills * 6));
        match child.try_wait().unwrap() {
            Some(status) => {
                assert!(status.success());
                return kills;
            }
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                kills += 1;
            }
        }
    }
}

#[test]
fn killed_runs_and_parts_have_the_bytes_of_a_single_run() {
    let dir = tempfile::tempdir().unwrap();
    lines(&dir.path().join("s/a.jsonl"), (0..4000).filter(|id| id % 3 == 0));
    let options = "--tokenizer bytes --key-field id --unit-bytes 8192";
    run_in(dir.path(), &format!("text s --out old {options}")).exits(0);
    lines(&dir.path().join("s/a.jsonl"), 0..4000);
    run_in(dir.path(), &format!("text s --out whole {options} --exclude old")).exits(0);
    let whole = tree(&dir.path().join("whole"));
    assert_eq!(only_texts(&dir.path().join("whole")), texts_of((0..4000).filter(|id| id % 3 != 0)));

    let kills = kill_until_done(
        dir.path(),
        &format!("text s --out killed {options} --exclude old --resume --threads 1"),
    );
    assert!(kills > 0, "the run was over before it could be killed");
    assert_same(&tree(&dir.path().join("killed")), &whole);

    // Parts need neither the dataset nor its path, once the plan is stored.
    run_in(dir.path(), &format!("plan text s --out parts {options} --exclude old")).exits(0);
    std::fs::rename(dir.path().join("old"), dir.path().join("moved")).unwrap();
    for part in 1..=3 {
        run_in(dir.path(), &format!("run parts --part {part}/3")).exits(0);
    }
    run_in(dir.path(), "merge parts").exits(0);
    assert_same(&tree(&dir.path().join("parts")), &whole);

    // A plan without the hashes, as after a crash before they were stored, needs the dataset.
    std::fs::rename(dir.path().join("moved"), dir.path().join("old")).unwrap();
    run_in(dir.path(), &format!("plan text s --out bare {options} --exclude old")).exits(0);
    std::fs::remove_file(dir.path().join("bare/.dsconvert/excluded.sha256")).unwrap();
    std::fs::write(dir.path().join("bare/.dsconvert/excluded"), [7; 32]).unwrap();
    std::fs::rename(dir.path().join("old"), dir.path().join("moved")).unwrap();
    run_in(dir.path(), "run bare").exits(3).says(&["old"]);
    // Neither is another dataset at its path accepted.
    lines(&dir.path().join("t.jsonl"), 0..5);
    run_in(dir.path(), &format!("text t.jsonl --out old {options}")).exits(0);
    run_in(dir.path(), "run bare").exits(2).says(&["old", "has been replaced since"]);
    std::fs::remove_dir_all(dir.path().join("old")).unwrap();
    std::fs::rename(dir.path().join("moved"), dir.path().join("old")).unwrap();
    run_in(dir.path(), "run bare").exits(0);
    run_in(dir.path(), "merge bare").exits(0);
    assert_same(&tree(&dir.path().join("bare")), &whole);
}

#[test]
fn a_run_is_not_resumed_with_another_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let options = "--tokenizer bytes --unit-bytes 4096 --max-rejects 0";
    for (name, ids) in [("one", 0..5), ("two", 0..6)] {
        lines(&dir.path().join("s/a.jsonl"), ids);
        run_in(dir.path(), &format!("text s --out {name} {options}")).exits(0);
    }
    lines(&dir.path().join("s/a.jsonl"), 0..300);
    // A reject keeps the run from being committed.
    std::fs::write(dir.path().join("s/b.jsonl"), "{\n").unwrap();
    run_in(dir.path(), &format!("text s --out out {options} --exclude one")).exits(3);
    let before = tree(&dir.path().join("out"));
    for other in ["", "--exclude two", "--exclude one --exclude two"] {
        run_in(dir.path(), &format!("text s --out out {options} --resume {other}"))
            .exits(2)
            .says(&["cannot resume: --exclude was"]);
        assert_same(&tree(&dir.path().join("out")), &before);
    }
    let accept = options.replace("--max-rejects 0", "--max-rejects 50%");
    run_in(dir.path(), &format!("text s --out out {accept} --exclude one --resume")).exits(0);
    assert_outcomes(&dir.path().join("out"), [295, 5, 0, 1]);
    run_in(dir.path(), &format!("text s --out out {accept} --exclude two --resume"))
        .exits(2)
        .says(&["--exclude was"]);
}

#[test]
fn the_output_itself_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    lines(&dir.path().join("s/a.jsonl"), 0..5);
    run_in(dir.path(), "text s --out old --tokenizer bytes").exits(0);
    std::os::unix::fs::symlink("old", dir.path().join("link")).unwrap();
    let before = tree(&dir.path().join("old"));
    lines(&dir.path().join("s/a.jsonl"), 0..9);
    for (exclude, more) in
        [("old", ""), ("old", "--overwrite"), ("./old/", "--overwrite"), ("link", "--overwrite")]
    {
        let args = format!("text s --out old --tokenizer bytes --exclude {exclude} {more}");
        let ran = run_in(dir.path(), &args).exits(2);
        if !more.is_empty() {
            ran.says(&["--exclude", "is the output itself", "choose another --out"]);
        }
        assert_same(&tree(&dir.path().join("old")), &before);
    }
    let preview =
        run_in(dir.path(), "text s --out old --tokenizer bytes --exclude old --overwrite --dry-run").exits(0);
    preview.says(&["the run would be refused", "is the output itself"]);
    convert("images", &fixture("photos"), &dir.path().join("photos"), "--resize shorter:16").exits(0);
    for (exclude, status, why) in [
        ("nothing", 3, "cannot find the dataset"),
        ("s", 3, "there is no manifest.json"),
        ("photos", 2, "the dataset holds images, not text"),
    ] {
        run_in(dir.path(), &format!("text s --out x --tokenizer bytes --exclude {exclude}"))
            .exits(status)
            .says(&["--exclude", why]);
        assert!(!dir.path().join("x").exists());
    }
}

#[test]
fn with_dedup_texts_are_compared_wherever_they_are() {
    let dir = tempfile::tempdir().unwrap();
    lines(&dir.path().join("one/a.jsonl"), 0..20);
    let options = "--tokenizer bytes --dedup exact --normalize nfc --add-eos --max-length 30";
    for format in FORMATS {
        let old = format!("old-{format}");
        run_in(
            dir.path(),
            &format!("text one --out {old} {options} --format {format} --split train=0.5,test=0.5"),
        )
        .exits(0);
        // Other names, another order, and each new text twice.
        lines(&dir.path().join("two/b.jsonl"), (10..30).rev().chain(10..30));
        run_in(
            dir.path(),
            &format!("text two --out new-{format} {options} --engine reference --exclude {old}"),
        )
        .exits(0);
        let new = dir.path().join(format!("new-{format}"));
        // A truncated text equals the text with which it shares what is stored.
        let stored = |id: u32| text_of(id).chars().take(30).collect::<String>();
        let before: BTreeSet<String> = (0..20).map(stored).collect();
        let expected: Vec<String> =
            (10..30).rev().map(stored).filter(|text| !before.contains(text)).collect();
        // The end of a text is its end-of-sequence token.
        let found: Vec<String> =
            only_texts(&new).iter().map(|text| text.trim_end_matches('\u{1}').to_owned()).collect();
        assert_eq!(found, expected, "{format}");
        let manifest = manifest(&new);
        assert_eq!(manifest["duplicates"], 20);
        assert_eq!(manifest["filtered"].as_u64().unwrap() + expected.len() as u64, 20);
    }
    // What is not stored, or not comparable, is refused with the difference.
    for (name, made, given, why) in [
        ("packed", "--pack 64", "", "hold several documents"),
        ("split", "--max-length 9 --overflow split", "", "stored in pieces"),
        ("other", "--add-eos", "", "--add-eos was true and is now false"),
        ("nfc", "--normalize nfc", "--normalize nfkc", "normalize"),
    ] {
        run_in(dir.path(), &format!("text one --out {name} --tokenizer bytes {made}")).exits(0);
        let given = if name == "packed" || name == "split" { made } else { given };
        let ran = run_in(
            dir.path(),
            &format!("text two --out x --tokenizer bytes --dedup exact {given} --exclude {name}"),
        );
        ran.exits(2).says(&["--exclude", why]);
    }
    run_in(dir.path(), "text two --out x --tokenizer bytes --exclude packed")
        .exits(2)
        .says(&["--files-from"]);
}

/// The photographs in folders of classes, with their bytes.
fn photos(dir: &Path, classes: &[&str]) -> PathBuf {
    let photos = dir.join("photos");
    for (name, bytes) in tree(&fixture("photos")) {
        if classes.iter().any(|class| name.starts_with(&format!("{class}/"))) {
            let path = photos.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }
    photos
}

#[test]
fn images_of_an_excluded_dataset_are_not_even_read() {
    let dir = tempfile::tempdir().unwrap();
    let folder = photos(dir.path(), &["dunes", "forest"]);
    std::fs::write(folder.join("forest/bad.jpg"), b"\xff\xd8\xffbad").unwrap();
    run_in(dir.path(), "images photos --out old --resize shorter:24 --max-rejects 50%").exits(0);
    let old: BTreeSet<String> =
        records(&dir.path().join("old")).iter().map(|record| record.key().unwrap().to_owned()).collect();
    let image = std::fs::read(dir.path().join(old.first().unwrap())).unwrap();
    // From now on, they are damaged: a run that reads one of them rejects it.
    for key in &old {
        std::fs::write(dir.path().join(key), b"\xff\xd8\xffdamaged").unwrap();
    }
    for name in ["dunes/zz.jpg", "forest/zz.jpg"] {
        std::fs::write(folder.join(name), &image).unwrap();
    }
    let args = "images photos --like old --exclude old --max-rejects 100%";
    run_in(dir.path(), &format!("{args} --out new")).exits(0);
    let new = dir.path().join("new");
    let found = records(&new);
    let keys: Vec<&str> = found.iter().map(|record| record.key().unwrap()).collect();
    assert_eq!(keys, ["photos/dunes/zz.jpg", "photos/forest/zz.jpg"]);
    // The classes keep their numbers.
    assert_eq!(found.iter().map(|record| record.label()).collect::<Vec<_>>(), [Some(0), Some(1)]);
    let excluded: BTreeSet<String> = filtered(&new).into_iter().map(|(origin, _)| origin).collect();
    assert_eq!(excluded, old);
    // What the old dataset rejected is tried again.
    let of_old = rejects(&dir.path().join("old"));
    assert_eq!(rejects(&new), of_old);
    assert!(!of_old.is_empty());

    let preview = run_in(dir.path(), &format!("{args} --dry-run --sample 10")).exits(0);
    let count = old.len();
    assert!(
        preview.stdout.contains(&format!("exclude  old ({count} records, by their keys)\n")),
        "{}",
        preview.stdout
    );
    assert!(
        preview.stdout.contains("a sample is not compared with the excluded datasets"),
        "{}",
        preview.stdout
    );
}

#[test]
fn with_dedup_stored_images_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let folder = photos(dir.path(), &["dunes", "forest"]);
    for (options, excluded_of) in [
        ("--resize shorter:24 --encode png", "all"),
        ("--resize shorter:24 --encode raw", "all"),
        ("--encode keep", "all"),
    ] {
        let _ = std::fs::remove_dir_all(dir.path().join("old"));
        let _ = std::fs::remove_dir_all(dir.path().join("new"));
        let options = format!("{options} --dedup bytes --layout flat --max-rejects 50%");
        run_in(dir.path(), &format!("images photos --out old {options}")).exits(0);
        // The same images under other names, and new ones.
        let renamed = dir.path().join("renamed");
        let _ = std::fs::remove_dir_all(&renamed);
        copy_dir(&folder, &renamed.join("x"));
        let night: BTreeMap<_, _> =
            tree(&fixture("photos")).into_iter().filter(|(name, _)| name.starts_with("night/")).collect();
        for (name, bytes) in &night {
            std::fs::create_dir_all(renamed.join(name).parent().unwrap()).unwrap();
            std::fs::write(renamed.join(name), bytes).unwrap();
        }
        run_in(dir.path(), &format!("images renamed --out new {options} --exclude old")).exits(0);
        let (old, new) = (records(&dir.path().join("old")), records(&dir.path().join("new")));
        assert_eq!(excluded_of, "all");
        assert_eq!(filtered(&dir.path().join("new")).len(), old.len(), "{options}");
        assert!(
            !new.is_empty() && new.iter().all(|record| record.key().unwrap().starts_with("renamed/night/"))
        );
    }
    run_in(dir.path(), "images photos --out x --resize shorter:32 --dedup bytes --exclude old")
        .exits(2)
        .says(&["--exclude", "resize", "--like old", "leave out --dedup"]);
}

#[test]
fn samples_of_tar_files_and_rows_have_keys_too() {
    let dir = tempfile::tempdir().unwrap();
    let image = tree(&fixture("photos")).into_iter().find(|(name, _)| name.ends_with(".jpg")).unwrap().1;
    let tar = |count: usize| {
        let mut builder = tar::Builder::new(Vec::new());
        for i in 0..count {
            let mut header = tar::Header::new_ustar();
            header.set_size(image.len() as u64);
            builder.append_data(&mut header, format!("{i:03}.jpg"), &image[..]).unwrap();
        }
        builder.into_inner().unwrap()
    };
    std::fs::create_dir(dir.path().join("s")).unwrap();
    std::fs::write(dir.path().join("s/a.tar"), tar(3)).unwrap();
    run_in(dir.path(), "images s --out old --resize shorter:16").exits(0);
    std::fs::write(dir.path().join("s/a.tar"), tar(5)).unwrap();
    run_in(dir.path(), "images s --out new --like old --exclude old").exits(0);
    let new = records(&dir.path().join("new"));
    let keys: Vec<&str> = new.iter().map(|record| record.key().unwrap()).collect();
    assert_eq!(keys, ["s/a.tar#003", "s/a.tar#004"]);
    // A dataset of images is itself a source: its rows have keys of their own.
    std::fs::create_dir(dir.path().join("rows")).unwrap();
    std::fs::copy(dir.path().join("old/train/train-000000-00.parquet"), dir.path().join("rows/r.parquet"))
        .unwrap();
    run_in(dir.path(), "images rows --out of-rows --resize shorter:8").exits(0);
    run_in(dir.path(), "images rows --out x --like of-rows --exclude of-rows")
        .exits(4)
        .says(&["nothing new"]);
}

#[test]
fn the_printed_command_names_the_dataset_and_makes_the_same() {
    let dir = tempfile::tempdir().unwrap();
    lines(&dir.path().join("s/a.jsonl"), 0..5);
    run_in(dir.path(), "text s --out old --tokenizer bytes").exits(0);
    lines(&dir.path().join("s/a.jsonl"), 0..9);
    run_in(dir.path(), "text s --out new --like old --exclude old --add-eos").exits(0);
    let recipe = run_in(dir.path(), "inspect new --recipe").exits(0).stdout;
    let fingerprint = manifest(&dir.path().join("old"))["fingerprint"].as_str().unwrap().to_owned();
    assert!(
        recipe.contains(&format!("# OLD1: the dataset with the fingerprint {fingerprint}\n")),
        "{recipe}"
    );
    let line =
        recipe.lines().last().unwrap().replace("OLD1", "old").replace("OUT", "again").replace("SRC…", "s");
    run_in(dir.path(), line.strip_prefix("dsconvert ").unwrap()).exits(0);
    assert_same(&tree(&dir.path().join("again")), &tree(&dir.path().join("new")));
    // What the new dataset was made without is not taken over.
    run_in(dir.path(), "text s --out third --like new").exits(0).says(&["1 other dataset", "--exclude"]);
    assert_outcomes(&dir.path().join("third"), [9, 0, 0, 0]);
    // A repair needs the other dataset.
    let shard = dir.path().join("new/train/train-000000-00.arrow");
    let whole = tree(&dir.path().join("new"));
    std::fs::write(&shard, "damaged").unwrap();
    run_in(dir.path(), "inspect new --verify --repair s").exits(3).says(&["--exclude", "--resume=repair"]);
    run_in(dir.path(), "text s --out new --like old --exclude old --add-eos --resume=repair").exits(0);
    assert_same(&tree(&dir.path().join("new")), &whole);
}

#[test]
fn datasets_and_outputs_may_be_in_object_storage() {
    let setup = Setup::new();
    let source = setup.path("s");
    let options = "--tokenizer bytes --unit-bytes 4096 --format msgpack";
    lines(&source.join("a.jsonl"), 0..100);
    let old = "s3://bucket/old";
    setup.run("a", &format!("text {} --out {old} {options}", source.display())).exits(0);
    lines(&source.join("a.jsonl"), 0..150);
    let local = setup.path("local");
    let convert = format!("text {} {options} --exclude {old}", source.display());
    setup.run("a", &format!("{convert} --out {}", local.display())).exits(0);
    assert_eq!(only_texts(&local), texts_of(100..150));
    setup.run("a", &format!("plan {convert} --out {OUT}")).exits(0);
    setup.assert_clean("a");
    for (machine, part) in [("b", "1/2"), ("c", "2/2")] {
        setup.run(machine, &format!("run {OUT} --part {part}")).exits(0);
    }
    setup.run("d", &format!("merge {OUT}")).exits(0);
    assert_same(&setup.objects(), &tree(&local));
    setup.run("a", &format!("{convert} --out {old}/")).exits(2).says(&["a dataset already exists"]);
}

#[test]
fn a_flipped_bit_in_the_other_dataset_lets_no_duplicate_in() {
    let dir = tempfile::tempdir().unwrap();
    let options = "--resize shorter:16 --encode png --dedup bytes";
    for format in FORMATS {
        let (old, new) = (dir.path().join(format!("old-{format}")), dir.path().join(format!("new-{format}")));
        convert("images", &fixture("photos"), &old, &format!("{options} --format {format}")).exits(0);
        let image = records(&old)[3].image().unwrap().to_vec();
        let (shard, at) = tree(&old)
            .into_iter()
            .filter(|(name, _)| name.starts_with("train"))
            .find_map(|(name, file)| {
                Some((name, file.windows(image.len()).position(|bytes| bytes == image)? + image.len() / 2))
            })
            .unwrap();
        let path = old.join(&shard);
        let mut file = std::fs::read(&path).unwrap();
        file[at] ^= 1;
        std::fs::write(&path, file).unwrap();
        let exclude = format!("{options} --exclude {}", old.display());
        let shard = shard.rsplit('/').next().unwrap();
        convert("images", &fixture("photos"), &new, &exclude).exits(3).says(&[shard, "inspect --verify"]);
        assert!(!new.join("manifest.json").exists());
    }
}
