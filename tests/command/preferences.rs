//! Preference data: options, rejects, splits and records. Ids and batches are compared with TRL in
//! `tests/python/test_preferences.py`.

use std::path::{Path, PathBuf};

use dsconvert::sample::Value;
use serde_json::{Value as Json, json};

use crate::chats::{CHATML, model, write_lines};
use crate::support::*;

const FIELDS: &str = "--chosen-field chosen --rejected-field rejected";

fn message(role: &str, content: &str) -> Json {
    json!({"role": role, "content": content})
}

/// A pair whose prompt is in both lists.
fn pair(prompt: &str, chosen: &str, rejected: &str) -> Json {
    let side = |answer| json!([message("user", prompt), message("assistant", answer)]);
    json!({"chosen": side(chosen), "rejected": side(rejected)})
}

fn codes(out: &Path) -> Vec<String> {
    rejects(out).into_iter().map(|(_, code)| code).collect()
}

struct Case {
    dir: tempfile::TempDir,
    model: PathBuf,
}

impl Case {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let model = model(dir.path(), CHATML);
        Self { dir, model }
    }

    fn convert(&self, rows: &[Json], more: &str, status: i32) -> (PathBuf, Ran) {
        let source = write_lines(&self.dir.path().join("pairs.jsonl"), rows);
        let out = self.dir.path().join("out");
        let options = format!("--tokenizer {} --max-rejects 100% --overwrite {more}", self.model.display());
        let ran = convert("text", &source, &out, &options).exits(status);
        (out, ran)
    }
}

#[test]
fn records_have_a_prompt_and_two_completions() {
    let case = Case::new();
    for format in ["arrow", "parquet"] {
        let (out, _) = case.convert(&[pair("hi", "hello", "no")], &format!("{FIELDS} --format {format}"), 0);
        let found = records(&out);
        let names: Vec<&str> = found[0].schema().fields.iter().map(|field| field.name.as_str()).collect();
        let expected =
            "key prompt_ids length origin chosen_ids rejected_ids chosen_masks rejected_masks longest";
        assert_eq!(names.join(" "), expected);
        let lengths = |values: &[Value]| -> Vec<usize> {
            values
                .iter()
                .filter_map(|value| if let Value::Ids(ids) = value { Some(ids.len()) } else { None })
                .collect()
        };
        let [prompt, chosen, rejected] = lengths(found[0].values())[..] else { panic!("{found:?}") };
        let sum = 2 * prompt + chosen + rejected;
        assert_eq!(found[0].values()[2], Value::UInt(sum as u64));
        assert_eq!(found[0].values()[8], Value::UInt((prompt + chosen.max(rejected)) as u64));
        assert_eq!(manifest(&out)["splits"]["train"]["length"]["max"], sum);
        let verify = Ran::of(command(["inspect"]).arg(&out).arg("--verify").output().unwrap());
        verify.exits(0);
    }
    for format in ["msgpack", "protobuf"] {
        let (_, ran) = case.convert(&[pair("hi", "hello", "no")], &format!("{FIELDS} --format {format}"), 2);
        assert!(ran.stderr.contains("array<int8>[?]"), "{}", ran.stderr);
    }
}

#[test]
fn bad_pairs_are_rejected_with_a_reason() {
    let case = Case::new();
    let long = "word ".repeat(1_000_000);
    let prompt = json!([message("user", "hi")]);
    let rows = [
        pair("hi", "hello", "no"),
        json!({"chosen": pair("a", "x", "")["chosen"], "rejected": pair("b", "y", "")["chosen"]}),
        pair("hi", "same", "same"),
        pair("hi", "hello", ""),
        json!({"chosen": prompt, "rejected": pair("hi", "x", "")["chosen"]}),
        json!({"chosen": null, "rejected": prompt}),
        json!({"chosen": [], "rejected": []}),
        json!({"chosen": 7, "rejected": []}),
        pair("hi", &long, "no"),
    ];
    let (out, _) = case.convert(&rows, &format!("{FIELDS} --max-length 100"), 0);
    let expected = [
        "invalid-chat",
        "same-completions",
        "empty-completion",
        "empty-completion",
        "missing-field",
        "empty-completion",
        "invalid-chat",
        "too-long",
    ];
    assert_eq!(codes(&out), expected);
    assert_eq!(records(&out).len(), 1);
    let rows = [
        json!({"prompt": "hi", "chosen": pair("hi", "a", "")["chosen"], "rejected": pair("hi", "b", "")["chosen"]}),
        json!({"prompt": prompt, "chosen": [message("assistant", "a"), message("user", "b")], "rejected": [message("assistant", "c")]}),
        json!({"prompt": "hi", "chosen": "a", "rejected": "b"}),
    ];
    let (out, _) = case.convert(&rows, &format!("--prompt-field prompt {FIELDS}"), 0);
    assert_eq!(codes(&out), ["invalid-chat", "invalid-chat"]);
    // A million tokens are a record where nothing forbids it.
    let (out, _) = case.convert(&[pair("hi", &long, "no")], FIELDS, 0);
    assert!(matches!(records(&out)[0].values()[2], Value::UInt(length) if length > 1_000_000));
}

#[test]
fn pairs_of_one_prompt_are_in_one_split_and_repeats_are_left_out() {
    let case = Case::new();
    let rows: Vec<Json> = (0..60)
        .map(|n| pair(&format!("prompt {}", n / 3), &format!("good {n}"), &format!("bad {n}")))
        .collect();
    let (out, _) = case.convert(&rows, &format!("{FIELDS} --split train=0.5,test=0.5"), 0);
    let dataset = dsconvert::reader::Dataset::open(&out).unwrap();
    let mut prompts = Vec::new();
    for name in ["train", "test"] {
        let split = dataset.split(name).unwrap();
        assert!(split.len() > 9, "{name}");
        let mut of_split: Vec<Vec<u32>> = split
            .iter()
            .map(|record| match &record.unwrap().values()[1] {
                Value::Ids(ids) => ids.iter().collect(),
                other => panic!("{other:?}"),
            })
            .collect();
        of_split.sort();
        of_split.dedup();
        prompts.extend(of_split);
    }
    assert_eq!(prompts.len(), 20, "no prompt is in both splits");

    let swapped = json!({"chosen": rows[0]["rejected"], "rejected": rows[0]["chosen"]});
    let (out, _) =
        case.convert(&[rows[0].clone(), swapped, rows[0].clone()], &format!("{FIELDS} --dedup exact"), 0);
    assert_eq!(records(&out).len(), 2);
    assert_outcomes(&out, [2, 0, 1, 0]);
}

#[test]
fn sides_that_differ_before_their_completions_are_counted_or_rejected() {
    let template = CHATML.replace(
        "{{ '<|im_start|>' + message.role",
        "{% if message.content == 'no' %}careful {% endif %}{{ '<|im_start|>' + message.role",
    );
    assert_ne!(template, CHATML);
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path(), &template);
    let case = Case { dir, model };
    let rows = [pair("hi", "hello", "no"), pair("hi", "hello", "bye")];
    let (out, _) = case.convert(&rows, FIELDS, 0);
    assert_eq!(manifest(&out)["notes"]["seam_moved"], 1);
    let found = records(&out);
    let [Value::Ids(moved), Value::Ids(whole)] = [&found[0].values()[1], &found[1].values()[1]] else {
        panic!("{found:?}")
    };
    // The header of the turn belongs to both completions, which train it, as with TRL.
    assert!(moved.len() < whole.len() && moved.iter().eq(whole.iter().take(moved.len())));
    assert!(found[0].values()[6..8].iter().all(|masks| *masks == Value::Null));
    let (out, _) = case.convert(&rows, &format!("{FIELDS} --seam error"), 0);
    assert_eq!(codes(&out), ["seam-differs"]);
}

#[test]
fn completions_have_labels() {
    let case = Case::new();
    let row =
        |label: Json| json!({"p": [message("user", "u")], "c": [message("assistant", "a")], "good": label});
    let rows = [row(json!(true)), row(json!(0)), row(json!("False")), row(json!(2)), row(Json::Null)];
    let (out, _) = case.convert(&rows, "--prompt-field p --completion-field c --label-field good", 0);
    assert_eq!(codes(&out), ["invalid-value", "missing-field"]);
    let labels: Vec<Value> = records(&out).iter().map(|record| record.values()[6].clone()).collect();
    assert_eq!(labels, [Value::Bool(true), Value::Bool(false), Value::Bool(false)]);
}

#[test]
fn options_that_do_not_fit_pairs_are_refused() {
    let case = Case::new();
    for (more, message) in [
        ("--pack 64", "--pack does not apply to preference data"),
        ("--max-length 64 --overflow truncate", "--overflow does not apply to preference data"),
        ("--train-on all", "--train-on does not apply to preference data"),
        ("--messages-field m", "--chosen-field excludes --messages-field"),
    ] {
        let (_, ran) = case.convert(&[pair("a", "b", "c")], &format!("{FIELDS} {more}"), 2);
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
    }
    // The options are a part of the identity.
    let (out, _) = case.convert(&[pair("a", "b", "c")], &format!("{FIELDS} --seam error --max-length 64"), 0);
    let (like, source) = (case.dir.path().join("like"), case.dir.path().join("pairs.jsonl"));
    convert("text", &source, &like, &format!("--like {}", out.display())).exits(0);
    assert_eq!(manifest(&like)["fingerprint"], manifest(&out)["fingerprint"]);
}
