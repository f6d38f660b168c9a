//! `dsconvert inspect A B --mixture`. `tests/python/test_mixture_prediction.py` compares its counts with those of a loader.

use std::path::Path;

use serde_json::Value;

use crate::support::*;

fn inspect(paths: &[&Path], options: &str) -> Ran {
    let mut inspect = command(["inspect"]);
    inspect.args(paths).args(options.split_whitespace());
    Ran::of(inspect.output().unwrap())
}

/// Two datasets with 30 and 50 documents of the tokenizer `bytes`.
fn two(dir: &Path) -> [std::path::PathBuf; 2] {
    [("a", 30), ("b", 50)].map(|(name, documents)| {
        let (source, out) = (dir.join(format!("{name}.jsonl")), dir.join(name));
        corpus(&source, documents);
        convert("text", &source, &out, "--tokenizer bytes").exits(0);
        out
    })
}

#[test]
fn what_is_predicted_adds_up_and_needs_no_record() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = two(dir.path());
    let options = "--mixture 3,1 --unit records --exhausted all_exhausted --max-tokens 4096 --json";
    let found = inspect(&[&a, &b], options).exits(0).stdout;
    let json: Value = serde_json::from_str(&found).unwrap();
    for amount in ["rows", "tokens", "padded_tokens"] {
        let of = |value: &Value| value[amount].as_u64().unwrap();
        let sum: u64 = json["sources"].as_array().unwrap().iter().map(of).sum();
        assert_eq!(of(&json), sum, "{amount}");
    }
    // Shards that cannot be read do not matter.
    for shard in tree(&a).keys().filter(|name| name.starts_with("train/")) {
        let path = a.join(shard);
        let len = std::fs::metadata(&path).unwrap().len();
        std::fs::write(&path, vec![0; len as usize]).unwrap();
    }
    assert_eq!(inspect(&[&a, &b], options).exits(0).stdout, found);
}

#[test]
fn mixtures_that_cannot_be_predicted_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = two(dir.path());
    let photos = dir.path().join("photos");
    convert("images", &fixture("photos/flowers"), &photos, "--encode keep").exits(0);
    let other = dir.path().join("other");
    let tokenizer = format!("--tokenizer {}", fixture("tokenizers/bpe.json").display());
    convert("text", &dir.path().join("a.jsonl"), &other, &tokenizer).exits(0);
    let missing = dir.path().join("missing");
    for (paths, options, says) in [
        (&[&a, &b][..], "", &["several datasets are not mixed", "--mixture"][..]),
        (&[&a, &b], "--mixture 1", &["--mixture: there is 1 weight for 2 datasets"]),
        (&[&a], "--mixture 1,2", &["--mixture: there are 2 weights for 1 dataset"]),
        (&[&a, &b], "--mixture -1,2", &["is -1: expected a finite number from 0"]),
        (&[&a, &b], "--mixture NaN,2", &["is NaN: expected a finite number from 0"]),
        (&[&a, &b], "--mixture inf,2", &["is inf: expected a finite number from 0"]),
        (&[&a, &b], "--mixture 0,0", &["all weights from step 0 on are 0"]),
        (&[&a, &b], "--mixture half,half", &["invalid value 'half' for '--mixture"]),
        (&[&a, &b], "--mixture 1,", &["--mixture"]),
        (&[&a, &a], "--mixture 1,1", &["there are two datasets of the name"]),
        (&[&a, &photos], "--mixture 1,1", &["holds text, but", "holds images"]),
        (&[&a, &other], "--mixture 1,1", &["have different tokenizers"]),
        (&[&a, &b], "--mixture 1,1 --split test", &["no split \"test\""]),
        (&[&a, &b], "--mixture 1,1 --unit bytes", &["invalid value 'bytes'", "trained"]),
        (&[&a, &b], "--mixture 1,1 --epoch-steps 0", &["invalid value '0'"]),
        (&[&a, &b], "--mixture 1,1 --epoch-steps 9 --epoch-tokens 9", &["cannot be used with"]),
        (
            &[&a, &b],
            "--mixture 1,1 --epoch-steps 9 --exhausted all_exhausted",
            &["--epoch-steps does not apply", "set --exhausted to"],
        ),
        (
            &[&a, &b],
            "--mixture 1,1 --exhausted never",
            &["the length of an epoch is not set", "--epoch-tokens or --epoch-steps"],
        ),
        (
            &[&a, &b],
            "--mixture 1,1 --max-tokens 2",
            &["the dataset", "are longer than the 2 that --max-tokens allows", "--oversize"],
        ),
        (&[&a, &b], "--mixture 1,1 --max-tokens 90 --batch-size 2", &["cannot be used with"]),
        (
            &[&a, &b],
            "--mixture 1,1 --mix record --max-tokens 4096",
            &["--mix \"record\" does not apply", "set --bucket to"],
        ),
        (&[&a, &b], "--mixture 1,1 --seq-len 0", &["--seq-len is 0, not between 1 and"]),
        (&[&a], "--unit records", &["--mixture"]),
        (&[&a], "--max-tokens 9", &["--mixture"]),
        (&[&a, &b], "--mixture 1,1 --head 3", &["--mixture does not apply with --head"]),
        (&[&a, &b], "--mixture 1,1 --verify", &["--mixture does not apply with --verify"]),
        (&[&a, &b], "--mixture 1,1 --html x.html", &["--mixture does not apply with --html"]),
    ] {
        let paths: Vec<&Path> = paths.iter().map(|path| path.as_path()).collect();
        inspect(&paths, options).exits(2).says(says);
    }
    inspect(&[&a, &missing], "--mixture 1,1").exits(3).says(&["missing", "cannot find the dataset"]);
}
