//! Conversions divided among processes give the bytes of a single run, and killed processes lose only unfinished units.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::support::*;

/// Runs `dsconvert SUBCOMMAND OUT OPTIONS…`.
fn on(subcommand: &str, out: &Path, options: &str) -> Ran {
    let mut command = command([subcommand]);
    command.arg(out).args(options.split_whitespace());
    Ran::of(command.output().unwrap())
}

/// Starts `dsconvert run OUT OPTIONS…`, in a working directory where relative paths do not resolve.
fn start(out: &Path, options: &str) -> Child {
    let mut command = command(["run"]);
    command.arg(out).args(options.split_whitespace()).current_dir("/");
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs `dsconvert plan KIND SOURCE --out OUT OPTIONS…`.
fn plan(kind: &str, source: &Path, out: &Path, options: &str) -> Ran {
    let mut command = command(["plan", kind]);
    command.arg(source).arg("--out").arg(out).args(options.split_whitespace());
    Ran::of(command.output().unwrap())
}

/// Plans the conversion of a new `c.jsonl` of several units into `out`; returns that directory.
fn planned_corpus(dir: &Path) -> PathBuf {
    let (source, out) = (dir.join("c.jsonl"), dir.join("out"));
    corpus(&source, 40);
    plan("text", &source, &out, "--tokenizer bytes --unit-bytes 4096").exits(0);
    out
}

fn status(out: &Path, options: &str) -> Value {
    serde_json::from_str(&on("status", out, &format!("--json {options}")).exits(0).stdout).unwrap()
}

#[test]
fn parts_in_separate_processes_give_the_bytes_of_a_single_run() {
    let dir = tempfile::tempdir().unwrap();
    let documents = corpus_with_rejects(dir.path(), 120, 7, 9);
    let tokenizer = fixture("tokenizers/bpe.json").display().to_string();
    let cases = [
        ("text", documents.clone(), "--tokenizer bytes --dedup exact --filter-length 30:9999".to_owned()),
        (
            "text",
            documents.clone(),
            format!("--tokenizer {tokenizer} --pack 64 --shuffle --seed 3 --add-eos"),
        ),
        (
            "text",
            documents,
            "--tokenizer bytes --split train=0.7,test=0.3 --max-length 50 --overflow split".to_owned(),
        ),
        ("text", fixture("corpus"), format!("--tokenizer {tokenizer} --documents line --layout flat")),
        ("images", fixture("photos"), "--resize shorter:32 --dedup bytes --shuffle".to_owned()),
        ("images", fixture("photos"), "--resize shorter:32 --split train=0.5,val=0.5".to_owned()),
    ];
    for (i, (kind, source, options)) in cases.into_iter().enumerate() {
        let format = FORMATS[i % FORMATS.len()];
        let unit = if kind == "text" { 4096 } else { 65_536 };
        let options = format!("{options} --format {format} --unit-bytes {unit} --shard-records 5");
        let (whole, out) = (dir.path().join(format!("whole-{i}")), dir.path().join(format!("out-{i}")));
        convert(kind, &source, &whole, &format!("{options} --max-rejects 50%")).exits(0);
        plan(kind, &source, &out, &options).exits(0);
        let units = status(&out, "")["units"].as_u64().unwrap();
        assert!(units >= 3, "{kind} {options}: {units} units");
        let parts: Vec<Child> =
            (1..=3).map(|part| start(&out, &format!("--part {part}/3 --threads 2"))).collect();
        for part in parts {
            Ran::of(part.wait_with_output().unwrap()).exits(0);
        }
        assert_eq!(status(&out, "")["done"], units);
        let merged = on("merge", &out, "--max-rejects 50%").exits(0);
        assert!(merged.stdout.contains("items converted"), "{}", merged.stdout);
        assert_same(&tree(&out), &tree(&whole));
        // A part that is submitted again after the merge has nothing to do.
        assert!(on("run", &out, "--part 1/3").exits(0).stdout.contains("already committed"));
        on("merge", &out, "").exits(0);
        assert_same(&tree(&out), &tree(&whole));
    }
}

#[test]
fn a_committed_dataset_in_a_read_only_folder_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let out = planned_corpus(dir.path());
    on("run", &out, "").exits(0);
    on("merge", &out, "").exits(0);
    let before = tree(&out);
    set_mode(dir.path(), 0o755);
    set_mode(&out, 0o555);
    for subcommand in ["run", "status", "merge"] {
        let mut command = command([subcommand]);
        let Some(ran) = unprivileged(command.arg(&out)) else { return };
        ran.exits(0);
    }
    set_mode(&out, 0o755);
    assert_same(&tree(&out), &before);
}

#[test]
fn the_number_of_parts_may_change_and_attempts_may_repeat() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, out) = (dir.path().join("whole"), dir.path().join("out"));
    let options = "--tokenizer bytes --dedup exact --unit-bytes 4096 --shard-records 8";
    let source = corpus_with_rejects(dir.path(), 120, 7, 9);
    convert("text", &source, &whole, &format!("{options} --max-rejects 50%")).exits(0);
    let planned = plan("text", &source, &out, options).exits(0);
    assert!(planned.stdout.contains("dsconvert merge"), "{}", planned.stdout);
    let units = status(&out, "")["units"].as_u64().unwrap();
    // The same part three times at once, as when a job is submitted again while it still runs.
    let same: Vec<Child> = (0..3).map(|_| start(&out, "--part 1/2")).collect();
    for part in same {
        Ran::of(part.wait_with_output().unwrap()).exits(0);
    }
    let after = status(&out, "--parts 2");
    assert_eq!(after["done"].as_u64().unwrap(), units.div_ceil(2));
    assert_eq!(after["submit_again"], "2");
    assert!(after["missing"].as_array().unwrap().iter().all(|unit| unit.as_u64().unwrap() % 2 == 1));
    // Nothing is committed before all units are finished, and the message names the missing ones.
    on("merge", &out, "").exits(3).says(&["units are not finished: 1,3,5", "dsconvert status"]);
    assert!(!out.join("manifest.json").exists());
    on("run", &out, "--units 1,3-4").exits(0);
    for part in 1..=5 {
        on("run", &out, &format!("--part {part}/5 --memory 64MiB")).exits(0);
    }
    assert!(on("status", &out, "").exits(0).stdout.contains("all units are done"));
    let spaced = dir.path().join("two words");
    std::fs::rename(&out, &spaced).unwrap();
    let ready = on("status", &spaced, "").exits(0).stdout;
    assert!(ready.contains(&format!("dsconvert merge '{}'\n", spaced.display())), "{ready}");
    std::fs::rename(&spaced, &out).unwrap();
    on("merge", &out, "--max-rejects 50% --verify").exits(0);
    assert_same(&tree(&out), &tree(&whole));
    assert_eq!(status(&out, "")["committed"], true);
}

#[test]
fn a_killed_part_can_be_run_again() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, out) = (dir.path().join("whole"), dir.path().join("out"));
    let options = "--resize shorter:48 --unit-bytes 65536 --shard-records 2";
    convert("images", &fixture("photos"), &whole, options).exits(0);
    plan("images", &fixture("photos"), &out, options).exits(0);
    for pause in [5, 20, 60, 120, 200] {
        let mut part = start(&out, "--threads 2");
        std::thread::sleep(std::time::Duration::from_millis(pause));
        part.kill().unwrap();
        part.wait().unwrap();
        assert!(!out.join("manifest.json").exists());
    }
    on("run", &out, "").exits(0);
    // The merge detects a damaged unit, which the next run converts again.
    let rejects = out.join(".dsconvert/units/000000/done/rejects.jsonl");
    std::fs::write(&rejects, "x").unwrap();
    on("merge", &out, "").exits(3).says(&["unit 0 has to be converted again", "1 of"]);
    on("run", &out, "--units 0").exits(0).says(&["unit 0 is converted again"]);
    on("merge", &out, "").exits(0);
    assert_same(&tree(&out), &tree(&whole));
}

#[test]
fn a_plan_can_be_finished_by_the_plain_command() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, out) = (dir.path().join("whole"), dir.path().join("out"));
    let options = "--tokenizer bytes --unit-bytes 4096 --max-rejects 50%";
    let source = corpus_with_rejects(dir.path(), 120, 7, 9);
    convert("text", &source, &whole, options).exits(0);
    plan("text", &source, &out, options).exits(0);
    on("run", &out, "--part 2/3").exits(0);
    convert("text", &source, &out, options).exits(2).says(&["has not finished", "--resume"]);
    plan("text", &source, &out, options).exits(2).says(&["has not finished"]);
    plan("text", &source, &out, &format!("{options} --resume")).exits(0);
    convert("text", &source, &out, &format!("{options} --resume")).exits(0);
    assert_same(&tree(&out), &tree(&whole));
    // An unfinished plain run can be finished in parts.
    let out = dir.path().join("other");
    convert("text", &source, &out, &options.replace("50%", "0")).exits(3);
    on("run", &out, "").exits(0);
    on("merge", &out, "--max-rejects 50%").exits(0);
    assert_same(&tree(&out), &tree(&whole));
}

#[test]
fn sources_may_move_after_they_were_planned() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, out) = (dir.path().join("whole"), dir.path().join("out"));
    let options = "--tokenizer bytes --unit-bytes 4096 --shuffle";
    let source = corpus_with_rejects(dir.path(), 120, 7, 0);
    convert("text", &source, &whole, options).exits(0);
    plan("text", &source, &out, options).exits(0);
    on("run", &out, "--part 1/2").exits(0);
    let label = source.file_name().unwrap().to_str().unwrap();
    let moved = dir.path().join("moved.jsonl");
    std::fs::rename(&source, &moved).unwrap();
    on("run", &out, "--part 2/2").exits(3).says(&[label]);
    // Another label, or a file with another modification time, is another source.
    let again = format!("{options} --resume");
    plan("text", &moved, &out, &again).exits(2);
    let labeled = |path: &Path| std::path::PathBuf::from(format!("{label}={}", path.display()));
    let copy = dir.path().join("copy.jsonl");
    std::fs::copy(&moved, &copy).unwrap();
    plan("text", &labeled(&copy), &out, &again).exits(2);
    plan("text", &labeled(&moved), &out, &again).exits(0);
    on("run", &out, "--part 2/2").exits(0);
    on("merge", &out, "").exits(0);
    assert_same(&tree(&out), &tree(&whole));
}

#[test]
fn each_part_may_have_the_sources_at_another_path() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, out) = (dir.path().join("whole"), dir.path().join("out"));
    let photos = dir.path().join("photos");
    copy_dir(&fixture("photos"), &photos);
    let options = "--resize shorter:32 --unit-bytes 65536 --dedup bytes --shuffle";
    convert("images", &photos, &whole, &format!("{options} --max-rejects 50%")).exits(0);
    plan("images", &photos, &out, options).exits(0);
    let (moved, again) = (dir.path().join("moved"), dir.path().join("again/photos"));
    std::fs::rename(&photos, &moved).unwrap();
    let with = |source: &str| on("run", &out, &format!("--part 1/2 --source {source}"));
    // Neither finished units nor the plan depend on the paths.
    on("run", &out, "--part 1/2")
        .exits(3)
        .says(&["there is no", "if the source has another path here, add --source photos=PATH"]);
    for (source, expected) in [
        ("other=x", ["no source with the label \"other\"", "its labels are photos"]),
        ("s3://bucket/photos", ["only one of them is in object storage", "plan again"]),
        ("=x", ["is not a valid label", "must not be empty"]),
        ("photos=a --source photos=b", ["two of the given sources have the label \"photos\"", "--source"]),
        ("photos=nowhere", ["there is no nowhere on this machine", "--source photos=PATH"]),
    ] {
        let ran = with(source).says(&expected);
        assert_eq!(ran.status, if source == "photos=nowhere" { 3 } else { 2 }, "{source}");
    }
    with(&format!("photos={}", moved.display())).exits(0);
    std::fs::create_dir(dir.path().join("again")).unwrap();
    std::fs::rename(&moved, &again).unwrap();
    // The label is the last component of the path.
    on("run", &out, &format!("--part 2/2 --source {}", again.display())).exits(0);
    on("merge", &out, "--max-rejects 50%").exits(0);
    assert_same(&tree(&out), &tree(&whole));
}

#[test]
fn a_copied_source_needs_the_modification_times_of_the_planned_one() {
    let dir = tempfile::tempdir().unwrap();
    let out = planned_corpus(dir.path());
    let (source, copy) = (dir.path().join("c.jsonl"), dir.path().join("copy.jsonl"));
    std::fs::copy(&source, &copy).unwrap();
    let run = || on("run", &out, &format!("--source c.jsonl={}", copy.display()));
    run().exits(3).says(&["copy.jsonl: the file was written to after", "rsync -a"]);
    let modified = std::fs::metadata(&source).unwrap().modified().unwrap();
    std::fs::File::options().append(true).open(&copy).unwrap().set_modified(modified).unwrap();
    std::fs::remove_file(&source).unwrap();
    run().exits(0);
    on("merge", &out, "").exits(0);
}

#[test]
fn missing_damaged_and_foreign_plans_are_refused_with_a_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (corpus_with_rejects(dir.path(), 120, 7, 9), dir.path().join("out"));
    for subcommand in ["run", "merge", "status"] {
        on(subcommand, &out, "").exits(2).says(&["there is no plan", "dsconvert plan"]);
        assert!(!out.exists());
    }
    let stdin =
        command(["plan", "text", "-", "--input-format", "txt", "-t", "bytes", "-o"]).arg(&out).output();
    Ran::of(stdin.unwrap()).exits(2).says(&["standard input can only be read once"]);
    plan("text", &source, &out, "--tokenizer bytes --unit-bytes 4096").exits(0);
    for wrong in ["--part 0/3", "--part 4/3", "--part 3", "--units x", "--units 999", "--threads 0"] {
        on("run", &out, wrong).exits(2);
    }
    on("status", &out, "--parts 0").exits(2);
    // A stored plan that was altered, or made by another version.
    let job = out.join(".dsconvert/job.jsonl");
    let text = std::fs::read_to_string(&job).unwrap();
    std::fs::write(&job, text.replacen("c.jsonl", "d.jsonl", 1)).unwrap();
    on("run", &out, "").exits(3).says(&["the stored plan is damaged", "--overwrite"]);
    let (lines, _) = text.trim_end().rsplit_once('\n').unwrap();
    let build = format!("\"build\":\"{}", env!("CARGO_PKG_VERSION"));
    let other = format!("{}\n", lines.replacen(&build, "\"build\":\"0.0.7", 1));
    let digest: String = Sha256::digest(&other).iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(&job, format!("{other}\"{digest}\"\n")).unwrap();
    on("run", &out, "").exits(3).says(&["made by dsconvert 0.0.7 (commit "]);
    let resumed = convert("text", &source, &out, "--tokenizer bytes --unit-bytes 4096 --resume");
    resumed.exits(3).says(&["made by dsconvert 0.0.7 (commit ", "use the build that made the plan"]);
    // A source that changed since it was planned fails its units, and only those.
    std::fs::write(&job, &text).unwrap();
    on("run", &out, "--units 0").exits(0);
    let grown = format!("{}x\n", std::fs::read_to_string(&source).unwrap());
    std::fs::write(&source, grown).unwrap();
    on("run", &out, "").exits(3).says(&["units failed", "plan again with --overwrite"]);
    assert_eq!(status(&out, "")["done"], 1);
}

#[test]
fn an_interrupted_plan_is_no_plan() {
    let dir = tempfile::tempdir().unwrap();
    let out = planned_corpus(dir.path());
    on("run", &out, "--units 0").exits(0);
    // The plan is written last.
    let work = out.join(".dsconvert");
    let stored = std::fs::read(work.join("plan.jsonl")).unwrap();
    std::fs::remove_file(work.join("plan.jsonl")).unwrap();
    for subcommand in ["run", "merge", "status"] {
        on(subcommand, &out, "").exits(2).says(&["there is no plan in this directory", "dsconvert plan"]);
    }
    std::fs::write(work.join("plan.jsonl"), stored).unwrap();
    let ran = on("run", &out, "").exits(0);
    assert!(ran.stdout.contains("1 finished before"), "{}", ran.stdout);
    on("merge", &out, "").exits(0);
}

#[test]
fn a_source_that_changed_after_the_plan_is_named_with_its_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let out = planned_corpus(dir.path());
    corpus(&dir.path().join("c.jsonl"), 41);
    let ran =
        on("run", &out, "").exits(3).says(&["failed; the first failure", "plan again with --overwrite"]);
    assert!(!ran.stderr.contains("same part"), "{}", ran.stderr);
}

#[test]
fn a_plan_says_which_options_belong_to_the_merge() {
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("c.jsonl"), 2);
    let out = dir.path().join("out");
    for option in ["--strict", "--max-rejects 0"] {
        let name = option.split(' ').next().unwrap();
        plan("text", &dir.path().join("c.jsonl"), &out, &format!("--tokenizer bytes --overwrite {option}"))
            .exits(0)
            .says(&[&format!("{name} is not part of a plan"), "dsconvert merge"]);
    }
}

#[test]
fn a_merge_or_part_that_loses_to_another_process_says_how_to_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let out = planned_corpus(dir.path());
    let lock = std::fs::File::options().write(true).open(out.join(".dsconvert/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let busy = "another dsconvert is writing to this output directory";
    on("run", &out, "").exits(2).says(&[busy, "wait for it to end, then run the same part again"]);
    on("merge", &out, "").exits(2).says(&[busy, "wait for it to end, then merge again"]);
    drop(lock);
    on("run", &out, "").exits(0);
    on("merge", &out, "").exits(0);
}

#[test]
fn a_merge_that_finds_a_repeated_key_keeps_the_plan() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("c.jsonl"), dir.path().join("out"));
    std::fs::write(&source, "{\"text\": \"a\", \"id\": 1}\n".repeat(2)).unwrap();
    plan("text", &source, &out, "--tokenizer bytes --key-field id").exits(0);
    on("run", &out, "").exits(0);
    let before = tree(&out);
    for _ in 0..2 {
        let ran = on("merge", &out, "").exits(3);
        ran.says(&["two items have the key \"1\", so nothing was committed", "start again with --overwrite"]);
        assert_same(&tree(&out), &before);
    }
    // A run that replaced a dataset does not claim that nothing was written.
    convert("text", &source, &out, "--tokenizer bytes --overwrite").exits(0);
    let ran = convert("text", &source, &out, "--tokenizer bytes --key-field id --overwrite").exits(3);
    ran.says(&["two items have the key \"1\", so nothing was committed"]);
    assert!(tree(&out).is_empty());
}

#[test]
fn standard_input_is_not_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut first = command(["text", "-", "--input-format", "jsonl", "--tokenizer", "bytes"]);
    let mut child = first.arg("--out").arg(&out).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // More than is read before the run starts.
    input.write_all("{\"text\": \"first\"}\n".repeat(50_000).as_bytes()).unwrap();
    while !out.join(".dsconvert/plan.jsonl").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    drop(input);
    let again = || {
        let mut run = command(["run"]);
        let mut child = run
            .arg(&out)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The process may have ended.
        let _ = child.stdin.take().unwrap().write_all(b"{\"text\": \"other\"}\n");
        Ran::of(child.wait_with_output().unwrap())
    };
    again().exits(2).says(&["standard input, which cannot be read again", "--overwrite"]);
    on("merge", &out, "")
        .exits(3)
        .says(&["standard input cannot be read again: start again with --overwrite"]);
    let shown = on("status", &out, "").exits(0).stdout;
    assert!(shown.contains("start again with --overwrite") && !shown.contains("dsconvert run"), "{shown}");
}
