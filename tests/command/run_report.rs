//! Run reports of a conversion, of its parts and of the merge, and the page that shows them.

use std::fs;
use std::path::Path;

use objects::Faults;
use serde_json::{Value, json};

use crate::html_page::{assert_contains, assert_self_contained, page};
use crate::remote_setup::{OUT, Setup, TEXT, conversion};
use crate::support::*;

/// Runs `dsconvert SUBCOMMAND OUT OPTIONS… --report FILE`.
fn run_with_report(subcommand: &str, out: &Path, options: &str, report: &Path) -> Ran {
    let mut command = command([subcommand]);
    command.arg(out).args(options.split_whitespace()).arg("--report").arg(report);
    Ran::of(command.output().unwrap())
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The sum of a number over reports.
fn sum(reports: &[Value], of: impl Fn(&Value) -> &Value) -> u64 {
    reports.iter().map(|report| of(report).as_u64().unwrap()).sum()
}

/// The HTML page of a dataset with these run reports.
fn page_of(out: &Path, dir: &Path, reports: &[&Path]) -> String {
    let args: Vec<&str> = reports.iter().flat_map(|report| ["--report", report.to_str().unwrap()]).collect();
    page(out, &dir.join("page.html"), &args)
}

#[test]
fn a_run_report_has_times_and_counts_and_changes_no_byte() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("run.json");
    let path = report.to_str().unwrap();
    let tokenizer = fixture("tokenizers/bpe.json");
    let text = format!("--tokenizer {}", tokenizer.to_str().unwrap());
    for (kind, source, options) in [
        ("images", "photos", "--resize longer:64 --max-rejects 50%"),
        ("text", "corpus/stories.jsonl", text.as_str()),
    ] {
        let (plain, out) = (dir.path().join(format!("{kind}-plain")), dir.path().join(kind));
        convert(kind, &fixture(source), &plain, options).exits(0);
        let ran =
            convert(kind, &fixture(source), &out, &format!("{options} --threads 2 --report {path}")).exits(0);
        assert!(
            ran.stdout.contains("  2 threads: ") && ran.stdout.contains("% transforming"),
            "{}",
            ran.stdout
        );
        assert_same(&tree(&plain), &tree(&out));

        let found: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
        let manifest = manifest(&out);
        assert_eq!(
            (&found["run_report"], &found["kind"], &found["threads"]),
            (&1.into(), &kind.into(), &2.into())
        );
        assert_eq!(found["fingerprint"], manifest["fingerprint"]);
        assert_eq!(found["options"], manifest["options"]);
        assert_eq!(found["reject_codes"], manifest["reject_codes"]);
        assert_eq!(found["counts"]["found"], manifest["found"]);
        assert_eq!(found["items"], manifest["found"]);
        assert_eq!(found["bytes_in"], manifest["sources"]["bytes"]);
        assert_eq!(found["bytes_out"], manifest["splits"]["train"]["bytes"]);
        assert_eq!((&found["was_complete"], &found["retries"]), (&false.into(), &0.into()));
        let number = |group: &str, name: &str| found[group][name].as_f64().unwrap();
        for stage in ["read", "transform", "write", "sync"] {
            assert!(number("thread_seconds", stage) > 0.0, "{stage}: {found}");
        }
        let phases: f64 =
            ["plan", "prepare", "convert", "commit"].map(|phase| number("seconds", phase)).iter().sum();
        assert!(phases > 0.0 && phases <= number("seconds", "total"), "{found}");
        // The busy and waiting times of two workers are at most twice the time of the conversion.
        let workers: f64 =
            ["read", "transform", "write", "wait"].map(|stage| number("thread_seconds", stage)).iter().sum();
        assert!(workers <= 2.0 * number("seconds", "convert"), "{found}");
        assert!(number("rates", "items") > 0.0 && found["host"]["cores"].as_u64() > Some(0));
        if cfg!(target_os = "linux") {
            assert!(found["peak_memory_bytes"].as_u64() > Some(1 << 20), "{found}");
            assert!(
                found["host"]["kernel"].is_string() && found["host"]["file_system"].is_string(),
                "{found}"
            );
        }

        let shown = page(&out, &dir.path().join("report.html"), &["--report", path]);
        assert_contains(&shown, &["Where the time went", "transforming", "Peak memory", "Machine and run"]);
        assert!(!shown.contains("belongs to another dataset"));
        assert_self_contained(&shown);

        let again =
            convert(kind, &fixture(source), &out, &format!("{options} --resume --report {path}")).exits(0);
        assert!(again.stdout.contains("already complete") && !again.stdout.contains("transforming"));
        let found: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
        assert_eq!((&found["was_complete"], &found["rates"]["items"]), (&true.into(), &0.0.into()));
    }
    // The last report belongs to the text dataset.
    let shown = page(&dir.path().join("images"), &dir.path().join("report.html"), &["--report", path]);
    assert_contains(&shown, &["belongs to another dataset"]);
}

#[test]
fn a_run_report_that_cannot_be_written_is_refused_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    fs::create_dir(&out).unwrap();
    let inside = out.join("run.json");
    for (path, why) in [
        (inside.to_str().unwrap(), "inside the dataset"),
        (dir.path().join("no/run.json").to_str().unwrap(), "no such folder"),
        (dir.path().to_str().unwrap(), "this is a folder"),
        ("s3://bucket/run.json", "is a URL"),
    ] {
        let options = format!("--tokenizer bytes --report {path}");
        convert("text", &fixture("corpus/stories.jsonl"), &out, &options).exits(2).says(&[why]);
    }
    assert!(tree(&out).is_empty());
}

#[test]
fn the_run_reports_of_the_parts_add_up_to_that_of_the_merge() {
    let dir = tempfile::tempdir().unwrap();
    let documents = corpus_with_rejects(dir.path(), 120, 7, 9);
    for (kind, source, options) in [
        ("text", documents, "--tokenizer bytes --unit-bytes 4096"),
        ("images", fixture("photos"), "--resize shorter:32 --unit-bytes 65536"),
    ] {
        let (whole, out) = (dir.path().join(format!("whole-{kind}")), dir.path().join(format!("out-{kind}")));
        convert(kind, &source, &whole, &format!("{options} --max-rejects 50%")).exits(0);
        let mut plan = command(["plan", kind]);
        plan.arg(&source).arg("--out").arg(&out).args(options.split_whitespace());
        Ran::of(plan.output().unwrap()).exits(0);

        let folder = dir.path().join(format!("reports-{kind}"));
        fs::create_dir(&folder).unwrap();
        let file = |name: &str| folder.join(format!("{name}.json"));
        for part in ["1", "2"] {
            let ran =
                run_with_report("run", &out, &format!("--part {part}/2 --threads 2"), &file(part)).exits(0);
            assert!(ran.stdout.contains("2 threads: ") && ran.stdout.contains("% reading"), "{}", ran.stdout);
        }
        // A part that is submitted again converts nothing.
        let again = dir.path().join("again.json");
        run_with_report("run", &out, "--part 2/2", &again).exits(0);
        let merged = run_with_report("merge", &out, "--max-rejects 50%", &file("merge")).exits(0);
        assert!(
            merged.stdout.contains("  checks ") && merged.stdout.contains(", commit "),
            "{}",
            merged.stdout
        );
        assert_same(&tree(&out), &tree(&whole));

        let parts = [read(&file("1")), read(&file("2"))];
        let (manifest, merge) = (manifest(&out), read(&file("merge")));
        for outcome in ["found", "converted", "rejected", "filtered", "duplicates"] {
            assert_eq!(sum(&parts, |report| &report["counts"][outcome]), manifest[outcome], "{outcome}");
        }
        for name in ["records", "bytes_out", "bytes_in"] {
            assert_eq!(sum(&parts, |report| &report[name]), merge[name].as_u64().unwrap(), "{name}");
        }
        if kind == "text" {
            assert_eq!(sum(&parts, |report| &report["tokens"]), merge["tokens"].as_u64().unwrap());
            assert_eq!(sum(&parts, |report| &report["text_bytes"]), merge["text_bytes"].as_u64().unwrap());
        }
        for (report, selection) in parts.iter().zip(["1/2", "2/2"]) {
            assert_eq!(
                (&report["command"], &report["kind"], &report["threads"]),
                (&json!("run"), &json!(kind), &json!(2))
            );
            assert_eq!((&report["fingerprint"], &report["was_complete"]), (&json!(""), &json!(false)));
            assert_eq!(
                (&report["options"], &report["part"]["selection"]),
                (&manifest["options"], &json!(selection))
            );
            assert_eq!(report["part"]["units"], report["part"]["converted"]);
            assert_eq!(report["part"]["planned"], manifest["plan"]["units"]);
            assert_eq!(report["part"]["listing"], manifest["plan"]["listing"]);
            assert_eq!(report["part"]["plan"], parts[0]["part"]["plan"]);
            for time in
                [&report["seconds"]["convert"], &report["thread_seconds"]["transform"], &report["started_at"]]
            {
                assert!(time.as_f64().unwrap() > 0.0, "{report}");
            }
            let (rate, total) =
                (report["rates"]["items"].as_f64().unwrap(), report["seconds"]["total"].as_f64().unwrap());
            let found = report["counts"]["found"].as_f64().unwrap();
            assert!((rate * total / found - 1.0).abs() < 1e-6, "{report}");
            assert!(
                cfg!(not(target_os = "linux")) || report["peak_memory_bytes"].as_u64().unwrap() > 1 << 20
            );
        }
        assert_eq!(
            sum(&parts, |report| &report["part"]["converted"]),
            manifest["plan"]["units"].as_u64().unwrap()
        );
        assert_eq!(merge["fingerprint"], manifest["fingerprint"]);
        assert_eq!(
            (&merge["command"], &merge["rates"]["items"], merge.get("part")),
            (&json!("merge"), &json!(0.0), None)
        );
        assert!(merge["seconds"]["commit"].as_f64().unwrap() > 0.0);
        let again = read(&again);
        assert_eq!((&again["part"]["converted"], &again["counts"]["found"]), (&json!(0), &json!(0)));
        run_with_report("run", &out, "", &dir.path().join("late.json")).exits(0);
        let late = read(&dir.path().join("late.json"));
        assert_eq!((&late["was_complete"], &late["part"]["plan"]), (&json!(true), &Value::Null));

        // A page from all reports, from one, and from those of one part and the merge.
        let shown = page_of(&out, dir.path(), &[&folder]);
        assert_contains(
            &shown,
            &[
                "<bdi>1/2</bdi>",
                "<bdi>2/2</bdi>",
                "<bdi>merge</bdi>",
                "First start to last end",
                "Where the time went",
            ],
        );
        assert!(!shown.contains("missing.") && !shown.contains("another dataset"));
        assert_contains(&page_of(&out, dir.path(), &[&file("merge")]), &["Indexes and commit"]);
        let lacking = page_of(&out, dir.path(), &[&file("1"), &file("merge")]);
        assert_contains(&lacking, &["units; those of the others are missing"]);
        assert!(!page_of(&out, dir.path(), &[&file("2")]).contains("another dataset"));
    }
    let other = [dir.path().join("reports-text/1.json"), dir.path().join("reports-images/1.json")];
    let shown = page_of(&dir.path().join("out-images"), dir.path(), &[&other[0], &other[1]]);
    assert_contains(&shown, &["1 run report for another dataset", "from different plans"]);
}

#[test]
fn the_report_of_a_part_belongs_to_its_source_files() {
    let dir = tempfile::tempdir().unwrap();
    let converted = |name: &str, documents: usize| {
        let out = dir.path().join(name);
        let source = dir.path().join("c.jsonl");
        corpus(&source, documents);
        let mut plan = command(["plan", "text"]);
        plan.arg(&source).arg("--out").arg(&out).args(["--tokenizer", "bytes"]);
        Ran::of(plan.output().unwrap()).exits(0);
        let report = dir.path().join(format!("{name}.json"));
        run_with_report("run", &out, "", &report).exits(0);
        Ran::of(command(["merge"]).arg(&out).output().unwrap()).exits(0);
        (out, report)
    };
    // Both have the same options and one unit.
    let ((out, own), (_, other)) = (converted("a", 20), converted("b", 30));
    assert!(!page_of(&out, dir.path(), &[&own]).contains("another dataset"));
    assert_contains(&page_of(&out, dir.path(), &[&other]), &["The run report belongs to another dataset."]);
    // Reports of older versions do not name the files.
    let mut old = read(&other);
    assert!(old["part"].as_object_mut().unwrap().remove("listing").is_some());
    fs::write(&other, old.to_string()).unwrap();
    assert!(!page_of(&out, dir.path(), &[&other]).contains("another dataset"));
}

#[test]
fn reports_that_cannot_be_written_or_read_are_refused_before_anything_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut plan = command(["plan", "text"]);
    plan.arg(fixture("corpus/stories.jsonl")).arg("--out").arg(&out).args(["--tokenizer", "bytes"]);
    Ran::of(plan.output().unwrap()).exits(0);
    let before = tree(&out);
    for (path, why) in [
        (out.join("run.json"), "inside the dataset"),
        (dir.path().join("no/run.json"), "no such folder"),
        (dir.path().to_owned(), "this is a folder"),
        ("s3://bucket/run.json".into(), "is a URL"),
    ] {
        for subcommand in ["run", "merge"] {
            run_with_report(subcommand, &out, "", &path).exits(2).says(&[why]);
        }
        assert_same(&tree(&out), &before);
    }
    // A part that fails writes no report, and the old one stays.
    let report = dir.path().join("run.json");
    let old = "{\n  \"run_report\": 0\n}\n";
    fs::write(&report, old).unwrap();
    run_with_report("run", &out, "--units 99", &report).exits(2).says(&["no unit 99"]);
    assert_eq!(fs::read_to_string(&report).unwrap(), old);

    run_with_report("run", &out, "", &report).exits(0);
    run_with_report("merge", &out, "", &dir.path().join("merge.json")).exits(0);
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    fs::write(empty.join("notes.txt"), "x").unwrap();
    let html = dir.path().join("page.html");
    let shown = |reports: &[&Path]| {
        let mut command = command(["inspect"]);
        command.arg(&out).arg("--html").arg(&html);
        for report in reports {
            command.arg("--report").arg(report);
        }
        Ran::of(command.output().unwrap())
    };
    shown(&[&empty]).exits(2).says(&["the folder holds no run reports", "--report"]);
    shown(&[&report, &report]).exits(2).says(&["named twice"]);
    let spelled = dir.path().join("empty/../run.json");
    shown(&[&report, &spelled]).exits(2).says(&["named twice"]);
    fs::write(empty.join("other.json"), "{}").unwrap();
    shown(&[&report, &empty]).exits(2).says(&["other.json", "not a run report"]);
    assert!(!html.exists());
}

#[test]
fn many_hostile_reports_give_a_page_of_bounded_size() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    convert("text", &fixture("corpus/stories.jsonl"), &out, "--tokenizer bytes").exits(0);
    let folder = dir.path().join("reports");
    fs::create_dir(&folder).unwrap();
    let text = "</td><script>window.hacked=1</script>\u{202e}".repeat(50);
    for number in 0..300u64 {
        let report = json!({
            "run_report": 1, "command": text, "host": { "name": format!("{number}{text}") },
            "part": { "selection": text, "plan": text, "units": u32::MAX, "converted": u32::MAX, "planned": u32::MAX },
            "seconds": { "total": number as f64 * 1e305, "convert": -1e300 }, "started_at": -1e308,
            "thread_seconds": { "read": 1e308, "wait": 1e308 }, "rates": { "items": 1e308, "bytes_in": -5 },
            "counts": { "found": u64::MAX, "converted": 0, "filtered": 0, "duplicates": 0, "rejected": 0 }, "bytes_in": u64::MAX, "bytes_out": u64::MAX,
            "retries": u64::MAX, "request_retries": u64::MAX, "peak_memory_bytes": u64::MAX,
        });
        fs::write(folder.join(format!("{number}.json")), report.to_string()).unwrap();
    }
    let shown = page_of(&out, dir.path(), &[&folder]);
    assert_contains(
        &shown,
        &["The 200 slowest of 300 runs are shown", "&lt;script&gt;", "300 run reports for another dataset"],
    );
    assert!(!shown.contains("<script") && !shown.contains(['\u{202e}']) && !shown.contains("NaN"));
    assert_eq!(shown.matches("<th scope=\"row\"><bdi>&lt;/td&gt;").count(), 200);
}

#[test]
fn retried_requests_to_object_storage_are_counted() {
    let setup = Setup::new();
    let (source, local) = setup.corpus();
    setup.run("a", &format!("plan {}", conversion("text", &source, TEXT))).exits(0);
    let report = setup.path("part.json");
    setup.run("a", &format!("run {OUT} --units 0 --report {}", report.display())).exits(0);
    let quiet = read(&report);
    assert_eq!((&quiet["request_retries"], &quiet["host"]["file_system"]), (&json!(0), &json!("s3")));
    // Truncated responses are left out: the client requests the remaining bytes, which is no retry.
    let faults =
        Faults { kinds: vec![objects::Fault::Internal, objects::Fault::SlowDown], ..Faults::usual(3, 1) };
    setup.server.set_faults(faults);
    let before = setup.server.counts().faults;
    let ran = setup.run("a", &format!("run {OUT} --report {}", report.display())).exits(0);
    let failed = setup.server.counts().faults - before;
    assert_eq!(read(&report)["request_retries"].as_u64().unwrap(), failed);
    assert!(failed > 3 && ran.stdout.contains(&format!("{failed} requests were repeated")), "{}", ran.stdout);
    setup.server.set_faults(Faults::default());
    let merged = setup.path("merge.json");
    setup.run("b", &format!("merge {OUT} --max-rejects 50% --report {}", merged.display())).exits(0);
    assert_same(&setup.objects(), &local);
    assert_eq!(read(&merged)["records"], manifest(&setup.path("local"))["splits"]["train"]["records"]);
    let html = setup.path("page.html").display().to_string();
    let (report, merged) = (report.display(), merged.display());
    setup.run("a", &format!("inspect {OUT} --html {html} --report {report} --report {merged}")).exits(0);
    assert_contains(&fs::read_to_string(html).unwrap(), &["<bdi>all</bdi>", "<bdi>merge</bdi>"]);
}

#[test]
fn a_report_at_the_place_of_the_output_is_refused_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let run = |report: &str, out: &str| {
        let mut command = command(["text"]);
        command.arg(fixture("corpus/stories.jsonl")).args(["--tokenizer", "bytes", "--out", out]);
        Ran::of(command.args(["--report", report]).current_dir(dir.path()).output().unwrap())
    };
    for (report, out) in [("q", "q"), ("./q", "q"), ("q", "q/out")] {
        run(report, out).exits(2).says(&["--report", "the directory of the dataset"]);
        assert!(tree(dir.path()).is_empty());
    }
    run("q", "q-out").exits(0);
}
