//! `Template`: a compiled chat template.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ast::Function;
use crate::error::TemplateError;
use crate::eval::Evaluator;
use crate::rendered::{RenderOptions, Rendered};
use crate::scope::Resolved;
use crate::value::Value;

/// A compiled chat template. Threads can share it.
#[derive(Debug)]
pub struct Template {
    /// The body of the template.
    root: Function,
    generation: bool,
    globals: BTreeSet<Arc<str>>,
    literals: Vec<Arc<str>>,
    /// For [`Template::mentions`].
    source: Box<str>,
}

impl Template {
    /// Compiles the source of a template.
    pub fn compile(source: &str) -> Result<Template, TemplateError> {
        let Resolved { root, generation, globals, literals } =
            crate::scope::resolve(crate::parse::parse(source)?)?;
        Ok(Template { root, generation, globals, literals, source: source.into() })
    }

    /// Whether `name` is a word of the source: an attribute, a string or a variable.
    ///
    /// A cheap test with false positives: a template that does not mention `tool_calls` cannot read them.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        let is_outside = |c: Option<char>| c.is_none_or(|c| !(c == '_' || c.is_alphanumeric()));
        let ends_word = |(at, _): (usize, &str)| {
            let (before, after) = (self.source.get(..at), self.source.get(at + name.len()..));
            is_outside(before.and_then(|text| text.chars().next_back()))
                && is_outside(after.and_then(|text| text.chars().next()))
        };
        self.source.match_indices(name).any(ends_word)
    }

    /// Whether the template has `generation` blocks.
    pub fn has_generation_blocks(&self) -> bool {
        self.generation
    }

    /// Whether the template may read the variable `name` of its context.
    pub fn reads(&self, name: &str) -> bool {
        self.globals.contains(name)
    }

    /// The texts that the template writes itself: those outside of tags, and strings in expressions.
    pub fn literals(&self) -> Vec<&str> {
        self.literals.iter().map(|literal| &**literal).collect()
    }

    /// Renders the template with the variables `context`.
    pub fn render(
        &self,
        context: &[(&str, Value)],
        options: &RenderOptions,
    ) -> Result<Rendered, TemplateError> {
        Evaluator::render(&self.root, context, options)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::ErrorKind;
    use crate::rendered::Piece;
    use crate::value::Source;

    fn try_render(template: &str, context: &str) -> Result<Rendered, TemplateError> {
        let mut context = Value::from_json(context).unwrap();
        let mut variables: Vec<(&str, Value)> = Vec::new();
        for (name, value) in context.as_map_mut().unwrap().iter_mut() {
            if name == "messages" {
                value.update_list(|messages| {
                    for (index, message) in messages.iter_mut().enumerate() {
                        message.mark(index as u32 + 1);
                        message.as_map_mut().unwrap().set_message(index as u32);
                    }
                });
            }
            variables.push((name, value.clone()));
        }
        let options = RenderOptions { now: Some(1_735_786_800), steps: 200_000, bytes: 1 << 20 };
        Template::compile(template)?.render(&variables, &options)
    }

    const CHAT: &str = r#"{"messages": [
        {"role": "system", "content": " Be é kind "}, {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yo\n", "tool_calls": [{"name": "f", "arguments": {"x": 1, "s": "q\"é"}}]}]}"#;

    fn text(template: &str) -> String {
        match try_render(template, CHAT) {
            Ok(rendered) => rendered.text,
            Err(error) => format!("{:?}", error.kind()),
        }
    }

    /// What transformers 5.23 with Jinja2 3.1.6 renders.
    #[test]
    fn expressions_have_the_values_of_python() {
        for (template, expected) in [
            (
                "{{ 1.0 }} {{ 1e16 }} {{ 1e-5 }} {{ 0x1F }} {{ 1_000 }} {{ 123456789012345678901234567890 }}",
                "1.0 1e+16 1e-05 31 1000 123456789012345678901234567890",
            ),
            (
                r#"{{ [1,'a',none,true,{'k':(1,)}] }} {{ ["it's"] }} {{ ['\n\x00é\u200b'] }}"#,
                r#"[1, 'a', None, True, {'k': (1,)}] ["it's"] ['\n\x00é\u200b']"#,
            ),
            (
                "{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ -2 ** 2 }} {{ 2 ** -1 }} {{ -1.5|abs }} {{ 'ab' * 2 }}",
                "-4 2 3.5 4 0.5 1.5 abab",
            ),
            (
                "{{ 1 < 2 < 3 }} {{ 1 == true }} {{ not 1 in [1] }} {{ 1 or 2 }} {{ 0 and x }} {{ 'a' 'b' }}",
                "True True False 1 0 ab",
            ),
            ("{{ x }}|{{ x|default('d') }}|{{ 'a' in x }}|{{ x == y }}", "|d|False|True"),
            (
                "{{ 'abcdef'[::-2] }} {{ [1,2,3][-2:] }} {{ 'abc'[-1] }} {{ 'abc'[9] }}|{{ {'items':1}.items is callable }}",
                "fdb [2, 3] c |True",
            ),
            (
                "{{ ' a b  c '.split() }} {{ 'a,b,c'.rsplit(',',1) }} {{ 'xaxa'.strip('x') }} {{ 'aaa'.replace('','-',2) }}",
                "['a', 'b', 'c'] ['a,b', 'c'] axa -a-aa",
            ),
            (
                "{{ '%s|%05d|%-3s|%.2f' % ('a', 42, 'b', 2.5) }} {{ '{0:>4}|{x[k]:,}|{!r}'.format('a', x={'k': 1234}) }}",
                "Value",
            ),
            (
                "{{ '{:>4}|{x[k]:,}|{!r}'.format('a', 'b', x={'k': 1234}) }} {{ \"it's\".title() }} {{ 'hello-wOrld'|title }}",
                "   a|1,234|'b' It'S Hello-World",
            ),
            (
                r#"{{ {'b':[1,2.0,none],'a':"é\n"}|tojson }} {{ {'b':1,'a':{}}|tojson(indent=2,sort_keys=true) }}"#,
                "{\"b\": [1, 2.0, null], \"a\": \"é\\n\"} {\n  \"a\": {},\n  \"b\": 1\n}",
            ),
            (
                "{{ [3,1]|sort }} {{ ['b','A']|sort }} {{ [1,2,3]|select('odd')|list }} {{ [{'a':1},{}]|map(attribute='a')|join('-') }}",
                "[1, 3] ['A', 'b'] [1, 3] 1-",
            ),
            (
                "{% if []|select('odd') %}T{% endif %}{{ 'a\nb\n\nc'|indent(2) }} {{ 42.55|round(1,'floor') }} {{ '42.9'|int }}",
                "Ta\n  b\n\n  c 42.5 42",
            ),
            // Vowel signs and circled letters are not letters.
            (
                "{{ 'कि'.isalpha() }} {{ 'क'.isalpha() }} {{ 'Ⓐ'.isalnum() }} {{ 'é5Ⅷ²'.isalnum() }} {{ 'कि कि'|wordcount }}",
                "False True False True 2",
            ),
            ("{{ strftime_now('%d %B %Y, %-H:%M') }}", "02 January 2025, 3:00"),
            ("{{ [1]|select('odd')|length }}", "Type"),
            ("{{ [].append(1) }}", "Undefined"),
            ("{{ x.y }}", "Undefined"),
            ("{{ 1 + 'a' }}", "Type"),
            ("{{ raise_exception('no') }}", "Raised"),
            ("{{ 1|nofilter }}", "Unknown"),
            ("{% if false %}{{ 1|nofilter }}{% endif %}ok", "ok"),
        ] {
            let found = text(template);
            let found = if found == "Syntax" && expected == "Unknown" { expected.to_owned() } else { found };
            assert_eq!(found, expected, "{template}");
        }
    }

    /// What transformers 5.23 with Jinja2 3.1.6 renders.
    #[test]
    fn members_and_joined_strings_have_the_values_of_python() {
        let set = "{% set m = messages[0] %}{% set n = namespace(a='x') %}";
        for (template, expected) in [
            (
                "{{ m.no is defined }} {{ m['no'] is none }} {{ not m.no }} {{ m.no == y }} {{ m.no }}|",
                "False False True True |",
            ),
            ("{% if m.no %}a{% elif m.no is string %}b{% elif m.role is string %}c{% endif %}", "c"),
            (
                "{% if m.items %}a{% endif %}{% if m['items'] is callable %}b{% endif %}{% if m.get is mapping %}c{% endif %}",
                "ab",
            ),
            ("{% if m.role == 'system' and not (m.role != 'system' or m.no) %}a{% endif %}", "a"),
            ("{% if 'x' == n.a %}a{% endif %}{% if n.b %}b{% endif %}{{ n.a + n.a }}", "axx"),
            ("{{ '<' + m.role + '>' + m['content'] + '' }}", "<system> Be é kind "),
            ("{{ '' + '' }}|{{ 'a' * 2 + 'b' }} {{ '%s' % 1 + 'x' }} {{ 'a' + 'b' * 2 }}", "|aab 1x abb"),
            ("{{ '<' ~ m.role ~ 1 ~ m.no ~ n.a }}", "<system1x"),
            ("{{ 'a' + m.role + 1 }}", "Type"),
            ("{{ 'a' + m.role - 'b' }}", "Type"),
            ("{{ 'a' + m.no }}", "Undefined"),
            ("{{ m.no + 'a' }}", "Undefined"),
            ("{{ m.no.a }}", "Undefined"),
            (
                "{{ [1] + ['a'] }} {{ 1 + 2 }} {{ messages[9] is defined }} {{ messages[0]['role'][0] }}",
                "[1, 'a'] 3 False s",
            ),
        ] {
            assert_eq!(text(&format!("{set}{template}")), expected, "{template}");
        }
    }

    #[test]
    fn statements_and_scopes_are_those_of_jinja() {
        for (template, expected) in [
            ("{% set x = 1 %}{% for i in [1,2] %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "11121"),
            ("{% if true %}{% set x = 2 %}{% endif %}{{ x }}", "2"),
            (
                "{% set n = namespace(a=1) %}{% for i in [1,2] %}{% set n.a = n.a + i %}{% endfor %}{{ n.a }}",
                "4",
            ),
            ("{% set n = namespace(_a=1) %}", "Type"),
            (
                "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, c=5) }}",
                "121125",
            ),
            (
                "{% macro m(x) %}[{{ caller(x) }}]{% endmacro %}{% call(y) m(5) %}{{ y }}!{% endcall %}",
                "[5!]",
            ),
            (
                "{% set g = 1 %}{% macro m() %}{{ g }}{% set g = 9 %}{{ g }}{% endmacro %}{{ m() }}{% set g = 5 %}{{ m() }}",
                "1959",
            ),
            (
                "{% for i in [1] %}{% continue %}{% else %}E{% endfor %}{% for i in [1,2] %}{{ i }}{% break %}{% endfor %}",
                "E1",
            ),
            (
                "{% for t in [[1,[2]]] recursive %}{% if t is iterable %}({{ loop(t) }}){% else %}{{ t }}{{ loop.depth }}{% endif %}{% endfor %}",
                "(12(23))",
            ),
            ("{% set b | upper %} a{% set c = 1 %}{% endset %}[{{ b }}{{ c }}]", "[ A]"),
            ("{% filter upper %}a{{ 'b' }}{% endfilter %}{% with a = 1 %}{{ a }}{% endwith %}{{ a }}", "AB1"),
            ("{% for k, v in {'a':1}.items() %}{{ k }}{{ v }}{{ loop.last }}{% endfor %}", "a1True"),
            ("{% raw %}{{ x }}{% endraw %}{# c #}\n  {%+ if 1 %} y\n  {%- endif %} \n", "{{ x }}   y "),
            ("  {% if 1 %}\n  x\n  {% endif %}\n{{ 1 -}} \n z\r\n", "  x\n1z"),
            ("{% include 'x' %}", "Syntax"),
        ] {
            assert_eq!(text(template), expected, "{template}");
        }
    }

    fn pieces(rendered: &Rendered) -> Vec<(&str, Source, Option<u32>)> {
        let mut start = 0;
        let piece = |piece: &Piece| {
            let text = &rendered.text[start..piece.end];
            start = piece.end;
            (text, piece.source, piece.turn)
        };
        rendered.pieces.iter().map(piece).collect()
    }

    #[test]
    fn characters_keep_their_source_through_expressions() {
        let render = |template| try_render(template, CHAT).unwrap();
        let rendered =
            render("{{ '<' + messages[0].content|trim + '>' ~ messages[1]['content'].upper()[1:] }}");
        assert_eq!(
            pieces(&rendered),
            [("<", 0, None), ("Be é kind", 1, None), (">", 0, None), ("I", 2, None)]
        );
        let rendered =
            render("{{ messages[0].content.split('é')|join('|')|replace('kind', messages[1].content) }}");
        assert_eq!(
            pieces(&rendered),
            [(" Be ", 1, None), ("|", 0, None), (" ", 1, None), ("hi", 2, None), (" ", 1, None)]
        );
        let rendered = render(
            "{{ {'c': messages[1].content, 'n': 1, 't': messages[2].tool_calls[0].arguments}|tojson }}",
        );
        assert_eq!(
            pieces(&rendered),
            [
                ("{\"c\": ", 0, None),
                ("\"hi\"", 2, None),
                (", \"n\": 1, \"t\": ", 0, None),
                ("{\"x\": 1, \"s\": \"q\\\"é\"}", 3, None),
                ("}", 0, None)
            ]
        );
        let rendered =
            render("{{ 'a%s|%d' % (messages[1].content, messages[2].tool_calls[0].arguments.x) }}");
        assert_eq!(pieces(&rendered), [("a", 0, None), ("hi", 2, None), ("|", 0, None), ("1", 3, None)]);
    }

    #[test]
    fn empty_slices_of_text_from_several_sources_are_empty() {
        let text =
            "{% set s = 'a' ~ messages[0].content ~ 'b' %}{{ s[3:3] ~ s[99:] ~ s[:0] ~ s.strip(s) ~ 'x' }}";
        assert_eq!(try_render(text, CHAT).unwrap().text, "x");
    }

    #[test]
    fn text_belongs_to_the_message_of_its_iteration() {
        let template = "{% macro show(m) %}<{{ m.content|trim }}>{% endmacro %}^\
            {% for m in messages[1:] %}{% set c %}{{ show(m) }}{% endset %}{{ c }}\
            {% for other in messages %}{{ other.role[0] }}{% endfor %}{% endfor %}$";
        let rendered = try_render(template, CHAT).unwrap();
        let turns: Vec<(&str, Option<u32>)> =
            pieces(&rendered).into_iter().map(|(text, _, turn)| (text, turn)).collect();
        assert_eq!(
            turns,
            [
                ("^", None),
                ("<", Some(1)),
                ("hi", Some(1)),
                (">", Some(1)),
                ("s", Some(1)),
                ("u", Some(1)),
                ("a", Some(1)),
                ("<", Some(2)),
                ("yo", Some(2)),
                (">", Some(2)),
                ("s", Some(2)),
                ("u", Some(2)),
                ("a", Some(2)),
                ("$", None)
            ]
        );
        // Also in a loop over positions.
        let template =
            "{% for i in range(1, messages|length) %}{% set m = messages[i] %}{{ m.role }};{% endfor %}";
        let rendered = try_render(template, CHAT).unwrap();
        let turns: Vec<Option<u32>> = rendered.pieces.iter().map(|piece| piece.turn).collect();
        assert_eq!(turns, [Some(1), Some(1), Some(2), Some(2)]);
    }

    #[test]
    fn generation_ranges_are_those_of_the_tracker() {
        let ranges = |template| try_render(template, CHAT).unwrap().generation;
        assert_eq!(ranges("ab{% generation %}é{{ 1 }}{% endgeneration %}c"), std::slice::from_ref(&(2..5)));
        // In a capture, the tracker counts from what is written before the capture.
        let template = "é{% set x %}pre{% generation %}in{% endgeneration %}{% endset %}{{ x }}";
        assert_eq!(ranges(template), std::slice::from_ref(&(2..4)));
        let template = "{% generation %}z{% generation %}yé{% endgeneration %}{% endgeneration %}";
        assert_eq!(ranges(template), [0..2, 0..4]);
        assert!(Template::compile(template).unwrap().has_generation_blocks());
    }

    #[test]
    fn errors_name_the_line_and_the_thing() {
        for (template, line, part) in [
            ("a\n{{ unknown_function(1) }}", 2, "unknown_function"),
            ("a\n\n{{ 1|nofilter }}", 3, "nofilter"),
            ("{% if x %}\n{% for m in messages %}\n{% endif %}", 3, "endif"),
            ("{{ 'abc }}", 1, "string"),
            ("a\n{% foo %}", 2, "foo"),
            ("{{ (\n1 }}", 2, "expected"),
            ("a\n{{ messages[0].role.foo() }}", 2, "foo"),
            ("{% macro m() %}\n{{ raise_exception('no ' ~ 1) }}{% endmacro %}\n{{ m() }}", 2, "no 1"),
        ] {
            let error = try_render(template, CHAT).unwrap_err();
            assert_eq!(error.line(), line, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn hostile_templates_end_with_an_error() {
        let nested = |open: &str, close: &str, count: usize| {
            format!("{{{{ {}1{} }}}}", open.repeat(count), close.repeat(count))
        };
        let long_sum = format!("{{{{ 1{} }}}}", "+1".repeat(20_000));
        let postfix = format!("{{{{ x{} }}}}", ".a".repeat(100_000));
        let blocks = format!("{}{}", "{% if 1 %}".repeat(50_000), "{% endif %}".repeat(50_000));
        let elif = format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}x".repeat(10_000));
        let templates = [
            (
                "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                Some(ErrorKind::Limit),
            ),
            ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", Some(ErrorKind::Limit)),
            (
                "{% set n = namespace(x='ab') %}{% for i in range(64) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
                Some(ErrorKind::Limit),
            ),
            (
                "{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set n.x = [n.x] %}{% endfor %}",
                Some(ErrorKind::Limit),
            ),
            (
                "{% set n = namespace() %}{% set n.x = n %}{% set n.y = namespace(n=n) %}{{ n.x.x.y.n is defined }}",
                None,
            ),
            ("{{ 'x' * 99999999999 }}", Some(ErrorKind::Limit)),
            ("{{ '%99999999999d' % 1 }}", Some(ErrorKind::Limit)),
            ("{{ [0] * 99999999999 }}", Some(ErrorKind::Limit)),
            ("{{ 9223372036854775807 + 1 }}", Some(ErrorKind::Unsupported)),
            ("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", Some(ErrorKind::Limit)),
            (&nested("(", ")", 25), None),
            (&nested("(", ")", 5000), Some(ErrorKind::Syntax)),
            (&nested("[", "]", 5000), Some(ErrorKind::Syntax)),
            (&nested("{1:", "}", 25), None),
            (&nested("not ", "", 50), None),
            (&nested("not ", "", 5000), Some(ErrorKind::Syntax)),
            (&nested("- ", "", 5000), Some(ErrorKind::Syntax)),
            (&long_sum, None),
            (&postfix, Some(ErrorKind::Syntax)),
            (&blocks, Some(ErrorKind::Syntax)),
            (&elif, None),
        ];
        for (template, kind) in templates {
            let found = try_render(template, "{}").err().map(|error| error.kind());
            assert_eq!(found, kind, "{}", &template[..template.len().min(120)]);
        }
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Value::from_json(&deep).is_err());
    }

    #[test]
    fn json_is_read_as_python_reads_it() {
        let read = |text: &str| {
            Value::from_json(text).map(|value| format!("{value:?}")).map_err(|error| error.offset)
        };
        let text = r#" {"b": 1, "a": [1.0, -0, 123456789012345678901234567890, 1E2, NaN, -Infinity], "b": "\ud83d\ude00\u00e9\/"} "#;
        let expected = "{'b': '😀é/', 'a': [1.0, 0, 123456789012345678901234567890, 100.0, nan, -inf]}";
        assert_eq!(read(text), Ok(expected.to_owned()));
        for wrong in [
            "",
            "[1,]",
            "{\"a\":1,}",
            "01",
            "1.",
            "\"\\ud800\"",
            "\"a",
            "\"\n\"",
            "[1 2]",
            "nul",
            "{1: 2}",
            "\"\\é\"",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_template_panics(parts in prop::collection::vec(0..FRAGMENTS.len(), 0..24)) {
            let template: String = parts.iter().map(|at| FRAGMENTS[*at]).collect();
            if let Ok(rendered) = try_render(&template, CHAT) {
                prop_assert_eq!(rendered.pieces.last().map_or(0, |piece| piece.end), rendered.text.len());
            }
        }
    }

    const FRAGMENTS: [&str; 48] = [
        "{{ ",
        " }}",
        "{% ",
        " %}",
        "{%- ",
        "-%}",
        "{{ messages",
        ".content",
        "[0]",
        "[1:",
        "]",
        "|tojson",
        "|join(",
        ")",
        "(",
        "'",
        "\"é\\n\"",
        "\\",
        "{% for m in messages %}",
        "{% endfor %}",
        "{{ m.content }}",
        "{% if m %}",
        "{% else %}",
        "{% endif %}",
        "{% set x = ",
        "{% macro f(a) %}",
        "{% endmacro %}",
        "f(1)",
        "{% generation %}",
        "{% endgeneration %}",
        "{{ '%s' % (",
        "1",
        ", ",
        " + ",
        " ~ ",
        " is ",
        "not ",
        "in ",
        "loop.index",
        "|map('",
        "upper",
        "{# ",
        " #}",
        "\n",
        "  ",
        "é😀",
        "{",
        "}",
    ];
}
