//! Extraction of fields from a line of JSON by path, including the fields kept in the record.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value as Json;

use crate::sample::{Reject, RejectCode, Value};
use crate::schema::Field;
use crate::source::metadata::from_json;

/// A field: a member of exactly that name or, if there is none, a path of nested members such as `a.b.c`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    whole: String,
    parts: Vec<String>,
}

impl Path {
    /// Creates the path of the field `name`.
    pub fn new(name: &str) -> Self {
        Self { whole: name.to_owned(), parts: name.split('.').map(str::to_owned).collect() }
    }

    /// Returns whether the path has more than one part.
    pub fn is_nested(&self) -> bool {
        self.parts.len() > 1
    }

    /// Returns whether an object has the field, even if it is null.
    pub fn is_in(&self, object: &serde_json::Map<String, Json>) -> bool {
        let nested = || {
            let (first, rest) = self.parts.split_first()?;
            rest.iter().try_fold(object.get(first)?, |value, name| value.get(name))
        };
        object.contains_key(&self.whole) || nested().is_some()
    }

    fn find<'a>(&self, members: &'a [(String, Json)]) -> Option<&'a Json> {
        let member = |name: &str| members.iter().find(|(n, _)| n == name).map(|(_, value)| value);
        let nested = || {
            let (first, rest) = self.parts.split_first()?;
            rest.iter().try_fold(member(first)?, |value, name| value.get(name))
        };
        member(&self.whole).or_else(nested)
    }
}

/// Paths of the requested fields.
#[derive(Debug, Clone)]
pub struct WantedPaths {
    /// Field that holds the text.
    pub text: Path,
    /// Field that holds the key.
    pub key: Option<Path>,
    /// Kept fields: their paths in the line, and the fields of the record with their types.
    pub kept: Vec<(Path, Field)>,
}

/// Fields of a line.
#[derive(Debug, PartialEq)]
pub struct ObjectFields {
    /// The text.
    pub text: String,
    /// The key, if requested.
    pub key: Option<String>,
    /// One value per kept field.
    pub kept: Vec<Value>,
}

impl WantedPaths {
    /// Extracts the fields from a line (without its line end). If a name occurs twice, the last value counts.
    ///
    /// # Errors
    ///
    /// Returns a [`Reject`] for a line that is empty, is not a JSON object, or lacks the text or the key. A value that
    /// does not fit the type of its field is also a reject.
    pub fn find(&self, line: &str) -> Result<ObjectFields, Reject> {
        if line.trim_ascii().is_empty() {
            return Err(Reject::new(RejectCode::Empty, "the line is empty"));
        }
        let mut json = serde_json::Deserializer::from_str(line);
        let mut members = json
            .deserialize_map(MembersVisitor(self))
            .and_then(|members| json.end().map(|()| members))
            .map_err(|e| {
                Reject::new(RejectCode::InvalidJson, format!("the line is not a JSON object: {e}"))
            })?;
        let key = self.key.as_ref().map(|path| key(&path.whole, path.find(&members))).transpose()?;
        let null = Json::Null;
        let kept = self
            .kept
            .iter()
            .map(|(path, field)| from_json(&field.name, field.ty, path.find(&members).unwrap_or(&null)))
            .collect::<Result<_, _>>()?;
        // A text that is a member of the line itself is moved out instead of copied.
        let at = members.iter().position(|(name, _)| *name == self.text.whole);
        let text = match at {
            Some(at) => Some(members.swap_remove(at).1),
            None => self.text.find(&members).cloned(),
        };
        match text {
            Some(Json::String(text)) => Ok(ObjectFields { text, key, kept }),
            other => Err(unusable(&self.text.whole, other.as_ref(), "a string", "--text-field")),
        }
    }

    fn wants(&self, name: &str) -> bool {
        let paths = [&self.text].into_iter().chain(&self.key).chain(self.kept.iter().map(|(path, _)| path));
        paths
            .into_iter()
            .any(|path| path.whole == name || path.parts.first().is_some_and(|first| first == name))
    }
}

fn key(name: &str, value: Option<&Json>) -> Result<String, Reject> {
    match value {
        Some(Json::String(key)) => Ok(key.clone()),
        Some(Json::Number(key)) if !key.is_f64() => Ok(key.to_string()),
        other => Err(unusable(name, other, "a string or an integer", "--key-field")),
    }
}

fn unusable(name: &str, found: Option<&Json>, wanted: &str, flag: &str) -> Reject {
    let missing = |message: String| Reject::new(RejectCode::MissingField, message);
    let kind = match found {
        None => return missing(format!("there is no field {name:?}; {flag} names the field")),
        Some(Json::Null) => return missing(format!("the field {name:?} is null")),
        Some(Json::Bool(_)) => "a boolean",
        Some(Json::Number(_)) => "a number",
        Some(Json::String(_)) => "a string",
        Some(Json::Array(_)) => "a list",
        Some(Json::Object(_)) => "an object",
    };
    Reject::new(RejectCode::WrongType, format!("the field {name:?} is {kind}, not {wanted}"))
}

/// A member name, borrowed if it has no escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Collects the members that may contain a requested field.
struct MembersVisitor<'a>(&'a WantedPaths);

impl<'de> Visitor<'de> for MembersVisitor<'_> {
    type Value = Vec<(String, Json)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members: Self::Value = Vec::new();
        while let Some(Name(name)) = map.next_key()? {
            if !self.0.wants(&name) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = map.next_value()?;
            match members.iter_mut().find(|(n, _)| *n == name) {
                Some((_, earlier)) => *earlier = value,
                None => members.push((name.into_owned(), value)),
            }
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::FieldType;

    fn wanted(text: &str) -> WantedPaths {
        let kept = [("meta.lang", FieldType::String), ("n", FieldType::Int64), ("meta", FieldType::Json)];
        let kept = kept.map(|(name, ty)| (Path::new(name), Field::nullable(name, ty)));
        WantedPaths { text: Path::new(text), key: Some(Path::new("meta.id")), kept: kept.to_vec() }
    }

    #[test]
    fn fields_are_found_by_path_and_by_name() {
        let line = r#"{"meta": {"id": 7, "lang": "de"}, "a": {"b": "nested"}, "n": "5", "x": [1]}"#;
        let found = wanted("a.b").find(line).unwrap();
        assert_eq!((found.text.as_str(), found.key.as_deref()), ("nested", Some("7")));
        let meta = Value::Text(r#"{"id":7,"lang":"de"}"#.into());
        assert_eq!(found.kept, [Value::Text("de".into()), Value::Int(5), meta]);
        let line = r#"{"a.b": "whole", "a": {"b": "nested"}, "meta.id": "k", "n": null}"#;
        let found = wanted("a.b").find(line).unwrap();
        assert_eq!((found.text.as_str(), found.key.as_deref()), ("whole", Some("k")));
        assert_eq!(found.kept, [Value::Null, Value::Null, Value::Null]);
        let twice = r#"{"a": {"b": "1"}, "meta.id": 1, "\u0061": {"b": "2\u00e9"}}"#;
        assert_eq!(wanted("a.b").find(twice).unwrap().text, "2é");
    }

    #[test]
    fn every_defect_has_its_code() {
        for (line, code) in [
            ("", RejectCode::Empty),
            ("[]", RejectCode::InvalidJson),
            (r#"{"a": {"b": "\udc00"}, "meta.id": 1}"#, RejectCode::InvalidJson),
            (r#"{"a": {"c": "x"}, "meta.id": 1}"#, RejectCode::MissingField),
            (r#"{"a": {"b": null}, "meta.id": 1}"#, RejectCode::MissingField),
            (r#"{"a": {"b": [1]}, "meta.id": 1}"#, RejectCode::WrongType),
            (r#"{"a": {"b": "x"}, "meta.id": 1.5}"#, RejectCode::WrongType),
            (r#"{"a": {"b": "x"}}"#, RejectCode::MissingField),
            (r#"{"a": {"b": "x"}, "meta.id": 1, "n": "many"}"#, RejectCode::InvalidValue),
        ] {
            assert_eq!(wanted("a.b").find(line).unwrap_err().code, code, "{line}");
        }
    }
}
