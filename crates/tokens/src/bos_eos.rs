//! Detection of the BOS and EOS tokens.
//!
//! The sources, in this order: the token that the user names; the token that the post-processor puts before or after a
//! sequence; a special token with a well-known name. `<|endoftext|>`, which some models use for both, is BOS only if
//! there is no other candidate. If several tokens match and one is to be added, loading fails.

use serde_json::Value;

use crate::error::{LoadError, SequenceEnd};
use crate::info::SpecialToken;

type Result<T> = std::result::Result<T, LoadError>;

/// Well-known names of BOS tokens.
const BOS_NAMES: [&str; 8] =
    ["<s>", "<|begin_of_text|>", "<bos>", "<BOS>", "[BOS]", "[CLS]", "<|startoftext|>", "<|bos|>"];
/// Well-known names of EOS tokens.
const EOS_NAMES: [&str; 9] = [
    "</s>",
    "<|end_of_text|>",
    "<eos>",
    "<EOS>",
    "[EOS]",
    "[SEP]",
    "<|endoftext|>",
    "<|eos|>",
    "<|end▁of▁sentence|>",
];
/// BOS if no other token matches.
const BOS_FALLBACK: &str = "<|endoftext|>";
/// Result of the search for BOS or EOS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FoundToken {
    /// Exactly one token matches.
    Token(SpecialToken),
    /// No token matches.
    None,
    /// Several tokens match.
    Several(Vec<String>),
}

impl FoundToken {
    /// Returns the token if exactly one matches.
    pub(crate) fn token(self) -> Option<SpecialToken> {
        match self {
            FoundToken::Token(token) => Some(token),
            FoundToken::None | FoundToken::Several(_) => None,
        }
    }
}

/// Finds the token for `end`. `id_of` looks up a string in the whole vocabulary.
pub(crate) fn find(
    end: SequenceEnd,
    named: Option<&str>,
    post_processor: &Value,
    special: &[SpecialToken],
    id_of: impl Fn(&str) -> Option<u32>,
) -> Result<FoundToken> {
    let token = |name: &str, id: u32| SpecialToken { id, token: name.to_owned() };
    if let Some(name) = named {
        let unknown = || LoadError::UnknownToken { token: name.to_owned(), special_tokens: special.to_vec() };
        let id = id_of(name).ok_or_else(unknown)?;
        return Ok(FoundToken::Token(token(name, id)));
    }
    let mut around = Vec::new();
    around_sequence(post_processor, end, &mut around);
    match around.as_slice() {
        [] => {}
        [one] => {
            return Ok(match one.id.or_else(|| id_of(&one.token)) {
                Some(id) => FoundToken::Token(token(&one.token, id)),
                None => FoundToken::None,
            });
        }
        _ => return Ok(FoundToken::Several(around.into_iter().map(|added| added.token).collect())),
    }
    let names: &[&str] = match end {
        SequenceEnd::Bos => &BOS_NAMES,
        SequenceEnd::Eos => &EOS_NAMES,
    };
    let mut fitting: Vec<_> = special.iter().filter(|t| names.contains(&t.token.as_str())).cloned().collect();
    if fitting.is_empty() {
        fitting.extend(names.iter().filter_map(|name| id_of(name).map(|id| token(name, id))));
    }
    if fitting.is_empty() && end == SequenceEnd::Bos {
        fitting.extend(id_of(BOS_FALLBACK).map(|id| token(BOS_FALLBACK, id)));
    }
    Ok(match fitting.as_slice() {
        [] => FoundToken::None,
        [one] => FoundToken::Token(one.clone()),
        several => FoundToken::Several(several.iter().map(|t| t.token.clone()).collect()),
    })
}

/// Returns the token to be added at `end`, or an error unless exactly one matches.
pub(crate) fn required(
    end: SequenceEnd,
    found: &FoundToken,
    special: &[SpecialToken],
) -> Result<SpecialToken> {
    match found {
        FoundToken::Token(token) => Ok(token.clone()),
        FoundToken::None => Err(LoadError::NoSequenceToken { end, special_tokens: special.to_vec() }),
        FoundToken::Several(candidates) => {
            Err(LoadError::AmbiguousSequenceToken { end, candidates: candidates.clone() })
        }
    }
}

/// A token that a post-processor adds. It need not have the id that the vocabulary gives to the string.
struct AddedAround {
    token: String,
    /// `None` if the post-processor states none.
    id: Option<u32>,
}

/// Appends the special tokens that the post-processor puts at `end` of a single sequence.
fn around_sequence(post_processor: &Value, end: SequenceEnd, out: &mut Vec<AddedAround>) {
    match post_processor.get("type").and_then(Value::as_str) {
        Some("Sequence") => {
            for processor in post_processor.get("processors").and_then(Value::as_array).into_iter().flatten()
            {
                around_sequence(processor, end, out);
            }
        }
        Some("BertProcessing" | "RobertaProcessing") => {
            let field = if end == SequenceEnd::Bos { "cls" } else { "sep" };
            let part = |at: usize| post_processor.get(field).and_then(|pair| pair.get(at));
            out.extend(
                part(0)
                    .and_then(Value::as_str)
                    .map(|token| AddedAround { token: token.to_owned(), id: part(1).and_then(id_in) }),
            );
        }
        Some("TemplateProcessing") => {
            let pieces = template_pieces(post_processor.get("single"));
            let Some(sequence) = pieces.iter().position(Option::is_none) else { return };
            let side = match end {
                SequenceEnd::Bos => &pieces[..sequence],
                SequenceEnd::Eos => &pieces[sequence + 1..],
            };
            for name in side.iter().flatten() {
                let defined = post_processor.get("special_tokens").and_then(|tokens| tokens.get(name));
                let part = |part: &str| defined.and_then(|token| token.get(part)).and_then(Value::as_array);
                let Some(ids) = part("ids") else {
                    out.push(AddedAround { token: name.clone(), id: None });
                    continue;
                };
                // A piece of a template may have another name than its token, and several tokens.
                out.extend(ids.iter().enumerate().map(|(at, id)| {
                    let token = part("tokens").and_then(|tokens| tokens.get(at)).and_then(Value::as_str);
                    AddedAround { token: token.unwrap_or(name).to_owned(), id: id_in(id) }
                }));
            }
        }
        _ => {}
    }
}

fn id_in(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

/// Parses a template, which is a list or one string, into pieces: special tokens by name, `None` for the sequence.
fn template_pieces(single: Option<&Value>) -> Vec<Option<String>> {
    match single {
        Some(Value::Array(pieces)) => pieces
            .iter()
            .map(|p| p.pointer("/SpecialToken/id").and_then(Value::as_str).map(str::to_owned))
            .collect(),
        Some(Value::String(pieces)) => pieces
            .split_whitespace()
            .map(|p| if p.starts_with('$') { None } else { p.split(':').next().map(str::to_owned) })
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn special(names: &[&str]) -> Vec<SpecialToken> {
        (0..).zip(names).map(|(id, t)| SpecialToken { id, token: (*t).to_owned() }).collect()
    }

    fn find_in(
        end: SequenceEnd,
        named: Option<&str>,
        post_processor: &Value,
        names: &[&str],
    ) -> Result<FoundToken> {
        let special = special(names);
        let id_of = |name: &str| special.iter().find(|t| t.token == name).map(|t| t.id);
        find(end, named, post_processor, &special, id_of)
    }

    fn token(found: Result<FoundToken>) -> String {
        match found.unwrap() {
            FoundToken::Token(t) => t.token,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_post_processor_takes_precedence_over_names() {
        let template = json!({"type": "Sequence", "processors": [{"type": "ByteLevel"}, {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<go>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "<stop>", "type_id": 0}}]}]});
        let names = ["<s>", "</s>", "<go>", "<stop>"];
        assert_eq!(token(find_in(SequenceEnd::Bos, None, &template, &names)), "<go>");
        assert_eq!(token(find_in(SequenceEnd::Eos, None, &template, &names)), "<stop>");
        assert_eq!(token(find_in(SequenceEnd::Eos, Some("</s>"), &template, &names)), "</s>");
        let as_string = json!({"type": "TemplateProcessing", "single": "<go> $A:0 <stop>:1"});
        assert_eq!(token(find_in(SequenceEnd::Eos, None, &as_string, &names)), "<stop>");
        let roberta = json!({"type": "RobertaProcessing", "cls": ["<go>", 2], "sep": ["<stop>", 3]});
        assert_eq!(token(find_in(SequenceEnd::Bos, None, &roberta, &names)), "<go>");
    }

    #[test]
    fn the_ids_are_those_of_the_post_processor() {
        let names = ["[UNK]", "[CLS]", "[SEP]"];
        let template = |ids: Value| {
            json!({"type": "TemplateProcessing", "single": "start $A [SEP]", "special_tokens": {
                "start": {"id": "start", "ids": ids, "tokens": ["[CLS]"]},
                "[SEP]": {"id": "[SEP]", "ids": [70000], "tokens": ["[SEP]"]}}})
        };
        let id = |end, post_processor: &Value| match find_in(end, None, post_processor, &names).unwrap() {
            FoundToken::Token(token) => token.id,
            other => panic!("{other:?}"),
        };
        assert_eq!(id(SequenceEnd::Bos, &template(json!([7]))), 7);
        assert_eq!(id(SequenceEnd::Eos, &template(json!([7]))), 70_000);
        let several = find_in(SequenceEnd::Bos, None, &template(json!([7, 8])), &names).unwrap();
        assert!(matches!(several, FoundToken::Several(_)), "{several:?}");
        let found = find_in(SequenceEnd::Bos, None, &template(json!([1])), &names).unwrap();
        assert_eq!(found.token().unwrap().token, "[CLS]", "the name of the token, not of the piece");
        let bert = json!({"type": "BertProcessing", "cls": ["[CLS]", 4], "sep": ["[SEP]", 5]});
        assert_eq!((id(SequenceEnd::Bos, &bert), id(SequenceEnd::Eos, &bert)), (4, 5));
    }

    #[test]
    fn endoftext_is_bos_only_without_another_candidate() {
        assert_eq!(token(find_in(SequenceEnd::Bos, None, &Value::Null, &["<|endoftext|>"])), "<|endoftext|>");
        assert_eq!(token(find_in(SequenceEnd::Bos, None, &Value::Null, &["<|endoftext|>", "<s>"])), "<s>");
    }

    #[test]
    fn ambiguous_and_missing_tokens_are_errors() {
        let names = ["<s>", "[CLS]"];
        let found = find_in(SequenceEnd::Bos, None, &Value::Null, &names).unwrap();
        let error = required(SequenceEnd::Bos, &found, &special(&names)).unwrap_err();
        assert!(error.to_string().contains("<s>, [CLS]"), "{error}");
        let found = find_in(SequenceEnd::Eos, None, &Value::Null, &names).unwrap();
        let error = required(SequenceEnd::Eos, &found, &special(&names)).unwrap_err();
        assert!(error.help().unwrap().contains("`eos_token`"), "{error}");
        assert!(find_in(SequenceEnd::Eos, Some("<nope>"), &Value::Null, &names).is_err());
    }
}
