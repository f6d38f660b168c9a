//! The images in the JSON of a chat: where they are, and what stands for them in the messages.
//!
//! A chat is rewritten so that each image is a part `{"type": "image"}` of a message, as templates read it, and the values of
//! the images are listed in the order of these parts. A chat without images stays as it is.

use std::borrow::Cow;
use std::fmt;

use dsconvert_chat::sharegpt_role;
use dsconvert_vision::Processor;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::image_value::{ImageValue, listed_values, value_of};
use crate::sample::{Reject, RejectCode};

/// The string in a message that stands for an image, if the row has so many.
const MARKER: &str = "<image>";
/// The part that stands for an image.
const IMAGE_PART: &str = r#"{"type":"image"}"#;

/// A chat, and its images in the order of its messages.
#[derive(Debug)]
pub(in crate::pipeline::text) struct ChatImages<'a> {
    /// The JSON of the chat.
    pub(in crate::pipeline::text) chat: Cow<'a, str>,
    pub(in crate::pipeline::text) images: Vec<ImageValue>,
}

/// The members of an object in order, as JSON.
pub(super) struct Members<'a>(pub(super) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    members.push((Cow::Owned(name), value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

impl<'a> Members<'a> {
    /// Returns a member that is not null. Of several of a name, the last one counts.
    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        let found = self.0.iter().rev().find(|(known, _)| known == name)?.1;
        (found.get() != "null").then_some(found)
    }

    /// Returns the text of a member that is a string.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }
}

/// A message whose content may have images.
struct ImageMessage<'a> {
    members: Members<'a>,
    role: String,
    /// Name of the member with the content.
    content_name: &'static str,
    content: Content<'a>,
}

enum Content<'a> {
    /// Neither text nor parts.
    Other,
    Text(String),
    Parts(Vec<Part<'a>>),
}

enum Part<'a> {
    Kept(&'a RawValue),
    /// An image without a value.
    Empty,
    Own(ImageValue),
}

impl ImageMessage<'_> {
    /// Returns how many markers the content has. The assistant writes none.
    fn markers(&self) -> usize {
        match &self.content {
            Content::Text(text) if self.role != "assistant" => text.matches(MARKER).count(),
            _ => 0,
        }
    }
}

/// Finds the images of a chat. A chat with limits of its own is refused unless they are those of `processor`.
///
/// # Errors
///
/// A reject if the images do not fit the messages, or if a value is not that of an image.
pub(in crate::pipeline::text) fn read<'a>(
    chat: &'a str,
    processor: &Processor,
) -> Result<ChatImages<'a>, Reject> {
    let invalid = |e: serde_json::Error| {
        Reject::new(RejectCode::InvalidChat, format!("the chat is not valid JSON: {e}"))
    };
    let row: Members<'a> = serde_json::from_str(chat).map_err(invalid)?;
    check_limits(&row, processor)?;
    let column = row.get("images").map_or_else(|| Ok(Vec::new()), listed_values)?;
    let raw = row.get("messages").map_or("", RawValue::get);
    let Ok(raw) = serde_json::from_str::<Vec<&RawValue>>(raw) else {
        // The renderer refuses what is not a list.
        return Ok(ChatImages { chat: chat.into(), images: Vec::new() });
    };
    let mut messages = Vec::with_capacity(raw.len());
    for (at, message) in raw.iter().enumerate() {
        messages.push(read_message(at, message)?);
    }
    let parts = || messages.iter().flatten().filter_map(|message| parts_of(&message.content)).flatten();
    let empty = parts().filter(|part| matches!(part, Part::Empty)).count();
    let own = parts().filter(|part| matches!(part, Part::Own(_))).count();
    let markers: usize = messages.iter().flatten().map(ImageMessage::markers).sum();
    if column.is_empty() && empty + own == 0 {
        return Ok(ChatImages { chat: chat.into(), images: Vec::new() });
    }
    let images = column.len();
    // All images are either in the messages or in the field.
    let reads_markers = own == 0 && markers > 0 && images == empty + markers;
    let is_before = own == 0 && empty == 0 && markers == 0;
    if images != empty && !reads_markers && !is_before || own > 0 && images > 0 {
        let message = format!(
            "the field of images has {images}, but the messages have {empty} image parts without a value, {own} with one, and \
             {markers} times {MARKER}"
        );
        return Err(Reject::new(RejectCode::ImageCount, message));
    }
    let writer = Rewriter { reads_markers, column: column.into_iter(), images: Vec::new() };
    writer.write(&row, &raw, messages, is_before)
}

fn parts_of<'m, 'a>(content: &'m Content<'a>) -> Option<&'m [Part<'a>]> {
    match content {
        Content::Parts(parts) => Some(parts),
        _ => None,
    }
}

/// Refuses limits of a row that are not those of the processor: all images of a dataset follow one rule.
fn check_limits(row: &Members<'_>, processor: &Processor) -> Result<(), Reject> {
    let Some(kwargs) = row.get("chat_template_kwargs") else { return Ok(()) };
    let kwargs: Json = serde_json::from_str(kwargs.get()).unwrap_or_default();
    let kwargs = match kwargs {
        Json::String(text) => serde_json::from_str(&text).unwrap_or_default(),
        other => other,
    };
    for (name, own) in [("min_pixels", processor.min_pixels), ("max_pixels", processor.max_pixels)] {
        if let Some(value) = kwargs.get(name).filter(|value| !value.is_null() && value.as_u64() != Some(own))
        {
            let message = format!(
                "`chat_template_kwargs` of the chat has {name} {value}, but the images of a dataset are all of {name} {own}; \
                 `image_arg {name}=N` sets it for all"
            );
            return Err(Reject::new(RejectCode::Unsupported, message));
        }
    }
    Ok(())
}

/// Reads a message; `None` if it is not an object.
fn read_message<'a>(at: usize, message: &'a RawValue) -> Result<Option<ImageMessage<'a>>, Reject> {
    let Ok(members) = serde_json::from_str::<Members<'a>>(message.get()) else { return Ok(None) };
    let (role, content_name) = match (members.text("role"), members.text("from")) {
        (None, Some(from)) => (sharegpt_role(&from).unwrap_or(&from).to_owned(), "value"),
        (role, _) => (role.unwrap_or_default(), "content"),
    };
    let content = match members.get(content_name).map(RawValue::get) {
        Some(json) if json.starts_with('"') => {
            serde_json::from_str(json).map_or(Content::Other, Content::Text)
        }
        // The result of a tool may be a list that is meant to be JSON.
        Some(json) if json.starts_with('[') => match serde_json::from_str::<Vec<&'a RawValue>>(json) {
            Ok(parts) => {
                let read = |part| read_part(part, &role).map_err(|reject| of_message(at, reject));
                Content::Parts(parts.into_iter().map(read).collect::<Result<_, _>>()?)
            }
            Err(_) => Content::Other,
        },
        _ => Content::Other,
    };
    Ok(Some(ImageMessage { members, role, content_name, content }))
}

fn of_message(at: usize, reject: Reject) -> Reject {
    Reject::new(reject.code, format!("messages[{at}]: {}", reject.message))
}

/// Members of a part of a message that hold the value of an image.
const VALUES: [&str; 7] = ["image", "image_url", "source", "url", "path", "base64", "bytes"];

fn read_part<'a>(part: &'a RawValue, role: &str) -> Result<Part<'a>, Reject> {
    if !part.get().starts_with('{') {
        return Ok(Part::Kept(part));
    }
    let Ok(members) = serde_json::from_str::<Members<'a>>(part.get()) else { return Ok(Part::Kept(part)) };
    let kind = members.text("type");
    let is_image = match kind.as_deref() {
        Some(kind) => matches!(kind, "image" | "image_url" | "input_image"),
        // The result of a tool may be JSON of any kind.
        None => role != "tool" && ["image", "image_url"].iter().any(|name| members.get(name).is_some()),
    };
    if !is_image {
        return Ok(Part::Kept(part));
    }
    let mut found = None;
    for (name, value) in members.0.iter().filter(|(_, value)| value.get() != "null") {
        match &**name {
            "type" | "id" | "cache_control" | "index" => {}
            "text" if value.get() == "\"\"" => {}
            "detail" if value.get() == "\"auto\"" => {}
            name if VALUES.contains(&name) => {
                if let Some(value) = value_of(name, value)?
                    && found.replace(value).is_some()
                {
                    return Err(Reject::new(RejectCode::InvalidChat, "an image part has two values"));
                }
            }
            name => {
                let message = format!("the member {name:?} of an image part cannot be obeyed");
                return Err(Reject::new(RejectCode::Unsupported, message));
            }
        }
    }
    Ok(found.map_or(Part::Empty, Part::Own))
}

/// Writes the JSON of a chat with its images as parts.
struct Rewriter<I> {
    reads_markers: bool,
    column: I,
    images: Vec<ImageValue>,
}

impl<I: Iterator<Item = ImageValue>> Rewriter<I> {
    fn write<'a>(
        mut self,
        row: &Members<'_>,
        raw: &[&RawValue],
        messages: Vec<Option<ImageMessage<'_>>>,
        mut is_before: bool,
    ) -> Result<ChatImages<'a>, Reject> {
        let mut list = String::from("[");
        for (raw, message) in raw.iter().zip(messages) {
            push_separator(&mut list);
            let Some(message) = message else {
                list.push_str(raw.get());
                continue;
            };
            let starts = is_before && message.role == "user";
            is_before &= !starts;
            let parts = self.parts(message.content, &message.role, starts);
            let Some(parts) = parts else {
                list.push_str(raw.get());
                continue;
            };
            list.push('{');
            for (name, value) in &message.members.0 {
                if list.ends_with('{') {
                } else {
                    list.push(',');
                }
                let is_content = *name == message.content_name;
                list.push_str(&Json::from(&**name).to_string());
                list.push(':');
                list.push_str(if is_content { &parts } else { value.get() });
            }
            list.push('}');
        }
        list.push(']');
        if is_before {
            let message = "the row has images, but no message of a user to put them in front of";
            return Err(Reject::new(RejectCode::ImageCount, message));
        }
        let mut chat = String::from("{");
        for (name, value) in row.0.iter().filter(|(name, _)| name != "images") {
            if chat.len() > 1 {
                chat.push(',');
            }
            chat.push_str(&Json::from(&**name).to_string());
            chat.push(':');
            chat.push_str(if name == "messages" { &list } else { value.get() });
        }
        chat.push('}');
        Ok(ChatImages { chat: chat.into(), images: self.images })
    }

    /// Returns the parts of a content as JSON; `None` if it stays as it is. If the content `starts`, all images of the field are
    /// in front of it.
    fn parts(&mut self, content: Content<'_>, role: &str, starts: bool) -> Option<String> {
        let mut out = String::from("[");
        if starts {
            while self.next_of_field(&mut out) {}
        }
        match content {
            Content::Text(text) if self.reads_markers && role != "assistant" && text.contains(MARKER) => {
                for (at, text) in text.split(MARKER).enumerate() {
                    if at > 0 {
                        self.next_of_field(&mut out);
                    }
                    push_text(&mut out, text);
                }
            }
            Content::Text(text) if starts => push_text(&mut out, &text),
            Content::Parts(parts) if starts || parts.iter().any(|part| !matches!(part, Part::Kept(_))) => {
                for part in parts {
                    match part {
                        Part::Kept(raw) => {
                            push_separator(&mut out);
                            out.push_str(raw.get());
                        }
                        Part::Empty => {
                            self.next_of_field(&mut out);
                        }
                        Part::Own(value) => {
                            push_separator(&mut out);
                            out.push_str(IMAGE_PART);
                            self.images.push(value);
                        }
                    }
                }
            }
            _ if !starts => return None,
            _ => {}
        }
        out.push(']');
        Some(out)
    }

    /// Writes the part of the next image of the field, if there is one.
    fn next_of_field(&mut self, out: &mut String) -> bool {
        let Some(value) = self.column.next() else { return false };
        push_separator(out);
        out.push_str(IMAGE_PART);
        self.images.push(value);
        true
    }
}

fn push_separator(list: &mut String) {
    if list.len() > 1 {
        list.push(',');
    }
}

fn push_text(out: &mut String, text: &str) {
    if !text.is_empty() {
        push_separator(out);
        out.push_str(r#"{"type":"text","text":"#);
        out.push_str(&Json::from(text).to_string());
        out.push('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(chat: &str) -> Result<(Json, Vec<String>), RejectCode> {
        let read = read(chat, &Processor::qwen2_5_vl()).map_err(|reject| reject.code)?;
        let chat = serde_json::from_str::<Json>(&read.chat).unwrap();
        let paths = read.images.into_iter().map(|image| match image {
            ImageValue::Path(path) => path,
            ImageValue::Base64(base64) => format!("base64 {base64}"),
        });
        Ok((chat["messages"].clone(), paths.collect()))
    }

    fn row(messages: &Json, images: &Json) -> String {
        serde_json::json!({"messages": messages, "images": images}).to_string()
    }

    fn user(content: Json) -> Json {
        serde_json::json!([{"role": "user", "content": content}])
    }

    #[test]
    fn images_fill_parts_markers_or_the_start() {
        use serde_json::json;
        let image = || json!({"type": "image"});
        let text = |text: &str| json!({"type": "text", "text": text});
        for (content, images, expected) in [
            // Markers, with the text around them.
            (
                json!("a <image>\nb<image>"),
                json!(["x", "y"]),
                json!([text("a "), image(), text("\nb"), image()]),
            ),
            // Parts.
            (json!([image(), text("<image>")]), json!(["x"]), json!([image(), text("<image>")])),
            // Neither.
            (json!("hi"), json!(["x", "y"]), json!([image(), image(), text("hi")])),
            (json!([text("hi")]), json!("x"), json!([image(), text("hi")])),
            // No images: the marker is text.
            (json!("a <image>"), json!([]), json!("a <image>")),
            (json!("a <image>"), json!(null), json!("a <image>")),
            // A list as text.
            (json!("a <image>"), json!("[\"x\"]"), json!([text("a "), image()])),
        ] {
            let (messages, paths) = found(&row(&user(content.clone()), &images)).unwrap();
            assert_eq!(messages, user(expected), "{content}");
            let images = messages.to_string().matches(r#""type":"image""#).count();
            assert_eq!(paths.len(), images, "{content}");
        }
    }

    #[test]
    fn other_counts_are_rejected() {
        use serde_json::json;
        for (content, images) in [
            (json!("a <image>"), json!(["x", "y"])),
            (json!("<image><image>"), json!(["x"])),
            (json!([{"type": "image"}]), json!(["x", "y"])),
            (json!([{"type": "image"}]), json!([])),
            (json!([{"type": "image", "path": "x"}]), json!(["y"])),
        ] {
            assert_eq!(
                found(&row(&user(content.clone()), &images)),
                Err(RejectCode::ImageCount),
                "{content}"
            );
        }
        let assistant = json!([{"role": "assistant", "content": "hi"}]);
        assert_eq!(found(&row(&assistant, &json!(["x"]))), Err(RejectCode::ImageCount));
    }

    #[test]
    fn the_assistant_writes_no_markers() {
        use serde_json::json;
        let messages = json!([
            {"role": "user", "content": "<image>?"},
            {"role": "assistant", "content": "write <image>"},
        ]);
        let (read, paths) = found(&row(&messages, &json!(["x"]))).unwrap();
        assert_eq!((read[1]["content"].as_str(), paths), (Some("write <image>"), vec!["x".to_owned()]));
        let llava = json!([{"from": "human", "value": "<image>\nhi"}, {"from": "gpt", "value": "yo"}]);
        let (read, _) = found(&row(&llava, &json!("x"))).unwrap();
        assert_eq!(read[0]["value"], json!([{"type": "image"}, {"type": "text", "text": "\nhi"}]));
        assert_eq!(read[0]["from"], "human");
    }

    #[test]
    fn values_are_in_parts() {
        use serde_json::json;
        for (part, expected) in [
            (json!({"type": "image", "image": "a"}), "a"),
            (json!({"type": "image", "path": "a", "url": null}), "a"),
            (json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,Zg=="}}), "base64 Zg=="),
            (json!({"type": "input_image", "image_url": "a", "detail": "auto"}), "a"),
            (
                json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "Zg=="}}),
                "base64 Zg==",
            ),
            (json!({"type": "image", "base64": "Zg=="}), "base64 Zg=="),
            (json!({"type": "image", "image": {"bytes": "Zg==", "path": "a"}}), "base64 Zg=="),
            (json!({"type": "image", "image": {"bytes": null, "path": "a"}}), "a"),
            (json!({"image": "file:///a"}), "/a"),
        ] {
            let (messages, paths) = found(&row(&user(json!([part])), &json!(null))).unwrap();
            assert_eq!(messages[0]["content"], json!([{"type": "image"}]), "{part}");
            assert_eq!(paths, [expected], "{part}");
        }
        for (part, code) in [
            (json!({"type": "image", "image": "https://a.example/b.png"}), RejectCode::Unsupported),
            (json!({"type": "image_url", "image_url": {"url": "http://a"}}), RejectCode::Unsupported),
            (json!({"type": "image", "image": "s3://a/b"}), RejectCode::Unsupported),
            (json!({"type": "image", "image": "data:image/svg+xml,%3Csvg"}), RejectCode::Unsupported),
            (json!({"type": "image", "image": "a", "max_pixels": 5}), RejectCode::Unsupported),
            (json!({"type": "image", "image": "a", "path": "b"}), RejectCode::InvalidChat),
            (json!({"type": "image", "image": 5}), RejectCode::WrongType),
        ] {
            assert_eq!(found(&row(&user(json!([part])), &json!(null))), Err(code), "{part}");
        }
    }

    #[test]
    fn limits_of_a_row_are_those_of_the_processor() {
        let chat = |kwargs: &str| format!(r#"{{"messages":[],"chat_template_kwargs":{kwargs}}}"#);
        assert!(found(&chat(r#"{"max_pixels":12845056,"min_pixels":null}"#)).is_ok());
        for wrong in [r#"{"max_pixels":5}"#, r#""{\"min_pixels\": 1}""#] {
            assert_eq!(found(&chat(wrong)), Err(RejectCode::Unsupported), "{wrong}");
        }
    }
}
