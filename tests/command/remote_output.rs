//! Datasets written to object storage have the same objects as the files of a local run, whatever fails on the way.

use std::process::Child;
use std::time::{Duration, Instant};

use objects::{Fault, Faults};
use serde_json::Value;

use crate::remote_setup::*;
use crate::support::*;

#[test]
fn a_dataset_in_object_storage_equals_that_of_a_local_run() {
    let tokenizer = fixture("tokenizers/bpe.json").display().to_string();
    let setup = Setup::new();
    let documents = corpus_with_rejects(setup.dir.path(), 120, 7, 9);
    let long = setup.path("long.txt");
    // Makes a shard that is uploaded in several parts.
    std::fs::write(&long, "some text ".repeat(2 << 20)).unwrap();
    let cases = [
        ("text", documents, format!("{TEXT} --split train=0.7,test=0.3")),
        ("text", fixture("corpus"), format!("--tokenizer {tokenizer} --documents line --layout flat --format arrow --max-rejects 50%")),
        ("text", long, "--tokenizer bytes --format msgpack --max-document-bytes 64MiB".to_owned()),
        (
            "images",
            fixture("photos"),
            "--resize shorter:32 --dedup bytes --shuffle --unit-bytes 65536 --shard-records 5 --max-rejects 50%"
                .to_owned(),
        ),
    ];
    for (i, (kind, source, options)) in cases.into_iter().enumerate() {
        let setup = Setup::new();
        let local = setup.path("local");
        convert(kind, &source, &local, &options).exits(0);
        let ran = setup.convert(kind, &source, &options).exits(0);
        assert!(ran.stdout.contains(OUT), "{}", ran.stdout);
        // On a busy machine, a run may take long enough for a line of progress.
        let others: Vec<&str> = ran.stderr.lines().filter(|line| !line.contains(" elapsed")).collect();
        assert!(others.is_empty(), "case {i}: {others:?}");
        assert_same(&setup.objects(), &tree(&local));
        assert_eq!(setup.server.open_uploads(), 0);
        setup.assert_clean("a");
        // A second run needs a new prefix; a resumed one has nothing to do.
        let before = setup.objects();
        setup.convert(kind, &source, &options).exits(2).says(&["a dataset already exists", "another prefix"]);
        let again = setup.convert(kind, &source, &format!("{options} --resume")).exits(0);
        assert!(again.stdout.contains("is already complete"), "{}", again.stdout);
        setup.convert(kind, &source, &format!("{options} --resume --shard-bytes 200MiB")).exits(2).says(&[
            "--shard-bytes was 268435456 and is now 209715200",
            "or choose another prefix for --out",
        ]);
        setup
            .run("a", &format!("plan {} --resume", conversion(kind, &source, &options)))
            .exits(2)
            .says(&["a committed dataset already exists", "tip: choose another prefix for --out"]);
        assert_same(&setup.objects(), &before);
    }
}

#[test]
fn an_empty_object_for_the_folder_leaves_the_prefix_new() {
    let setup = Setup::new();
    let (source, local) = setup.corpus();
    // As web consoles create it.
    setup.server.put(PREFIX, "");
    setup.convert("text", &source, TEXT).exits(0);
    setup.run("a", &format!("inspect {OUT} --verify")).exits(0);
    setup.server.delete(PREFIX);
    assert_same(&setup.objects(), &local);
}

#[test]
fn parts_on_several_machines_give_the_objects_of_one_run() {
    let setup = Setup::new();
    let (source, local) = setup.corpus();
    let planned = setup.run("a", &format!("plan {}", conversion("text", &source, TEXT))).exits(0);
    assert!(planned.stdout.contains(&format!("dsconvert run {OUT} --part")), "{}", planned.stdout);
    setup.assert_clean("a");
    let units = setup.status()["units"].as_u64().unwrap();
    assert!(units >= 4, "{units}");
    let machines = ["b", "c", "d"];
    let parts: Vec<Child> = (1..=3)
        .map(|part| setup.start(machines[part - 1], &format!("run {OUT} --part {part}/4 --threads 2")))
        .collect();
    for part in parts {
        Ran::of(part.wait_with_output().unwrap()).exits(0);
    }
    machines.iter().for_each(|machine| setup.assert_clean(machine));
    let status = setup.status();
    assert_eq!(status["missing"].as_array().unwrap().len() as u64, units - status["done"].as_u64().unwrap());
    setup.run("e", &format!("merge {OUT}")).exits(3).says(&["not finished", "dsconvert run s3://"]);
    // Two concurrent runs of the same units, on one machine.
    let same: Vec<Child> = (0..2).map(|_| setup.start("b", &format!("run {OUT} --part 4/4"))).collect();
    for part in same {
        Ran::of(part.wait_with_output().unwrap()).exits(0);
    }
    let nothing = setup.run("f", &format!("run {OUT}")).exits(0);
    assert!(
        nothing.stdout.starts_with(&format!("0 units converted, {units} finished before")),
        "{}",
        nothing.stdout
    );
    assert!(setup.run("a", &format!("status {OUT}")).exits(0).stdout.contains("all units are done"));
    // Two machines commit concurrently.
    setup.server.set_faults(Faults { latency: Duration::from_millis(5), ..Faults::default() });
    let merge = format!("merge {OUT} --max-rejects 50%");
    for child in [setup.start("e", &merge), setup.start("f", &merge)] {
        Ran::of(child.wait_with_output().unwrap()).exits(0);
    }
    setup.server.set_faults(Faults::default());
    setup.run("e", &merge).exits(0);
    assert_same(&setup.objects(), &local);
    assert_eq!(setup.status()["committed"], true);
    assert!(setup.run("b", &format!("run {OUT} --part 1/3")).exits(0).stdout.contains("already committed"));
    for machine in ["a", "b", "e", "f"] {
        setup.assert_clean(machine);
    }
}

#[test]
fn two_concurrent_runs_make_one_dataset() {
    let setup = Setup::new();
    let (source, local) = setup.corpus();
    setup.run("a", &format!("plan {}", conversion("text", &source, TEXT))).exits(0);
    setup.server.set_faults(Faults { latency: Duration::from_millis(3), ..Faults::default() });
    let resumed = conversion("text", &source, &format!("{TEXT} --resume"));
    for child in [setup.start("a", &resumed), setup.start("b", &resumed)] {
        Ran::of(child.wait_with_output().unwrap()).exits(0);
    }
    setup.convert("text", &source, &format!("{TEXT} --resume")).exits(0);
    assert_same(&setup.objects(), &local);
}

#[test]
fn a_killed_run_can_be_resumed_on_any_machine() {
    let setup = Setup::new();
    let (source, local) = setup.corpus();
    let total = {
        let undisturbed = Setup::new();
        undisturbed.convert("text", &source, TEXT).exits(0);
        undisturbed.server.counts().requests
    };
    let mut killed = 0;
    for eighth in 0..8 {
        for key in setup.server.keys("bucket/") {
            setup.server.delete(&key);
        }
        setup.server.set_faults(Faults { latency: Duration::from_millis(3), ..Faults::default() });
        let enough = setup.server.counts().requests + 1 + total * eighth / 8;
        let mut child = setup.start("a", &conversion("text", &source, TEXT));
        let started = Instant::now();
        while setup.server.counts().requests < enough && started.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        killed += u32::from(!child.wait().unwrap().success());
        setup.server.set_faults(Faults::default());
        if !setup.has_manifest() && !setup.objects().is_empty() {
            setup.convert("text", &source, TEXT).exits(2).says(&["has not finished", "--resume"]);
            let other = setup.convert("text", &source, &format!("{TEXT} --shard-bytes 200MiB --resume"));
            // Before the plan is stored, nothing contradicts the other options.
            if other.status == 0 {
                continue;
            }
            other.exits(2).says(&["--shard-bytes was 268435456 and is now 209715200"]);
        }
        // On the same machine with its leftover files, or on one without any.
        let machine = if eighth % 2 == 0 { "a" } else { "b" };
        setup.run(machine, &conversion("text", &source, &format!("{TEXT} --resume"))).exits(0);
        assert_same(&setup.objects(), &local);
        setup.assert_clean(machine);
    }
    assert!(killed >= 4, "{killed}");
}

#[test]
fn a_run_survives_network_and_server_errors() {
    let setup = Setup::new();
    let (source, local) = setup.corpus();
    for seed in 0..3 {
        for key in setup.server.keys("bucket/") {
            setup.server.delete(&key);
        }
        setup.server.set_faults(Faults { page: 7, ..Faults::usual(8, seed) });
        setup.convert("text", &source, TEXT).exits(0);
        assert!(setup.server.counts().faults > 10);
        setup.server.set_faults(Faults::default());
        // The next run deletes what could not be deleted after the commit.
        setup.convert("text", &source, &format!("{TEXT} --resume")).exits(0);
        assert_same(&setup.objects(), &local);
    }
}

#[test]
fn a_lost_response_to_a_create_only_request_is_no_conflict() {
    let setup = Setup::new();
    let (source, local) = setup.corpus();
    // Half of the responses are lost, so that a retry finds the object already created.
    for only in ["plan.json", "unit.json", "manifest.json"] {
        let before = setup.server.counts().faults;
        for seed in 0..3 {
            for key in setup.server.keys("bucket/") {
                setup.server.delete(&key);
            }
            setup.server.set_faults(Faults {
                only: Some(only.to_owned()),
                kinds: vec![Fault::LostResponse],
                ..Faults::usual(2, seed)
            });
            setup.convert("text", &source, TEXT).exits(0);
            setup.server.set_faults(Faults::default());
            assert_same(&setup.objects(), &local);
        }
        assert!(setup.server.counts().faults > before, "{only}");
    }
}

#[test]
fn a_server_that_stops_answering_ends_the_run_and_leaves_no_manifest() {
    let setup = Setup::new();
    let (source, local) = setup.corpus();
    let mut command = setup.command("a", &[]);
    let args = conversion("text", &source, TEXT);
    command.args(args.split_whitespace()).env("DSCONVERT_RETRY_SECONDS", "1");
    setup.server.set_faults(Faults { dies_after: Some(40), ..Faults::default() });
    let ran = Ran::of(command.output().unwrap()).exits(3).says(&["--resume"]);
    assert!(!ran.stderr.contains("bug"), "{}", ran.stderr);
    setup.server.set_faults(Faults::default());
    assert!(!setup.has_manifest());
    setup.assert_clean("a");
    setup.convert("text", &source, &format!("{TEXT} --resume")).exits(0);
    assert_same(&setup.objects(), &local);
}

#[test]
fn another_manifest_is_never_replaced() {
    let setup = Setup::new();
    let (source, _) = setup.corpus();
    setup.run("a", &format!("plan {}", conversion("text", &source, TEXT))).exits(0);
    setup.run("a", &format!("run {OUT}")).exits(0);
    // Another run takes the prefix while this one commits.
    let other = setup.path("other");
    convert("text", &source, &other, &format!("{TEXT} --shard-bytes 200MiB")).exits(0);
    let theirs = std::fs::read(other.join("manifest.json")).unwrap();
    setup.hold(&format!("PUT /{PREFIX}manifest.json"));
    let child = setup.start("a", &format!("merge {OUT} --max-rejects 50%"));
    setup.wait_for_held();
    setup.server.put(&format!("{PREFIX}manifest.json"), theirs.clone());
    setup.release();
    Ran::of(child.wait_with_output().unwrap())
        .exits(3)
        .says(&["another dataset was committed", "another prefix"]);
    assert_eq!(setup.server.get(&format!("{PREFIX}manifest.json")).unwrap(), theirs);
}

#[test]
fn a_store_that_ignores_create_only_conditions_is_refused() {
    let setup = Setup::new();
    let (source, _) = setup.corpus();
    setup.server.set_faults(Faults { ignores_conditions: true, ..Faults::default() });
    for command in [conversion("text", &source, TEXT), format!("plan {}", conversion("text", &source, TEXT))]
    {
        setup.run("a", &command).exits(3).says(&["does not support create-only writes", "If-None-Match"]);
        assert_eq!(setup.objects(), Tree::new());
        setup.assert_clean("a");
    }
}

#[test]
fn a_prefix_with_foreign_objects_is_refused_untouched() {
    let setup = Setup::new();
    let (source, _) = setup.corpus();
    setup.server.put(&format!("{PREFIX}notes.txt"), "mine");
    for resume in ["", "--resume"] {
        let ran = setup.convert("text", &source, &format!("{TEXT} {resume}"));
        ran.exits(2).says(&["do not belong to a dataset", "another prefix"]);
    }
    setup.run("a", &format!("run {OUT}")).exits(2).says(&["there is no plan", "dsconvert plan"]);
    setup.run("a", &format!("merge {OUT}")).exits(2).says(&["there is no plan"]);
    setup.run("a", &format!("status {OUT}")).exits(2).says(&["there is no plan"]);
    setup.run("a", &format!("merge {OUT} --verify")).exits(2).says(&["only be checked by size"]);
    assert_eq!(setup.objects().into_keys().collect::<Vec<_>>(), ["notes.txt"]);
    // A key whose name only starts with the name of the dataset is left alone.
    setup.server.delete(&format!("{PREFIX}notes.txt"));
    setup.server.put("bucket/some/settings.txt", "mine");
    setup.convert("text", &source, TEXT).exits(0);
    assert_eq!(setup.server.get("bucket/some/settings.txt").unwrap(), b"mine");
}

#[test]
fn a_bucket_that_cannot_be_used_is_named() {
    let setup = Setup::new();
    let (source, _) = setup.corpus();
    let wrong = format!("text {} --out s3://no-such-bucket/set {TEXT}", source.display());
    setup.run("a", &wrong).exits(3).says(&["s3://no-such-bucket/set", "no such"]);
    let denied = Faults { kinds: vec![Fault::Denied], one_in: 1, ..Faults::default() };
    setup.server.set_faults(denied);
    setup.convert("text", &source, TEXT).exits(3).says(&["refuses these credentials", "AWS_ACCESS_KEY_ID"]);
    assert_eq!(setup.objects(), Tree::new());
}

#[test]
fn a_run_without_records_or_with_duplicate_keys_leaves_no_objects() {
    let setup = Setup::new();
    let source = setup.path("bad.jsonl");
    std::fs::write(&source, "bad\n".repeat(20)).unwrap();
    setup.convert("text", &source, "--tokenizer bytes").exits(3).says(&["no records were produced"]);
    assert_eq!(setup.objects(), Tree::new());
    // Two items with the same key; the message about them is made from records that exist only in the store.
    std::fs::write(&source, "{\"text\": \"a\", \"id\": \"x\"}\n{\"text\": \"b\", \"id\": \"x\"}\n").unwrap();
    let ran = setup.convert("text", &source, "--tokenizer bytes --key-field id");
    ran.exits(3).says(&["two items have the key \"x\""]);
    assert_eq!(setup.objects(), Tree::new());
    setup.assert_clean("a");
}

#[test]
fn a_shard_damaged_in_the_store_is_rebuilt_before_the_commit_and_reported_after_it() {
    let setup = Setup::new();
    let (source, local) = setup.corpus();
    let shard = format!("{PREFIX}train/train-000001-00.pb");
    setup.run("a", &format!("plan {}", conversion("text", &source, TEXT))).exits(0);
    setup.run("a", &format!("run {OUT}")).exits(0);
    for cut in [false, true] {
        if cut {
            setup.server.put(&shard, "x")
        } else {
            setup.server.delete(&shard)
        }
        let merge = setup.run("a", &format!("merge {OUT}"));
        merge.exits(3).says(&["unit 1 has to be converted again", "train-000001-00.pb", "1 of"]);
        let again =
            setup.run("b", &format!("run {OUT} --units 1")).exits(0).says(&["unit 1 is converted again"]);
        assert!(again.stdout.starts_with("1 unit converted"), "{}", again.stdout);
    }
    // An altered unit result.
    setup.server.put(&format!("{PREFIX}.dsconvert/units/000002/unit.json"), "{}\nx\n");
    setup.convert("text", &source, &format!("{TEXT} --resume")).exits(0).says(&["unit 2 is converted again"]);
    assert_same(&setup.objects(), &local);
    setup.server.put(&shard, "x");
    let ran = setup.convert("text", &source, &format!("{TEXT} --resume")).exits(3);
    ran.says(&["train-000001-00.pb", "has 1 byte instead of", "another prefix"]);
}

#[test]
fn a_signal_keeps_the_units_that_are_finished() {
    let setup = Setup::new();
    let (source, local) = setup.corpus();
    // One shard is not uploaded until the end, so the run cannot end by itself.
    setup.hold(&format!("PUT /{PREFIX}train/train-000002"));
    let child = setup.start("a", &conversion("text", &source, TEXT));
    let started = Instant::now();
    let finished = |setup: &Setup| setup.server.keys(PREFIX).iter().any(|key| key.ends_with("/unit.json"));
    while !finished(&setup) && started.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
    setup.wait_for_held();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    Ran::of(child.wait_with_output().unwrap()).exits(143).says(&["--resume"]);
    setup.release();
    assert!(finished(&setup) && !setup.has_manifest());
    setup.convert("text", &source, &format!("{TEXT} --resume")).exits(0);
    assert_same(&setup.objects(), &local);
    setup.assert_clean("a");
}

#[test]
fn the_scratch_option_sets_the_scratch_directory() {
    let setup = Setup::new();
    let (source, local) = setup.corpus();
    let scratch = setup.path("scratch");
    // A file in its place is an error.
    std::fs::write(&scratch, "x").unwrap();
    let options = format!("{TEXT} --scratch {}", scratch.display());
    setup
        .convert("text", &source, &options)
        .exits(3)
        .says(&["choose another scratch directory with --scratch"]);
    std::fs::remove_file(&scratch).unwrap();
    setup.convert("text", &source, &format!("{options} --resume")).exits(0);
    assert_same(&setup.objects(), &local);
    assert!(scratch.is_dir() && tree(&scratch).is_empty());
    // It must not overlap the sources.
    let inside = format!(
        "text {} --out s3://bucket/b --tokenizer bytes --scratch {}",
        source.parent().unwrap().display(),
        scratch.display()
    );
    setup.run("a", &inside).exits(2).says(&["overlap", "--scratch"]);
}

#[test]
fn the_recipe_of_a_dataset_in_object_storage_makes_it_again() {
    let setup = Setup::new();
    let (source, tokenizer) = (fixture("corpus"), fixture("tokenizers/bpe.json"));
    let options =
        format!("--tokenizer {} --max-length 16 --overflow split:4 --seed 3 --shuffle", tokenizer.display());
    setup.convert("text", &source, &options).exits(0);
    let (printed, out) =
        (setup.run("a", &format!("inspect --recipe {OUT}")).exits(0).stdout, setup.path("out"));
    let line = printed.lines().last().unwrap().strip_prefix("dsconvert ").unwrap();
    let line =
        line.replace(" OUT ", &format!(" {} ", out.display())).replace("SRC…", source.to_str().unwrap());
    setup.run("a", &line).exits(0);
    let fingerprint =
        |manifest: &[u8]| serde_json::from_slice::<Value>(manifest).unwrap()["fingerprint"].clone();
    assert_eq!(
        fingerprint(&tree(&out)["manifest.json"]),
        fingerprint(&setup.objects()["manifest.json"]),
        "{line}"
    );
}

#[test]
fn the_commands_of_the_guide_work() {
    let page = include_str!("../../docs/how-to/use-object-storage.md");
    let section =
        page.split("\n## ").find(|section| section.starts_with("Write a dataset to a bucket")).unwrap();
    let blocks = section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let setup = Setup::new();
    setup.server.put("my-bucket/x", "x");
    copy_dir(&fixture("photos"), &setup.path("photos"));
    let mut run = 0;
    for line in blocks.flat_map(str::lines).filter(|line| !line.starts_with("export ")) {
        let args: Vec<&str> = line.strip_prefix("dsconvert ").unwrap().split_whitespace().collect();
        let mut command = setup.command("a", &args);
        command.arg(if args[0] == "status" { "--json" } else { "--threads=2" });
        let may_reject = matches!(args[0], "images" | "merge");
        command.args(may_reject.then_some("--max-rejects=90%"));
        Ran::of(command.current_dir(setup.dir.path()).output().unwrap()).exits(0);
        run += 1;
    }
    assert_eq!(run, 6);
    for prefix in ["my-bucket/photos-256/", "my-bucket/photos-128/"] {
        assert!(setup.server.get(&format!("{prefix}manifest.json")).is_some());
        assert!(setup.server.keys(&format!("{prefix}.dsconvert")).is_empty());
    }
}
