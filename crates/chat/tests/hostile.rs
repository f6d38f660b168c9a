//! Templates and chats that are made to take long, or to take much memory. A template comes from the internet with its model.
//!
//! Tests with debug assertions use small budgets. `cargo test --release -p dsconvert-chat --test hostile -- --nocapture` uses those
//! of the product, and prints how long each case takes.

#![allow(clippy::unwrap_used)] // The exception for tests does not cover helper functions.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use dsconvert_chat::{
    ChatOptions, ChatRejectCode, ChatRenderer, ErrorKind, RenderOptions, Rendered, Template, TemplateError,
    TrainOn, Value,
};
use serde_json::json;

const MARKS: &str = include_str!("templates/marks.jinja");
const MARKS_TRAINING: &str = include_str!("templates/marks_training.jinja");
const HEADERS: &str = include_str!("templates/headers.jinja");
const NEXT_ROLE: &str = include_str!("templates/next_role.jinja");

fn budget() -> RenderOptions {
    match cfg!(debug_assertions) {
        true => RenderOptions { steps: 50_000, bytes: 1 << 19, ..RenderOptions::default() },
        false => RenderOptions::default(),
    }
}

/// Prints what takes long in a release build, where nothing may.
#[allow(clippy::print_stdout, reason = "times are read by a person, with --nocapture")]
fn timed<T>(what: &str, slowest: &mut Duration, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    let elapsed = start.elapsed();
    if elapsed > *slowest {
        *slowest = elapsed;
        println!("{:8.1} ms  {}", elapsed.as_secs_f64() * 1e3, what.chars().take(300).collect::<String>());
    }
    result
}

fn render(template: &str) -> Result<Rendered, TemplateError> {
    let messages = json!([
        {"role": "user", "content": "a b\nc ".repeat(100)},
        {"role": "assistant", "content": "é<|x|>", "tool_calls": [{"name": "f", "arguments": {"k": [1, "v", null]}}]},
    ]);
    let context = [("messages", Value::from_json(&messages.to_string()).unwrap())];
    Template::compile(template)?.render(&context, &budget())
}

/// Builds values of which each has the one before twice.
fn doubled(value: &str, twice: &str, times: u32) -> String {
    format!(
        "{{% set n = namespace(x={value}, y={value}) %}}{{% for i in range({times}) %}}\
         {{% set n.x = {twice} %}}{{% set n.y = {} %}}{{% endfor %}}",
        twice.replace("n.x", "n.y")
    )
}

#[test]
fn attacks_end_within_their_budget() {
    let lists = doubled("[1]", "[n.x, n.x]", 60);
    let tuples = doubled("(1,)", "(n.x, n.x)", 60);
    let maps = doubled("{}", "{'a': n.x, 'b': n.x}", 60);
    let of = |build: &str, rest: &str| format!("{build}{rest}");
    let nested = |count: usize, inner: &str| {
        let open: String = (0..count).map(|at| format!("{{% for a{at} in range(99999) %}}")).collect();
        format!("{open}{inner}{}", "{% endfor %}".repeat(count))
    };
    let attacks = [
        "{{ messages|tojson(indent=100000000) }}".to_owned(),
        of(&doubled("[1]", "[n.x]", 150), "{{ n.x|tojson(indent=100000) }}"),
        of(&lists, "{{ n.x|string }}"),
        of(&lists, "{{ n.x|tojson }}"),
        of(&lists, "{{ n.x ~ '' }}"),
        of(&lists, "{{ '%s' % (n.x,) }}"),
        of(&lists, "{{ '{}'.format(n.x) }}"),
        of(&lists, "{{ n.x == n.y }}"),
        of(&lists, "{{ n.x != n.y }}"),
        of(&lists, "{{ n.x in [n.y] }}"),
        of(&lists, "{{ n.x < n.y }}"),
        of(&lists, "{{ [n.x, n.y]|sort }}"),
        of(&lists, "{{ [n.x, n.y]|min }}"),
        of(&lists, "{{ [n.x].index(n.y) }}"),
        of(&lists, "{{ [n.x, n.y].count(n.y) }}"),
        of(&lists, "{{ [n.x]|select('eq', n.y)|list|length }}"),
        of(&lists, "{{ [{'k': n.x}, {'k': n.y}]|groupby('k') }}"),
        of(&tuples, "{{ [n.x, n.y]|unique|list|length }}"),
        of(&tuples, "{{ {n.x: 1} }}"),
        of(&tuples, "{{ {1: 2}.get(n.x) }}"),
        of(&tuples, "{{ n.x in {1: 2} }}"),
        of(&maps, "{{ n.x == n.y }}"),
        of(&maps, "{{ n.x.items() == n.y.items() }}"),
        of(&maps, "{{ n.x|tojson(sort_keys=true) }}"),
        of(&lists, "{% for i in [1, 2] %}{{ loop.changed(n.x if loop.first else n.y) }}{% endfor %}"),
        "{{ ([[1]*100000]*100000)|tojson }}".to_owned(),
        "{{ ([[1]*100000]*100000)|string }}".to_owned(),
        "{{ ('x'*100000000)|list|length }}".to_owned(),
        "{{ ('x'*10000000)|list|length }}".to_owned(),
        "{{ ([1]*50000000 + [2]*50000000)|length }}".to_owned(),
        of(&doubled("[1]", "n.x + n.x", 60), "{{ n.x|length }}"),
        of(&doubled("'ab'", "n.x ~ n.x", 60), "{{ n.x|length }}"),
        of(&doubled("'ab'", "n.x.join([n.x, n.x])", 60), "{{ n.x|length }}"),
        of(&doubled("'ab'", "n.x.replace('a', n.x)", 60), "{{ n.x|length }}"),
        "{{ ('a'*10000000).replace('', 'b'*100)|length }}".to_owned(),
        "{{ '%99999999d' % 1 }}".to_owned(),
        "{{ '%.99999999f' % 1 }}".to_owned(),
        "{{ '{:,>99999999}'.format(1) }}".to_owned(),
        "{{ 'a'.center(99999999) }}".to_owned(),
        "{{ '\t'.expandtabs(99999999) }}".to_owned(),
        "{{ [1]|batch(99999999, 0)|list }}".to_owned(),
        "{{ 'a\nb'|indent(99999999) }}".to_owned(),
        "{{ range(100000)|list * 1000 }}".to_owned(),
        of(
            "{% set s = 'ab' * 200000 %}{% set n = namespace(c=0) %}",
            &nested(1, "{% set n.c = n.c + s.find('ba' * 9999) + s.count('aab') %}"),
        ),
        of("{% set s = ('a' * 300000) %}", &nested(1, "{% if s[1:] == s[:-1] %}{% endif %}")),
        of("{% set s = ('a' * 90000) %}", &nested(1, "{{ {}[s] is defined }}")),
        of("{% set t = range(100000)|map('string') %}", &nested(1, "{% set x = [t] %}")),
        of("{% macro f() %}{% macro g() %}{% endmacro %}{% endmacro %}", &nested(2, "{% set x = f() %}")),
        nested(2, ""),
        nested(3, "x"),
        nested(3, "{{ a0 ~ a1 ~ a2 }}"),
        nested(2, "{% if a0 == a1 and a0 > 3 or not a1 %}{% endif %}"),
        nested(2, "{% set x = {'a': a0, 'b': [a1]} %}"),
        nested(2, "{% generation %}{% endgeneration %}"),
        nested(1, &"{% set x = 1 %}".repeat(2000)),
        nested(1, &format!("{{% set x = 1{} %}}", " + 1".repeat(2000))),
        nested(1, &format!("{{% set x = 1{} %}}", " < 2".repeat(2000))),
        nested(1, &format!("{{% set x = [{}] %}}", "1,".repeat(2000))),
        nested(1, &format!("{{% set x = ({}1) %}}", "0 or ".repeat(2000))),
        nested(1, &(0..2000).map(|at| format!("{{{{ v{at} }}}}")).collect::<String>()),
    ];
    let mut slowest = Duration::ZERO;
    for attack in attacks {
        match timed(&attack, &mut slowest, || render(&attack)) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Limit, "{error}: {attack}"),
            // A few are affordable with the budgets of the product, which only release builds test.
            Ok(_) if !cfg!(debug_assertions) => {}
            Ok(rendered) => panic!("{} steps, {} bytes: {attack}", rendered.steps, rendered.bytes),
        }
    }
}

/// Formats of numbers are exact, also with more digits than the standard library writes.
#[test]
fn numbers_have_as_many_digits_as_a_format_asks_for() {
    for (template, length, start) in [
        ("{{ '%.70000f' % 1.5 }}", 70_002, "1.500"),
        ("{{ '%.70000e' % 1.5 }}", 70_006, "1.500"),
        ("{{ '%.70000d' % 15 }}", 70_000, "000"),
        (
            "{{ '{:.70000f}'.format(0.1) }}",
            70_002,
            "0.1000000000000000055511151231257827021181583404541015625000",
        ),
        ("{{ '{:#.70000g}'.format(0.5) }}", 70_002, "0.500"),
    ] {
        let text = render(template).unwrap().text;
        assert!(text.starts_with(start) && text.len() == length, "{template}: {} bytes", text.len());
    }
}

#[test]
fn hostile_sources_are_refused() {
    let names: String = (0..20_000).map(|at| format!("{{% if a{at} %}}{{% endif %}}")).collect();
    let elif: String = (0..20_000).map(|at| format!("{{% elif a{at} %}}")).collect();
    let sources = [
        (names, "too many names and conditions"),
        (format!("{{% if a %}}{elif}{{% endif %}}"), "too many names and conditions"),
        ("x".repeat((1 << 20) + 1), "more than 1048576 bytes"),
    ];
    let mut slowest = Duration::ZERO;
    for (source, message) in sources {
        let error = timed(&source, &mut slowest, || Template::compile(&source)).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
    let many: String = (0..300).map(|at| format!("{{% set n.a{at} = 1 %}}")).collect();
    assert_eq!(render(&format!("{{% set n = namespace() %}}{many}")).unwrap_err().kind(), ErrorKind::Limit);
}

/// Numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % count as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

const SEEDS: &[&str] = &[
    "'ab '",
    "'é<|x|>'",
    "'\\t'",
    "'9'",
    "[1]",
    "['b', 'A']",
    "(1,)",
    "{'a': 1}",
    "{}",
    "range(100000)",
    "messages",
    "messages[0].content",
    "messages[1]",
    "1.5",
    "9",
    "none",
    "[nope]",
    "[[2], [1]]",
    "[1.5, 2, true]",
    "messages|map('length')",
];
const GROWTH: &[&str] = &[
    "[X, X]",
    "(X, X)",
    "X ~ X",
    "X + X",
    "{'a': X, 'b': X}",
    "X|string",
    "X|tojson",
    "[X] * 9",
    "X * 3",
    "X|list",
    "dict(a=X)",
    "X|map('string')|list",
    "X|join(X)",
    "X.replace('a', X)",
    "X.join([X, X])",
    "'%s%s' % (X, X)",
    "'{0}{0}'.format(X)",
    "X|batch(2)|list",
    "X|items|list",
    "X|dictsort",
    "X|groupby('a')",
    "X.split('a')",
    "X|list + X|list",
    "X[::-1]",
    "X|upper",
    "X|indent(9)",
    "[X]|sort",
    "X|tojson(indent=9)",
    "X.values()|list",
    "X.items()|list",
    "namespace(a=X)",
    "X|escape",
    "X.splitlines()",
    "X|reverse|list",
];
const USES: &[&str] = &[
    "X",
    "X == Y",
    "X != Y",
    "X in [Y]",
    "Y in X",
    "X < Y",
    "X ~ Y",
    "X + Y",
    "X * 99999",
    "X|string",
    "X|tojson",
    "X|tojson(indent=99999)",
    "X|tojson(sort_keys=true)",
    "X|tojson(ensure_ascii=true)",
    "[X, Y]|sort",
    "[X, Y]|unique|list",
    "[X, Y]|max",
    "[X, Y]|join(X)",
    "X|list",
    "X|length",
    "X|first",
    "X|last",
    "X|reverse|list",
    "X|sort(reverse=true)",
    "X|unique|list",
    "X|sum",
    "X|min",
    "X|sum(start=[])",
    "X|int",
    "X|float",
    "X|abs",
    "X|round(2)",
    "X|upper",
    "X|title",
    "X|capitalize",
    "X|wordcount",
    "X|center(99999)",
    "X|truncate(9)",
    "X|indent(999)",
    "X|batch(3, X)|list",
    "X|slice(999)|list",
    "X|dictsort(by='value')",
    "X|items|list",
    "X|groupby('a')",
    "X|map('upper')|list",
    "X|map(attribute='a.b.0')|list",
    "X|select('eq', Y)|list",
    "X|selectattr('a', 'in', Y)|list",
    "X|replace(X, Y)",
    "X|replace('', Y)",
    "X|trim(Y)",
    "X|escape",
    "X|format(Y)",
    "X|filesizeformat",
    "X|d(Y)",
    "X.find(Y)",
    "X.rfind(Y)",
    "X.count(Y)",
    "X.index(Y)",
    "X.split(Y)",
    "X.split()",
    "X.rsplit(Y, 3)",
    "X.splitlines()",
    "X.strip(Y)",
    "X.partition(Y)",
    "X.rpartition(Y)",
    "X.startswith(Y)",
    "X.zfill(99999)",
    "X.ljust(99999, 'é')",
    "X.expandtabs(99999)",
    "X.isprintable()",
    "X.istitle()",
    "X.swapcase()",
    "X.casefold()",
    "X.removeprefix(Y)",
    "X.join(Y)",
    "X.format(Y, a=X)",
    "X.format_map(Y)",
    "X.get(Y, X)",
    "X.keys() == Y.keys()",
    "X.items() == Y.items()",
    "X.copy()",
    "X.fromkeys(Y)",
    "X[Y]",
    "X[1:]",
    "X[::-2]",
    "X[-1]",
    "dict(X)",
    "dict(**X)",
    "{X: Y}",
    "X is eq(Y)",
    "X is lower",
    "X is divisibleby(7)",
    "X is sameas(Y)",
    "'%s' % X",
    "'%r' % (X,)",
    "'%(a)s' % X",
    "'%*d' % (X, Y)",
    "'{:>9999}'.format(X)",
    "'{!r}'.format(X)",
    "'{0[a]}{0.b}'.format(X)",
    "strftime_now(X)",
    "raise_exception(X)",
    "range(X)",
    "X ** 9",
    "X // 7",
    "X % Y",
    "-X",
];
const AROUND: &[(&str, &str)] = &[
    ("", ""),
    ("{% for i in range(99999) %}", "{% endfor %}"),
    ("{% for i in n.x %}", "{% endfor %}"),
    ("{% for i in n.x recursive %}{{ loop(n.x) }}", "{% endfor %}"),
    ("{% set c %}", "{% endset %}{{ c ~ c }}"),
    (
        "{% macro f(a, b=n.x) %}{{ caller() if caller else f(a) }}",
        "{% endmacro %}{% call f(1) %}{{ n.y }}{% endcall %}",
    ),
    ("{% filter upper %}", "{% endfilter %}"),
    ("{% generation %}", "{% endgeneration %}"),
    ("{% with z = n.x %}", "{% endwith %}"),
];

fn hostile_template(random: &mut Random) -> String {
    let mut build = String::new();
    for _ in 0..=random.below(2) {
        let growth = random.pick(GROWTH).replace('X', "n.x");
        let times = random.pick(&["2", "4", "9", "20", "60", "500"]);
        let other = growth.replace("n.x", "n.y");
        build += &format!(
            "{{% for i in range({times}) %}}{{% set n.x = {growth} %}}{{% set n.y = {other} %}}{{% endfor %}}"
        );
    }
    let seed = random.pick(SEEDS);
    let mut uses = String::new();
    for _ in 0..=random.below(3) {
        let value = random.pick(&["n.x", "n.x", "n.y", "messages", "messages[0].content"]);
        let other = random.pick(&["n.y", "n.y", "n.x|string", "messages", "messages[0].content", "i"]);
        uses += &format!("{{{{ {} }}}}", random.pick(USES).replace('X', value).replace('Y', other));
    }
    for _ in 0..random.below(4) {
        let (open, close) = AROUND[random.below(AROUND.len())];
        uses = format!("{open}{uses}{close}");
    }
    format!("{{% set n = namespace(x={seed}, y={seed}) %}}{build}{uses}")
}

/// Whatever a template does, it ends; and it does so in the same way on every machine, with the same counts.
#[test]
fn templates_from_a_grammar_end_within_their_budget() {
    let mut random = Random(1);
    let (mut slowest, mut limited, mut rendered) = (Duration::ZERO, 0, 0);
    // Most templates from the grammar fail, because types do not fit.
    for _ in 0..10_000 {
        let template = hostile_template(&mut random);
        let first = timed(&template, &mut slowest, || render(&template));
        match &first {
            Ok(first) => {
                rendered += 1;
                assert!(first.steps <= budget().steps && first.bytes <= budget().bytes);
                assert!(first.text.len() as u64 <= first.bytes);
            }
            Err(error) if error.kind() == ErrorKind::Limit => limited += 1,
            Err(_) => continue,
        }
        if cfg!(debug_assertions) {
            assert_eq!(first, render(&template), "{template}");
        }
        if limited + rendered == 500 {
            break;
        }
    }
    println!("{limited} are too expensive, {rendered} are rendered");
    assert!(limited > 100 && rendered > 50 && limited + rendered == 500, "{limited} {rendered}");
}

fn options(train_on: &str) -> ChatOptions {
    let tokens = [
        "<|im_start|>",
        "<|im_end|>",
        "<|head|>",
        "<|/head|>",
        "<|eot|>",
        "<|user|>",
        "<|assistant|>",
        "<|observation|>",
    ];
    ChatOptions {
        train_on: train_on.parse().unwrap(),
        special_tokens: json!({"bos_token": "<s>", "eos_token": "</s>"}).as_object().unwrap().clone(),
        added_tokens: tokens.iter().map(|token| (*token).to_owned()).collect(),
        ..ChatOptions::default()
    }
}

/// Short messages are rendered and marked in linear time, whatever they are.
#[test]
fn many_short_messages_are_linear() {
    let many = if cfg!(debug_assertions) { 2_000 } else { 100_000 };
    let chat = |count: usize, message: &dyn Fn(usize) -> serde_json::Value| {
        json!({"messages": (0..count).map(message).collect::<Vec<_>>()}).to_string()
    };
    let role = |at: usize| if at.is_multiple_of(2) { "user" } else { "assistant" };
    let plain = |at: usize| json!({"role": role(at), "content": "hi"});
    let empty = |at: usize| json!({"role": role(at), "content": ""});
    let thinking = |at: usize| json!({"role": role(at), "content": "<think>a</think>b"});
    let reasoning = |at: usize| json!({"role": role(at), "content": "b", "reasoning_content": "a"});
    let untrained = |at: usize| json!({"role": role(at), "content": "hi", "train": at % 4 == 1});
    let answers = |_: usize| json!({"role": "assistant", "content": "hi"});
    let mut slowest = Duration::ZERO;
    for (name, template, final_stop) in [
        ("marks", MARKS, None),
        ("training", MARKS_TRAINING, None),
        ("headers", HEADERS, None),
        ("open", NEXT_ROLE, Some("<|user|>")),
    ] {
        for train_on in ["assistant", "last", "all", "user,assistant"] {
            let final_stop = final_stop.map(|token: &str| token.parse().unwrap());
            let renderer =
                ChatRenderer::new(template, ChatOptions { final_stop, ..options(train_on) }).unwrap();
            let kinds: [(&str, &dyn Fn(usize) -> serde_json::Value); 6] = [
                ("plain", &plain),
                ("empty", &empty),
                ("thinking", &thinking),
                ("reasoning", &reasoning),
                ("untrained", &untrained),
                ("answers", &answers),
            ];
            for (kind, message) in kinds {
                let chat = chat(many, message);
                let what = format!("{many} {kind} messages with {name}, {train_on}");
                let result = timed(&what, &mut slowest, || renderer.render(&chat));
                let is_known = |code| {
                    matches!(
                        code,
                        ChatRejectCode::NotRendered
                            | ChatRejectCode::NothingToTrain
                            | ChatRejectCode::InvalidChat
                    )
                };
                assert!(
                    result.as_ref().is_ok_and(|chat| chat.text.len() > many)
                        || result.is_err_and(|reject| is_known(reject.code)),
                    "{what}"
                );
            }
        }
    }
    // The counts of steps and bytes are proportional to the number of messages.
    let cost = |count: usize| {
        let messages = Value::from_json(&chat(count, &plain)).unwrap();
        let messages = messages.as_map().unwrap().get("messages").unwrap().clone();
        let rendered = Template::compile(MARKS)
            .unwrap()
            .render(&[("messages", messages)], &RenderOptions::default())
            .unwrap();
        (rendered.steps, rendered.bytes)
    };
    let (one, ten) = (cost(100), cost(1000));
    assert!(ten.0 <= 10 * one.0 && ten.1 <= 10 * one.1, "{one:?} {ten:?}");
    assert!(one.0 <= 100 * 40, "{} steps for 100 messages", one.0);
}

const ANSWERED: &str = r#"{"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}"#;

/// An item many times, with commas between. In one buffer, so that memory is that of the product.
fn many(item: &str, count: usize) -> String {
    let mut text = String::with_capacity(count * (item.len() + 1));
    for at in 0..count {
        if at > 0 {
            text.push(',');
        }
        text.push_str(item);
    }
    text
}

fn keys(count: usize) -> String {
    let mut text = String::with_capacity(count * 14);
    for at in 0..count {
        let comma = if at > 0 { "," } else { "" };
        write!(text, r#"{comma}"k{at}": 0"#).unwrap();
    }
    text
}

fn content(json: String) -> String {
    format!(
        r#"{{"messages": [{{"role": "user", "content": {json}}}, {{"role": "assistant", "content": "A"}}]}}"#
    )
}

/// Chats of up to 25 MB. One at a time, since they are large themselves.
fn hostile_chat(number: usize) -> Option<String> {
    let large = |count: usize| if cfg!(debug_assertions) { count / 10 } else { count * 20 };
    Some(match number {
        0 => content(format!("[{}]", many("[]", large(400_000)))),
        1 => content(format!("[{}]", many("{}", large(400_000)))),
        2 => content(format!("[{}]", many(r#"{"a":{}}"#, large(200_000)))),
        3 => content(format!("[{}]", many("0", large(800_000)))),
        4 => content(format!("[{}]", many(r#"{"text":"a"}"#, large(100_000)))),
        5 => content(format!("{}{}", "[".repeat(199), "]".repeat(199))),
        6 => content(format!("\"{}\"", "<think>".repeat(large(200_000)))),
        7 => content(format!("\"{}\"", "\\u0001".repeat(large(200_000)))),
        8 => format!(r#"{{"messages": [{ANSWERED}], {}}}"#, keys(large(50_000))),
        9 => format!(r#"{{"messages": [{ANSWERED}], "chat_template_kwargs": {{{}}}}}"#, keys(large(50_000))),
        10 => {
            format!(
                r#"{{"messages": [{{"role": "user", "content": "U", {}}}, {ANSWERED}]}}"#,
                keys(large(50_000))
            )
        }
        11 => {
            let tools = many(r#""{\"a\":[[],[],[]]}""#, large(50_000));
            format!(r#"{{"messages": [{ANSWERED}], "tools": [{tools}]}}"#)
        }
        12 => {
            let calls = many(r#"{"function":{"name":"f","arguments":"{}"}}"#, large(30_000));
            format!(
                r#"{{"messages": [{ANSWERED}, {{"role": "assistant", "content": "", "tool_calls": [{calls}]}}]}}"#
            )
        }
        // As many as are read, and not more.
        13 => format!(r#"{{"messages": [{ANSWERED}], {}}}"#, keys(large(50_000) * 3 / 8)),
        14 => content(format!("[{}]", many("[]", large(300_000) * 3 / 64))),
        15 => content(format!("[{}]", many(r#"{"text":"a"}"#, large(100_000) / 20))),
        _ => return None,
    })
}

#[test]
fn hostile_chats_are_rejected() {
    let mut slowest = Duration::ZERO;
    for template in [MARKS, MARKS_TRAINING, HEADERS] {
        let renderer = ChatRenderer::new(template, options("assistant")).unwrap();
        for chat in (0..).map_while(hostile_chat) {
            match timed(&chat, &mut slowest, || renderer.render(&chat)) {
                Ok(chat) => assert!(!chat.text.is_empty()),
                Err(reject) => assert!(!reject.message.is_empty() && reject.message.len() < 1000, "{reject}"),
            }
        }
    }
    let renderer =
        ChatRenderer::new(MARKS, ChatOptions { train_on: TrainOn::All, ..options("all") }).unwrap();
    let reject = renderer.render(&content(format!("[{}]", many("[]", 400_000)))).unwrap_err();
    assert_eq!(reject.code, ChatRejectCode::TooLarge);
    assert!(reject.message.contains("too many values"), "{reject}");
}

/// The most memory that this process had, in MiB.
#[cfg(target_os = "linux")]
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() >> 10
}

/// Each chat in a process of its own. Small chats show nothing, so that this is a test of release builds.
#[test]
#[cfg(target_os = "linux")]
#[allow(clippy::print_stdout, reason = "figures are read by a person, with --nocapture")]
fn a_hostile_chat_takes_at_most_256_mib() {
    const CHILD: &str = "DSCONVERT_HOSTILE_CHAT";
    const NAME: &str = "a_hostile_chat_takes_at_most_256_mib";
    if let Ok(number) = std::env::var(CHILD) {
        let chat = hostile_chat(number.parse().unwrap()).unwrap();
        let renderer = ChatRenderer::new(MARKS, options("assistant")).unwrap();
        let (before, start) = (peak_memory(), Instant::now());
        let result = renderer.render(&chat);
        let (elapsed, result) = (start.elapsed(), result.map(|_| ()).map_err(|reject| reject.code.as_str()));
        println!("chat {number}: {} MiB of {before} before, {elapsed:?}, {result:?}", peak_memory());
        assert!(peak_memory() <= 256, "{} MiB", peak_memory());
        return;
    }
    if cfg!(debug_assertions) {
        return;
    }
    for number in (0..).take_while(|number| hostile_chat(*number).is_some()) {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args([NAME, "--exact", "--nocapture"]).env(CHILD, number.to_string());
        assert!(child.status().unwrap().success());
    }
}

#[test]
fn templates_that_cannot_be_probed_are_refused() {
    let endless = "{% for m in messages %}{{ m.content }}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{% endfor %}";
    let only_with_tools = "{% for m in messages %}{{ '<|user|>' + m.content }}{% if m.role == 'tool' %}{{ 'x' * 99999999 }}{% endif %}{% endfor %}";
    let mut slowest = Duration::ZERO;
    for template in [endless, only_with_tools] {
        let error =
            timed(template, &mut slowest, || ChatRenderer::new(template, options("assistant"))).unwrap_err();
        assert!(error.to_string().contains("too expensive for a chat of four messages"), "{error}");
    }
}
