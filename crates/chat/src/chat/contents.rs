//! Contents of messages: texts, and lists of parts.

use super::{Chat, ChatReader, Field, kind};
use crate::reject::{ChatReject, ChatRejectCode, invalid};
use crate::value::{Text, TextBuilder, Value};

impl Chat {
    /// The texts of the content of a message, if it is a list of text parts.
    fn text_parts(&self, number: usize) -> Option<Vec<&Text>> {
        let parts = self.values.get(number)?.as_map()?.get("content")?.as_list()?;
        let is_result = self.messages.get(number).is_some_and(|message| *message.role == *"tool");
        parts.iter().map(|part| text_of_part(part, is_result)).collect()
    }

    /// The number of the parts of such a content.
    pub(crate) fn text_part_count(&self, number: usize) -> Option<usize> {
        self.text_parts(number).map(|parts| parts.len())
    }

    pub(crate) fn has_text_parts(&self) -> bool {
        (0..self.messages.len()).any(|number| self.text_parts(number).is_some())
    }

    /// Replaces the contents of messages for which `is_chosen` by the text of their parts.
    pub(crate) fn join_parts(
        &mut self,
        separator: Option<&str>,
        is_chosen: impl Fn(usize) -> bool,
    ) -> Result<(), ChatReject> {
        for number in 0..self.messages.len() {
            let Some(parts) = self.text_parts(number).filter(|_| is_chosen(number)) else { continue };
            let separator = match (separator, parts.len()) {
                (Some(separator), _) => separator,
                (None, 0 | 1) => "",
                (None, count) => {
                    return Err(ChatReject {
                        code: ChatRejectCode::TextParts,
                        message: format!(
                            "the content of messages[{number}] has {count} text parts, over which the template does not \
                             iterate; `join_parts` joins them"
                        ),
                    });
                }
            };
            let mut joined = TextBuilder::default();
            for (at, part) in parts.into_iter().enumerate() {
                if at > 0 {
                    joined.push(separator, part.first_mark());
                }
                joined.push_text(part);
            }
            let joined = Value::from(joined.finish());
            if let Some(content) = self
                .values
                .get_mut(number)
                .and_then(Value::as_map_mut)
                .and_then(|message| message.get_mut("content"))
            {
                *content = joined;
            }
        }
        Ok(())
    }
}

impl ChatReader {
    pub(super) fn content(
        &mut self,
        at: usize,
        number: u32,
        role: &str,
        value: &mut Value,
    ) -> Result<(), ChatReject> {
        let found = kind(value);
        let has_parts = value.as_list().is_some_and(|parts| parts.iter().any(|part| part.as_map().is_some()));
        // The result of a tool may be a list that is meant to be JSON.
        let keys = (has_parts && role != "tool").then(|| self.source(Some(number), Field::PartKeys, false));
        let parts = |parts: &mut Vec<Value>| -> Result<(), ChatReject> {
            for (number_of_part, part) in parts.iter_mut().enumerate() {
                if self.images && is_image(part) {
                    // The template writes a token in its place, but nothing of it.
                    part.mark(self.source(Some(number), Field::Other, false));
                    continue;
                }
                read_part(at, part, role != "tool")?;
                let Some(fields) = part.as_map_mut() else {
                    self.mark_needed(number, Field::Content(Some(number_of_part)), part);
                    continue;
                };
                // As LLaMA-Factory writes it.
                let is_text = fields.get("type").and_then(Value::as_str) == Some("text");
                if is_text
                    && fields.get("text").is_none()
                    && fields.get("value").is_some_and(|value| value.as_str().is_some())
                    && let Some(text) = fields.remove("value")
                {
                    fields.insert("text", text);
                }
                match fields.get_mut("text") {
                    Some(text) => {
                        let mut marked = text.clone();
                        self.mark_needed(number, Field::Content(Some(number_of_part)), &mut marked);
                        let other = self.source(Some(number), Field::Other, false);
                        fields.iter_mut().for_each(|(_, value)| value.mark(other));
                        fields.mark_keys(keys.unwrap_or(other));
                        fields.insert("text", marked);
                    }
                    None => self.mark_needed(number, Field::Content(Some(number_of_part)), part),
                }
            }
            Ok(())
        };
        if has_parts && let Some(result) = value.update_list(parts) {
            return result;
        }
        // The results of tools are JSON of any kind.
        if value.as_str().is_none() && value.as_list().is_none() && role != "tool" {
            return Err(invalid(format!(
                "the content of messages[{at}] is {found}, not text or a list of parts"
            )));
        }
        self.mark_needed(number, Field::Content(None), value);
        Ok(())
    }
}

/// The text of a text part. The result of a tool is a list of texts for other reasons.
fn text_of_part(part: &Value, is_result: bool) -> Option<&Text> {
    match part.as_map() {
        Some(fields) if fields.get("type").is_none_or(|kind| kind.as_str() == Some("text")) => {
            fields.get("text").and_then(Value::as_text)
        }
        Some(_) => None,
        None => part.as_text().filter(|_| !is_result),
    }
}

/// Returns whether a part is an image without a value, which stands for the next image of the chat.
fn is_image(part: &Value) -> bool {
    part.as_map().is_some_and(|part| {
        part.get("type").and_then(Value::as_str) == Some("image")
            && part.iter().all(|(name, value)| name == "type" || value.is_none())
    })
}

/// Refuses a part with an image, a video or audio, and removes the keys whose value is null: templates test whether a part
/// has the key `image`, and Parquet gives all parts of a column the same keys.
fn read_part(at: usize, part: &mut Value, by_key: bool) -> Result<(), ChatReject> {
    let Some(part) = part.as_map_mut() else { return Ok(()) };
    part.retain(|_, value| !value.is_none());
    const MEDIA: [&str; 3] = ["image", "video", "audio"];
    let by_type = part
        .get("type")
        .and_then(Value::as_str)
        .and_then(|kind| MEDIA.iter().find(|medium| kind.contains(**medium)));
    let has = |medium: &&&str| {
        [(**medium).to_owned(), format!("{medium}_url"), format!("input_{medium}")]
            .iter()
            .any(|key| part.get(key).is_some())
    };
    match by_type.or_else(|| MEDIA.iter().filter(|_| by_key).find(has)) {
        Some(medium) => {
            Err(invalid(format!("messages[{at}] has a part of kind `{medium}`; only text parts are read")))
        }
        None => Ok(()),
    }
}

/// Reasoning at the start of an answer, and the rest.
pub(super) fn split_reasoning(text: &str) -> (Option<&str>, &str) {
    // Much faster than the searches below, and nearly always false.
    if !text.contains("think>") {
        return (None, text);
    }
    match text.rsplit_once("</think>") {
        Some((before, answer)) => {
            let reasoning = before.rsplit_once("<think>").map_or(before, |(_, reasoning)| reasoning);
            (Some(reasoning.trim()), answer)
        }
        None => match text.split_once("<think>") {
            Some((answer, reasoning)) => (Some(reasoning.trim()), answer),
            None => (None, text),
        },
    }
}
