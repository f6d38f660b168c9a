//! `dsconvert inspect` of datasets whose tokens to train on are marked.

use std::path::{Path, PathBuf};

use dsconvert::sample::{Ids, Record, Value as Field};
use dsconvert::schema::{IdWidth, Schema};
use dsconvert::writer::{DatasetWriter, Provenance, WriterOptions};
use serde_json::{Value, json};

use crate::html_page::{assert_contains, assert_self_contained, inspect, page};
use crate::support::*;

/// Writes chats of bytes, with 256 for BOS (`^`), 257 for the end of a turn (`$`) and the letters of trained tokens between
/// `{` and `}`.
fn write(dir: &Path, chats: &[&str], format: &str, options: &Value) -> PathBuf {
    let out = dir.join(format!("chats-{format}"));
    let schema = Schema::text(IdWidth::U16, vec![]).unwrap().with_assistant_masks().unwrap();
    let writer_options = WriterOptions { format: format.parse().unwrap(), ..WriterOptions::new(1, "chats") };
    let writer = DatasetWriter::open(&out, &schema, &writer_options).unwrap();
    let mut unit = writer.unit(0).unwrap();
    for (number, chat) in chats.iter().enumerate() {
        let (mut ids, mut marks, mut trained) = (Vec::new(), Vec::new(), 0u8);
        for byte in chat.bytes() {
            match byte {
                b'{' => trained = 1,
                b'}' => trained = 0,
                b'^' => ids.push(256),
                b'$' => ids.push(257),
                other => ids.push(other.into()),
            }
            marks.resize(ids.len(), trained);
        }
        let values = vec![
            Field::Text(format!("chat-{number}").into()),
            Field::Ids(Ids::pack(IdWidth::U16, &ids).unwrap()),
            Field::UInt(ids.len() as u64),
            Field::Text("here".into()),
            Field::Bytes(marks.into()),
        ];
        unit.push(Record { values }, "train").unwrap();
    }
    unit.finish().unwrap();
    let tokenizer = json!({"model": "bytes", "vocab_size": 258, "bos": {"id": 256, "token": "<bos>"}});
    let provenance = Provenance {
        options: options.as_object().unwrap().clone(),
        tokenizer: Some((tokenizer, Vec::new())),
        ..Provenance::default()
    };
    writer.commit(&provenance).unwrap();
    out
}

/// Two proper chats.
const CHATS: [&str; 2] =
    ["^user: hi$\nassistant: {you\u{1b}[2J\nthere$\n}", "^user: a$assistant: {b$}user: c$assistant: {d$}"];

pub(crate) fn chats(dir: &Path, format: &str) -> PathBuf {
    write(dir, &CHATS, format, &json!({"train_on": "assistant"}))
}

#[test]
fn what_is_trained_on_is_marked_in_all_formats() {
    let dir = tempfile::tempdir().unwrap();
    for format in FORMATS {
        let out = chats(dir.path(), format);
        let text = |args: &[&str]| inspect(&out, args).exits(0).stdout;
        let shown = text(&["--record", "0"]);
        let expected =
            "  text:\n    <bos>user: hi<eos>\n    assistant: [[you\\u{1b}[2J\n    there<eos>\n    ]]\n";
        assert!(shown.contains(expected), "{shown}");
        assert!(
            shown.contains("  assistant_masks: 15 of 37 tokens trained on\n") && !shown.contains("input_ids"),
            "{shown}"
        );
        assert!(
            text(&["--record", "1", "--text"])
                .contains("assistant: [[b<eos>]]user: c<eos>assistant: [[d<eos>]]\n")
        );
        assert_eq!(text(&["--head", "2"]).matches("[[").count(), 3);
        let json: Value = serde_json::from_str(&text(&["--record", "1", "--text", "--json"])).unwrap();
        assert_eq!(json["text"], "<bos>user: a<eos>assistant: b<eos>user: c<eos>assistant: d<eos>");
        let marks: Vec<u64> =
            json["assistant_masks"].as_array().unwrap().iter().map(|v| v.as_u64().unwrap()).collect();
        assert_eq!((marks.len(), marks.iter().sum::<u64>()), (43, 4));
        assert_eq!((&marks[18..24], &marks[40..]), (&[0, 0, 1, 1, 0, 0][..], &[0, 1, 1][..]));
        // On a terminal, what is trained on is in color.
        let mut colored = command(["inspect", "--record", "1"]);
        colored.arg(&out).env("CLICOLOR_FORCE", "1").env_remove("NO_COLOR");
        let colored = Ran::of(colored.output().unwrap()).exits(0).stdout;
        assert!(
            colored.contains("assistant: \u{1b}[30;42mb<eos>\u{1b}[0muser") && !colored.contains("[["),
            "{colored}"
        );
    }
}

#[test]
fn the_share_of_what_is_trained_on_is_described() {
    let dir = tempfile::tempdir().unwrap();
    for format in FORMATS {
        let out = write(dir.path(), &[CHATS[0], CHATS[1], "^user: nothing$"], format, &json!({}));
        let shown = inspect(&out, &[]).exits(0).stdout;
        let line = "  19 of 95 tokens trained on (20.0%); of a record: median 9.3%, 10% up to 0.0%, 90% up to 40.5%\n  1 record without a token to train on\n";
        assert!(shown.contains(line), "{shown}");
        let json: Value = serde_json::from_str(&inspect(&out, &["--json"]).exits(0).stdout).unwrap();
        let trained = &json["splits"]["train"]["trained"];
        assert_eq!((&trained["tokens"], &trained["records_without"]), (&19.into(), &1.into()));
        assert_eq!(trained["histogram"].as_array().unwrap().len(), 20);
        let shard = tree(&out).into_keys().find(|name| name.starts_with("train/")).unwrap();
        let of_shard: Value =
            serde_json::from_str(&inspect(&out.join(shard), &["--json"]).exits(0).stdout).unwrap();
        assert_eq!(of_shard["trained"], *trained);
    }
}

#[test]
fn odd_marks_are_warnings_of_verify() {
    let dir = tempfile::tempdir().unwrap();
    let verify = |chats: &[&str], options: &Value, args: &[&str]| {
        let dir = tempfile::tempdir_in(&dir).unwrap();
        let out = write(dir.path(), chats, "parquet", options);
        inspect(&out, &[&["--verify"], args].concat()).exits(0)
    };
    let good = verify(&CHATS, &json!({}), &[]);
    assert!(good.stderr.is_empty() && good.stdout.contains("intact"), "{}{}", good.stderr, good.stdout);
    let odd =
        ["^u$a: {b}$u$a: {c$}", "^u$a: b$", "^u$a: c$", "^^u$a: {d$}", "{e$}", "^u$a: {f\n}u$", CHATS[1]];
    let found = verify(&odd, &json!({"train_on": "assistant"}), &[]);
    let warnings = [
        "no token of 2 records is trained on: for example, record 1 with the key \"chat-1\"",
        "text of 1 record is trained on from the first token on, without a header before it: for example, record 4",
        "text of 2 records is trained on without the added token that ends it, so a model does not learn to stop there: for \
         example, record 0",
        "two BOS tokens are at the start of 1 record: for example, record 3",
    ];
    for warning in warnings {
        assert!(found.stderr.contains(&format!("warning: {warning}")), "{}", found.stderr);
    }
    assert_eq!(found.stderr.matches("warning:").count(), 4, "{}", found.stderr);
    let json: Value =
        serde_json::from_str(&verify(&odd, &json!({}), &["--json", "--threads", "2"]).stdout).unwrap();
    assert_eq!(json["ok"], true);
    let listed: Vec<&str> =
        json["warnings"].as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect();
    assert_eq!(listed.len(), 4);
    assert!(warnings.iter().zip(&listed).all(|(warning, listed)| listed.starts_with(warning)), "{listed:?}");
    // Marks that follow from the options are not odd.
    assert!(verify(&["^u$a: b$"], &json!({"chat": {"train_on": "none"}}), &[]).stderr.is_empty());
    assert!(verify(&["{e$}u: "], &json!({"pack": 64}), &[]).stderr.is_empty());
}

#[test]
fn pages_mark_what_is_trained_on() {
    let dir = tempfile::tempdir().unwrap();
    for format in FORMATS {
        let shown = page(&chats(dir.path(), format), &dir.path().join("page.html"), &[]);
        assert_self_contained(&shown);
        assert_contains(
            &shown,
            &[
                "Underlined tokens",
                "19 of 80 tokens trained on (23.8%)",
                "Trained on",
                "% of the tokens of a record",
            ],
        );
        assert_eq!(shown.matches(", trained on\">").count(), 19);
        assert_contains(&shown, &["title=\"98, trained on\">b</mark>"]);
    }
}

#[test]
fn converted_chats_are_checked_and_shown() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("chats.jsonl");
    let message = |role, content| json!({"role": role, "content": content});
    let chat = json!({"messages": [message("user", "Hi"), message("assistant", "Hello\nyou"), message("user", "Go"), message("assistant", "Away")]});
    std::fs::write(&source, format!("{chat}\n{chat}\n")).unwrap();
    let converted = |name: &str, template: &str| {
        let (file, out) = (dir.path().join(format!("{name}.jinja")), dir.path().join(name));
        std::fs::write(&file, template).unwrap();
        let tokenizer = fixture("tokenizers/bpe.json");
        let options = format!(
            "--messages-field messages --chat-template {} --tokenizer {}",
            file.display(),
            tokenizer.display()
        );
        let ran = convert("text", &source, &out, &options).exits(0);
        assert!(ran.stdout.contains(" trained on ("), "{}", ran.stdout);
        out
    };
    let turn = "<|note|>{{ message.role }}\n{{ message.content }}<|endoftext|>";
    let good = converted("good", &format!("{{% for message in messages %}}{turn}{{% endfor %}}"));
    let shown = inspect(&good, &["--record", "1"]).exits(0).stdout;
    let expected = "    <|note|>user\n    Hi<|endoftext|><|note|>assistant\n    [[Hello\n    you<|endoftext|>]]<|note|>user\n    \
                    Go<|endoftext|><|note|>assistant\n    [[Away<|endoftext|>]]\n";
    assert!(shown.contains(expected), "{shown}");
    assert!(inspect(&good, &["--verify"]).exits(0).stderr.is_empty());
    // A generation block that leaves out the end of the turn.
    let open = "{% for message in messages %}<|note|>{{ message.role }}\n{% if message.role == 'assistant' %}\
                {% generation %}{{ message.content }}{% endgeneration %}{% else %}{{ message.content }}{% endif %}<|endoftext|>\
                {% endfor %}";
    let found = inspect(&converted("open", open), &["--verify"]).exits(0).stderr;
    assert!(
        found.contains("warning: text of 2 records is trained on without the added token that ends it"),
        "{found}"
    );
}
