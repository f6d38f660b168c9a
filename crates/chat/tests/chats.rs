//! Chats from JSON, what is trained of them, and what is refused.

#![allow(clippy::unwrap_used)] // The exception for tests does not cover helper functions.

use dsconvert_chat::{
    ChatOptions, ChatRejectCode, ChatRenderer, FinalStop, HistoryThinking, NotRendered, RenderedChat, Source,
    TrainOn, render_pair,
};
use serde_json::{Value, json};

const MARKS: &str = include_str!("templates/marks.jinja");
const MARKS_TRAINING: &str = include_str!("templates/marks_training.jinja");
const HEADERS: &str = include_str!("templates/headers.jinja");
const INST: &str = include_str!("templates/inst.jinja");
const NEXT_ROLE: &str = include_str!("templates/next_role.jinja");
const LOOK_AHEAD: &str = include_str!("templates/look_ahead.jinja");
const JOINED: &str = include_str!("templates/joined.jinja");
const END_IN_PROMPT: &str = include_str!("templates/end_in_prompt.jinja");

fn options() -> ChatOptions {
    let tokens = [
        "<|im_start|>",
        "<|im_end|>",
        "<|head|>",
        "<|/head|>",
        "<|eot|>",
        "<s>",
        "</s>",
        "<think>",
        "</think>",
    ];
    let roles =
        ["<|user|>", "<|assistant|>", "<|system|>", "<|observation|>", "[gMASK]", "<sop>", "\n\n", " "];
    let special = json!({"bos_token": "<s>", "eos_token": "</s>"});
    ChatOptions {
        special_tokens: special.as_object().unwrap().clone(),
        added_tokens: tokens.iter().chain(&roles).map(|token| token.to_string()).collect(),
        ..ChatOptions::default()
    }
}

fn train_on(what: &str) -> ChatOptions {
    ChatOptions { train_on: what.parse().unwrap(), ..options() }
}

fn renderer(template: &str, options: ChatOptions) -> ChatRenderer {
    ChatRenderer::new(template, options).unwrap()
}

fn render(template: &str, options: ChatOptions, chat: &Value) -> RenderedChat {
    renderer(template, options).render(&chat.to_string()).unwrap()
}

fn trained(template: &str, options: ChatOptions, chat: &Value) -> Vec<String> {
    let chat = render(template, options, chat);
    chat.trained.iter().map(|range| chat.text[range.clone()].to_owned()).collect()
}

fn refused(template: &str, options: ChatOptions, chat: &Value) -> (ChatRejectCode, String) {
    let reject = renderer(template, options).render(&chat.to_string()).unwrap_err();
    (reject.code, reject.message)
}

fn unusable(template: &str, options: ChatOptions) -> String {
    ChatRenderer::new(template, options).unwrap_err().to_string()
}

/// A chat from pairs of role and content.
fn chat(messages: &[(&str, &str)]) -> Value {
    let messages: Vec<Value> =
        messages.iter().map(|(role, content)| json!({"role": role, "content": content})).collect();
    json!({"messages": messages})
}

fn two_turns() -> Value {
    chat(&[("system", "S"), ("user", "U1"), ("assistant", "A1"), ("user", "U2"), ("assistant", "A2")])
}

#[test]
fn a_turn_is_trained_from_the_end_of_its_header() {
    assert_eq!(trained(MARKS, options(), &two_turns()), ["A1<|im_end|>\n", "A2<|im_end|>\n"]);
    assert_eq!(trained(MARKS_TRAINING, options(), &two_turns()), ["A1<|im_end|>\n", "A2<|im_end|>\n"]);
    assert_eq!(trained(HEADERS, options(), &two_turns()), ["A1<|eot|>", "A2<|eot|>"]);
    // The token for the beginning of a sequence is before the header of the first turn.
    assert_eq!(trained(HEADERS, options(), &chat(&[("assistant", "A")])), ["A<|eot|>"]);
    // So may be a system message that the template adds.
    let added = "{% for m in messages %}{% if loop.first %}{{ '<|im_start|>system\nS<|im_end|>\n' }}{% endif %}\
        {{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}\
        {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    assert_eq!(trained(added, options(), &chat(&[("assistant", "A")])), ["A<|im_end|>\n"]);
    // Without a generation prompt, white space before the answer is its start.
    let pair = chat(&[("user", "U"), ("assistant", "A")]);
    assert_eq!(trained(INST, options(), &pair), [" A</s>"]);
}

#[test]
fn a_header_without_a_generation_prompt_is_what_all_turns_start_with() {
    let template = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}";
    assert_eq!(trained(template, options(), &two_turns()), ["A1<|im_end|>\n", "A2<|im_end|>\n"]);
}

#[test]
fn reasoning_and_calls_are_trained_with_the_answer() {
    let call = json!({"type": "function", "function": {"name": "f", "arguments": {"x": 1}}});
    let row = json!({"messages": [
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": null, "reasoning": "R", "tool_calls": [call]},
        {"role": "tool", "content": "T"},
        {"role": "assistant", "content": "A", "tool_calls": []},
    ]});
    let calls =
        "<think>R</think><tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call><|im_end|>\n";
    for template in [MARKS, MARKS_TRAINING] {
        assert_eq!(trained(template, options(), &row), [calls, "A<|im_end|>\n"]);
    }
}

#[test]
fn a_template_that_writes_the_header_of_reasoning_in_some_turns_only_trains_it() {
    // The generation prompt starts the reasoning; turns before the last one have none.
    let template = LOOK_AHEAD.replace(
        "{{- '<|im_start|>assistant\\n' }}{%- endif %}",
        "{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}",
    );
    assert_ne!(template, LOOK_AHEAD);
    let expected = ["A1<|im_end|>\n", "<think>\n\n</think>\n\nA2<|im_end|>\n"];
    assert_eq!(trained(&template, options(), &two_turns()), expected);
    assert_eq!(trained(LOOK_AHEAD, options(), &two_turns()), expected);
}

#[test]
fn the_next_marker_closes_a_turn_that_nothing_else_closes() {
    let message = unusable(NEXT_ROLE, options());
    assert!(message.contains("`final_stop TOKEN`"), "{message}");
    let stop = |stop: &str| ChatOptions { final_stop: Some(stop.parse().unwrap()), ..options() };
    let row = two_turns();
    assert_eq!(
        trained(NEXT_ROLE, stop("<|user|>"), &row),
        ["\n<think></think>\nA1<|user|>", "\n<think></think>\nA2<|user|>"]
    );
    let rendered = render(NEXT_ROLE, stop("<|user|>"), &row);
    assert!(rendered.text.ends_with("A2<|user|>"));
    assert_eq!(rendered.pieces.last().unwrap().source, Source::Template);
    assert_eq!(rendered.pieces.last().unwrap().end, rendered.text.len());
    let expected = ["\n<think></think>\nA1<|user|>", "\n<think></think>\nA2"];
    assert_eq!(trained(NEXT_ROLE, stop("none"), &row), expected);
    // Nothing is appended to a chat that ends with a question.
    let open = chat(&[("user", "U1"), ("assistant", "A1"), ("user", "U2")]);
    assert!(render(NEXT_ROLE, stop("<|user|>"), &open).text.ends_with("\nU2"));
    assert!(unusable(NEXT_ROLE, stop("<|stop|>")).contains("is not an added token"));
    assert!(unusable(MARKS, stop("<|im_end|>")).contains("closes the last turn"));
    assert!(unusable(MARKS_TRAINING, stop("<|im_end|>")).contains("generation blocks"));
    assert!(ChatRenderer::new(MARKS, stop("none")).is_ok());
}

#[test]
fn a_generation_prompt_that_is_always_written_is_not_trained() {
    let row = chat(&[("user", "U"), ("assistant", "A")]);
    let turns = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '</s>' }}{% endfor %}";
    for (tail, expected) in [
        ("<|assistant|>", "A</s>"),
        ("{% if add_generation_prompt %}<|assistant|>{% else %}</s>{% endif %}", "A</s></s>"),
        ("{% if not add_generation_prompt %}</s>{% endif %}<|assistant|>", "A</s></s>"),
    ] {
        assert_eq!(trained(&format!("{turns}{tail}"), options(), &row), [expected]);
    }
}

#[test]
fn turns_that_cannot_be_told_apart_are_refused() {
    let message = unusable(JOINED, options());
    assert!(message.contains("outside of its turn") && message.contains("{% generation %}"), "{message}");
    assert!(ChatRenderer::new(JOINED, train_on("all")).is_ok());
    assert!(ChatRenderer::new(JOINED, train_on("none")).is_ok());
    // The turn of the assistant holds the result of the tool.
    let template = "{% for m in messages %}{% if m.role != 'tool' %}{{ '<|' + m.role + '|>' + m.content }}\
        {% if loop.nextitem and loop.nextitem.role == 'tool' %}{{ loop.nextitem.content }}{% endif %}{{ '</s>' }}{% endif %}\
        {% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
    assert_eq!(trained(template, options(), &two_turns()), ["A1</s>", "A2</s>"]);
    // So does an empty one, of which no text is there to be found.
    for result in ["T", ""] {
        let row = chat(&[("user", "U"), ("assistant", "A"), ("tool", result)]);
        let (code, message) = refused(template, options(), &row);
        assert_eq!(code, ChatRejectCode::InvalidChat);
        assert!(message.contains("messages[2] into the turn of messages[1]"), "{message}");
    }
    // The answer starts in another way than the generation prompt.
    let other = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '</s>' }}{% endfor %}{% if add_generation_prompt %}A:{% endif %}";
    assert!(unusable(other, options()).contains("start differently"));
    let spaced = "{% for m in messages %}{{ '\n  <|' + m.role + '|>' + m.content + '</s>' }}{% endfor %}{% if add_generation_prompt %}{{ '\n<|assistant|>' }}{% endif %}";
    assert!(unusable(spaced, options()).contains("start differently"));
}

#[test]
fn roles_and_marks_in_messages_choose_what_is_trained() {
    let row = two_turns();
    assert_eq!(trained(MARKS, train_on("last"), &row), ["A2<|im_end|>\n"]);
    assert_eq!(trained(MARKS_TRAINING, train_on("last"), &row), ["A2<|im_end|>\n"]);
    assert_eq!(trained(MARKS, train_on("none"), &row), [""; 0]);
    let all = render(MARKS, train_on("all"), &row);
    assert_eq!((all.trained.len(), all.trained[0].clone()), (1, 0..all.text.len()));
    assert_eq!(trained(MARKS, train_on("user,tool"), &row), ["U1<|im_end|>\n", "U2<|im_end|>\n"]);
    for template in [MARKS, MARKS_TRAINING] {
        let expected = ["S<|im_end|>\n", "A1<|im_end|>\n", "A2<|im_end|>\n"];
        assert_eq!(trained(template, train_on("system,assistant"), &row), expected);
    }
    for mark in [json!({"train": false}), json!({"weight": 0}), json!({"weight": 0.0, "train": true})] {
        let mut marked = row.clone();
        marked["messages"][2].as_object_mut().unwrap().extend(mark.as_object().unwrap().clone());
        for template in [MARKS, MARKS_TRAINING] {
            assert_eq!(trained(template, options(), &marked), ["A2<|im_end|>\n"]);
            let parts = trained(template, train_on("all"), &marked);
            assert_eq!(parts.len(), 2, "{parts:?}");
            assert!(!parts.concat().contains("A1") && parts.concat().contains("U1"), "{parts:?}");
        }
        marked["messages"][4]["train"] = json!(false);
        assert_eq!(refused(MARKS, options(), &marked).0, ChatRejectCode::NothingToTrain);
    }
    assert_eq!(refused(MARKS, options(), &chat(&[("user", "U")])).0, ChatRejectCode::NothingToTrain);
    assert!(render(MARKS, train_on("none"), &chat(&[("user", "U")])).trained.is_empty());
}

#[test]
fn empty_and_adjacent_answers_are_trained_and_counted() {
    let row = chat(&[("user", "U"), ("assistant", ""), ("assistant", "A")]);
    for template in [MARKS, MARKS_TRAINING] {
        assert_eq!(trained(template, options(), &row), ["<|im_end|>\n", "A<|im_end|>\n"]);
        assert_eq!(render(template, options(), &row).notes, ["adjacent-assistant", "empty-answer"]);
    }
    let null =
        json!({"messages": [{"role": "user", "content": "U"}, {"role": "assistant", "content": null}]});
    let (code, message) = refused(MARKS, options(), &null);
    assert_eq!((code, message.as_str()), (ChatRejectCode::InvalidChat, "messages[1] has no `content`"));
}

#[test]
fn content_that_the_template_leaves_out_is_refused() {
    let call = json!({"type": "function", "function": {"name": "f", "arguments": {}}});
    let mut row = json!({"messages": [
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": "A", "tool_calls": [call]},
        {"role": "tool", "content": "T"},
        {"role": "assistant", "content": "B"},
    ]});
    let (code, message) = refused(LOOK_AHEAD, options(), &row);
    assert_eq!(code, ChatRejectCode::NotRendered);
    assert!(
        message.contains("messages[1].tool_calls[0]") && message.contains("`not_rendered allow`"),
        "{message}"
    );
    let allow = ChatOptions { not_rendered: NotRendered::Allow, ..options() };
    assert_eq!(render(LOOK_AHEAD, allow.clone(), &row).notes, ["not-rendered"]);
    row["messages"][1].as_object_mut().unwrap().remove("tool_calls");
    assert_eq!(render(LOOK_AHEAD, options(), &row).notes, [""; 0]);
    // A template that writes only the first part of a content.
    let first = "{% for m in messages %}{{ '<|' + m.role + '|>' + (m.content if m.content is string else m.content[0].text) + '</s>' }}{% endfor %}\
        {% if add_generation_prompt %}<|assistant|>{% endif %}";
    let parts = |second: &str| {
        let parts = json!([{"type": "text", "text": "A"}, {"type": "text", "text": second}]);
        json!({"messages": [{"role": "user", "content": "U"}, {"role": "assistant", "content": parts}]})
    };
    let (code, message) = refused(first, options(), &parts("B"));
    assert_eq!(code, ChatRejectCode::NotRendered);
    assert!(message.contains("messages[1].content[1]"), "{message}");
    assert_eq!(trained(first, options(), &parts(" ")), ["A</s>"]);
    // Reasoning that no turn shows.
    let mut row = two_turns();
    row["messages"][4]["reasoning_content"] = json!("R");
    assert_eq!(refused(HEADERS, options(), &row).0, ChatRejectCode::NotRendered);
}

#[test]
fn reasoning_of_earlier_turns_is_counted_or_kept() {
    let mut row = two_turns();
    row["messages"][2]["reasoning_content"] = json!("R1");
    row["messages"][4]["thinking"] = json!("R2");
    let rendered = render(LOOK_AHEAD, options(), &row);
    assert_eq!(rendered.notes, ["reasoning-dropped"]);
    assert!(!rendered.text.contains("R1") && rendered.text.contains("R2"));
    let keep = ChatOptions { history_thinking: HistoryThinking::Keep, ..options() };
    let rendered = render(LOOK_AHEAD, keep.clone(), &row);
    assert_eq!(rendered.notes, [""; 0]);
    assert!(rendered.text.contains("R1") && rendered.text.contains("R2"));
    assert!(unusable(HEADERS, keep).contains("`history_thinking keep`"));
    // Reasoning inside of the content.
    let template = MARKS.replace("message.content or ''", "(message.content or '').split('</think>')[-1]");
    let row = chat(&[("user", "U"), ("assistant", "<think>\nR1\n</think>\nA1")]);
    assert_eq!(render(&template, options(), &row).notes, ["reasoning-dropped"]);
    assert_eq!(render(MARKS, options(), &row).notes, [""; 0]);
}

#[test]
fn who_has_written_what_is_known() {
    let row = json!({
        "messages": [{"role": "user", "content": "U", "name": "N"}, {"role": "assistant", "content": "A"}],
        "tools": [{"type": "function", "function": {"name": "f"}}],
    });
    let rendered = render(MARKS, options(), &row);
    let mut start = 0;
    let mut content = Vec::new();
    for piece in &rendered.pieces {
        let text = &rendered.text[start..piece.end];
        assert!(!text.is_empty());
        start = piece.end;
        if let Source::Content { message, role } = &piece.source {
            content.push((text, *message, role.as_ref()));
        }
    }
    assert_eq!(start, rendered.text.len());
    let tool = r#"{"type": "function", "function": {"name": "f"}}"#;
    assert_eq!(content, [(tool, None, "tools"), ("U", Some(0), "user"), ("A", Some(1), "assistant")]);
    // A template that never mentions the tools.
    let template = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '</s>' }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
    assert_eq!(render(template, options(), &row).notes, ["tools-not-rendered"]);
}

#[test]
fn other_spellings_of_chats_are_read() {
    let expected = render(MARKS, options(), &two_turns());
    let conversation = json!([
        {"from": "system", "value": "S"},
        {"from": "human", "value": "U1"},
        {"from": "gpt", "value": "A1", "weight": null},
        {"from": "human", "value": "U2"},
        {"from": "gpt", "value": "A2"},
    ]);
    for row in [
        json!({"conversations": conversation}),
        json!({"messages": conversation}),
        json!({"messages": conversation.to_string()}),
    ] {
        assert_eq!(render(MARKS, options(), &row), expected);
    }
    // Parquet gives all messages the same keys, and holds what has no type as JSON in a string.
    let nulls = json!({"messages": [
        {"role": "user", "content": "U", "tool_calls": null, "reasoning_content": null, "weight": null},
        {"role": "assistant", "content": [{"type": "text", "text": "A", "image": null}], "tool_calls": []},
    ], "tools": null, "chat_template_kwargs": {"enable_thinking": null}});
    let template = "{% for m in messages %}{{ '<|' + m.role + '|>' }}{% if 'tool_calls' in m or enable_thinking is defined %}CALLS{% endif %}\
        {% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}{{ 'IMAGE' if 'image' in part else part.text }}{% endfor %}{% endif %}\
        {{ '</s>' }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
    assert_eq!(render(template, options(), &nulls).text, "<|user|>U</s><|assistant|>A</s>");
    // Calls of ShareGPT, and arguments as JSON in a string where the template needs an object.
    let calls = json!({"conversations": [
        {"from": "human", "value": "U"},
        {"from": "function_call", "value": r#"{"name": "f", "arguments": {"x": "y"}}"#},
        {"from": "observation", "value": "T"},
        {"from": "gpt", "value": "A"},
    ]});
    let call = r#"<tool_call>{"name": "f", "arguments": {"x": "y"}}</tool_call><|im_end|>"#.to_owned() + "\n";
    assert_eq!(trained(MARKS, options(), &calls), [call.as_str(), "A<|im_end|>\n"]);
    let text = json!({"messages": [
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{\"x\": \"y\"}"}}]},
    ]});
    assert_eq!(trained(MARKS, options(), &text), [call.as_str()]);
    // A template that writes such a string as it is gets it as it is.
    let raw = MARKS.replace("(call.function | tojson)", "call.function.arguments");
    assert_eq!(trained(&raw, options(), &text), ["<tool_call>{\"x\": \"y\"}</tool_call><|im_end|>\n"]);
    let unknown = json!({"conversations": [{"from": "narrator", "value": "U"}]});
    assert!(refused(MARKS, options(), &unknown).1.contains("unknown `from` \"narrator\""));
}

#[test]
fn nulls_in_arguments_are_counted_and_odd_weights_refused() {
    let row = |weight: f64| {
        json!({"messages": [
            {"role": "user", "content": "U"},
            {"role": "assistant", "content": "", "weight": weight, "tool_calls": [{"function": {"name": "f", "arguments": {"x": null}}}]},
        ]})
    };
    assert_eq!(render(MARKS, options(), &row(1.0)).notes, ["null-in-arguments"]);
    let (code, message) = refused(MARKS, options(), &row(0.5));
    assert_eq!(code, ChatRejectCode::InvalidChat);
    assert!(message.contains("`weight` of messages[1]"), "{message}");
}

#[test]
fn the_system_message_of_a_row_is_that_of_the_chat() {
    let turns = [("user", "U"), ("assistant", "A")];
    let with = |system: &str, messages: &[(&str, &str)]| {
        let mut row = chat(messages);
        row["system"] = json!(system);
        row
    };
    let own = [("system", "S"), ("user", "U"), ("assistant", "A")];
    let expected = render(MARKS, options(), &chat(&own));
    for row in [with("S", &turns), with("S", &own), with("", &own)] {
        assert_eq!(render(MARKS, options(), &row), expected, "{row}");
    }
    assert_eq!(refused(MARKS, options(), &with("other", &own)).0, ChatRejectCode::TwoSystems);
}

#[test]
fn keys_that_a_template_does_not_read_are_named() {
    let mut row = chat(&[("user", "U"), ("assistant", "A")]);
    row["messages"][1]["thought"] = json!("T");
    row["messages"][1]["weight"] = json!(1);
    let template = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '</s>' }}EXTRA{% endfor %}";
    let unread = |extra: &str| {
        let options = ChatOptions { train_on: "all".parse().unwrap(), ..options() };
        render(&template.replace("EXTRA", extra), options, &row).unread_keys
    };
    assert_eq!(unread(""), ["thought"]);
    assert_eq!(unread("{# thoughts #}"), ["thought"]);
    for reads in ["{{ m.thought }}", "{{ m['thought'] }}", "{{ m.get('thought', '') }}", "{{ m | tojson }}"] {
        assert_eq!(unread(reads), [""; 0], "{reads}");
    }
}

#[test]
fn variables_come_from_tokens_options_and_the_chat() {
    let template = "{{ bos_token }}{{ name }}{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '</s>' }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
    let mut options = options();
    options.args.insert("name".into(), json!("Ada"));
    let mut row = chat(&[("user", "U"), ("assistant", "A")]);
    assert!(render(template, options.clone(), &row).text.starts_with("<s>Ada<|user|>"));
    row["chat_template_kwargs"] = json!({"name": "Bob", "bos_token": ""});
    assert!(render(template, options.clone(), &row).text.starts_with("Bob<|user|>"));
    row["chat_template_kwargs"] = json!({"add_generation_prompt": true});
    assert!(refused(template, options.clone(), &row).1.contains("may not contain `add_generation_prompt`"));
    options.args.insert("messages".into(), json!([]));
    assert!(unusable(template, options).contains("may not contain `messages`"));
}

#[test]
fn pairs_of_messages_train_the_completion_only() {
    let row = json!({
        "prompt": [{"role": "user", "content": "U1"}, {"role": "assistant", "content": "A1"}, {"role": "user", "content": "U2"}],
        "completion": [{"role": "assistant", "content": "A2"}],
    });
    for template in [MARKS, MARKS_TRAINING] {
        assert_eq!(trained(template, options(), &row), ["A2<|im_end|>\n"]);
    }
    let texts = render(MARKS, options(), &json!({"prompt": "P ", "completion": "C"}));
    assert_eq!((texts.text.as_str(), texts.trained.len(), texts.trained[0].clone()), ("P C", 1, 2..3));
    assert_eq!(texts, render_pair("P ", "C"));
    assert_eq!(render_pair("", "C").pieces.len(), 1);
    assert!(render_pair("P", "").trained.is_empty());
    let mixed = json!({"prompt": "P", "completion": [{"role": "assistant", "content": "A"}]});
    assert!(refused(MARKS, options(), &mixed).1.contains("two texts, or two lists of messages"));
}

#[test]
fn malformed_chats_are_refused_with_their_place() {
    let renderer = renderer(MARKS, options());
    let user = json!({"role": "user", "content": "U"});
    for (row, expected) in [
        (json!([]), "the chat is a list, not an object"),
        (json!({}), "the chat has no messages"),
        (json!({"messages": []}), "the chat has no messages"),
        (json!({"messages": {"role": "user"}}), "`messages` is an object, not a list"),
        (json!({"messages": "hello"}), "`messages` is text, not a list"),
        (json!({"messages": [user, "hello"]}), "messages[1] is text, not an object"),
        (json!({"messages": [user, null]}), "messages[1] is null, not an object"),
        (json!({"messages": [{"content": "U"}]}), "messages[0] has no `role`"),
        (json!({"messages": [{"role": 1, "content": "U"}]}), "the role of messages[0] is a number"),
        (json!({"messages": [{"role": "user"}]}), "messages[0] has no `content`"),
        (json!({"messages": [{"role": "user", "content": 7}]}), "the content of messages[0] is a number"),
        (
            json!({"messages": [{"role": "user", "content": {"text": "U"}}]}),
            "the content of messages[0] is an object",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "U"}, {"type": "image_url", "image_url": {}}]}]}),
            "messages[0] has a part of kind `image`; only text parts are read",
        ),
        (json!({"messages": [{"role": "user", "content": [{"video": "v.mp4"}]}]}), "part of kind `video`"),
        (
            json!({"messages": [user, {"role": "assistant", "content": "", "tool_calls": {}}]}),
            "`tool_calls` of messages[1] is an object",
        ),
        (
            json!({"messages": [user, {"role": "assistant", "content": "", "tool_calls": ["f"]}]}),
            "messages[1].tool_calls[0] is text",
        ),
        (
            json!({"messages": [{"role": "user", "content": "U", "train": "no"}]}),
            "`train` of messages[0] is neither 0, 1, true nor false",
        ),
        (
            json!({"messages": [{"role": "user", "content": "U", "weight": "0"}]}),
            "`weight` of messages[0] is neither 0, 1, true nor false",
        ),
        (json!({"messages": [user], "tools": 5}), "`tools` is a number, not a list"),
        (json!({"messages": [user], "tools": [5]}), "tools[0] is a number, not an object"),
        (json!({"messages": [user], "chat_template_kwargs": [1]}), "`chat_template_kwargs` is a list"),
        (
            json!({"messages": [user], "prompt": "P", "completion": "C"}),
            "both messages and a prompt or completion",
        ),
        (json!({"prompt": "P"}), "the pair has no completion"),
    ] {
        let reject = renderer.render(&row.to_string()).unwrap_err();
        assert_eq!(reject.code, ChatRejectCode::InvalidChat, "{row}");
        assert!(reject.message.contains(expected), "{row}: {}", reject.message);
    }
    for (text, expected) in
        [("", "not JSON"), ("{", "not JSON"), (&*("[".repeat(100_000)), "nested too deeply")]
    {
        let reject = renderer.render(text).unwrap_err();
        assert_eq!(reject.code, ChatRejectCode::InvalidChat);
        assert!(reject.message.contains(expected), "{}", reject.message);
    }
    let long = chat(&[("user", &"x".repeat(50 << 20)), ("assistant", "A")]);
    let reject = renderer.render(&long.to_string()).unwrap_err();
    assert_eq!(reject.code, ChatRejectCode::TooLarge);
    // What the template raises names the line.
    let (code, message) = refused(INST, options(), &two_turns());
    assert_eq!(code, ChatRejectCode::InvalidChat);
    assert!(message.contains("only user and assistant") && message.contains("line 9"), "{message}");
}

#[test]
fn stops_and_roles_are_options() {
    assert_eq!("none".parse(), Ok(FinalStop::None));
    assert_eq!("user,tool".parse(), Ok(TrainOn::Roles(vec!["user".into(), "tool".into()])));
}

/// A template whose token for the end of a turn is also the start of its generation prompt.
const EARLY_END: &str = "{% for m in messages %}{% if not loop.first %}{{ '<|eot|>' }}{% endif %}{{ '<|head|>' + m.role + '<|/head|> ' + m.content }}\
    {% for call in m.tool_calls or [] %}{{ '<tool_call>' + call.function.name + '</tool_call>' }}{% endfor %}{% endfor %}{{ '<|eot|>' }}\
    {% if add_generation_prompt %}{{ '<|head|>assistant<|/head|> ' }}{% endif %}";

#[test]
fn the_end_of_a_turn_is_trained_where_the_generation_prompt_starts_with_it() {
    assert_eq!(trained(EARLY_END, options(), &two_turns()), ["A1<|eot|>", "A2<|eot|>"]);
    let empty = chat(&[("user", "U"), ("assistant", "")]);
    assert_eq!(trained(EARLY_END, options(), &empty), ["<|eot|>"]);
    let call = json!({"messages": [
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
    ]});
    let trained_call =
        || trained(EARLY_END, ChatOptions { not_rendered: NotRendered::Allow, ..options() }, &call);
    assert_eq!(trained_call(), ["<tool_call>f</tool_call><|eot|>"]);
    // A generation prompt that is always written is not trained, but what ends the turn before it is.
    let always = EARLY_END.replace("{% if add_generation_prompt %}", "{% if true %}");
    assert_eq!(trained(&always, options(), &two_turns()), ["A1<|eot|>", "A2<|eot|>"]);
    let inside =
        EARLY_END.replace("{{ '<|eot|>' }}{% if add_generation_prompt %}{{ '", "{% if true %}{{ '<|eot|>");
    assert_eq!(trained(&inside, options(), &two_turns()), ["A1<|eot|>", "A2<|eot|>"]);
    // That of Jamba, whose generation prompt has no space after its header.
    let jamba = || {
        let tokens = ["<|bom|>", "<|eom|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"];
        ChatOptions { added_tokens: tokens.map(str::to_owned).to_vec(), ..options() }
    };
    assert_eq!(trained(END_IN_PROMPT, jamba(), &two_turns()), [" A1<|eom|>", " A2<|eom|>"]);
    assert_eq!(trained(END_IN_PROMPT, jamba(), &empty), [" <|eom|>"]);
    let last = ChatOptions { train_on: TrainOn::Last, ..jamba() };
    assert_eq!(trained(END_IN_PROMPT, last, &two_turns()), [" A2<|eom|>"]);
    let allow = ChatOptions { not_rendered: NotRendered::Allow, ..jamba() };
    let calls = " <tool_calls>[\n    {\"name\": \"f\", \"arguments\": {}}\n]</tool_calls><|eom|>";
    assert_eq!(trained(END_IN_PROMPT, allow, &call), [calls]);
    // Templates that close a turn in its iteration.
    let marks = MARKS.replace("{%- if add_generation_prompt %}", "{%- if true %}");
    assert_eq!(trained(&marks, options(), &two_turns()), ["A1<|im_end|>\n", "A2<|im_end|>\n"]);
}

fn parts(texts: &[&str]) -> Value {
    texts.iter().map(|text| json!({"type": "text", "text": text})).collect()
}

fn chat_of_parts(user: &[&str], answer: &[&str]) -> Value {
    json!({"messages": [{"role": "user", "content": parts(user)}, {"role": "assistant", "content": parts(answer)}]})
}

#[test]
fn text_parts_are_joined_by_templates_that_iterate_and_by_an_option() {
    let join = |join: &str| ChatOptions { join_parts: Some(join.parse().unwrap()), ..options() };
    let printed = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>{% endfor %}\
        {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    let added = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' }}{% endfor %}\
        {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    let refusing = printed.replace(
        "{{ m.content | trim }}",
        "{{ m.content if m.content is string else raise_exception('no') }}",
    );
    let iterating = printed.replace(
        "{{ m.content | trim }}",
        "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}[{{ part.text }}]{% endfor %}{% endif %}",
    );
    for template in [printed, added, &refusing] {
        let one = render(template, options(), &chat_of_parts(&["U"], &["A"]));
        assert_eq!(
            one,
            render(template, options(), &chat(&[("user", "U"), ("assistant", "A")])),
            "{template}"
        );
        // As LLaMA-Factory writes it.
        let value = json!({"messages": [
            {"role": "user", "content": "U"},
            {"role": "assistant", "content": [{"type": "text", "value": "A"}]},
        ]});
        assert_eq!(render(template, options(), &value).text, one.text);
        for several in [chat_of_parts(&["U"], &["A", "B"]), chat_of_parts(&["U", "V"], &["A"])] {
            let (code, message) = refused(template, options(), &several);
            assert_eq!(code, ChatRejectCode::TextParts, "{template}: {message}");
            assert!(message.contains("has 2 text parts") && message.contains("`join_parts`"), "{message}");
        }
        let several = chat_of_parts(&["U"], &["A", "B"]);
        assert_eq!(trained(template, join(""), &several), ["AB<|im_end|>"]);
        assert_eq!(trained(template, join("\\n"), &several), ["A\nB<|im_end|>"]);
        let empty =
            json!({"messages": [{"role": "user", "content": "U"}, {"role": "assistant", "content": []}]});
        assert_eq!(trained(template, options(), &empty), ["<|im_end|>"]);
    }
    assert_eq!(trained(&iterating, join(""), &chat_of_parts(&["U"], &["A", "B"])), ["[A][B]<|im_end|>"]);
    // Another error is not about the parts.
    let roles = added
        .replace("m.content +", "m.content + (raise_exception('roles') if m.role == 'system' else '') +");
    let row = json!({"messages": [{"role": "system", "content": parts(&["S"])}, {"role": "assistant", "content": "A"}]});
    assert_eq!(refused(&roles, options(), &row).0, ChatRejectCode::InvalidChat);
    assert!("x".parse::<dsconvert_chat::JoinParts>().is_err());
}

/// The template of Nemotron 3 tests whether the content of a call is text, and writes no list.
#[test]
fn a_text_part_is_its_text_where_the_template_writes_nothing_of_a_list() {
    let template = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}\
        {% if m.content is string %}{{ m.content }}{% elif m.role == 'tool' %}{{ m.content|tojson }}{% endif %}{{ '<|im_end|>' }}{% endfor %}\
        {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    let one = chat_of_parts(&["U"], &["A"]);
    assert_eq!(trained(template, options(), &one), ["A<|im_end|>"]);
    // Several parts have no text of their own.
    let several = chat_of_parts(&["U"], &["A", "B"]);
    assert_eq!(refused(template, options(), &several).0, ChatRejectCode::NotRendered);
    let join = ChatOptions { join_parts: Some("\n".parse().unwrap()), ..options() };
    assert_eq!(trained(template, join, &several), ["A\nB<|im_end|>"]);
    let allow = ChatOptions { not_rendered: NotRendered::Allow, ..options() };
    assert_eq!(trained(template, allow, &several), ["<|im_end|>"]);
    // The result of a tool that the template writes as JSON stays a list. Other contents do not.
    let mut result = one;
    let tool = json!({"role": "tool", "content": parts(&["R"])});
    result["messages"].as_array_mut().unwrap().insert(1, tool);
    let text = render(template, options(), &result).text;
    assert!(
        text.contains("[{\"type\": \"text\", \"text\": \"R\"}]") && text.contains("\nA<|im_end|>"),
        "{text}"
    );
}

#[test]
fn a_text_part_is_its_text_where_the_template_writes_a_list_as_json() {
    let template = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + (m.content if m.content is string else m.content|tojson) + '<|im_end|>' }}{% endfor %}\
        {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    let one = render(template, options(), &chat_of_parts(&["U"], &["A"]));
    assert_eq!(one, render(template, options(), &chat(&[("user", "U"), ("assistant", "A")])));
    let several = chat_of_parts(&["U"], &["A", "B"]);
    assert_eq!(refused(template, options(), &several).0, ChatRejectCode::TextParts);
    // As in the template of Jamba.
    let row = chat_of_parts(&["U"], &["A"]);
    let tokens = ["<|bom|>", "<|eom|>", "<|system|>", "<|user|>", "<|assistant|>"];
    let jamba = ChatOptions { added_tokens: tokens.map(str::to_owned).to_vec(), ..options() };
    assert_eq!(trained(END_IN_PROMPT, jamba, &row), [" A<|eom|>"]);
}

/// The template of LLaVA-NeXT has a space after each turn, which may be the start of the first token of the next one.
#[test]
fn spaces_after_the_end_of_a_turn_are_not_trained() {
    let template = "{% for m in messages %}{{ '[INST] ' + m.content + ' [/INST]' if m.role == 'user' else ' ' + m.content + '</s> ' }}{% endfor %}";
    let row = chat(&[("user", "U1"), ("assistant", "A1"), ("user", "U2"), ("assistant", "A2 ")]);
    assert_eq!(trained(template, options(), &row), [" A1</s>", " A2 </s>"]);
    let newline = template.replace("'</s> '", "'</s> \n'");
    assert_eq!(trained(&newline, options(), &row), [" A1</s> \n", " A2 </s> \n"]);
    // Without an added token, nothing is known to close a turn.
    let plain = ChatOptions { added_tokens: Vec::new(), ..options() };
    assert_eq!(trained(template, plain, &row), [" A1</s> ", " A2 </s> "]);
}

#[test]
fn the_form_of_python_is_never_trained() {
    let template = |shown: &str| {
        format!(
            "{{% for m in messages %}}{{{{ '<|im_start|>' + m.role + '\n' }}}}{{{{ {shown} }}}}{{{{ '<|im_end|>' }}}}{{% endfor %}}\
             {{% if add_generation_prompt %}}{{{{ '<|im_start|>assistant\n' }}}}{{% endif %}}"
        )
    };
    let call = json!({"function": {"name": "f", "arguments": {"x": [1, null]}}});
    let row = json!({"messages": [
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": "A", "tool_calls": [call]},
    ]});
    let arguments = "m.tool_calls[0].function.arguments";
    for shown in [
        format!("m.content ~ ({arguments} if m.tool_calls else '')"),
        format!("m.content ~ ({arguments}.x if m.tool_calls else '')"),
        format!("m.content ~ (({arguments}|string)[1:3] if m.tool_calls else '')"),
        format!("m.content ~ ({arguments}.items() if m.tool_calls else '')"),
        format!("m.content ~ ({arguments}.x[1] if m.tool_calls else '')"),
        format!("m.content ~ ('%s' % {arguments} if m.tool_calls else '')"),
        "m.content ~ m.get('name')".to_owned(),
        "m.content ~ ([m.content] if m.tool_calls else '')".to_owned(),
        format!("m.content ~ ({arguments}.x|join(' ') if m.tool_calls else '')"),
    ] {
        let allow = ChatOptions { not_rendered: NotRendered::Allow, ..options() };
        let (code, message) = refused(&template(&shown), allow, &row);
        assert_eq!(code, ChatRejectCode::InvalidChat, "{shown}: {message}");
        assert!(message.contains("Python's form"), "{shown}: {message}");
    }
    // Where it is not trained, it is what the model was given: the result of a tool, for example.
    let tool = json!({"messages": [
        {"role": "user", "content": "U"},
        {"role": "tool", "content": {"x": null}},
        {"role": "assistant", "content": "A"},
    ]});
    let rendered = render(&template("m.content"), options(), &tool);
    assert!(rendered.text.contains("{'x': None}"), "{}", rendered.text);
    assert_eq!(trained(&template("m.content"), options(), &tool), ["A<|im_end|>"]);
    assert_eq!(trained(&template("m.content ~ 1.5 ~ true"), options(), &tool), ["A1.5True<|im_end|>"]);
}

#[test]
fn every_string_of_a_chat_is_content() {
    let everything = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}\
        {{ '<|im_start|>' + m.role + ' ' + (m.name or '') + (m.tool_call_id or '') }}{% for key in m %}{{ key }}{% endfor %}{{ '\n' }}\
        {{ m | tojson }}{{ m.content }}{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant' }}{% endif %}";
    let evil = "x<|im_end|>";
    let rows = [
        json!({"messages": [{"role": evil, "content": "U"}, {"role": "assistant", "content": "A"}]}),
        json!({"messages": [{"role": "<|im_end|>", "content": "U"}, {"role": "assistant", "content": "A"}]}),
        json!({"messages": [{"role": "user", "content": "U", "name": evil}, {"role": "assistant", "content": "A"}]}),
        json!({"messages": [{"role": "tool", "content": "U", "tool_call_id": evil}, {"role": "assistant", "content": "A"}]}),
        json!({"messages": [{"role": "user", "content": "U", evil: "x"}, {"role": "assistant", "content": "A"}]}),
        json!({"messages": [{"role": "user", "content": "U"}, {"role": "assistant", "content": "A", "tool_calls": [{"id": evil, "function": {"name": evil, "arguments": {evil: evil}}}]}]}),
        json!({"messages": [{"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}], "tools": [{"name": evil, evil: evil}]}),
    ];
    for row in rows {
        let rendered = render(everything, train_on("none"), &row);
        let content: Vec<(usize, usize)> = (0..rendered.pieces.len())
            .filter(|at| rendered.pieces[*at].source != Source::Template)
            .map(|at| {
                (at.checked_sub(1).map_or(0, |before| rendered.pieces[before].end), rendered.pieces[at].end)
            })
            .collect();
        let starts: Vec<usize> = rendered.text.match_indices("<|im_end|>").map(|(at, _)| at).collect();
        let is_content = |at: &&usize| content.iter().any(|(start, end)| (start..end).contains(at));
        let by_template = starts.len() - starts.iter().filter(is_content).count();
        assert_eq!(by_template, 2, "{row}\n{}", rendered.text);
        assert!(starts.len() > 2, "{row}\n{}", rendered.text);
    }
    let keys = "{% for m in messages %}{{ '<|im_start|>' + m.role + '
' }}{% if m.content is string %}{{ m.content }}{% else %}        {% for part in m.content %}{{ part | tojson }}{% endfor %}{% endif %}{{ '<|im_end|>
' }}{% endfor %}        {% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}";
    let row = json!({"messages": [{"role": "tool", "content": [{"type": "text", "text": "U", evil: "x"}]}, {"role": "assistant", "content": "A"}]});
    let rendered = render(keys, train_on("none"), &row);
    let key = rendered.text.find(evil).unwrap();
    let piece = rendered.pieces.iter().find(|piece| piece.end > key).unwrap();
    assert_ne!(piece.source, Source::Template, "{}", rendered.text);
    // A role that templates know is a part of the template: `<|user|>` is one token.
    let roles = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '</s>' }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
    let roles_of = |row: &Value| {
        let rendered = render(roles, train_on("all"), row);
        rendered.pieces.iter().filter(|piece| piece.source == Source::Template).count()
    };
    assert_eq!(roles_of(&chat(&[("user", "U"), ("assistant", "A")])), 3);
    assert_eq!(roles_of(&chat(&[("im_end", "U"), ("assistant", "A")])), 4);
    // The header of another role ends with the role.
    assert_eq!(trained(MARKS, train_on("narrator"), &chat(&[("narrator", "N")])), ["N<|im_end|>\n"]);
}
