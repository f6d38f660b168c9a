//! Concurrent runs into one prefix commit one dataset, equal to that of a local run, whatever fails on the way. Also,
//! the message and exit status of every command when a store refuses its requests.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use objects::{Fault, Faults};

use crate::remote_setup::*;
use crate::support::*;

const IMAGES: &str = "--resize shorter:32 --unit-bytes 65536 --shard-records 5 --max-rejects 50% --threads 2";
const OTHER: &str = "--resize shorter:24 --unit-bytes 65536 --shard-records 5 --max-rejects 50% --threads 2";

/// The files that a local run makes from the photos.
fn local(setup: &Setup, options: &str) -> Tree {
    let out: PathBuf = setup.path(&format!("local-{}", options.len() + options.matches("24").count()));
    convert("images", &fixture("photos"), &out, options).exits(0);
    tree(&out)
}

fn images(options: &str) -> String {
    conversion("images", &fixture("photos"), options)
}

/// Every fault that a client must survive, and enough latency for two runs to overlap.
fn faults(seed: u64) -> Faults {
    Faults { latency: Duration::from_millis(4), page: 7, ..Faults::usual(8, seed) }
}

fn finish(child: Child) -> Ran {
    Ran::of(child.wait_with_output().unwrap())
}

/// Returns whether a run succeeded; asserts that the message of one that lost explains what happened and what to do.
#[track_caller]
fn won_or_explained(ran: &Ran) -> bool {
    assert!(!ran.stderr.contains("this is a bug"), "{}", ran.stderr);
    assert!(matches!(ran.status, 0 | 2 | 3), "{}: {}", ran.status, ran.stderr);
    if ran.status == 0 {
        return true;
    }
    let reasons = ["has not finished", "a dataset already exists", "was committed", "another run has"];
    assert!(reasons.iter().any(|reason| ran.stderr.contains(reason)), "{}", ran.stderr);
    assert!(ran.stderr.contains("  tip: ") && ran.stderr.contains(OUT), "{}", ran.stderr);
    false
}

fn clear(setup: &Setup) {
    setup.server.set_faults(Faults::default());
    setup.server.keys("bucket/").iter().for_each(|key| setup.server.delete(key));
}

#[test]
fn two_concurrent_runs_with_the_same_options_commit_one_dataset() {
    let setup = Setup::new();
    let expected = local(&setup, IMAGES);
    for seed in 0..3 {
        clear(&setup);
        setup.server.set_faults(faults(seed));
        let runs = ["a", "b"].map(|machine| setup.start(machine, &images(IMAGES)));
        let won = runs.map(|child| u32::from(won_or_explained(&finish(child)))).iter().sum::<u32>();
        assert!(won >= 1, "seed {seed}");
        setup.server.set_faults(Faults::default());
        // The next run deletes what could not be deleted after the commit.
        setup.run("a", &images(&format!("{IMAGES} --resume"))).exits(0);
        assert_same(&setup.objects(), &expected);
        ["a", "b"].iter().for_each(|machine| setup.assert_clean(machine));
    }
}

#[test]
fn of_two_concurrent_runs_with_different_options_one_commits() {
    let setup = Setup::new();
    let expected = [local(&setup, IMAGES), local(&setup, OTHER)];
    for seed in 0..4 {
        clear(&setup);
        setup.server.set_faults(faults(10 + seed));
        let options = if seed % 2 == 0 { [IMAGES, OTHER] } else { [OTHER, IMAGES] };
        let runs = [("a", options[0]), ("b", options[1])];
        let runs = runs.map(|(machine, options)| setup.start(machine, &images(options)));
        let won = runs.map(|child| won_or_explained(&finish(child)));
        setup.server.set_faults(Faults::default());
        assert!(won[0] != won[1], "seed {seed}: {won:?}");
        let winner = options[usize::from(won[1])];
        setup.run("c", &images(&format!("{winner} --resume"))).exits(0);
        assert_same(&setup.objects(), &expected[usize::from(winner == OTHER)]);
        ["a", "b", "c"].iter().for_each(|machine| setup.assert_clean(machine));
    }
}

#[test]
fn killing_one_of_two_concurrent_runs_changes_nothing() {
    let setup = Setup::new();
    let expected = local(&setup, IMAGES);
    let mut killed = 0;
    for quarter in 1..4 {
        clear(&setup);
        setup.run("a", &format!("plan {}", images(IMAGES))).exits(0);
        setup.server.set_faults(faults(20 + quarter));
        let before = setup.server.counts().requests;
        let resumed = images(&format!("{IMAGES} --resume"));
        let (survivor, mut victim) = (setup.start("a", &resumed), setup.start("b", &resumed));
        let started = Instant::now();
        // A run may need fewer requests, because it stops as soon as the other one has committed.
        while setup.server.counts().requests < before + 60 * quarter
            && victim.try_wait().unwrap().is_none()
            && started.elapsed() < Duration::from_secs(60)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        victim.kill().unwrap();
        killed += u32::from(!victim.wait().unwrap().success());
        finish(survivor).exits(0);
        setup.server.set_faults(Faults::default());
        // On the machine where it was killed, or on one without local files.
        setup.run(if quarter == 2 { "b" } else { "c" }, &resumed).exits(0);
        assert_same(&setup.objects(), &expected);
    }
    assert!(killed >= 1);
}

#[test]
fn a_late_part_uploads_nothing_into_a_committed_dataset() {
    let setup = Setup::new();
    let (source, expected) = setup.corpus();
    setup.run("a", &format!("plan {}", conversion("text", &source, TEXT))).exits(0);
    let shards = || {
        let keys = setup.server.keys(PREFIX).into_iter();
        keys.filter(|key| key.ends_with(".pb")).collect::<Vec<_>>()
    };
    // The shards of the first ten units are not uploaded before the commit.
    setup.hold(&format!("PUT /{PREFIX}train/train-00000"));
    let part = setup.start("a", &format!("run {OUT} --threads 1"));
    setup.wait_for_held();
    // As if other processes had converted the same units and committed.
    setup.server.put(&format!("{PREFIX}manifest.json"), expected["manifest.json"].clone());
    setup.release();
    finish(part).exits(0);
    let total = expected.keys().filter(|name| name.ends_with(".pb")).count();
    let uploaded = shards().len();
    // A few uploads had started before.
    assert!((1..=12).contains(&uploaded) && total > 20, "{uploaded} of {total}");
    setup.assert_clean("a");
}

/// Runs every command that accesses a store, and asserts that each exits with `status` and a message with `parts`.
#[track_caller]
fn assert_all_refuse(setup: &Setup, bucket: &str, status: i32, parts: &[&str]) {
    let out = setup.path("refused");
    let source = fixture("photos");
    for command in [
        format!("images s3://{bucket}/photos --out {}", out.display()),
        format!("text s3://{bucket}/a.jsonl --out {} --tokenizer bytes", out.display()),
        format!("images {} --out s3://{bucket}/some/set", source.display()),
        format!("plan images {} --out s3://{bucket}/some/set", source.display()),
        format!("run s3://{bucket}/some/set"),
        format!("merge s3://{bucket}/some/set"),
        format!("status s3://{bucket}/some/set"),
        format!("inspect s3://{bucket}/some/set"),
        format!("inspect s3://{bucket}/some/set --verify"),
    ] {
        let ran = setup.run("a", &command);
        assert_eq!(ran.status, status, "{command}: {}", ran.stderr);
        for part in [&["error: ", &format!("s3://{bucket}/"), "  tip: "], parts].concat() {
            assert!(ran.stderr.contains(part), "{command}: {part:?} is not in: {}", ran.stderr);
        }
        assert!(
            !ran.stderr.contains("<?xml") && ran.stderr.lines().count() <= 4,
            "{command}: {}",
            ran.stderr
        );
    }
    assert!(!Path::new(&out).exists());
    setup.assert_clean("a");
}

/// `dsconvert ARGS` with a server that closes all connections.
fn without_response(setup: &Setup, args: &[&str], seconds: &str) -> Child {
    setup.server.set_faults(Faults { dies_after: Some(0), ..Faults::default() });
    let mut command = setup.command("a", args);
    command.env("DSCONVERT_RETRY_SECONDS", seconds);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_store_that_does_not_respond_is_named_while_requests_are_retried() {
    let setup = Setup::new();
    let loud = without_response(&setup, &["inspect", "s3://bucket/set"], "6");
    let quiet = ["images", "-q", "s3://bucket/x", "--out", "here"];
    let quiet = without_response(&setup, &quiet, "6");
    let said = finish(loud).exits(3).says(&["cannot read", "s3://bucket/set"]).stderr;
    let warnings = said.matches("warning: s3://bucket does not respond").count();
    assert!(warnings == 1 && said.contains("retrying for up to 6 s"), "{said}");
    assert!(!finish(quiet).exits(3).stderr.contains("warning"));
    let invalid = without_response(&setup, &["inspect", "s3://bucket/set"], "3m");
    finish(invalid).exits(2).says(&["DSCONVERT_RETRY_SECONDS", "3m", "whole number of seconds"]);
}

#[test]
fn a_dataset_that_cannot_be_reached_is_not_called_damaged() {
    let setup = Setup::new();
    let (source, _) = setup.corpus();
    setup.convert("text", &source, TEXT).exits(0);
    let shards = Some("/train/".to_owned());
    setup.server.set_faults(Faults {
        one_in: 1,
        kinds: vec![Fault::Denied],
        only: shards,
        ..Faults::default()
    });
    let found = setup.run("a", &format!("inspect {OUT} --verify")).exits(3).stdout;
    for part in ["NOT VERIFIED", "refuses these credentials", "verify the dataset again"] {
        assert!(found.contains(part), "{found}");
    }
    assert!(!found.contains("DAMAGED"), "{found}");
}

#[test]
fn a_store_that_refuses_requests_is_named_with_the_reason() {
    let setup = Setup::new();
    setup.server.put("bucket/photos/a.jpg", "x");
    setup.server.put("bucket/a.jsonl", "{\"text\": \"a\"}\n");
    let before = setup.server.keys("bucket/");
    for (fault, parts) in [
        (Fault::Denied, ["refuses these credentials", "AWS_ACCESS_KEY_ID"]),
        (Fault::UnknownKey, ["refuses these credentials", "AWS_ACCESS_KEY_ID"]),
        (Fault::Skewed, ["the clock of this machine", "set the clock"]),
    ] {
        setup.server.set_faults(Faults { kinds: vec![fault], one_in: 1, ..Faults::default() });
        assert_all_refuse(&setup, "bucket", 3, &parts);
        assert_eq!(setup.server.keys("bucket/"), before);
    }
    setup.server.set_faults(Faults::default());
    assert_all_refuse(&setup, "no-such-bucket", 3, &["there is no such", "check the"]);
}
