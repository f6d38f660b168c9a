//! `--prompt-only`: prompts are kept as they are, with the number of tokens that a model reads.

use std::path::{Path, PathBuf};

use dsconvert::sample::Value;
use serde_json::{Value as Json, json};

use crate::chats::{CHATML, model, write_lines};
use crate::support::*;

fn run(dir: &Path, model: &Path, rows: &[Json], more: &str, status: i32) -> (PathBuf, Ran) {
    let (source, out) = (write_lines(&dir.join("prompts.jsonl"), rows), dir.join("out"));
    let options = format!(
        "--tokenizer {} --prompt-field prompt --max-rejects 100% --overwrite {more}",
        model.display()
    );
    let ran = convert("text", &source, &out, &options).exits(status);
    (out, ran)
}

fn text(value: &Value) -> &str {
    let Value::Text(text) = value else { return "not a text" };
    text.as_str()
}

#[test]
fn prompts_are_kept_and_counted_with_tools() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path(), CHATML);
    let prompt = json!([{"role": "user", "content": "2 + 2? <|im_end|>", "extra": null}]);
    let row =
        |tools: Json| json!({"prompt": prompt, "answer": {"value": [4, "four"]}, "tools": tools, "n": 7});
    let rows = [
        row(Json::Null),
        row(json!([{"type": "function", "function": {"name": "add"}}])),
        json!({"prompt": "2 + 2 ="}),
    ];
    let mut lengths = Vec::new();
    for format in FORMATS {
        let more = format!("--prompt-only --keep-fields answer:json,n:int64 --format {format}");
        let (out, _) = run(dir.path(), &model, &rows, &more, 0);
        let found = records(&out);
        let names: Vec<&str> = found[0].schema().fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["key", "prompt", "length", "origin", "answer", "n"]);
        for (record, row) in found.iter().zip(&rows) {
            let read: Json = serde_json::from_str(text(&record.values()[1])).unwrap();
            assert_eq!(read, row["prompt"]);
        }
        assert_eq!(serde_json::from_str::<Json>(text(&found[0].values()[4])).unwrap(), rows[0]["answer"]);
        assert_eq!(found[0].values()[5], Value::Int(7));
        lengths = found.iter().map(|record| record.values()[2].clone()).collect();
        Ran::of(command(["inspect"]).arg(&out).arg("--verify").output().unwrap()).exits(0);
    }
    let [Value::UInt(plain), Value::UInt(with_tools), Value::UInt(of_text)] = lengths[..] else {
        panic!("{lengths:?}")
    };
    assert!(plain < with_tools && of_text < plain);
    // The limit is exact, and counts tools.
    let (out, _) = run(dir.path(), &model, &rows, &format!("--prompt-only --max-length {plain}"), 0);
    assert_eq!(rejects(&out).into_iter().map(|(_, code)| code).collect::<Vec<_>>(), ["too-long"]);
    let (out, _) = run(dir.path(), &model, &rows, &format!("--prompt-only --max-length {}", plain - 1), 0);
    assert_eq!(rejects(&out).len(), 2);
}

#[test]
fn prompts_are_deduplicated_and_divided_by_group() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path(), CHATML);
    let row = |n: usize| json!({"prompt": [{"role": "user", "content": format!("{n}")}], "book": n % 7});
    let mut rows: Vec<Json> = (0..50).map(row).collect();
    rows.push(json!({"book": 3, "prompt": [{"content": "3", "role": "user"}]}));
    let more =
        "--prompt-only --dedup exact --split train=0.5,test=0.5 --split-by book --keep-fields book:int64";
    let (out, _) = run(dir.path(), &model, &rows, more, 0);
    assert_outcomes(&out, [50, 0, 1, 0]);
    let dataset = dsconvert::reader::Dataset::open(&out).unwrap();
    let books = |name: &str| -> Vec<i64> {
        let mut books: Vec<i64> = dataset
            .split(name)
            .unwrap()
            .iter()
            .map(|record| record.unwrap().integer("book").unwrap())
            .collect();
        books.sort_unstable();
        books.dedup();
        books
    };
    let (train, test) = (books("train"), books("test"));
    assert!(train.len() + test.len() == 7 && !train.is_empty() && !test.is_empty(), "{train:?} {test:?}");
}

#[test]
fn bad_prompts_and_options_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path(), CHATML);
    let rows = [
        json!({"prompt": ""}),
        json!({"prompt": []}),
        json!({"prompt": null}),
        json!({"prompt": {"role": "user"}}),
        json!({"prompt": [{"role": "user", "content": "a"}]}),
    ];
    let (out, _) = run(dir.path(), &model, &rows, "--prompt-only", 0);
    let codes: Vec<String> = rejects(&out).into_iter().map(|(_, code)| code).collect();
    assert_eq!(codes, ["empty", "invalid-chat", "missing-field", "invalid-chat"]);
    for (more, message) in [
        ("--prompt-only --completion-field c", "--prompt-only excludes --completion-field"),
        ("--prompt-only --pack 64", "--pack does not apply"),
        ("--prompt-only --train-on all", "--prompt-only excludes --train-on"),
    ] {
        let (_, ran) = run(dir.path(), &model, &rows, more, 2);
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
    }
}
