//! Regular expressions that older versions of dsconvert ran differently from the published package.
//!
//! Until manifest version 2, `fancy-regex` ran them instead of Oniguruma. What both treat alike was compared construct
//! by construct, over every code point.

use serde_json::Value;

use crate::outline::Outline;
use crate::sentencepiece;

/// Groups of split patterns in which both libraries ignore case alike.
const CONTRACTIONS: [&str; 2] = ["(?i:'s|'t|'re|'ve|'m|'ll|'d)", "(?i:[sdmt]|ll|ve|re)"];

/// General categories of Unicode.
const CATEGORIES: [&str; 36] = [
    "L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp", "C", "Cc", "Cf", "Cn", "Co",
];

/// Returns the first regular expression of a `tokenizer.json` with which datasets of manifest version 1 or 2 may have
/// other ids than the published package gives.
pub fn pattern_of_older_ids(json: &[u8]) -> Option<String> {
    if matches!(sentencepiece::embedded(json), Ok(Some(_))) {
        return None;
    }
    let file: Outline = serde_json::from_slice(json).ok()?;
    let mut parts = vec![&file.pre_tokenizer, &file.normalizer];
    while let Some(part) = parts.pop() {
        let pattern = part.pointer("/pattern/Regex").and_then(Value::as_str);
        if let Some(pattern) = pattern.filter(|pattern| !is_unchanged(pattern)) {
            return Some(pattern.to_owned());
        }
        for list in ["pretokenizers", "normalizers"] {
            parts.extend(part.get(list).and_then(Value::as_array).into_iter().flatten().rev());
        }
    }
    None
}

/// Returns whether `pattern` has only constructs that both libraries treat alike.
fn is_unchanged(pattern: &str) -> bool {
    let pattern =
        CONTRACTIONS.iter().fold(pattern.to_owned(), |pattern, group| pattern.replace(group, "(?:x)"));
    let mut rest = pattern.as_str();
    let mut depth = 0u32;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            '\\' => match escape(after) {
                Some(after) => after,
                None => return false,
            },
            '[' if after.starts_with([':', ']']) || after.starts_with("^]") => return false,
            '[' => {
                depth += 1;
                after.strip_prefix('^').unwrap_or(after)
            }
            _ if depth > 0 => {
                if ["&&", "--", "~~"].iter().any(|operator| rest.starts_with(operator)) {
                    return false;
                }
                depth -= u32::from(c == ']');
                after
            }
            '(' => match after.strip_prefix('?') {
                Some(kind) if !kind.starts_with([':', '=', '!', '>']) && !is_lookbehind(kind) => {
                    return false;
                }
                _ if after.starts_with('*') => return false,
                _ => after,
            },
            '{' => match after.split_once('}') {
                // After `{`, `}`, Oniguruma gives `+` and `?` other meanings.
                Some((count, after))
                    if count.starts_with(|c: char| c.is_ascii_digit())
                        && count != "0"
                        && count.chars().all(|c| c.is_ascii_digit() || c == ',')
                        && !after.starts_with(['+', '?']) =>
                {
                    after
                }
                _ => return false,
            },
            '^' | '$' => return false,
            _ => after,
        };
    }
    depth == 0
}

fn is_lookbehind(kind: &str) -> bool {
    kind.starts_with("<=") || kind.starts_with("<!")
}

/// Returns the text after the escape that follows a backslash, if both libraries treat it alike.
fn escape(after: &str) -> Option<&str> {
    let kind = after.chars().next()?;
    let rest = &after[kind.len_utf8()..];
    match kind {
        's' | 'S' | 'd' | 'D' | 'r' | 'n' | 't' | 'f' | 'v' => Some(rest),
        'p' | 'P' => {
            let (name, rest) = rest.strip_prefix('{')?.split_once('}')?;
            CATEGORIES.contains(&name).then_some(rest)
        }
        _ => kind.is_ascii_punctuation().then_some(rest),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::engine::fast::split::pattern::{
        CL100K, DEEPSEEK, GPT2, GPT2_SHORT, O200K, QWEN2, QWEN35, TEKKEN,
    };

    #[test]
    fn common_patterns_are_unchanged() {
        for pattern in
            [GPT2, GPT2_SHORT, CL100K, QWEN2, QWEN35, O200K, TEKKEN, " {2,}", r"\p{N}", r"\s+", r"[\r\n]"]
        {
            assert!(is_unchanged(pattern), "{pattern}");
        }
        assert!(DEEPSEEK.iter().all(|pattern| is_unchanged(pattern)));
        assert!(is_unchanged(r" ?[^(\s|[.,!?…。，、।۔،])]+"));
        assert!(is_unchanged(r"(?<!\d)a++(?=\s)|(?>.|\.)\{"));
    }

    #[test]
    fn constructs_that_the_libraries_treat_differently_are_found() {
        for pattern in [
            r"\w+|[^\w\s]+",
            r"\W",
            r"\b",
            "^a",
            "a$",
            "(?m:.)",
            "(?s:.)",
            "[[:alpha:]]",
            "(?i:ss)",
            r"(?i)a",
            r"\R",
            r"\p{^L}",
            r"\p{IsHan}",
            r"[\p{L}--\p{Lu}]",
            r"[\w&&[^\d]]+",
            r"\U00010000",
            r"\p{N}{1,3}+",
            "a{0}",
            r"\N",
            "[]a]",
            "(*FAIL)",
            r"\d{1,3}(?=(?:\d{3})*\b)",
        ] {
            assert!(!is_unchanged(pattern), "{pattern}");
        }
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
