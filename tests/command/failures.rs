//! Killed runs, full disks and unreadable sources: finished units are kept, and no partial dataset appears.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::*;

/// Options that make many small units, so that an interrupted run has both finished and unfinished ones.
const MANY_UNITS: &str =
    "--tokenizer bytes --unit-bytes 16k --shard-records 40 --split train=0.9,validation=0.1";

/// Asserts that a dataset in `out`, if one was committed, has exactly the files of `whole`.
fn assert_uncommitted_or_equal(out: &Path, whole: &Tree) {
    if out.join("manifest.json").exists() {
        let mut now = tree(out);
        now.retain(|name, _| !name.starts_with(".dsconvert/"));
        assert_same(&now, whole);
    }
}

/// Waits until a run has created `name` in its working directory, or has committed its dataset.
fn wait_for(out: &Path, name: &str) {
    while !out.join(".dsconvert").join(name).exists() && !out.join("manifest.json").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_run_that_is_killed_repeatedly_ends_with_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    corpus(&source, 6000);
    let whole = dir.path().join("whole");
    convert("text", &source, &whole, MANY_UNITS).exits(0);
    let whole = tree(&whole);

    let out = dir.path().join("out");
    let mut kills = 0;
    for round in 0u64..200 {
        let mut command = command(["text"]);
        command.arg(&source).arg("--out").arg(&out).args(MANY_UNITS.split_whitespace()).arg("--resume");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Longer each time, so that a late round finishes even on a slow machine.
        std::thread::sleep(Duration::from_millis(15 + round * 9));
        match child.try_wait().unwrap() {
            Some(status) => {
                assert!(status.success());
                break;
            }
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                kills += 1;
            }
        }
        assert_uncommitted_or_equal(&out, &whole);
    }
    assert!(kills > 0, "the run was over before it could be killed");
    assert_same(&tree(&out), &whole);
}

#[test]
fn a_termination_signal_keeps_finished_units_and_suggests_resume() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    corpus(&source, 20_000);
    let out = dir.path().join("out");
    let mut command = command(["text"]);
    command.arg(&source).arg("--out").arg(&out).args(MANY_UNITS.split_whitespace());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&out, "units");
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    let ran = Ran::of(child.wait_with_output().unwrap());
    ran.exits(143).says(&["--resume"]);
    convert("text", &source, &out, MANY_UNITS).exits(2).says(&["has not finished", "--resume"]);
    convert("text", &source, &out, MANY_UNITS).exits(2);
    convert("text", &source, &out, &format!("{MANY_UNITS} --resume")).exits(0);
    assert_outcomes(&out, [20_000, 0, 0, 0]);
    assert!(!out.join(".dsconvert").exists());
}

#[test]
fn a_resumed_run_refuses_changed_options_and_names_them() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    corpus(&source, 100);
    std::fs::write(&source, std::fs::read_to_string(&source).unwrap() + &"bad\n".repeat(60)).unwrap();
    let out = dir.path().join("out");
    convert("text", &source, &out, "--tokenizer bytes").exits(3).says(&[
        "60 of 160",
        "--max-rejects",
        "invalid-json",
    ]);
    assert!(!out.join("manifest.json").exists());
    convert("text", &source, &out, "--tokenizer bytes --resume --max-rejects 50% --add-eos")
        .exits(2)
        .says(&["cannot resume: --add-eos was false and is now true"]);
    convert("text", &source, &out, "--tokenizer bytes --resume --max-rejects 50%").exits(0);
    assert_outcomes(&out, [100, 0, 0, 60]);
}

/// A file size limit makes writes fail as on a full disk.
#[test]
fn a_write_error_ends_the_run_which_can_be_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    corpus(&source, 3000);
    let (out, whole) = (dir.path().join("out"), dir.path().join("whole"));
    let options = "--tokenizer bytes --unit-bytes 256k --format msgpack";
    convert("text", &source, &whole, options).exits(0);
    let script = format!(
        "ulimit -f 64; exec {} text {} --out {} {options}",
        env!("CARGO_BIN_EXE_dsconvert"),
        source.display(),
        out.display()
    );
    let ran = Ran::of(Command::new("bash").args(["-c", &script]).output().unwrap());
    ran.exits(3).says(&["cannot write"]);
    assert!(!out.join("manifest.json").exists());
    convert("text", &source, &out, &format!("{options} --resume")).exits(0);
    assert_same(&tree(&out), &tree(&whole));
}

#[test]
fn an_unreadable_file_is_a_failure_and_no_reject() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("photos");
    std::fs::create_dir(&source).unwrap();
    let photo = tree(&fixture("photos")).into_iter().find(|(name, _)| name.ends_with(".jpg")).unwrap().1;
    for i in 0..6 {
        std::fs::write(source.join(format!("{i}.jpg")), &photo).unwrap();
    }
    // Reading this file fails with an I/O error, for every user.
    let broken = source.join("3-broken.jpg");
    std::os::unix::fs::symlink("/proc/self/mem", &broken).unwrap();
    let out = dir.path().join("out");
    let options = "--follow-symlinks --unit-bytes 4096 --max-rejects 100%";
    convert("images", &source, &out, options).exits(3).says(&["3-broken.jpg", "units failed", "--resume"]);
    assert!(!out.join("manifest.json").exists());
    let done = tree(&out).into_keys().filter(|name| name.ends_with("unit.json")).count();
    assert!(done >= 4, "{done} units were kept");
    std::fs::remove_file(broken).unwrap();
    convert("images", &source, &out, &format!("{options} --resume")).exits(2).says(&["3-broken.jpg is gone"]);
}

#[test]
fn two_runs_never_write_to_one_directory_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    corpus(&source, 20_000);
    let out = dir.path().join("out");
    let mut first = command(["text"]);
    first.arg(&source).arg("--out").arg(&out).args(MANY_UNITS.split_whitespace());
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for(&out, "plan.jsonl");
    let second = convert("text", &source, &out, &format!("{MANY_UNITS} --resume"));
    let finished = first.try_wait().unwrap().is_some();
    first.kill().unwrap();
    first.wait().unwrap();
    // The second run is refused, unless the first had already finished.
    if !finished {
        second.exits(2).says(&["another dsconvert"]);
    }
}
