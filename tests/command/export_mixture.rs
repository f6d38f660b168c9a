//! `dsconvert export A B --mixture`. `tests/python/test_export_mixtures.py` compares its files with the records of a loader.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::export::assert_same_for_any_threads;
use crate::support::*;

fn export_command(datasets: &[&Path], format: &str, out: &Path, options: &str) -> Command {
    let mut export = command(["export"]);
    export.args(datasets).args(["--to", format, "--out"]).arg(out).args(options.split_whitespace());
    export
}

fn export(datasets: &[&Path], format: &str, out: &Path, options: &str) -> Ran {
    Ran::of(export_command(datasets, format, out, options).output().unwrap())
}

/// Datasets with 200 and 90 documents of the tokenizer `bytes`.
fn two(dir: &Path, options: &str) -> [PathBuf; 2] {
    [("a", 200), ("b", 90)].map(|(name, documents)| {
        let (source, out) = (dir.join(format!("{name}.jsonl")), dir.join(name));
        corpus(&source, documents);
        convert("text", &source, &out, &format!("--tokenizer bytes {options}")).exits(0);
        out
    })
}

#[test]
fn threads_do_not_change_a_byte_of_a_mixture() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = two(dir.path(), "");
    let masks = fixture("golden/v3/masks-parquet");
    for (number, (datasets, format, options)) in [
        ([&a, &b].as_slice(), "tokens", "--mixture 1,2 --epoch-tokens 60000 --seed 4"),
        (&[&a, &b], "tokens", "--mixture 1,2 --exhausted all_exhausted --layout olmo --parts 3"),
        (&[&a, &b], "megatron", "--mixture 0.5,0.5 --unit records --epoch-steps 500 --parts 2"),
        (&[&a, &b], "hf", "--mixture 3,1 --exhausted first_exhausted"),
        (&[&masks], "megatron-bridge", "--mixture 1 --epoch-steps 40"),
    ]
    .into_iter()
    .enumerate()
    {
        let datasets: Vec<&Path> = datasets.iter().map(|path| path.as_path()).collect();
        assert_same_for_any_threads(|threads| {
            let out = dir.path().join(format!("out-{number}-{threads}"));
            export(&datasets, format, &out, &format!("{options} --quiet --threads {threads}")).exits(0);
            tree(&out)
        });
    }
}

#[test]
fn an_export_says_what_is_mixed() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = two(dir.path(), "");
    let out = dir.path().join("out");
    export(&[&a, &b], "tokens", &out, "--mixture 1,3 --unit records --epoch-steps 100 --seed 7").exits(0);
    let described: Value = serde_json::from_slice(&std::fs::read(out.join("export.json")).unwrap()).unwrap();
    let mixture = &described["mixture"];
    let expected = [(&a, 25, 1.0), (&b, 75, 3.0)].map(|(dataset, records, weight)| {
        serde_json::json!({
            "fingerprint": manifest(dataset)["fingerprint"], "split": "train", "weight": weight, "records": records,
        })
    });
    assert_eq!(mixture["datasets"].as_array().unwrap(), &expected);
    assert_eq!((&mixture["seed"], &mixture["epoch_steps"]), (&7.into(), &100.into()));
    assert_eq!(described["splits"]["train"]["records"], 100);
    // An export of one dataset has no such member.
    let plain = dir.path().join("plain");
    export(&[&a], "tokens", &plain, "").exits(0);
    assert!(!std::fs::read_to_string(plain.join("export.json")).unwrap().contains("mixture"));
}

#[test]
fn a_mixture_is_resumed_only_with_the_same_options() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = two(dir.path(), "");
    let options = "--mixture 1,2 --epoch-tokens 90000 --parts 3";
    let (whole, out) = (dir.path().join("whole"), dir.path().join("out"));
    export(&[&a, &b], "megatron", &whole, options).exits(0);
    let limited = export_command(&[&a, &b], "megatron", &out, options);
    let mut bash = Command::new("bash");
    // In KiB: less than the file of a part.
    bash.args(["-c", "ulimit -f 40; exec \"$0\" \"$@\""]).arg(limited.get_program()).args(limited.get_args());
    Ran::of(bash.output().unwrap()).exits(3).says(&["cannot write"]);
    for other in [
        "--mixture 1,3 --epoch-tokens 90000 --parts 3",
        "--mixture 1,2 --epoch-tokens 80000 --parts 3",
        "--mixture 1,2 --epoch-tokens 90000 --parts 3 --seed 1",
        "--mixture 1,2 --epoch-tokens 90000 --parts 3 --unit records",
    ] {
        export(&[&a, &b], "megatron", &out, &format!("{other} --resume")).exits(2).says(&["was made with"]);
    }
    export(&[&a], "megatron", &out, "--parts 3 --resume").exits(2).says(&["was made with"]);
    export(&[&a, &b], "megatron", &out, &format!("{options} --resume")).exits(0);
    assert_same(&tree(&whole), &tree(&out));
}

#[test]
fn mixtures_that_cannot_be_exported_are_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = two(dir.path(), "");
    let other = dir.path().join("other");
    let tokenizer = format!("--tokenizer {}", fixture("tokenizers/bpe.json").display());
    convert("text", &dir.path().join("a.jsonl"), &other, &tokenizer).exits(0);
    let ended = dir.path().join("ended");
    let with_eos = format!("{tokenizer} --add-eos --eos-token <|note|>");
    convert("text", &dir.path().join("b.jsonl"), &ended, &with_eos).exits(0);
    let [rows, rows_with_eos] = [("rows", ""), ("rows-with-eos", "--add-eos")].map(|(name, options)| {
        let out = dir.path().join(name);
        convert("text", &dir.path().join("a.jsonl"), &out, &format!("--tokenizer bytes --pack 64 {options}"))
            .exits(0);
        out
    });
    let out = dir.path().join("out");
    for (datasets, format, options, says) in [
        ([&a, &b], "tokens", "", &["several datasets are not mixed", "--mixture"][..]),
        (
            [&a, &b],
            "tokens",
            "--mixture 1,1",
            &["the length of an epoch is not set", "--epoch-tokens or --epoch-steps", "--exhausted"],
        ),
        ([&a, &b], "tokens", "--mixture 1 --epoch-steps 9", &["there is 1 weight for 2 datasets"]),
        ([&a, &b], "tokens", "--mixture 1,nan --epoch-steps 9", &["is NaN"]),
        ([&a, &b], "tokens", "--mixture 0,0 --epoch-steps 9", &["all weights from step 0 on are 0"]),
        ([&a, &other], "tokens", "--mixture 1,1 --epoch-steps 9", &["have different tokenizers"]),
        ([&other, &ended], "tokens", "--mixture 1,1 --epoch-steps 9", &["different tokens", "--eod"]),
        ([&rows, &rows_with_eos], "megatron", "--mixture 1,1 --epoch-steps 9", &["packed with --add-eos"]),
        ([&a, &b], "webdataset", "--mixture 1,1 --epoch-steps 9", &["may repeat records", "RandomMix"]),
        (
            [&a, &b],
            "tokens",
            "--mixture 1,1 --epoch-steps 9 --split train --split test",
            &["--split names one split"],
        ),
        ([&a, &b], "tokens", "--seed 3", &["--mixture"]),
        ([&a, &b], "tokens", "--mixture 1,1 --epoch-steps 9 --parts 10", &["too few for 10 parts"]),
    ] {
        let datasets = datasets.map(|path| path.as_path());
        export(&datasets, format, &out, options).exits(2).says(says);
        assert!(!out.exists(), "{format} {options}");
    }
    let inside = b.join("out");
    export(&[&a, &b], "tokens", &inside, "--mixture 1,1 --epoch-steps 9")
        .exits(2)
        .says(&["inside this dataset"]);
    export(&[&other, &ended], "tokens", &out, "--mixture 1,1 --epoch-steps 9 --eod <|note|>").exits(0);
}
