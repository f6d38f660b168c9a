//! The regular expressions of a `tokenizer.json`: a limit on their nesting, and those that older versions of dsconvert may
//! have run differently from the published package.

use serde_json::Value;

use crate::engine::fast::split::pattern::{CL100K, DEEPSEEK, GPT2, GPT2_SHORT, O200K, QWEN2, QWEN35, TEKKEN};
use crate::error::LoadError;
use crate::outline::Outline;
use crate::sentencepiece;

/// Maximum number of groups, character classes and repeated quantifiers in a regular expression. Oniguruma parses and
/// compiles them recursively, with up to 3 KB of stack for each.
const MAX_NESTING: usize = 256;

/// Returns an error if a regular expression in one of `parts` could overflow the stack.
pub(crate) fn check(parts: &[&Value]) -> Result<(), LoadError> {
    match patterns(parts).into_iter().find(|pattern| nesting(pattern) > MAX_NESTING) {
        Some(pattern) => Err(LoadError::NestedPattern(pattern.chars().take(60).collect())),
        None => Ok(()),
    }
}

/// Returns an upper bound on the nesting of `pattern`.
fn nesting(pattern: &str) -> usize {
    let (mut count, mut is_quantified) = (0, false);
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        let was_quantified = is_quantified;
        is_quantified = matches!(c, '*' | '+' | '?' | '}');
        count += usize::from(matches!(c, '(' | '[') || was_quantified && matches!(c, '*' | '+' | '?' | '{'));
        if c == '\\' {
            chars.next();
        }
    }
    count
}

/// Returns all regular expressions in `parts`, in order.
fn patterns<'a>(parts: &[&'a Value]) -> Vec<&'a str> {
    let mut found = Vec::new();
    let mut rest: Vec<&Value> = parts.iter().rev().copied().collect();
    while let Some(part) = rest.pop() {
        match part {
            Value::Array(values) => rest.extend(values.iter().rev()),
            Value::Object(members) => {
                found.extend(members.get("Regex").and_then(Value::as_str));
                rest.extend(members.values().rev());
            }
            _ => {}
        }
    }
    found
}

/// Returns the first regular expression of a `tokenizer.json` with which a dataset of manifest version 1 or 2 may have
/// other ids than the published package gives.
///
/// Until manifest version 2, `fancy-regex` ran regular expressions instead of Oniguruma, which treats `\w`, `\b`, `^` and
/// others differently. Both treat the published split patterns alike, as was determined construct by construct, over every
/// code point.
pub fn pattern_of_older_ids(json: &[u8]) -> Option<String> {
    if matches!(sentencepiece::embedded(json), Ok(Some(_))) {
        return None;
    }
    let file: Outline = serde_json::from_slice(json).ok()?;
    let patterns = patterns(&[&file.normalizer, &file.pre_tokenizer]);
    let unchanged = [&[GPT2, GPT2_SHORT, CL100K, QWEN2, QWEN35, O200K, TEKKEN][..], &DEEPSEEK].concat();
    patterns.into_iter().find(|pattern| !unchanged.contains(pattern)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    #[test]
    fn deeply_nested_patterns_are_refused() {
        let of =
            |pattern: &str| check(&[&Value::Null, &json!({"decoders": [{"pattern": {"Regex": pattern}}]})]);
        for (open, close) in [
            ("(?:", ")"),
            ("(a", ")*"),
            ("[", "]"),
            ("[^a", "]"),
            ("(?i)a(?-i)", ""),
            ("", "{0,2}"),
            ("", "+?"),
        ] {
            let pattern = |times: usize| format!("{}a{}", open.repeat(times), close.repeat(times));
            assert!(of(&pattern(100)).is_ok(), "{open}");
            let error = of(&pattern(300)).unwrap_err().to_string();
            assert!(error.contains("more than 256 groups"), "{error}");
        }
        assert!(of(&r"\(\[\\".repeat(1000)).is_ok());
        assert!(of(&"a+|".repeat(1000)).is_ok());
    }

    /// The deepest patterns that are accepted, on threads with the stacks of a thread pool.
    #[test]
    fn accepted_patterns_do_not_overflow_the_stack() {
        let n = MAX_NESTING;
        let nested = [
            ("(?~a", "a", ")*"),
            ("(a|", "", ")*b"),
            ("(?i:ss", "k", ")"),
            ("(?<!a|bb", "", ")"),
            ("[^a&&[", "b", "]]"),
            ("[", "a", "]"),
            ("(?(a)b|", "c", ")"),
        ];
        let mut patterns: Vec<String> = nested
            .iter()
            .map(|(open, inside, close)| format!("{}{inside}{}", open.repeat(n), close.repeat(n)))
            .collect();
        patterns
            .push((0..n).map(|i| format!("(?<g{i}>a\\g<g{}>?)", i + 1)).collect::<String>() + "(?<g256>b)");
        patterns.push(format!("a{}", "{0,2}".repeat(n)));
        patterns.push(vec!["ab+"; 100_000].join("|"));
        let compile = move || patterns.iter().filter(|pattern| onig::Regex::new(pattern).is_ok()).count();
        let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(compile).unwrap();
        assert!(thread.join().unwrap() > 5);
    }

    #[test]
    fn patterns_are_found_in_normalizers_and_pre_tokenizers() {
        let split = |regex: &str| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
        let found = |normalizer: Value, pre_tokenizer: Value| {
            let file =
                json!({"normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "decoder": split(r"\w")});
            pattern_of_older_ids(&serde_json::to_vec(&file).unwrap())
        };
        let sequence =
            |parts: &[Value]| json!({"type": "Sequence", "pretokenizers": parts, "normalizers": parts});
        assert_eq!(found(Value::Null, sequence(&[split(GPT2), json!({"type": "Whitespace"})])), None);
        assert_eq!(found(Value::Null, sequence(&[split(GPT2), split(r"\w+")])).as_deref(), Some(r"\w+"));
        assert_eq!(found(sequence(&[sequence(&[split("^ ")])]), Value::Null).as_deref(), Some("^ "));
        let strings = json!({"type": "Replace", "pattern": {"String": "^"}, "content": ""});
        assert_eq!(found(strings, Value::Null), None);
    }
}
