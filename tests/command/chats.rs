//! Chats and pairs: options, rejects, and datasets that are made again from what they record. Ids and masks are compared
//! with `transformers` in `tests/python/test_chats.py`.

use std::path::{Path, PathBuf};

use dsconvert::sample::Value;
use serde_json::{Value as Json, json};

use crate::support::*;

/// Without generation blocks, as most models have it.
pub(crate) const CHATML: &str = "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}\
    {% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
const TOKENS: [&str; 3] = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"];

/// Writes a folder with a tokenizer of bytes, whose ids are easy to read, and a template. Returns it.
pub(crate) fn model(dir: &Path, template: &str) -> PathBuf {
    let folder = dir.join("model");
    std::fs::create_dir_all(&folder).unwrap();
    let mut tokenizer: Json =
        serde_json::from_slice(&std::fs::read(fixture("tokenizers/bpe.json")).unwrap()).unwrap();
    let vocabulary = tokenizer["model"]["vocab"].as_object().unwrap().clone();
    for token in TOKENS {
        let tokens = tokenizer["added_tokens"].as_array_mut().unwrap();
        let is_known = |token: &Json| vocabulary.contains_key(token["content"].as_str().unwrap());
        if tokens.iter().any(|known| known["content"] == token) {
            continue;
        }
        // Tokens that the vocabulary does not have are numbered after it.
        let id = vocabulary.len() + tokens.iter().filter(|token| !is_known(token)).count();
        tokens.push(json!({
            "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true,
        }));
    }
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    std::fs::write(folder.join("chat_template.jinja"), template).unwrap();
    let config = json!({"bos_token": null, "eos_token": "<|endoftext|>"});
    std::fs::write(folder.join("tokenizer_config.json"), config.to_string()).unwrap();
    folder
}

pub(crate) fn write_lines(path: &Path, lines: &[Json]) -> PathBuf {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(path, text).unwrap();
    path.to_path_buf()
}

pub(crate) fn chat(messages: &[(&str, &str)]) -> Json {
    let messages: Vec<_> =
        messages.iter().map(|(role, content)| json!({"role": role, "content": content})).collect();
    json!({ "messages": messages })
}

/// The text of each record that is trained, and the whole text.
pub(crate) fn trained_texts(out: &Path, model: &Path) -> Vec<(String, String)> {
    let tokenizer: Json =
        serde_json::from_slice(&std::fs::read(model.join("tokenizer.json")).unwrap()).unwrap();
    let vocabulary = tokenizer["model"]["vocab"].as_object().unwrap().iter();
    let vocabulary = vocabulary.map(|(token, id)| (id.as_u64().unwrap(), token.as_str()));
    let added = tokenizer["added_tokens"].as_array().unwrap().iter();
    let added = added.map(|token| (token["id"].as_u64().unwrap(), token["content"].as_str().unwrap()));
    let tokens: std::collections::HashMap<u64, &str> = vocabulary.chain(added).collect();
    // Byte-level BPE of ASCII characters.
    let decode = |ids: &mut dyn Iterator<Item = u32>| -> String {
        ids.map(|id| tokens[&u64::from(id)]).collect::<String>().replace('Ġ', " ").replace('Ċ', "\n")
    };
    let texts = |record: &dsconvert::reader::Record| {
        let values = record.values();
        let (Value::Ids(ids), Value::Bytes(masks)) = (&values[1], &values[4]) else {
            unreachable!("{values:?}")
        };
        assert_eq!(ids.len(), masks.len());
        let mut trained = ids.iter().zip(masks).filter(|(_, mask)| **mask == 1).map(|(id, _)| id);
        (decode(&mut trained), decode(&mut ids.iter()))
    };
    records(out).iter().map(texts).collect()
}

fn run<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Ran {
    Ran::of(command(args).output().unwrap())
}

pub(crate) fn options(model: &Path, more: &str) -> String {
    format!("--messages-field messages --tokenizer {} {more}", model.display())
}

#[test]
fn only_answers_and_the_ends_of_their_turns_are_trained() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path(), CHATML);
    let source = write_lines(
        &dir.path().join("chats.jsonl"),
        &[
            chat(&[
                ("system", "be brief"),
                ("user", "hi"),
                ("assistant", "hello"),
                ("user", "ok"),
                ("assistant", "bye"),
            ]),
            json!({"messages": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "tools": [{"name": "f"}]}),
            json!({"messages": "[{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"content\": \"y\"}]"}),
            chat(&[("user", "inject <|im_end|>"), ("assistant", "no")]),
        ],
    );
    for format in FORMATS {
        let out = dir.path().join(format);
        convert("text", &source, &out, &options(&model, &format!("--format {format}"))).exits(0);
        let found = trained_texts(&out, &model);
        let trained: Vec<&str> = found.iter().map(|(trained, _)| trained.as_str()).collect();
        let expected =
            ["hello<|im_end|>\nbye<|im_end|>\n", "b<|im_end|>\n", "y<|im_end|>\n", "no<|im_end|>\n"];
        assert_eq!(trained, expected, "{format}");
        assert!(
            found[1].1.starts_with("<|im_start|>system\n[{\"name\": \"f\"}]<|im_end|>\n"),
            "{}",
            found[1].1
        );
        let manifest = manifest(&out);
        assert_eq!(manifest["notes"]["special_tokens_in_text"], 1);
        assert_eq!(
            manifest["schema"]["fields"][4],
            json!({"name": "assistant_masks", "type": "flags", "nullable": false})
        );
    }
    for (more, expected) in [
        ("--train-on last", "bye<|im_end|>\n"),
        ("--train-on user", "hi<|im_end|>\nok<|im_end|>\n"),
        ("--train-on none", ""),
    ] {
        let out = dir.path().join("other");
        convert("text", &source, &out, &options(&model, &format!("{more} --overwrite"))).exits(0);
        assert_eq!(trained_texts(&out, &model)[0].0, expected, "{more}");
    }
}

#[test]
fn a_chat_is_cut_only_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path(), CHATML);
    let long = "many words in a long question ".repeat(20);
    let source = write_lines(
        &dir.path().join("chats.jsonl"),
        &[
            chat(&[("user", "hi"), ("assistant", "hello")]),
            chat(&[("user", "hi"), ("assistant", &long)]),
            chat(&[("user", &long), ("assistant", "hello")]),
            chat(&[("user", "nobody answers")]),
        ],
    );
    let convert = |name: &str, more: &str| {
        let out = dir.path().join(name);
        convert("text", &source, &out, &options(&model, &format!("{more} --max-rejects 100%"))).exits(0);
        (rejects(&out).into_iter().map(|(_, code)| code).collect::<Vec<_>>(), out)
    };
    let (codes, _) = convert("whole", "");
    assert_eq!(codes, ["nothing-to-train"]);
    let (codes, _) = convert("limit", "--max-length 40");
    assert_eq!(codes, ["too-long", "too-long", "nothing-to-train"]);
    let (codes, out) = convert("cut", "--max-length 40 --overflow truncate");
    assert_eq!(codes, ["nothing-to-train", "nothing-to-train"]);
    let found = trained_texts(&out, &model);
    assert!(found.len() == 2 && found.iter().all(|(trained, _)| !trained.is_empty()));
    let (codes, _) = convert("rows", "--pack 40");
    assert_eq!(codes, ["too-long", "too-long", "nothing-to-train"]);
    let (codes, out) = convert("concat", "--pack 40 --packing concat");
    assert_eq!(codes, ["nothing-to-train"]);
    let all: String = trained_texts(&out, &model).into_iter().map(|(trained, _)| trained).collect();
    assert_eq!(all, format!("hello<|im_end|>\n{long}<|im_end|>\nhello<|im_end|>\n"));
}

#[test]
fn pairs_of_texts_end_with_one_eos_token() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path(), CHATML);
    let source = dir.path().join("pairs.csv");
    std::fs::write(&source, "question,answer\n\"one, two\",three\na,b<|endoftext|>\n").unwrap();
    let options =
        format!("--prompt-field question --completion-field answer --tokenizer {}", model.display());
    let out = dir.path().join("out");
    convert("text", &source, &out, &options).exits(0);
    let pair = |prompt: &str, completion: &str| (completion.to_owned(), format!("{prompt}{completion}"));
    let expected = [pair("one, two", "three<|endoftext|>"), pair("a", "b<|endoftext|>")];
    assert_eq!(trained_texts(&out, &model), expected);
    // The prompt has the role `user`, and the completion `assistant`.
    std::fs::write(&source, "question,answer\n<|im_end|>,a\nb,<|im_end|>\n").unwrap();
    for (policy, codes) in [
        ("text", &[][..]),
        ("text,user=error", &["special-token"]),
        ("error,user=parse", &["special-token"]),
        ("error", &["special-token", "special-token"]),
    ] {
        let more = format!("{options} --special-in-content {policy} --max-rejects 100% --overwrite");
        let status = if codes.len() == 2 { 3 } else { 0 };
        let ran = convert("text", &source, &out, &more).exits(status);
        match status {
            0 => assert_eq!(
                rejects(&out).into_iter().map(|(_, code)| code).collect::<Vec<_>>(),
                codes,
                "{policy}"
            ),
            _ => assert!(ran.stderr.contains("special-token"), "{}", ran.stderr),
        }
    }
    let messages = write_lines(
        &dir.path().join("pairs.jsonl"),
        &[json!({
            "question": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "untrained"}, {"role": "user", "content": "b"}],
            "answer": [{"role": "assistant", "content": "c"}],
        })],
    );
    convert("text", &messages, &out, &format!("{options} --overwrite")).exits(0);
    assert_eq!(trained_texts(&out, &model)[0].0, "c<|im_end|>\n");
}

/// The manifest has the template, so nothing but the sources is needed to make the dataset again.
#[test]
fn parts_like_and_repair_use_the_recorded_template() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path(), CHATML);
    let chats: Vec<_> = (0..300)
        .map(|n| chat(&[("user", &format!("question {n}")), ("assistant", &format!("answer {n}"))]))
        .collect();
    let source = write_lines(&dir.path().join("chats.jsonl"), &chats);
    let more = "--unit-bytes 4KiB --shuffle --split train=0.8,test=0.2 --template-arg a=1,b=\"x\"";
    let whole = dir.path().join("whole");
    convert("text", &source, &whole, &options(&model, more)).exits(0);
    let expected = tree(&whole);
    let parts = dir.path().join("parts");
    run(&[&["plan", "text"][..], &[source.to_str().unwrap(), "--out", parts.to_str().unwrap()]]
        .concat()
        .iter()
        .map(|arg| (*arg).to_owned())
        .chain(options(&model, more).split(' ').map(str::to_owned))
        .collect::<Vec<_>>())
    .exits(0);
    std::fs::rename(&model, dir.path().join("moved")).unwrap();
    for part in ["2/2", "1/2"] {
        run(&["run", parts.to_str().unwrap(), "--part", part]).exits(0);
    }
    run(&["merge", parts.to_str().unwrap()]).exits(0);
    assert_same(&tree(&parts), &expected);
    let like = dir.path().join("like");
    convert("text", &source, &like, &format!("--like {}", whole.display())).exits(0);
    assert_same(&tree(&like), &expected);
    let shard = expected.keys().find(|path| path.starts_with("train/")).unwrap();
    std::fs::write(whole.join(shard), b"damaged").unwrap();
    let repair = ["inspect", whole.to_str().unwrap(), "--verify", "--repair", source.to_str().unwrap()];
    run(&repair).exits(0);
    assert_same(&tree(&whole), &expected);
    let printed = run(&["inspect", like.to_str().unwrap(), "--recipe"]).exits(0).stdout;
    assert!(
        printed.contains("--messages-field messages") && printed.contains("--chat-template"),
        "{printed}"
    );
}

#[test]
fn misuse_is_refused_before_any_work() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path(), CHATML);
    let source = write_lines(&dir.path().join("c.jsonl"), &[chat(&[("user", "a"), ("assistant", "b")])]);
    let out = dir.path().join("out");
    let template = dir.path().join("t.jinja");
    let refused = |template_text: Option<&str>, more: &str, says: &str| {
        let mut all = options(&model, more);
        if let Some(text) = template_text {
            std::fs::write(&template, text).unwrap();
            all = format!("{all} --chat-template {}", template.display());
        }
        convert("text", &source, &out, &all).exits(2).says(&[says]);
        assert!(!out.exists(), "{more}");
    };
    refused(None, "--add-eos", "--add-eos");
    refused(None, "--normalize nfc", "--normalize");
    refused(None, "--template-name other", "no template \"other\"");
    refused(None, "--tools-field function", "the field \"function\"");
    refused(None, "--template-arg high", "NAME=JSON");
    refused(None, "--now yesterday", "YYYY-MM-DD");
    let unknown = CHATML.replace("<|im_end|>", "<|other_end|>");
    refused(Some(&unknown), "", "\"<|other_end|>\", which is not a token");
    refused(Some("{{ bos_token }}{{ messages }}"), "", "--chat-template");
    refused(Some("{% for m in messages %}\n{{ unknown_function(m) }}\n{% endfor %}"), "", "unknown_function");
    refused(Some("{% for m in messages %}"), "", "chat template");
    refused(Some("{{ messages | no_such_filter }}"), "", "no_such_filter");
    refused(Some("{{ messages[0].content }}"), "", "chat template");
    let plain = write_lines(&dir.path().join("plain.jsonl"), &[json!({"text": "a"})]);
    let tokenizer = format!("--tokenizer {}", model.display());
    convert("text", &plain, &out, &format!("{tokenizer} --train-on all"))
        .exits(2)
        .says(&["applies only to chats"]);
    convert("text", &plain, &out, &options(&model, "")).exits(2).says(&["messages"]);
    std::fs::remove_file(model.join("chat_template.jinja")).unwrap();
    convert("text", &source, &out, &options(&model, ""))
        .exits(2)
        .says(&["no chat template", "--chat-template"]);
}

#[test]
fn bad_chats_are_rejected_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let template = format!(
        "{}{CHATML}",
        "{% if messages[0].role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}\
         {% if messages[0].content == 'for ever' %}{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}{% endif %}"
    );
    let model = model(dir.path(), &template);
    let deep = format!("{}1{}", "[".repeat(3000), "]".repeat(3000));
    let lines = [
        chat(&[("user", "a"), ("assistant", "b")]).to_string(),
        r#"{"messages": 5}"#.into(),
        r#"{"messages": []}"#.into(),
        r#"{"messages": ["text"]}"#.into(),
        r#"{"messages": null}"#.into(),
        r#"{"messages": [{"role": "user"}, {"role": "assistant", "content": "b"}]}"#.into(),
        r#"{"messages": [{"role": "user", "content": [{"type": "image", "url": "x"}]}, {"role": "assistant", "content": "b"}]}"#.into(),
        chat(&[("tool", "a"), ("assistant", "b")]).to_string(),
        chat(&[("user", "for ever"), ("assistant", "b")]).to_string(),
        format!(r#"{{"messages": [{{"role": "user", "content": "a", "x": {deep}}}]}}"#),
        r#"{"messages": [{"role": "assistant", "content": "b", "tool_calls": [{"function": {"name": "lost", "arguments": {}}}]}]}"#.into(),
    ];
    let source = dir.path().join("c.jsonl");
    std::fs::write(&source, lines.join("\n")).unwrap();
    let out = dir.path().join("out");
    convert("text", &source, &out, &options(&model, "--max-rejects 100%")).exits(0);
    let codes: Vec<String> = rejects(&out).into_iter().map(|(_, code)| code).collect();
    assert_eq!(records(&out).len() + codes.len(), lines.len());
    assert_eq!(records(&out).len(), 1, "{codes:?}");
    assert!(
        codes.contains(&"not-rendered".to_owned()) && codes.contains(&"missing-field".to_owned()),
        "{codes:?}"
    );
    let text = std::fs::read_to_string(out.join("rejects.jsonl")).unwrap();
    assert!(text.contains("no tools here") && text.contains("image"), "{text}");
}

/// As the template of Llama 3, which prints a list as Python does.
#[test]
fn text_parts_are_texts_where_the_template_prints_lists() {
    let dir = tempfile::tempdir().unwrap();
    let template = CHATML.replace(" + message.content + ", " + (message.content | trim) + ");
    let model = model(dir.path(), &template);
    let part = |text: &str| json!({"type": "text", "text": text});
    let row = |parts: Vec<Json>| json!({"messages": [{"role": "user", "content": [part("hi")]}, {"role": "assistant", "content": parts}]});
    let source = write_lines(
        &dir.path().join("chats.jsonl"),
        &[
            row(vec![part("hello there")]),
            row(vec![json!({"type": "text", "value": "llama factory"})]),
            row(vec![part("one"), part("two")]),
        ],
    );
    let out = dir.path().join("out");
    let trained = |more: &str| -> Vec<String> {
        convert("text", &source, &out, &options(&model, &format!("--max-rejects 100% --overwrite {more}")))
            .exits(0);
        trained_texts(&out, &model).into_iter().map(|(trained, _)| trained).collect()
    };
    assert_eq!(trained(""), ["hello there<|im_end|>\n", "llama factory<|im_end|>\n"]);
    let codes: Vec<String> = rejects(&out).into_iter().map(|(_, code)| code).collect();
    assert_eq!(codes, ["text-parts"]);
    assert_eq!(trained("--join-parts \\n")[2], "one\ntwo<|im_end|>\n");
    assert_eq!(manifest(&out)["options"]["chat"]["join_parts"], "\\n");
    let empty = ["--messages-field", "messages", "--overwrite", "--join-parts", "", "--tokenizer"];
    let mut args: Vec<String> =
        ["text", source.to_str().unwrap(), "--out", out.to_str().unwrap()].map(str::to_owned).into();
    args.extend(empty.map(str::to_owned));
    args.push(model.display().to_string());
    run(&args).exits(0);
    assert_eq!(trained_texts(&out, &model)[2].0, "onetwo<|im_end|>\n");
    convert("text", &source, &out, &options(&model, "--overwrite --join-parts x"))
        .exits(2)
        .says(&["--join-parts"]);
}
