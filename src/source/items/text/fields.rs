//! Documents in rows, and the fields of a row that make up the text of a document.

use std::borrow::Cow;

use serde::de::IgnoredAny;

use super::token_row::{IdFields, TokenRow};
use crate::sample::{Reject, RejectCode, Value};

/// A document of a source, before its text is processed.
#[derive(Debug, PartialEq)]
pub struct SourceDocument<'a> {
    /// The text, copied only if it is not in the source as it is. Empty if there are ids.
    pub text: Cow<'a, str>,
    /// The token ids in place of a text.
    pub ids: Option<Box<TokenRow>>,
    /// The key, if requested.
    pub key: Option<String>,
    /// One value per kept field.
    pub kept: Vec<Value>,
    /// Fields of a row that are not empty and that nothing reads, if the text is made of several fields.
    pub unread: Vec<String>,
}

/// The fields that make up the text of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextFields {
    /// The field that holds the text.
    Text(String),
    /// Fields whose values become the members of a JSON object, which is the text.
    Json(Vec<JsonMember>),
    /// Fields with token ids in place of a text.
    Ids(IdFields),
}

/// A member of a JSON object that is the text of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonMember {
    /// Name in the object.
    pub name: &'static str,
    /// Field with the value.
    pub field: String,
    /// Option that names the field.
    pub option: &'static str,
    /// Whether every row must have the field.
    pub is_required: bool,
    /// Whether an option names the field. Then some rows must have it, or the name is probably misspelled.
    pub is_named: bool,
    /// Whether a string is the text of a JSON value, as files without nested types have it.
    pub is_nested: bool,
}

impl TextFields {
    /// Returns the names of the fields, each with the option that names it and whether the rows of a file must have it.
    pub fn names(&self) -> Vec<(&str, &'static str, bool)> {
        match self {
            Self::Text(field) => vec![(field, "text_field", true)],
            Self::Json(members) => {
                members.iter().map(|member| (&*member.field, member.option, member.is_named)).collect()
            }
            Self::Ids(ids) => {
                ids.fields().iter().map(|field| (&*field.name, field.option, field.is_named)).collect()
            }
        }
    }
}

/// Writes the object of `members`, whose values `value` returns as JSON texts; `None` for a missing one.
///
/// # Errors
///
/// Returns the errors of `value`, and a reject if a required value is missing or null.
pub(in crate::source) fn object<T: AsRef<str>>(
    members: &[JsonMember],
    mut value: impl FnMut(usize, &JsonMember) -> Result<Option<T>, Reject>,
) -> Result<String, Reject> {
    let mut object = String::from("{");
    for (at, member) in members.iter().enumerate() {
        let json = value(at, member)?;
        let json = json.as_ref().map_or("null", AsRef::as_ref).trim_ascii();
        if json == "null" {
            if member.is_required {
                let (field, option) = (&member.field, member.option);
                let message = format!("the field {field:?} is missing or null; `{option}` names the field");
                return Err(Reject::new(RejectCode::MissingField, message));
            }
            continue;
        }
        let nested = if member.is_nested && json.starts_with('"') { nested(json) } else { None };
        if object.len() > 1 {
            object.push(',');
        }
        object.extend(["\"", member.name, "\":", nested.as_deref().unwrap_or(json)]);
    }
    object.push('}');
    Ok(object)
}

/// Returns the ordinals of the columns that are not in `read`; nothing unless the text is made of several fields.
pub(super) fn unread<'a>(
    text: &TextFields,
    columns: usize,
    read: impl Iterator<Item = &'a usize>,
) -> Vec<usize> {
    let TextFields::Json(_) = text else { return Vec::new() };
    let read: Vec<usize> = read.copied().collect();
    (0..columns).filter(|at| !read.contains(at)).collect()
}

/// Returns the JSON text in a string, if it is the text of one value.
fn nested(json: &str) -> Option<String> {
    let text: String = serde_json::from_str(json).ok()?;
    serde_json::from_str::<IgnoredAny>(&text).is_ok().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &'static str, is_required: bool, is_nested: bool) -> JsonMember {
        JsonMember {
            name,
            field: format!("my_{name}"),
            option: "messages_field",
            is_required,
            is_named: true,
            is_nested,
        }
    }

    #[test]
    fn fields_become_members_of_one_object() {
        let members =
            [member("messages", true, true), member("tools", false, true), member("prompt", false, false)];
        let object = |values: [Option<&str>; 3]| {
            object(&members, |at, _| Ok(values[at])).map_err(|reject| (reject.code, reject.message))
        };
        assert_eq!(
            object([Some(" [1] "), None, Some("\"[2]\"")]).unwrap(),
            r#"{"messages":[1],"prompt":"[2]"}"#
        );
        assert_eq!(
            object([Some(r#""[{\"a\": 1}]""#), Some(r#""[], 2""#), Some("null")]).unwrap(),
            r#"{"messages":[{"a": 1}],"tools":"[], 2"}"#
        );
        let missing = "the field \"my_messages\" is missing or null; `messages_field` names the field";
        assert_eq!(object([None; 3]), Err((RejectCode::MissingField, missing.to_owned())));
    }
}
