//! Preference data: prompts with two completions, or with one that has a label, from the JSON of an item to the lists of ids of
//! a record.

use std::borrow::Cow;

use dsconvert_chat::sharegpt_role;
use serde::Deserialize;
use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::canonical::canonical;
use super::chat::{further_members, members};
use crate::recipe::Seam;
use crate::sample::{ArrayValue, Reject, RejectCode, Tokens, Value};

/// The members of an item, as JSON.
#[derive(Deserialize)]
struct PreferenceMembers<'a> {
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    chosen: Option<&'a RawValue>,
    #[serde(borrow)]
    rejected: Option<&'a RawValue>,
    #[serde(borrow)]
    completion: Option<&'a RawValue>,
    #[serde(borrow)]
    label: Option<&'a RawValue>,
    #[serde(borrow)]
    system: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    chat_template_kwargs: Option<&'a RawValue>,
}

/// A prompt with its completions, before they are rendered.
#[derive(Debug)]
pub(super) struct Preference {
    /// The prompt as JSON: a text, or a list of messages.
    prompt: String,
    /// The name of each completion, and the row of prompt and completion as JSON.
    pub(super) sides: NamedCompletions,
    label: Option<bool>,
}

/// The lists of ids of a record.
#[derive(Debug)]
pub(super) struct CompletionIds {
    /// The values of the fields that follow the origin.
    pub(super) values: Vec<Value>,
    pub(super) prompt: Value,
    /// The number of tokens of all sides.
    pub(super) length: u64,
    /// Whether the completions start before their first trained token, because the sides have different ids there.
    pub(super) is_moved: bool,
}

/// Completions as JSON, each with the name of its field.
type NamedCompletions = Vec<(&'static str, String)>;

fn invalid(message: impl Into<String>) -> Reject {
    Reject::new(RejectCode::InvalidChat, message)
}

impl Preference {
    /// Reads the JSON of an item.
    ///
    /// # Errors
    ///
    /// A reject if there is no prompt, or if completions are empty, the same, or not those of the assistant.
    pub(super) fn read(json: &str) -> Result<Self, Reject> {
        let found: PreferenceMembers<'_> = members(json)?;
        let raw = |json: &RawValue| json.get().to_owned();
        let (prompt, completions) = match (found.chosen, found.rejected, found.completion) {
            (Some(chosen), Some(rejected), _) => match found.prompt {
                Some(prompt) => (raw(prompt), vec![("chosen", raw(chosen)), ("rejected", raw(rejected))]),
                None => without_prompt(chosen, rejected)?,
            },
            (_, _, Some(completion)) => {
                let prompt = found.prompt.map(raw).ok_or_else(|| invalid("there is no prompt"))?;
                (prompt, vec![("completion", raw(completion))])
            }
            _ => return Err(invalid("there is no completion")),
        };
        if messages("prompt", &prompt)?.is_some_and(|messages| messages.is_empty()) {
            return Err(invalid("the prompt has no messages"));
        }
        for (name, completion) in &completions {
            check_completion(name, &prompt, completion)?;
        }
        if let [(_, chosen), (_, rejected)] = &completions[..]
            && canonical(chosen) == canonical(rejected)
        {
            return Err(same_completions());
        }
        let further = further_members(&[
            ("system", found.system),
            ("tools", found.tools),
            ("chat_template_kwargs", found.chat_template_kwargs),
        ]);
        let side = |(name, completion): (&'static str, String)| {
            (name, format!("{{\"prompt\":{prompt},\"completion\":{completion}{further}}}"))
        };
        let label = found.label.map(|label| label_of(label.get())).transpose()?;
        Ok(Self { sides: completions.into_iter().map(side).collect(), label, prompt })
    }

    /// Returns what all records with the same prompt have in common, for splits.
    pub(super) fn group(&self) -> String {
        canonical(&self.prompt)
    }

    /// Divides the tokens of each side into prompt and completion.
    ///
    /// # Errors
    ///
    /// A reject if the completions have the same ids or, with [`Seam::Error`], if the prompts have other ones.
    pub(super) fn into_ids(self, sides: &[Tokens], seam: Seam) -> Result<CompletionIds, Reject> {
        let starts: Vec<usize> = sides.iter().map(completion_start).collect();
        let mut start = starts.iter().copied().min().unwrap_or(0);
        if let [chosen, rejected] = sides {
            if chosen.ids == rejected.ids {
                return Err(same_completions());
            }
            let same = chosen.ids.iter().zip(rejected.ids.iter()).take(start);
            start = same.take_while(|(a, b)| a == b).count();
        }
        let is_moved = starts.iter().any(|own| *own != start);
        if is_moved && seam == Seam::Error {
            let message = format!(
                "the sides have different ids from token {start} on, before their completions (`seam error`)"
            );
            return Err(Reject::new(RejectCode::SeamDiffers, message));
        }
        let cut = || Reject::new(RejectCode::Unsupported, "the ids of a side cannot be divided");
        let prompt = sides.first().and_then(|side| side.copy_of(0..start)).ok_or_else(cut)?;
        let (mut ids, mut masks, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
        for (side, own) in sides.iter().zip(&starts) {
            let completion = side.copy_of(start..side.len()).ok_or_else(cut)?;
            // Text before the first trained token is a part of the completion, as in TRL, and trained with it.
            masks.push(marks(&completion, own - start));
            ids.push(Value::Ids(completion.ids));
            lengths.push(side.len() as u64);
        }
        let length = lengths.iter().sum();
        if u32::try_from(length).is_err() {
            return Err(Reject::new(RejectCode::TooLarge, "the sides have more than 2^32 - 1 tokens"));
        }
        let last = match self.label {
            Some(label) => Value::Bool(label),
            None => Value::UInt(lengths.iter().copied().max().unwrap_or(0)),
        };
        let values = ids.into_iter().chain(masks).chain([last]).collect();
        Ok(CompletionIds { values, prompt: Value::Ids(prompt.ids), length, is_moved })
    }
}

/// Returns the prompt and completions of two lists of messages that start with the same ones.
fn without_prompt(chosen: &RawValue, rejected: &RawValue) -> Result<(String, NamedCompletions), Reject> {
    let [chosen_json, rejected_json] = [chosen, rejected].map(|json| nested(json.get()));
    let list = |name: &str, json| {
        messages(name, json)?.ok_or_else(|| {
            invalid(format!(
                "{name} is not a list of messages, and there is no prompt; `prompt_field` names it"
            ))
        })
    };
    let (chosen, rejected) = (list("chosen", &chosen_json)?, list("rejected", &rejected_json)?);
    let is_same = |(a, b): &(&&RawValue, &&RawValue)| canonical(a.get()) == canonical(b.get());
    let common = chosen.iter().zip(&rejected).take_while(is_same).count();
    let join = |messages: &[&RawValue]| {
        let messages: Vec<&str> = messages.iter().map(|message| message.get()).collect();
        format!("[{}]", messages.join(","))
    };
    match (chosen.get(common), rejected.get(common)) {
        (None, None) if common == 0 => return Err(empty_completion("chosen")),
        (None, None) => return Err(same_completions()),
        (None, _) => return Err(empty_completion("chosen")),
        (_, None) => return Err(empty_completion("rejected")),
        (Some(a), Some(b)) => {
            if !(is_assistant(a) && is_assistant(b)) {
                return Err(invalid(format!(
                    "the prompts of chosen and rejected differ: both must have the same messages before the answers, and \
                     messages[{common}] are not"
                )));
            }
            if common == 0 {
                return Err(invalid("chosen and rejected have no prompt in common"));
            }
        }
    }
    let after = |messages: &[&RawValue]| join(messages.get(common..).unwrap_or_default());
    let prompt = join(chosen.get(..common).unwrap_or_default());
    Ok((prompt, vec![("chosen", after(&chosen)), ("rejected", after(&rejected))]))
}

/// Returns the messages of JSON; `None` if it is a text.
fn messages<'a>(name: &str, json: &'a str) -> Result<Option<Vec<&'a RawValue>>, Reject> {
    match json.as_bytes().first() {
        Some(b'"') => Ok(None),
        Some(b'[') => serde_json::from_str(json).map(Some).map_err(|e| invalid(format!("{name}: {e}"))),
        _ => Err(invalid(format!("{name} is neither a text nor a list of messages"))),
    }
}

/// Returns the JSON in a string, or the JSON itself: columns of tables often hold lists as text.
fn nested(json: &str) -> Cow<'_, str> {
    match serde_json::from_str::<String>(json) {
        Ok(text) if text.trim_start().starts_with('[') => Cow::Owned(text.trim().to_owned()),
        _ => Cow::Borrowed(json),
    }
}

/// Refuses a completion that has no answer, or that does not fit the prompt.
fn check_completion(name: &'static str, prompt: &str, completion: &str) -> Result<(), Reject> {
    let is_text = |json: &str| json.starts_with('"');
    let Some(messages) = messages(name, completion)? else {
        if completion == "\"\"" {
            return Err(empty_completion(name));
        }
        return match is_text(prompt) {
            true => Ok(()),
            false => Err(invalid(format!("the prompt is a list of messages, and {name} is a text"))),
        };
    };
    if is_text(prompt) {
        return Err(invalid(format!(
            "the prompt is a text, and {name} a list of messages; leave out `prompt_field` if the lists start with the prompt"
        )));
    }
    match messages.last() {
        None => Err(empty_completion(name)),
        Some(last) if !is_assistant(last) => {
            Err(invalid(format!("{name} does not end with a message of the assistant")))
        }
        Some(last) if is_empty(last) => Err(empty_completion(name)),
        Some(_) => Ok(()),
    }
}

fn is_assistant(message: &RawValue) -> bool {
    let message: Json = serde_json::from_str(message.get()).unwrap_or_default();
    let text = |name: &str| message.get(name).and_then(Json::as_str);
    match (text("role"), text("from")) {
        (Some(role), _) => role == "assistant",
        (None, from) => from.and_then(sharegpt_role) == Some("assistant"),
    }
}

/// Returns whether a message has neither content nor reasoning nor calls.
fn is_empty(message: &RawValue) -> bool {
    const ANSWER: [&str; 7] =
        ["content", "value", "reasoning_content", "thinking", "reasoning", "tool_calls", "function_call"];
    let message: Json = serde_json::from_str(message.get()).unwrap_or_default();
    ANSWER.iter().filter_map(|name| message.get(name)).all(|value| match value {
        Json::Null => true,
        Json::String(text) => text.is_empty(),
        Json::Array(items) => items.is_empty(),
        _ => false,
    })
}

/// Reads a label: true or false, 1 or 0, also as text, as tables of separated values have it.
fn label_of(json: &str) -> Result<bool, Reject> {
    let text = serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_owned());
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(Reject::new(RejectCode::InvalidValue, format!("the label is {json}, not true or false"))),
    }
}

fn same_completions() -> Reject {
    Reject::new(RejectCode::SameCompletions, "chosen and rejected are the same")
}

fn empty_completion(name: &str) -> Reject {
    Reject::new(RejectCode::EmptyCompletion, format!("{name} has no answer"))
}

/// Returns the first trained token of a side.
fn completion_start(side: &Tokens) -> usize {
    let masks = side.masks.as_deref().unwrap_or_default();
    masks.iter().position(|mask| *mask == 1).unwrap_or(side.len())
}

/// Returns the marks of a completion, of which the first `before` tokens are trained, too; null if all tokens are.
fn marks(completion: &Tokens, before: usize) -> Value {
    let mut marks = completion.masks.as_deref().unwrap_or_default().to_vec();
    marks.iter_mut().take(before).for_each(|mark| *mark = 1);
    match (marks.contains(&0), u32::try_from(marks.len())) {
        (true, Ok(count)) => Value::Array(ArrayValue::new([count], marks.into())),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::sample::Ids;
    use crate::schema::IdWidth;

    const PROMPT: &str = r#"{"role": "user", "content": "U"}"#;

    fn answer(text: &str) -> String {
        format!(r#"{{"role": "assistant", "content": "{text}"}}"#)
    }

    fn refused(json: &str) -> (RejectCode, String) {
        let reject = Preference::read(json).unwrap_err();
        (reject.code, reject.message)
    }

    #[test]
    fn the_prompt_is_what_both_lists_start_with() {
        let json = format!(
            r#"{{"chosen": [{PROMPT}, {}], "rejected": [{{"content": "U", "role": "user"}}, {}], "tools": [1]}}"#,
            answer("a"),
            answer("b")
        );
        let pair = Preference::read(&json).unwrap();
        let expected = format!(r#"{{"prompt":[{PROMPT}],"completion":[{}],"tools":[1]}}"#, answer("a"));
        assert_eq!(pair.sides[0], ("chosen", expected));
        let explicit = format!(
            r#"{{"prompt": [{PROMPT}], "chosen": [{}], "rejected": [{}]}}"#,
            answer("c"),
            answer("d")
        );
        assert_eq!(Preference::read(&explicit).unwrap().group(), pair.group());
        // As columns of text hold it.
        let text = |list: String| serde_json::to_string(&list).unwrap();
        let json = format!(
            r#"{{"chosen": {}, "rejected": {}}}"#,
            text(format!("[{PROMPT},{}]", answer("a"))),
            text(format!("[{PROMPT},{}]", answer("b")))
        );
        assert_eq!(Preference::read(&json).unwrap().group(), pair.group());
    }

    #[test]
    fn bad_pairs_are_rejected() {
        let (a, b) = (answer("a"), answer("b"));
        let other = r#"{"role": "user", "content": "V"}"#;
        for (json, code, message) in [
            (
                format!(r#"{{"chosen": [{PROMPT}, {a}], "rejected": [{other}, {b}]}}"#),
                RejectCode::InvalidChat,
                "messages[0]",
            ),
            (
                format!(r#"{{"chosen": [{PROMPT}, {a}], "rejected": [{PROMPT}, {a}]}}"#),
                RejectCode::SameCompletions,
                "",
            ),
            (
                r#"{"prompt": "p", "chosen": "a", "rejected": "\u0061"}"#.to_owned(),
                RejectCode::SameCompletions,
                "",
            ),
            (
                format!(r#"{{"chosen": [{PROMPT}, {a}], "rejected": [{PROMPT}]}}"#),
                RejectCode::EmptyCompletion,
                "rejected",
            ),
            (
                format!(r#"{{"chosen": [{PROMPT}, {a}], "rejected": [{PROMPT}, {}]}}"#, answer("")),
                RejectCode::EmptyCompletion,
                "rejected",
            ),
            (
                r#"{"prompt": "p", "chosen": "", "rejected": "b"}"#.to_owned(),
                RejectCode::EmptyCompletion,
                "chosen",
            ),
            (
                format!(r#"{{"prompt": [{PROMPT}], "chosen": [], "rejected": [{b}]}}"#),
                RejectCode::EmptyCompletion,
                "chosen",
            ),
            (r#"{"chosen": [], "rejected": []}"#.to_owned(), RejectCode::EmptyCompletion, "chosen"),
            (
                format!(r#"{{"prompt": [], "chosen": [{a}], "rejected": [{b}]}}"#),
                RejectCode::InvalidChat,
                "no messages",
            ),
            (
                format!(r#"{{"prompt": [{PROMPT}], "chosen": [{a}, {other}], "rejected": [{b}]}}"#),
                RejectCode::InvalidChat,
                "does not end",
            ),
            (
                format!(r#"{{"prompt": "U", "chosen": [{PROMPT}, {a}], "rejected": [{PROMPT}, {b}]}}"#),
                RejectCode::InvalidChat,
                "leave out `prompt_field`",
            ),
            (
                format!(r#"{{"prompt": [{PROMPT}], "chosen": "a", "rejected": "b"}}"#),
                RejectCode::InvalidChat,
                "is a text",
            ),
            (
                r#"{"chosen": "a", "rejected": "b"}"#.to_owned(),
                RejectCode::InvalidChat,
                "`prompt_field` names it",
            ),
            (
                r#"{"prompt": "p", "chosen": 1, "rejected": "b"}"#.to_owned(),
                RejectCode::InvalidChat,
                "neither",
            ),
            (
                format!(r#"{{"chosen": [{a}], "rejected": [{b}]}}"#),
                RejectCode::InvalidChat,
                "no prompt in common",
            ),
            (
                r#"{"prompt": "p", "completion": "c", "label": "good"}"#.to_owned(),
                RejectCode::InvalidValue,
                "good",
            ),
        ] {
            let found = refused(&json);
            assert!(found.0 == code && found.1.contains(message), "{json}: {found:?}");
        }
        for (json, label) in [("true", true), ("0", false), ("\"True\"", true)] {
            let row = format!(r#"{{"prompt": "p", "completion": "c", "label": {json}}}"#);
            assert_eq!(Preference::read(&row).unwrap().label, Some(label));
        }
    }

    fn side(ids: &[u32], masks: &'static [u8]) -> Tokens {
        Tokens::new(Ids::pack(IdWidth::U16, ids).unwrap(), Some(Bytes::from_static(masks))).unwrap()
    }

    fn pair() -> Preference {
        Preference::read(r#"{"prompt": "p", "chosen": "a", "rejected": "b"}"#).unwrap()
    }

    #[test]
    fn completions_start_with_the_first_trained_token() {
        let ids = |ids: &[u32]| Value::Ids(Ids::pack(IdWidth::U16, ids).unwrap());
        let sides = [side(&[1, 2, 3, 4], &[0, 0, 1, 1]), side(&[1, 2, 5], &[0, 0, 1])];
        let found = pair().into_ids(&sides, Seam::Error).unwrap();
        assert_eq!((found.length, found.is_moved, found.prompt), (7, false, ids(&[1, 2])));
        assert_eq!(found.values, [ids(&[3, 4]), ids(&[5]), Value::Null, Value::Null, Value::UInt(4)]);
        // A turn of a tool in the completion.
        let sides = [side(&[1, 2, 3, 4], &[0, 1, 0, 1]), side(&[1, 5], &[0, 1])];
        let found = pair().into_ids(&sides, Seam::Error).unwrap();
        assert_eq!(found.values[2], Value::Array(ArrayValue::new([3], vec![1, 0, 1].into())));
    }

    #[test]
    fn both_completions_start_where_the_ids_first_differ() {
        let sides = [side(&[1, 2, 3, 4], &[0, 0, 0, 1]), side(&[1, 7, 3, 5], &[0, 0, 0, 1])];
        let found = pair().into_ids(&sides, Seam::CommonPrefix).unwrap();
        assert!(found.is_moved && found.values[2] == Value::Null);
        assert_eq!(found.prompt, Value::Ids(Ids::pack(IdWidth::U16, &[1]).unwrap()));
        assert_eq!(pair().into_ids(&sides, Seam::Error).unwrap_err().code, RejectCode::SeamDiffers);
        let same = [side(&[1, 2], &[0, 1]), side(&[1, 2], &[0, 1])];
        assert_eq!(pair().into_ids(&same, Seam::default()).unwrap_err().code, RejectCode::SameCompletions);
    }
}
