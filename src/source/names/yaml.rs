//! The part of YAML that dataset cards use: mappings and sequences in blocks or in one line, and scalars.
//!
//! Anchors, tags, and mappings with keys of several lines are not read. Texts of several lines are skipped.

use std::iter::Peekable;
use std::vec::IntoIter;

/// Maximum nesting depth.
const MAX_DEPTH: usize = 32;

/// A YAML value. Scalars are text, without their quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Yaml {
    Text(String),
    List(Vec<Yaml>),
    Map(Vec<(String, Yaml)>),
}

/// A line without its indentation, and the width of that.
type Line = (usize, String);
type Lines = Peekable<IntoIter<Line>>;

impl Yaml {
    /// Parses the mapping `text`. Returns `None` if it is not read here.
    pub(in crate::source) fn parse(text: &str) -> Option<Self> {
        let line = |line: &str| {
            let content = without_comment(line).trim_end();
            let trimmed = content.trim_start_matches(' ');
            (!trimmed.is_empty()).then(|| (content.len() - trimmed.len(), trimmed.to_owned()))
        };
        let lines: Vec<Line> = text.lines().filter_map(line).collect();
        let mut lines = lines.into_iter().peekable();
        let (indent, _) = *lines.peek()?;
        let parsed = block(&mut lines, indent, 0)?;
        lines.next().is_none().then_some(parsed)
    }

    /// Returns the value of a key of a mapping.
    pub(in crate::source) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(entries) = self else { return None };
        entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Returns the text of a scalar.
    pub(in crate::source) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// Returns the texts of a list of scalars, or of one scalar.
    pub(in crate::source) fn texts(&self) -> Option<Vec<String>> {
        match self {
            Self::Text(text) => Some(vec![text.clone()]),
            Self::List(items) => items.iter().map(|item| item.text().map(str::to_owned)).collect(),
            Self::Map(_) => None,
        }
    }
}

/// Returns the start of `line` before a comment.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut last = ' ';
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (None, '#') if last == ' ' || last == '\t' => return &line[..at],
            // A quote inside a word is an apostrophe.
            (None, '"' | '\'') if matches!(last, ' ' | '[' | '{' | ',' | ':') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
        last = c;
    }
    line
}

/// Parses the lines of a block that are indented by `indent`.
fn block(lines: &mut Lines, indent: usize, depth: usize) -> Option<Yaml> {
    if depth > MAX_DEPTH {
        return None;
    }
    let is_item = |line: &str| line == "-" || line.starts_with("- ");
    if lines.peek().is_some_and(|(_, line)| is_item(line)) {
        let mut items = Vec::new();
        while let Some((_, line)) = lines.next_if(|(at, line)| *at == indent && is_item(line)) {
            let rest = line[1..].trim_start();
            items.push(match rest {
                "" => nested(lines, indent, depth)?,
                // A mapping whose first key is beside the dash.
                rest if key_of(rest).is_some() => {
                    let inner = indent + line.len() - rest.len();
                    let mut with_first = vec![(inner, rest.to_owned())];
                    while let Some(line) = lines.next_if(|(at, _)| *at > indent) {
                        with_first.push(line);
                    }
                    let mut inside = with_first.into_iter().peekable();
                    let value = block(&mut inside, inner, depth + 1)?;
                    inside.next().is_none().then_some(value)?
                }
                rest => value(rest, depth)?,
            });
        }
        return Some(Yaml::List(items));
    }
    let mut entries = Vec::new();
    while let Some((_, line)) = lines.next_if(|(at, line)| *at == indent && !is_item(line)) {
        let (key, rest) = key_of(&line)?;
        let value = match rest {
            // A sequence may be as far to the left as its key.
            "" if lines.peek().is_some_and(|(at, line)| *at == indent && is_item(line)) => {
                block(lines, indent, depth + 1)?
            }
            "" => nested(lines, indent, depth)?,
            text if text.starts_with(['|', '>']) => {
                while lines.next_if(|(at, _)| *at > indent).is_some() {}
                Yaml::Text(String::new())
            }
            rest => {
                let value = value(rest, depth)?;
                // Further lines of a plain scalar.
                while lines.next_if(|(at, _)| *at > indent).is_some() {}
                value
            }
        };
        entries.push((key, value));
    }
    Some(Yaml::Map(entries))
}

/// Parses the block that is indented by more than `indent`, if there is one.
fn nested(lines: &mut Lines, indent: usize, depth: usize) -> Option<Yaml> {
    match lines.peek() {
        Some((inner, _)) if *inner > indent => {
            let inner = *inner;
            block(lines, inner, depth + 1)
        }
        _ => Some(Yaml::Text(String::new())),
    }
}

/// Returns the key at the start of a line, and what follows its colon.
fn key_of(line: &str) -> Option<(String, &str)> {
    let colon = match line.chars().next()? {
        quote @ ('"' | '\'') => {
            let end = line[1..].find(quote)? + 2;
            end + line[end..].starts_with(':').then_some(0)?
        }
        '[' | '{' => return None,
        _ => line
            .match_indices(':')
            .map(|(at, _)| at)
            .find(|at| matches!(line.as_bytes().get(at + 1), None | Some(b' ')))?,
    };
    Some((scalar(line[..colon].trim_end()), line[colon + 1..].trim_start()))
}

/// Parses a value in one line.
fn value(text: &str, depth: usize) -> Option<Yaml> {
    let inside = |open: char, close: char| text.strip_prefix(open)?.trim_end().strip_suffix(close);
    if depth > MAX_DEPTH {
        return None;
    }
    if let Some(items) = inside('[', ']') {
        let items = parts(items)?.into_iter().map(|item| value(item, depth + 1));
        return Some(Yaml::List(items.collect::<Option<_>>()?));
    }
    if let Some(entries) = inside('{', '}') {
        let entries = parts(entries)?.into_iter().map(|entry| {
            let (key, rest) = key_of(entry)?;
            Some((key, value(rest, depth + 1)?))
        });
        return Some(Yaml::Map(entries.collect::<Option<_>>()?));
    }
    (!text.starts_with(['[', '{', '&', '*', '!'])).then(|| Yaml::Text(scalar(text)))
}

/// Divides the content of brackets at the commas that are in no inner brackets or quotes.
fn parts(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut open, mut quote) = (Vec::new(), 0, 0u32, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(end), c) if end == c => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') if text[start..at].trim().is_empty() || open > 0 => quote = Some(c),
            (None, '[' | '{') => open += 1,
            (None, ']' | '}') => open = open.checked_sub(1)?,
            (None, ',') if open == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    // A comma may follow the last part.
    parts.pop_if(|last| last.is_empty());
    (open == 0 && quote.is_none()).then_some(parts)
}

/// Returns the text of a scalar without its quotes.
fn scalar(text: &str) -> String {
    let text = text.trim();
    let quoted = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    match (quoted('"'), quoted('\'')) {
        (Some(text), _) => text.replace("\\\"", "\"").replace("\\\\", "\\"),
        (_, Some(text)) => text.replace("''", "'"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(text: &str) -> Yaml {
        Yaml::Text(text.to_owned())
    }

    #[test]
    fn cards_are_read_in_every_usual_form() {
        let entry = |split: &str, path: Yaml| {
            Yaml::Map(vec![("split".to_owned(), text(split)), ("path".to_owned(), path)])
        };
        let expected = Yaml::Map(vec![
            ("config_name".to_owned(), text("a: b")),
            (
                "data_files".to_owned(),
                Yaml::List(vec![
                    entry("train", text("x/train-*")),
                    entry("test", Yaml::List(vec![text("x/t1"), text("x/t2")])),
                ]),
            ),
        ]);
        for yaml in [
            "configs:\n- config_name: 'a: b'\n  data_files:\n  - split: train\n    path: x/train-*\n  - split: test\n    path:\n    - x/t1\n    - x/t2\n",
            "license: mit  # a comment\nconfigs:\n  - config_name: \"a: b\"\n    data_files:\n      - split: train\n        path: \"x/train-*\"\n      - split: test\n        path: [x/t1, 'x/t2']\ntags:\n- x\n",
            "pretty_name: |\n  Many\n  lines: 1\nconfigs:\n-\n  config_name: 'a: b'\n  data_files: [{split: train, path: x/train-*}, {split: test, path: [x/t1, x/t2]}]\n",
        ] {
            let found = Yaml::parse(yaml).unwrap();
            assert_eq!(found.get("configs"), Some(&Yaml::List(vec![expected.clone()])), "{yaml}");
        }
        let found = Yaml::parse("a: don't # x\nb: it's, 'fine'\nc:\nd: '#1'\n").unwrap();
        assert_eq!(found.get("a"), Some(&text("don't")));
        assert_eq!((found.get("c"), found.get("d")), (Some(&text("")), Some(&text("#1"))));
        assert_eq!(Yaml::parse("a: [b, c"), None);
        assert_eq!(Yaml::parse("a: &x 1"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_safe(text in "([a-b:\\[\\]{}'\", \n#|-]){0,80}") {
            let _ = Yaml::parse(&text);
        }
    }
}
