//! Prompts without ids, from the JSON of an item.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::canonical::canonical;
use super::chat::{further_members, members};
use crate::sample::{Reject, RejectCode};

/// The members of an item, as JSON.
#[derive(Deserialize)]
struct PromptMembers<'a> {
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    system: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    chat_template_kwargs: Option<&'a RawValue>,
}

/// A prompt that is kept as it is.
#[derive(Debug)]
pub(super) struct Prompt {
    /// A text or a list of messages, as the source has it.
    pub(super) json: String,
    /// The text, if it is one.
    pub(super) text: String,
    /// The JSON of the chat that is rendered for the length, unless the prompt is a text.
    pub(super) chat: Option<String>,
}

impl Prompt {
    /// Reads the JSON of an item.
    ///
    /// # Errors
    ///
    /// A reject if the prompt is empty, or neither a text nor a list.
    pub(super) fn read(item: &str) -> Result<Self, Reject> {
        let invalid = |message: &str| Reject::new(RejectCode::InvalidChat, message);
        let PromptMembers { prompt, system, tools, chat_template_kwargs } = members(item)?;
        let json = prompt.ok_or_else(|| invalid("there is no prompt"))?.get();
        if let Ok(text) = serde_json::from_str::<String>(json) {
            return match text.is_empty() {
                true => Err(Reject::new(RejectCode::Empty, "the prompt is empty")),
                false => Ok(Self { json: json.to_owned(), text, chat: None }),
            };
        }
        if !json.starts_with('[') {
            return Err(invalid("the prompt is neither a text nor a list of messages"));
        }
        let further = further_members(&[
            ("system", system),
            ("tools", tools),
            ("chat_template_kwargs", chat_template_kwargs),
        ]);
        let chat = Some(format!("{{\"messages\":{json}{further}}}"));
        Ok(Self { json: json.to_owned(), text: String::new(), chat })
    }

    /// Returns what decides the split: the prompt, whatever the order of its keys is.
    pub(super) fn group(&self) -> String {
        canonical(&self.json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_texts_or_messages() {
        let chat = Prompt::read(r#"{"prompt": [{"role": "user", "content": "a"}], "tools": [1]}"#).unwrap();
        assert_eq!(chat.json, r#"[{"role": "user", "content": "a"}]"#);
        let expected = r#"{"messages":[{"role": "user", "content": "a"}],"tools":[1]}"#;
        assert_eq!(chat.chat.as_deref(), Some(expected));
        let text = Prompt::read(r#"{"prompt": "a\u0062"}"#).unwrap();
        assert_eq!((text.text.as_str(), text.chat), ("ab", None));
        let code = |json: &str| Prompt::read(json).unwrap_err().code;
        assert_eq!(code(r#"{"prompt": ""}"#), RejectCode::Empty);
        assert_eq!(code(r#"{"prompt": 7}"#), RejectCode::InvalidChat);
    }
}
