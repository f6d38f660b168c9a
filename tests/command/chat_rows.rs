//! Rows of other trainers: each row of the table in `docs/reference/chat-rows.md` is obeyed, refused or counted.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use crate::chats::{CHATML, chat, model, trained_texts, write_lines};
use crate::support::*;

/// Rows and a model in a folder.
struct Rows {
    dir: tempfile::TempDir,
    model: PathBuf,
}

impl Rows {
    fn new(template: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let model = model(dir.path(), template);
        Self { dir, model }
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    fn convert(&self, source: &Path, options: &str, status: i32) -> Ran {
        let options =
            format!("{options} --tokenizer {} --max-rejects 100% --overwrite", self.model.display());
        convert("text", source, &self.out(), &options).exits(status)
    }

    /// Converts rows. Returns the trained texts, the whole texts and the notes.
    fn of(&self, rows: &[Json], options: &str) -> (Vec<String>, Vec<String>, Json) {
        let source = write_lines(&self.dir.path().join("rows.jsonl"), rows);
        self.convert(&source, options, 0);
        let (trained, whole) = trained_texts(&self.out(), &self.model).into_iter().unzip();
        (trained, whole, self.notes())
    }

    /// Returns the notes of the manifest, which are absent if there are none.
    fn notes(&self) -> Json {
        match manifest(&self.out()).get("notes") {
            Some(notes) => notes.clone(),
            None => json!({}),
        }
    }

    /// Returns the message of the reject of a row, which is converted with a good one.
    fn rejected(&self, row: Json, options: &str, code: &str) -> String {
        let good = chat(&[("user", "good"), ("assistant", "good")]);
        let source = write_lines(&self.dir.path().join("rows.jsonl"), &[good, row]);
        self.convert(&source, options, 0);
        let line = std::fs::read_to_string(self.out().join("rejects.jsonl")).unwrap();
        let reject: Json = serde_json::from_str(line.trim()).unwrap();
        assert_eq!(reject["code"], code, "{reject}");
        reject["message"].as_str().unwrap().to_owned()
    }
}

const MESSAGES: &str = "--messages-field messages";

/// A chat with two answers, the first of which has the key `name`.
fn flagged(name: &str, value: Json) -> Json {
    let mut row = chat(&[("user", "a"), ("assistant", "bad"), ("user", "b"), ("assistant", "good")]);
    row["messages"][1][name] = value;
    row
}

#[test]
fn flags_that_switch_training_off_are_obeyed_or_refused_by_name() {
    let rows = Rows::new(CHATML);
    for name in ["loss", "loss_weight", "loss_scale", "weight", "train", "training"] {
        let values = [json!(false), json!(0), json!(0.0), json!(true), json!(1), json!(1.0), Json::Null];
        let (trained, _, notes) = rows.of(&values.map(|value| flagged(name, value)), MESSAGES);
        let (off, on) = ("good<|im_end|>\n", "bad<|im_end|>\ngood<|im_end|>\n");
        assert_eq!(trained, [off, off, off, on, on, on, on], "{name}");
        assert_eq!(notes, json!({}), "{name}");
        for value in [json!(0.5), json!("false"), json!([]), json!({})] {
            let message = rows.rejected(flagged(name, value), MESSAGES, "invalid-chat");
            assert!(message.contains(&format!("`{name}` of messages[1]")), "{message}");
        }
    }
    for name in ["train_detail", "training_detail"] {
        let detail = json!([{"begin_offset": 0, "end_offset": 1, "train": false}]);
        let message = rows.rejected(flagged(name, detail), MESSAGES, "invalid-chat");
        assert!(message.contains(&format!("`{name}` of messages[1]")), "{message}");
    }
    // A flag of ShareGPT, and one that asks to train what is not trained.
    let sharegpt = json!({"messages": [
        {"from": "human", "value": "a", "weight": 1},
        {"from": "gpt", "value": "bad", "weight": 0},
        {"from": "gpt", "value": "good"},
    ]});
    let (trained, _, notes) = rows.of(&[sharegpt], MESSAGES);
    assert_eq!(trained, ["good<|im_end|>\n"]);
    assert_eq!(notes["flagged-other-turn"], 1);
}

#[test]
fn flags_of_parts_are_those_of_the_message_if_all_agree() {
    let template = CHATML.replace("message.content +", "message.content[0].text +");
    let rows = Rows::new(&template);
    let part = |text: &str, flag: Json| json!([{"type": "text", "text": text, "train": flag}]);
    let row = |flags: [Json; 2]| {
        let [first, second] = flags;
        json!({"messages": [
            {"role": "user", "content": part("a", Json::Null)},
            {"role": "assistant", "content": part("one", first)},
            {"role": "assistant", "content": part("two", second)},
        ]})
    };
    let (trained, ..) = rows.of(&[row([json!(false), json!(1)])], MESSAGES);
    assert_eq!(trained, ["two<|im_end|>\n"]);
    let source = rows.dir.path().join("mixed.jsonl");
    let mut mixed = row([json!(1), json!(1)]);
    mixed["messages"][1]["content"]
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "text", "text": "", "train": 0}));
    write_lines(&source, &[mixed, row([json!(1), json!(1)])]);
    rows.convert(&source, MESSAGES, 0);
    let rejects = std::fs::read_to_string(rows.out().join("rejects.jsonl")).unwrap();
    assert!(rejects.contains("only some parts of the content of messages[1]"), "{rejects}");
}

#[test]
fn the_system_message_of_a_row_is_read() {
    let rows = Rows::new(CHATML);
    let with = |system: Json, messages: &[(&str, &str)]| {
        let mut row = chat(messages);
        row["system"] = system;
        row
    };
    let turns = [("user", "a"), ("assistant", "b")];
    let own = [("system", "brief"), ("user", "a"), ("assistant", "b")];
    let all = [
        with(json!("brief"), &turns),
        with(json!("brief"), &own),
        with(json!(""), &turns),
        with(Json::Null, &turns),
        json!({"system": "brief", "messages": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}),
        json!({"system": "brief", "messages": [
            {"role": "system", "content": "brief"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}),
    ];
    let (trained, whole, notes) = rows.of(&all, MESSAGES);
    let system = "<|im_start|>system\nbrief<|im_end|>\n<|im_start|>user\na<|im_end|>";
    let starts: Vec<bool> = whole.iter().map(|text| text.starts_with(system)).collect();
    assert_eq!(starts, [true, true, false, false, true, true]);
    assert!(whole.iter().all(|text| text.matches("system").count() <= 1), "{whole:?}");
    assert_eq!(trained, ["b<|im_end|>\n"; 6]);
    assert_eq!(notes, json!({}));
    rows.rejected(with(json!("long"), &own), MESSAGES, "two-systems");
    let message = rows.rejected(with(json!(5), &turns), MESSAGES, "invalid-chat");
    assert!(message.contains("`system` is a number"), "{message}");
    // Another field, and none.
    let mut other = with(json!(5), &turns);
    other["persona"] = json!("brief");
    let (_, whole, _) = rows.of(std::slice::from_ref(&other), &format!("{MESSAGES} --system-field persona"));
    assert!(whole[0].starts_with(system), "{whole:?}");
    let (_, whole, notes) = rows.of(&[other], &format!("{MESSAGES} --system-field none"));
    assert!(!whole[0].contains("system"), "{whole:?}");
    assert_eq!(notes["unread_field:system"], 1);
    let source = write_lines(&rows.dir.path().join("c.jsonl"), &[chat(&turns)]);
    rows.convert(&source, &format!("{MESSAGES} --system-field prsona"), 2).says(&["the field \"prsona\""]);
    // A prompt of messages.
    let pair = json!({"p": [{"role": "user", "content": "a"}], "c": [{"role": "assistant", "content": "b"}], "system": "brief"});
    let (trained, whole, _) = rows.of(&[pair], "--prompt-field p --completion-field c");
    assert_eq!((&*trained[0], whole[0].starts_with(system)), ("b<|im_end|>\n", true));
}

#[test]
fn what_nothing_reads_is_counted_by_name_and_said() {
    let rows = Rows::new(CHATML);
    let mut row = chat(&[("user", "a"), ("assistant", "b")]);
    row["messages"][1]["thought"] = json!("hm");
    row["messages"][1]["reasoning_details"] = json!([{"text": "hm"}]);
    row["messages"][0]["name"] = json!("Ada");
    row["messages"][0]["refusal"] = Json::Null;
    row["id"] = json!(7);
    row["nothing"] = Json::Null;
    row["tools"] = json!([{"name": "f"}]);
    let rows_without_tools = Rows::new(&CHATML.replace("{{ tools | tojson }}", "tools"));
    let all = [row.clone(), row.clone()];
    let (.., notes) = rows.of(&all, &format!("{MESSAGES} --keep-fields id:int64"));
    let keys = json!({
        "unread_message_key:thought": 2, "unread_message_key:reasoning_details": 2, "unread_message_key:name": 2});
    assert_eq!(notes, keys);
    let source = write_lines(&rows.dir.path().join("c.jsonl"), &all);
    for dataset in [&rows, &rows_without_tools] {
        let said = dataset.convert(&source, MESSAGES, 0).stdout;
        assert!(
            said.contains(
                "keys of messages that nothing reads: name (2), reasoning_details (2), thought (2)"
            ),
            "{said}"
        );
        assert!(said.contains("fields that nothing reads: id (2)"), "{said}");
        let has_line = said.contains("2 chats with tools that the template does not write");
        assert_eq!(has_line, std::ptr::eq(dataset, &rows_without_tools), "{said}");
    }
    // A template that writes whole messages, and one that names the key.
    for part in ["{{ message | tojson }}", "{{ message['thought'] or '' }}"] {
        let template = CHATML
            .replace("{% if add_generation_prompt %}", &format!("{part}{{% if add_generation_prompt %}}"));
        let template = template.replace("{% endfor %}{{", "{{").replace("'\\n' }}{% endfor %}", "'\\n' }}");
        let template =
            template.replace("{% if add_generation_prompt %}", "{% endfor %}{% if add_generation_prompt %}");
        let dataset = Rows::new(&template);
        let (.., notes) = dataset.of(&all, &format!("{MESSAGES} --train-on all"));
        assert_eq!(notes.get("unread_message_key:thought"), None, "{part} {notes}");
    }
    // Names of the data are bounded.
    let many: Vec<Json> = (0..200)
        .map(|n| {
            let mut row = chat(&[("user", "a"), ("assistant", "b")]);
            row[format!("field {n}")] = json!(n);
            row
        })
        .collect();
    let (.., notes) = rows.of(&many, MESSAGES);
    let counts: u64 = notes.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!((notes.as_object().unwrap().len(), counts), (65, 200), "{notes}");
}

#[test]
fn fields_of_other_kinds_of_training_are_named_before_and_after_a_run() {
    let rows = Rows::new(CHATML);
    for (name, value, says) in [
        ("rejected", json!("no"), "an answer to avoid"),
        ("rejected_response", json!("no"), "an answer to avoid"),
        ("label", json!(false), "bad ones are trained like good ones"),
        ("kto_tag", json!(true), "bad ones are trained like good ones"),
        ("history", json!([["a", "b"]]), "earlier turns"),
        ("images", json!(["a.png"]), "only text is converted"),
        ("documents", json!([{"title": "t", "text": "x"}]), "in `chat_template_kwargs`"),
    ] {
        let mut row = json!({"prompt": "a", "completion": "b"});
        row[name] = value;
        let source = write_lines(&rows.dir.path().join("c.jsonl"), &[row]);
        let options = "--prompt-field prompt --completion-field completion";
        for more in ["", " --dry-run"] {
            let said = rows.convert(&source, &format!("{options}{more}"), 0);
            let said = format!("{}{}", said.stdout, said.stderr);
            assert!(said.contains(says) && said.contains(&format!("{name:?}")), "{more} {said}");
        }
        assert_eq!(rows.notes()[format!("unread_field:{name}")], 1);
    }
    let both = json!({"prompt": "a", "completion": "b", "chosen": "b", "rejected": "c"});
    let source = write_lines(&rows.dir.path().join("c.jsonl"), &[both]);
    rows.convert(&source, "--prompt-field prompt --completion-field completion", 0)
        .says(&["--chosen-field chosen"]);
    let pair = json!({"prompt": "a", "completion": "b", "system": "s", "tools": [{"name": "f"}]});
    let (.., notes) = rows.of(&[pair], "--prompt-field prompt --completion-field completion");
    assert_eq!(notes, json!({"system_beside_pair": 1, "tools_beside_pair": 1}));
}

/// The file of Alpaca is a JSON array over several lines.
#[test]
fn alpaca_is_read_as_published() {
    let rows = Rows::new(CHATML);
    let all = json!([
        {"instruction": "Add.", "input": "1 1", "output": "2"},
        {"instruction": "Sing.", "input": "", "output": "la"},
        {"instruction": "More.", "input": "", "output": "lala", "system": "brief", "history": [["Sing.", "la"]]},
    ]);
    let source = rows.dir.path().join("alpaca_data.json");
    std::fs::write(&source, serde_json::to_string_pretty(&all).unwrap()).unwrap();
    rows.convert(&source, "--alpaca chat", 0);
    let chats = trained_texts(&rows.out(), &rows.model);
    let trained: Vec<&str> = chats.iter().map(|(trained, _)| trained.as_str()).collect();
    assert_eq!(trained, ["2<|im_end|>\n", "la<|im_end|>\n", "la<|im_end|>\nlala<|im_end|>\n"]);
    assert!(chats[0].1.starts_with("<|im_start|>user\nAdd.\n1 1<|im_end|>\n"), "{}", chats[0].1);
    let third = "<|im_start|>system\nbrief<|im_end|>\n<|im_start|>user\nSing.<|im_end|>\n<|im_start|>assistant\nla<|im_end|>\n";
    assert!(chats[2].1.starts_with(third), "{}", chats[2].1);
    rows.convert(&source, "--alpaca pair", 0);
    let pairs = trained_texts(&rows.out(), &rows.model);
    let start = "Below is an instruction that describes a task";
    let end = "Write a response that appropriately completes the request.\n\n### Instruction:\n";
    let prompt = format!(
        "{start}, paired with an input that provides further context. {end}Add.\n\n### Input:\n1 1\n\n### Response:\n"
    );
    assert_eq!(pairs[0], ("2<|endoftext|>".to_owned(), format!("{prompt}2<|endoftext|>")));
    let bare = format!("{start}. {end}Sing.\n\n### Response:\n");
    assert_eq!(pairs[1], ("la<|endoftext|>".to_owned(), format!("{bare}la<|endoftext|>")));
    assert_eq!(rows.notes(), json!({"unread_field:history": 1, "unread_field:system": 1}));
    // Given as a pair, the input is lost, which is said.
    let ran = rows.convert(&source, "--prompt-field instruction --completion-field output", 0);
    ran.says(&["\"input\" (a part of the question)", "--alpaca chat"]);
    assert_eq!(rows.notes()["unread_field:input"], 1);
    rows.convert(&source, "--alpaca chat --messages-field messages", 2).says(&["--alpaca"]);
    std::fs::write(&source, r#"[{"instruction": "a", "outptu": "b"}]"#).unwrap();
    rows.convert(&source, "--alpaca chat", 2).says(&["the field \"output\""]);
}

/// A tokenizer whose post-processor adds tokens around a text.
fn with_post_processor(model: &Path, start: &str, end: Option<&str>) {
    let path = model.join("tokenizer.json");
    let mut tokenizer: Json = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let id = |token: &str| {
        let added = tokenizer["added_tokens"].as_array().unwrap();
        added.iter().find(|added| added["content"] == token).unwrap()["id"].clone()
    };
    let special = |token: &str| json!({"id": token, "ids": [id(token)], "tokens": [token]});
    let piece = |token: &str| json!({"SpecialToken": {"id": token, "type_id": 0}});
    let mut single = vec![piece(start), json!({"Sequence": {"id": "A", "type_id": 0}})];
    let mut tokens = json!({start: special(start)});
    if let Some(end) = end {
        single.push(piece(end));
        tokens[end] = special(end);
    }
    let processor =
        json!({"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": tokens});
    tokenizer["post_processor"] = processor;
    std::fs::write(path, tokenizer.to_string()).unwrap();
}

#[test]
fn pairs_start_with_the_bos_token_of_the_tokenizer() {
    let rows = Rows::new(CHATML);
    let options = "--prompt-field prompt --completion-field completion";
    let pair = |prompt: &str, completion: &str| json!({"prompt": prompt, "completion": completion});
    let all =
        [pair("a", "b"), pair("", "b"), pair("<|im_start|>a", "b"), pair("", "<|im_start|>b<|endoftext|>")];
    let (trained, whole, notes) = rows.of(&all[..2], options);
    assert_eq!(
        (trained, whole),
        (vec!["b<|endoftext|>".to_owned(); 2], vec!["ab<|endoftext|>".into(), "b<|endoftext|>".into()])
    );
    assert_eq!(notes, json!({}));
    for end in [None, Some("<|im_end|>")] {
        with_post_processor(&rows.model, "<|im_start|>", end);
        let (trained, whole, notes) = rows.of(&all, options);
        assert_eq!(trained, ["b<|endoftext|>"; 4]);
        let expected = ["a", "", "a", ""].map(|prompt| format!("<|im_start|>{prompt}b<|endoftext|>"));
        assert_eq!(whole, expected);
        assert_eq!(notes, json!({"bos_in_pair": 2}));
    }
    let (_, whole, _) = rows.of(&all[..1], &format!("{options} --pair-bos none"));
    assert_eq!(whole, ["ab<|endoftext|>"]);
    let (_, whole, _) = rows.of(&all[..1], &format!("{options} --pair-bos add --bos-token <|im_end|>"));
    assert_eq!(whole, ["<|im_end|>ab<|endoftext|>"]);
    let (trained, ..) = rows.of(&all[..1], &format!("{options} --train-on all"));
    assert_eq!(trained, ["<|im_start|>ab<|endoftext|>"]);
    let source = write_lines(&rows.dir.path().join("c.jsonl"), &[chat(&[("user", "a"), ("assistant", "b")])]);
    rows.convert(&source, &format!("{MESSAGES} --pair-bos none"), 2).says(&["--pair-bos"]);
}

/// The tokens that a file beside the tokenizer names are stored, because parts and repairs have only the tokenizer.json.
#[test]
fn parts_of_pairs_end_with_the_token_of_the_configuration() {
    let rows = Rows::new(CHATML);
    let config = json!({"eos_token": "<|im_end|>"});
    std::fs::write(rows.model.join("tokenizer_config.json"), config.to_string()).unwrap();
    let source = write_lines(&rows.dir.path().join("p.jsonl"), &[json!({"prompt": "a", "completion": "b"})]);
    let options = "--prompt-field prompt --completion-field completion";
    rows.convert(&source, options, 0);
    let whole = tree(&rows.out());
    assert_eq!(trained_texts(&rows.out(), &rows.model)[0].0, "b<|im_end|>");
    let parts = rows.dir.path().join("parts");
    let (parts, source) = (parts.to_str().unwrap(), source.to_str().unwrap());
    let model = rows.model.to_str().unwrap();
    let mut plan =
        vec!["plan", "text", source, "--tokenizer", model, "--out", parts, "--max-rejects", "100%"];
    plan.extend(options.split(' '));
    Ran::of(command(&plan).output().unwrap()).exits(0);
    Ran::of(command(["run", parts, "--part", "1/1"]).output().unwrap()).exits(0);
    Ran::of(command(["merge", parts]).output().unwrap()).exits(0);
    assert_same(&tree(Path::new(parts)), &whole);
}

/// Pairs of texts are not rendered, so that nothing of a template can be wrong.
#[test]
fn pairs_of_texts_need_no_template() {
    for template in ["{{ bos_token }}{{ messages }}", "{% for", "{{ '<|unknown|>' }}"] {
        let rows = Rows::new(template);
        std::fs::write(rows.model.join("tokenizer_config.json"), r#"{"eos_token": "<|endoftext|>"}"#)
            .unwrap();
        let options = "--prompt-field prompt --completion-field completion";
        let (trained, ..) = rows.of(&[json!({"prompt": "a", "completion": "b"})], options);
        assert_eq!(trained, ["b<|endoftext|>"], "{template}");
        let list = json!({"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]});
        let source = write_lines(&rows.dir.path().join("c.jsonl"), &[list]);
        rows.convert(&source, options, 3).says(&["a list of messages needs a chat template"]);
    }
}

#[test]
fn equal_chats_are_duplicates_whatever_the_order_of_keys_is() {
    let rows = Rows::new(CHATML);
    let lines = [
        r#"{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}"#,
        r#"{"messages": [{"content": "q", "role": "user"}, {"content": "a", "role": "assistant"}]}"#,
        r#"{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "tool_calls": null}]}"#,
        r#"{"messages": "[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"\\u0061\"}]", "id": 3}"#,
        r#"{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}]}"#,
    ];
    let source = rows.dir.path().join("c.jsonl");
    std::fs::write(&source, lines.join("\n")).unwrap();
    rows.convert(&source, &format!("{MESSAGES} --dedup exact"), 0);
    assert_outcomes(&rows.out(), [2, 0, 3, 0]);
}

#[test]
fn a_role_that_does_not_occur_is_refused_with_those_that_do() {
    let rows = Rows::new(CHATML);
    let source = write_lines(&rows.dir.path().join("c.jsonl"), &[chat(&[("user", "a"), ("assistant", "b")])]);
    rows.convert(&source, &format!("{MESSAGES} --train-on last_turn"), 2).says(&[
        "no message has the role \"last_turn\"; the roles are \"user\", \"assistant\"",
        "--train-on last trains the last turn",
    ]);
    assert!(!rows.out().exists());
    rows.convert(&source, &format!("{MESSAGES} --train-on user,assistant"), 0);
}

/// Rows that reports about other trainers show, which no test above has.
#[test]
fn rows_of_reports_are_obeyed_or_refused_by_name() {
    let rows = Rows::new(CHATML);
    // modelscope/ms-swift#6304: all answers are switched off.
    let row = json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "loss": false}]});
    let message = rows.rejected(row, MESSAGES, "nothing-to-train");
    assert!(message.contains("flags of its messages"), "{message}");
    // Roles of calls in ms-swift, which this template would write as turns of somebody else.
    for role in ["tool_call", "tool_response"] {
        let row = json!({"messages": [{"role": "user", "content": "a"}, {"role": role, "content": "{}"}, {"role": "assistant", "content": "b"}]});
        let message = rows.rejected(row, MESSAGES, "invalid-chat");
        assert!(message.contains(&format!("`{role}` of messages[1]")), "{message}");
    }
    // Turns of question and answer in one object, as in ms-swift.
    let row = json!({"messages": [{"human": "a", "assistant": "b"}]});
    let message = rows.rejected(row, MESSAGES, "invalid-chat");
    assert!(message.contains("has no `role`"), "{message}");
    // hiyouga/LlamaFactory#2381: a sender that nobody knows.
    let row = json!({"messages": [{"from": "hummany", "value": "a"}, {"from": "gpt", "value": "b"}]});
    let message = rows.rejected(row, MESSAGES, "invalid-chat");
    assert!(message.contains("unknown `from` \"hummany\""), "{message}");
    // OpenRLHF/OpenRLHF#393: prompts that somebody has already rendered.
    let prompt = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n";
    let source =
        write_lines(&rows.dir.path().join("c.jsonl"), &[json!({"prompt": prompt, "completion": "b"})]);
    let options = "--prompt-field prompt --completion-field completion";
    let said = rows.convert(&source, options, 0).stdout;
    assert!(said.contains("1 item with strings of special tokens, which are text"), "{said}");
    let count = |rows: &Rows| records(&rows.out())[0].values()[2].clone();
    let as_text = count(&rows);
    let said = rows.convert(&source, &format!("{options} --special-in-content parse"), 0).stdout;
    assert!(!said.contains("strings of special tokens") && count(&rows) != as_text, "{said}");
}
