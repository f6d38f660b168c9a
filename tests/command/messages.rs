//! Messages: styles, verbosity, the summary, and tips for options of other tools.

use crate::support::*;

fn run(args: &[&str]) -> Ran {
    Ran::of(command(args).output().unwrap())
}

#[test]
fn errors_have_the_styles_of_clap_when_color_is_forced() {
    let clap = ["images", "--format", "x"];
    let own = ["images", "photos", "--out", "out", "--threads", "0"];
    let with = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = command(args);
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        Ran::of(command.envs(variables.iter().copied()).output().unwrap()).exits(2).stderr
    };
    let forced = [("CLICOLOR_FORCE", "1")];
    let (styled_clap, styled_own) = (with(&clap, &forced), with(&own, &forced));
    let label = |text: &str| text.split("error:").next().unwrap().to_owned();
    assert!(label(&styled_clap).contains("\u{1b}[31m"), "{styled_clap:?}");
    assert_eq!(label(&styled_clap), label(&styled_own));
    for variables in [&[][..], &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]] {
        for args in [&clap[..], &own] {
            let plain = with(args, variables);
            assert!(plain.starts_with("error: ") && !plain.contains('\u{1b}'), "{plain:?}");
        }
    }
}

#[test]
fn options_of_other_tools_get_a_tip() {
    let images = ["images", "photos", "--out", "out"];
    let text = ["text", "corpus", "--out", "out"];
    for (subcommand, options, tip) in [
        (&images[..], &["--quality", "75"][..], "use '--encode jpeg:75' instead of '--quality'"),
        (&images, &["--jpeg_quality=75"], "use '--encode jpeg:75' instead of '--jpeg_quality'"),
        (&images, &["--workers", "8"], "use '--threads 8' instead of '--workers'"),
        (&images, &["--max_resolution", "512"], "use '--resize longer:512'"),
        (&images, &["--size", "224x224"], "use '--resize exact:224x224'"),
        (&images, &["--maxcount", "1000"], "use '--shard-records 1000'"),
        (&text, &["--seq-len", "4096"], "use '--pack 4096' instead of '--seq-len'"),
        (&text, &["--append-eod"], "use '--add-eos' instead of '--append-eod'"),
        (&text, &["--tokenizer-model", "a/b.json"], "use '--tokenizer a/b.json'"),
        (&text, &["--json-keys", "content"], "use '--text-field content'"),
        (&text, &["--apply-chat-template"], "--messages-field messages"),
        (&text, &["--output-prefix", "my"], "use '--out my'"),
    ] {
        let args: Vec<&str> = subcommand.iter().chain(options).copied().collect();
        let ran = run(&args).exits(2);
        let printed = ran.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            printed.contains("unexpected argument") && printed.contains(tip),
            "{tip} is not in {printed}"
        );
    }
    // An option that no known tool has still gets the suggestion by similarity.
    run(&["images", "photos", "--out", "out", "--resise", "x"]).exits(2).says(&["'--resize'"]);
}

#[test]
fn the_summary_names_classes_skipped_types_and_the_next_command() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("my photos");
    copy_dir(&fixture("photos"), &source);
    std::fs::write(source.join("notes.md"), "x").unwrap();
    std::fs::write(source.join("a.pdf"), "x").unwrap();
    // In no class folder, so it gets no label.
    let dunes = tree(&source).into_keys().find(|name| name.starts_with("dunes/")).unwrap();
    std::fs::copy(source.join(&dunes), source.join("loose.jpg")).unwrap();
    let run = |args: &[&str]| {
        let mut command = command(args);
        Ran::of(command.current_dir(dir.path()).output().unwrap()).exits(0).stdout
    };
    let printed = run(&["images", "my photos", "--out", "my data"]);
    for part in [
        "30 of 31 items converted, 1 rejected; 3 files skipped: 1 .md, 1 .pdf, 1 .txt",
        "5 classes: dunes 5, flowers 5, forest 6, night 4, signs 9",
        "1 record without a label",
        "train: 30 records in 1 shard, ",
        "to check every byte: dsconvert inspect 'my data' --verify",
    ] {
        assert!(printed.contains(part), "{part:?} is not in {printed}");
    }
    // A merged dataset reports the same counts.
    run(&["plan", "images", "my photos", "--out", "planned"]);
    run(&["run", "planned"]);
    let merged = run(&["merge", "planned"]);
    assert!(
        merged.contains("5 classes: dunes 5,") && merged.contains("1 record without a label"),
        "{merged}"
    );
    assert!(run(&["images", "my photos", "--out", "my data", "--resume"]).contains("already complete"));

    let planned = run(&["images", "my photos", "--dry-run"]);
    assert!(planned.contains("units    1") && !dir.path().join("out").exists(), "{planned}");
    let text = run(&["text", "my photos", "--tokenizer", "bytes", "--dry-run"]);
    assert!(text.contains("skipped  ") && text.contains(".jpg"), "{text}");
}

#[test]
fn verbose_runs_print_units_and_then_rejects() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let ran = |options: &str| {
        convert("images", &fixture("photos"), &out, &format!("--overwrite -j 2 {options}")).exits(0).stderr
    };
    let unit = "unit 0: 30 items, 29 records, 1 rejected";
    let reject = "rejected photos/";
    for (options, lines) in [("", [false, false]), ("-v", [true, false]), ("-vv", [true, true])] {
        let printed = ran(options);
        assert_eq!([printed.contains(unit), printed.contains(reject)], lines, "{options}: {printed}");
    }
    assert_eq!(ran("--quiet"), "");
    convert("images", &fixture("photos"), &out, "--quiet --verbose").exits(2).says(&["cannot be used with"]);
}

#[test]
fn a_dry_run_of_text_predicts_tokens_size_and_time_and_needs_no_output() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = dir.path().join("c.jsonl");
    // A sample has at least a megabyte of text.
    crate::support::corpus(&corpus, 20_000);
    let source = corpus.to_str().unwrap();
    let printed = run(&["text", source, "-t", "bytes", "--dry-run", "--sample", "200"]).exits(0).stdout;
    let value = |name: &str| -> u64 {
        let line = printed
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("{name}: {printed}"));
        line.split_whitespace().nth(1).unwrap().replace(',', "").parse().unwrap()
    };
    let out = dir.path().join("out");
    convert("text", &corpus, &out, "-t bytes").exits(0);
    let train = &manifest(&out)["splits"]["train"];
    let truth = train["length"]["total"].as_u64().unwrap();
    assert!(value("tokens").abs_diff(truth) < truth / 5, "{truth}: {printed}");
    assert!(value("records").abs_diff(20_000) < 4000, "{printed}");
    for part in ["with 95% intervals", "size     ", "time     ", " to "] {
        assert!(printed.contains(part), "{part:?} is not in {printed}");
    }
    run(&["text", "-", "-t", "bytes", "--dry-run", "--sample", "200"]).exits(2).says(&["standard input"]);
    // A run into the dataset would be refused.
    let again = run(&["text", source, "-t", "bytes", "--dry-run", "--out", out.to_str().unwrap()]).exits(0);
    again.says(&[
        "warning: the run would be refused: ",
        "a dataset already exists",
        "replace it with --overwrite",
    ]);
}
