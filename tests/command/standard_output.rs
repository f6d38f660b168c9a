//! Standard output that is closed, full, or named as the file of an option.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::*;

/// Runs a line of bash, in which `dsconvert` is the binary. The exit status is that of the first command of a pipeline.
fn bash(dir: &Path, line: &str) -> std::process::Output {
    let script = format!("dsconvert() {{ '{}' \"$@\"; }}; {line}", env!("CARGO_BIN_EXE_dsconvert"));
    Command::new("bash").args(["-c", &script]).current_dir(dir).output().unwrap()
}

/// Makes a dataset of texts, with one rejected item.
fn dataset(dir: &Path) -> PathBuf {
    let (source, out) = (corpus_with_rejects(dir, 50, 0, 1), dir.join("ds"));
    convert("text", &source, &out, "--tokenizer bytes --format parquet").exits(0);
    out
}

#[test]
fn a_closed_pipe_does_not_hide_the_result() {
    let dir = tempfile::tempdir().unwrap();
    let out = dataset(dir.path());
    let closed = |line: &str| {
        let ran = Ran::of(bash(dir.path(), &format!("{line} | true; exit ${{PIPESTATUS[0]}}")));
        assert_eq!(ran.stderr, "", "{line}");
        ran.status
    };
    assert_eq!(closed("dsconvert inspect ds --verify"), 0);
    assert_eq!(closed("dsconvert inspect ds"), 0);
    // All files are written.
    assert_eq!(closed("dsconvert inspect ds --html page.html --plot plot.svg"), 0);
    assert!(dir.path().join("plot.svg").exists());
    let shard = out.join(tree(&out).into_keys().find(|name| name.starts_with("train/")).unwrap());
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes[50] ^= 1;
    std::fs::write(&shard, &bytes).unwrap();
    assert_eq!(closed(&format!("dsconvert inspect {} --verify", shard.display())), 3);
    std::fs::write(&shard, b"short").unwrap();
    for options in ["", "--json"] {
        assert_eq!(closed(&format!("dsconvert inspect ds --verify {options}")), 3);
    }
    let repair =
        bash(dir.path(), "dsconvert inspect ds --verify --repair c.jsonl | true; exit ${PIPESTATUS[0]}");
    Ran::of(repair).exits(0);
    assert_eq!(closed("dsconvert inspect ds --verify"), 0);
    assert_eq!(closed("dsconvert plan text c.jsonl -t bytes --out parts"), 0);
    assert_eq!(closed("dsconvert run parts"), 0);
    assert_eq!(closed("dsconvert merge parts --strict"), 1);
    assert_eq!(closed("dsconvert text c.jsonl -t bytes --out other --strict"), 1);
}

#[test]
fn work_that_is_done_succeeds_although_its_summary_cannot_be_printed() {
    let dir = tempfile::tempdir().unwrap();
    corpus_with_rejects(dir.path(), 50, 0, 1);
    for (line, status, done) in [
        ("plan text c.jsonl -t bytes --out parts", 0, "the plan is stored"),
        ("run parts", 0, "the units are converted"),
        ("merge parts --strict", 1, "the dataset is committed"),
        ("text c.jsonl -t bytes --out other", 0, "the dataset is committed"),
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = command(line.split_whitespace());
        let ran = Ran::of(command.current_dir(dir.path()).stdout(full).output().unwrap());
        ran.exits(status).says(&["warning: ", done, "cannot print to standard output"]);
    }
}

#[test]
fn a_file_on_standard_output_is_alone_there_and_follows_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    dataset(dir);
    for (line, start, end) in [
        ("inspect ds --html /dev/stdout", "<!doctype html>", "</html>\n"),
        ("inspect ds --plot /dev/fd/1 --html page.html", "<svg", "</svg>\n"),
        ("inspect ds --record 0 --extract /proc/self/fd/1", "[", "]\n"),
        ("text c.jsonl -t bytes --out OUT --report /dev/stdout", "{\n  \"run_report\"", "}\n"),
        ("simulate --step-ms 5 --load-ms 3 --workers 1 --svg /dev/stdout", "<svg", "</svg>\n"),
        ("simulate --step-ms 5 --load-ms 3 --workers 1 --json --html /dev/stdout", "<!", "</html>\n"),
        (
            "bench c.jsonl --items 20 --repeat 1 --threads 1 --no-probe --trace /dev/stdout",
            "# load times",
            "\n",
        ),
    ] {
        let check = |text: &str| {
            assert!(text.starts_with(start) && text.ends_with(end), "{line}: {text}");
        };
        let piped = Ran::of(bash(dir, &format!("dsconvert {} | cat", line.replace("OUT", "a"))));
        check(&piped.stdout);
        // The same file under its own name, too.
        for name in ["/dev/stdout", "log"] {
            std::fs::write(dir.join("log"), "before\n").unwrap();
            let named = line.replace("/dev/stdout", name).replace("OUT", name.rsplit('/').next().unwrap());
            let named = named.replace("--out log", "--out b");
            Ran::of(bash(dir, &format!("dsconvert {named} >> log && echo after >> log"))).exits(0);
            let log = std::fs::read_to_string(dir.join("log")).unwrap();
            check(log.strip_prefix("before\n").unwrap().strip_suffix("after\n").unwrap());
        }
    }
    assert!(dir.join("page.html").exists());
    assert_eq!(
        bash(dir, "dsconvert inspect ds --html /dev/stdout | true; exit ${PIPESTATUS[0]}").stderr,
        b""
    );
}

#[test]
fn a_limited_file_size_is_an_error_of_every_command() {
    let dir = tempfile::tempdir().unwrap();
    dataset(dir.path());
    let ran = Ran::of(bash(dir.path(), "ulimit -f 1; dsconvert inspect ds --html page.html"));
    ran.exits(3).says(&["page.html: cannot write", "File too large"]);
    let left = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("page")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_progress_of_standard_input_has_no_total() {
    let dir = tempfile::tempdir().unwrap();
    corpus_with_rejects(dir.path(), 50, 0, 40);
    let input = File::open(dir.path().join("c.jsonl")).unwrap();
    let mut text = command(["text", "-", "--input-format", "jsonl", "-t", "bytes", "--out", "out"]);
    let ran = text.current_dir(dir.path()).stdin(Stdio::from(input)).output().unwrap();
    Ran::of(ran).exits(3).says(&["--max-rejects"]);
    let status = Ran::of(bash(dir.path(), "dsconvert status out")).exits(0).stdout;
    assert!(status.contains(" KiB, ") && !status.contains("of 0 B"), "{status}");
}

#[test]
fn no_value_of_a_record_is_lost_in_json() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(fixture("tokenizers/bpe.json"), dir.path().join("tokenizer.json")).unwrap();
    let line = r#"{"text": "a b", "t": "x", "record": "mine", "fields": "other", "n": 5}"#;
    std::fs::write(dir.path().join("c.jsonl"), line).unwrap();
    let json = |line: &str| -> Value {
        let ran = Ran::of(bash(dir.path(), line)).exits(0);
        serde_json::from_str(&ran.stdout).unwrap()
    };
    let convert = |out: &str, keep: &str| {
        let line = format!("dsconvert text c.jsonl -t tokenizer.json --keep-fields {keep} --out {out} -q");
        Ran::of(bash(dir.path(), &line)).exits(0);
    };
    convert("clash", "record,fields,n:int64");
    let shown = json("dsconvert inspect clash --head 1 --json");
    assert_eq!((&shown["record"], &shown["n"]), (&Value::from(0), &Value::from(5)));
    assert_eq!(shown["fields"], serde_json::json!({"record": "mine", "fields": "other"}));
    convert("plain", "fields,n:int64");
    assert_eq!(json("dsconvert inspect plain --head 1 --json")["fields"], "other");
    convert("text", "text,n:int64");
    let shown = json("dsconvert inspect text --head 1 --json");
    assert_eq!(shown["text"], "a b");
    let shown = json("dsconvert inspect text --head 1 --json --text");
    assert!(shown["text"].is_string());
    assert_eq!(shown["fields"], serde_json::json!({"text": "a b"}));
}
