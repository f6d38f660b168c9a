//! Extraction of the text and the key from a line of JSON.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use crate::sample::{Reject, RejectCode};

/// Names of the requested fields.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    /// Field that holds the text.
    pub text: &'a str,
    /// Field that holds the key.
    pub key: Option<&'a str>,
}

/// Fields of a line.
#[derive(Debug, PartialEq, Eq)]
pub struct LineFields<'a> {
    /// The text.
    pub text: Cow<'a, str>,
    /// The key, if requested.
    pub key: Option<String>,
}

/// Extracts `fields` from a line (without its line end). If a name occurs twice, the last value counts, as in most JSON
/// readers.
///
/// # Errors
///
/// Returns a [`Reject`] for a line that is empty, not UTF-8 or not a JSON object, or that lacks a requested field of
/// the right type. A key may be a string or an integer.
pub fn parse<'a>(line: &'a [u8], fields: Fields<'_>) -> Result<LineFields<'a>, Reject> {
    let line = std::str::from_utf8(line).map_err(|e| {
        Reject::new(RejectCode::InvalidUtf8, format!("byte {} of the line is not UTF-8", e.valid_up_to()))
    })?;
    if line.trim_ascii().is_empty() {
        return Err(Reject::new(RejectCode::Empty, "the line is empty"));
    }
    let mut json = serde_json::Deserializer::from_str(line);
    let (text, key) = json
        .deserialize_map(ObjectVisitor { fields })
        .and_then(|found| json.end().map(|()| found))
        .map_err(|e| Reject::new(RejectCode::InvalidJson, format!("the line is not a JSON object: {e}")))?;
    let text = match text {
        Some(Scalar::Text(text)) => text,
        other => return Err(unusable(fields.text, other, "a string", "--text-field")),
    };
    let key = match (fields.key, key) {
        (None, _) => None,
        (Some(_), Some(Scalar::Text(key))) => Some(key.into_owned()),
        (Some(_), Some(Scalar::Integer(key))) => Some(key),
        (Some(name), other) => return Err(unusable(name, other, "a string or an integer", "--key-field")),
    };
    Ok(LineFields { text, key })
}

fn unusable(name: &str, found: Option<Scalar<'_>>, wanted: &str, flag: &str) -> Reject {
    match found {
        None => Reject::new(
            RejectCode::MissingField,
            format!("there is no field {name:?}; {flag} names the field"),
        ),
        Some(Scalar::Other("null")) => {
            Reject::new(RejectCode::MissingField, format!("the field {name:?} is null"))
        }
        Some(other) => {
            let kind = match other {
                Scalar::Other(kind) => kind,
                Scalar::Text(_) => "a string",
                Scalar::Integer(_) => "a number",
            };
            Reject::new(RejectCode::WrongType, format!("the field {name:?} is {kind}, not {wanted}"))
        }
    }
}

enum Scalar<'a> {
    Text(Cow<'a, str>),
    Integer(String),
    Other(&'static str),
}

struct ObjectVisitor<'f> {
    fields: Fields<'f>,
}

impl<'de> Visitor<'de> for ObjectVisitor<'_> {
    type Value = (Option<Scalar<'de>>, Option<Scalar<'de>>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut text, mut key) = (None, None);
        while let Some(NameSeed(name)) = map.next_key_seed(NameSeed::default())? {
            let (is_text, is_key) = (name == self.fields.text, Some(name.as_ref()) == self.fields.key);
            if is_text && is_key {
                let value = map.next_value_seed(ScalarSeed)?;
                key = match &value {
                    Scalar::Text(t) => Some(Scalar::Text(t.clone())),
                    _ => None,
                };
                text = Some(value);
            } else if is_text {
                text = Some(map.next_value_seed(ScalarSeed)?);
            } else if is_key {
                key = Some(map.next_value_seed(ScalarSeed)?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok((text, key))
    }
}

/// A member name, borrowed if it has no escapes.
#[derive(Default)]
struct NameSeed<'a>(Cow<'a, str>);

impl<'de> serde::de::DeserializeSeed<'de> for NameSeed<'_> {
    type Value = NameSeed<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<NameSeed<'de>, D::Error> {
        match deserializer.deserialize_str(ScalarVisitor)? {
            Scalar::Text(name) => Ok(NameSeed(name)),
            _ => Err(D::Error::custom("a member name is no string")),
        }
    }
}

struct ScalarSeed;

impl<'de> serde::de::DeserializeSeed<'de> for ScalarSeed {
    type Value = Scalar<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Scalar<'de>, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Self::Value, E> {
        Ok(Scalar::Text(Cow::Borrowed(v)))
    }

    fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
        Ok(Scalar::Text(Cow::Owned(v.to_owned())))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Scalar::Other("a boolean"))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Self::Value, E> {
        Ok(Scalar::Integer(v.to_string()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Self::Value, E> {
        Ok(Scalar::Integer(v.to_string()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Scalar::Other("a number with a fraction"))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Scalar::Other("null"))
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other("a list"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other("an object"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Result<(String, Option<String>), RejectCode> {
        parse(line.as_bytes(), Fields { text: "text", key: Some("id") })
            .map(|f| (f.text.into_owned(), f.key))
            .map_err(|r| r.code)
    }

    #[test]
    fn wanted_fields_are_found_among_others() {
        let line = r#"{"a": [1, {"text": "no"}], "id": 7, "text": "ja\n\ud83d\ude00", "z": null}"#;
        assert_eq!(found(line), Ok(("ja\n😀".into(), Some("7".into()))));
        assert_eq!(found(r#"{"\u0074ext": "x", "id": "k"}"#), Ok(("x".into(), Some("k".into()))));
        assert_eq!(found(r#"{"text": "first", "id": 1, "text": "last"}"#).unwrap().0, "last");
        assert_eq!(found("{\"text\": \"x\", \"id\": 1}\r"), Ok(("x".into(), Some("1".into()))));
    }

    #[test]
    fn every_defect_has_its_code() {
        for (line, code) in [
            ("", RejectCode::Empty),
            (" \r", RejectCode::Empty),
            ("nonsense", RejectCode::InvalidJson),
            ("[1]", RejectCode::InvalidJson),
            (r#"{"text": "x""#, RejectCode::InvalidJson),
            (r#"{"text": "x", "id": 1} {}"#, RejectCode::InvalidJson),
            (r#"{"text": "\ud800", "id": 1}"#, RejectCode::InvalidJson),
            (r#"{"id": 1}"#, RejectCode::MissingField),
            (r#"{"text": null, "id": 1}"#, RejectCode::MissingField),
            (r#"{"text": 5, "id": 1}"#, RejectCode::WrongType),
            (r#"{"text": "x"}"#, RejectCode::MissingField),
            (r#"{"text": "x", "id": 1.5}"#, RejectCode::WrongType),
        ] {
            assert_eq!(found(line), Err(code), "{line}");
        }
        assert_eq!(
            parse(b"{\"text\": \"\xff\"}", Fields { text: "text", key: None }).unwrap_err().code,
            RejectCode::InvalidUtf8
        );
    }
}
