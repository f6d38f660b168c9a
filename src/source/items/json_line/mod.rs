//! Lines of JSON: the requested members of an object, and whole objects.

mod exact;
mod id_lists;
pub(crate) mod members;
mod nan;

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};

use self::members::{FoundValue, MemberPath, Members};
pub(crate) use self::nan::parse;
use self::nan::without_nan;
use super::text::fields::{JsonMember, SourceDocument, TextFields, object};
use super::text::token_row::IdFields;
use crate::sample::{Reject, RejectCode, Value};
use crate::schema::{Field, FieldType};
use crate::source::table::typed_values::{from_exact_json, from_json, is_large_integer};

/// The requested fields of a line.
#[derive(Debug, Clone)]
pub struct WantedFields {
    text: WantedText,
    key: Option<MemberPath>,
    kept: Vec<(MemberPath, Field)>,
}

/// The fields that make up the text.
#[derive(Debug, Clone)]
enum WantedText {
    Text(MemberPath),
    Json(Vec<JsonMember>, Vec<MemberPath>),
    Ids(IdFields, Vec<MemberPath>),
}

impl WantedFields {
    /// Requests the fields of the text, the field that holds the key, and fields kept in the record.
    pub fn new(text: &TextFields, key: Option<&str>, kept: &[Field]) -> Self {
        let text = match text {
            TextFields::Text(field) => WantedText::Text(MemberPath::new(field)),
            TextFields::Json(members) => {
                let paths = members.iter().map(|member| MemberPath::new(&member.field)).collect();
                WantedText::Json(members.clone(), paths)
            }
            TextFields::Ids(ids) => {
                let paths = ids.fields().iter().map(|field| MemberPath::new(&field.name)).collect();
                WantedText::Ids(ids.clone(), paths)
            }
        };
        Self {
            text,
            key: key.map(MemberPath::new),
            kept: kept.iter().map(|field| (MemberPath::new(&field.name), field.clone())).collect(),
        }
    }

    /// Extracts the document from a line (without its line end). If a name occurs twice, the last value counts, as in
    /// most JSON readers. `NaN`, `Infinity` and `-Infinity` are null.
    ///
    /// # Errors
    ///
    /// Returns a [`Reject`] for a line that is empty, not UTF-8 or not a JSON object, or that lacks the text or the
    /// key. A value that does not fit the type of its field is also a reject. A key may be a string or an integer.
    pub fn find<'a>(&self, line: &'a [u8]) -> Result<SourceDocument<'a>, Reject> {
        let line = text_of(line)?;
        match self.find_in(line) {
            Err(reject) if reject.code == RejectCode::InvalidJson => match without_nan(line) {
                Some(line) => {
                    let SourceDocument { text, ids, key, kept, unread } = self.find_in(&line)?;
                    Ok(SourceDocument { text: Cow::Owned(text.into_owned()), ids, key, kept, unread })
                }
                None => Err(reject),
            },
            found => found,
        }
    }

    fn find_in<'a>(&self, line: &'a str) -> Result<SourceDocument<'a>, Reject> {
        let object_text = |wanted: &[JsonMember], paths: &[MemberPath]| {
            let values: HashMap<String, &RawValue> =
                serde_json::from_str(line).map_err(|e| not_an_object(&e))?;
            let text = object(wanted, |at, _| Ok(paths[at].text_in(&values)))?;
            let is_unread = |name: &str| !self.needs(name) && !paths.iter().any(|path| path.needs(name));
            let is_empty = |value: &RawValue| ["null", "\"\"", "[]"].contains(&value.get());
            let unread = values.into_iter().filter(|(name, value)| !is_empty(value) && is_unread(name));
            let mut unread: Vec<String> = unread.map(|(name, _)| name).collect();
            unread.sort_unstable();
            Ok((Cow::Owned(text), unread))
        };
        if let (WantedText::Json(wanted, paths), None, []) = (&self.text, &self.key, &self.kept[..]) {
            let (text, unread) = object_text(wanted, paths)?;
            return Ok(SourceDocument { text, ids: None, key: None, kept: Vec::new(), unread });
        }
        let ids = match &self.text {
            WantedText::Ids(ids, paths) => Some(Box::new(id_lists::row(line, ids, paths)?)),
            _ => None,
        };
        let needs = |name: &str| self.needs(name);
        let mut members = Members::read(line, needs).map_err(|e| not_an_object(&e))?;
        members.restore_large_integers(line);
        let key = self.key.as_ref().map(|path| key_of(&path.whole, members.find(path))).transpose()?;
        let kept = self.kept.iter().map(|(path, field)| match members.find(path) {
            None => Ok(Value::Null),
            Some(FoundValue::Json(value)) => from_json(&field.name, field.ty, &value),
            Some(FoundValue::Exact(json)) => from_exact_json(&field.name, field.ty, json),
        });
        let kept = kept.collect::<Result<_, _>>()?;
        let (text, unread) = match &self.text {
            WantedText::Json(wanted, paths) => object_text(wanted, paths)?,
            WantedText::Ids(..) => (Cow::Borrowed(""), Vec::new()),
            // A text that is a member of the line itself is moved out instead of copied.
            WantedText::Text(path) => match members.take_text(&path.whole) {
                Some(text) => (text, Vec::new()),
                None => match members.find(path).map(FoundValue::into_json) {
                    Some(Json::String(text)) => (Cow::Owned(text), Vec::new()),
                    other => return Err(unusable(&path.whole, other.as_ref(), "a string", "text_field")),
                },
            },
        };
        Ok(SourceDocument { text, ids, key, kept, unread })
    }

    /// Returns whether the member `name` of a line may be or contain a requested field.
    fn needs(&self, name: &str) -> bool {
        matches!(&self.text, WantedText::Text(path) if path.needs(name))
            || self.key.as_ref().is_some_and(|path| path.needs(name))
            || self.kept.iter().any(|(path, _)| path.needs(name))
    }
}

/// An object, with the text of the values that contain integers of more than 64 bits.
#[derive(Debug)]
pub struct JsonObject {
    members: Map<String, Json>,
    exact: Vec<(String, String)>,
}

impl JsonObject {
    /// Reads a whole object from a line (without its line end). `NaN`, `Infinity` and `-Infinity` are null.
    ///
    /// # Errors
    ///
    /// Returns a [`Reject`] for a line that is empty, not UTF-8 or not a JSON object.
    pub fn read(line: &[u8]) -> Result<Self, Reject> {
        let (members, line) = parse::<Map<String, Json>>(text_of(line)?).map_err(|e| not_an_object(&e))?;
        let exact = exact::rounded(members.iter().map(|(name, value)| (name.as_str(), value)), &line);
        let exact = exact.into_iter().map(|(name, json)| (name, json.to_owned())).collect();
        Ok(Self { members, exact })
    }

    /// Returns the members.
    pub fn members(&self) -> &Map<String, Json> {
        &self.members
    }

    /// Returns the text of a member that is an integer of more than 64 bits.
    pub fn large_integer(&self, name: &str) -> Option<&str> {
        self.exact_json(name).filter(|json| is_large_integer(json))
    }

    /// Converts a member to a value of the type `ty`. A missing member is null.
    ///
    /// # Errors
    ///
    /// Returns a reject if the member does not fit the type.
    pub fn value(&self, name: &str, ty: FieldType) -> Result<Value, Reject> {
        match self.exact_json(name) {
            Some(json) => from_exact_json(name, ty, json),
            None => self.members.get(name).map_or(Ok(Value::Null), |value| from_json(name, ty, value)),
        }
    }

    fn exact_json(&self, name: &str) -> Option<&str> {
        self.exact.iter().find(|(known, _)| known == name).map(|(_, json)| json.as_str())
    }
}

fn text_of(line: &[u8]) -> Result<&str, Reject> {
    let line = std::str::from_utf8(line).map_err(|e| Reject::not_utf8("the line", &e))?;
    match line.trim_ascii().is_empty() {
        true => Err(Reject::new(RejectCode::Empty, "the line is empty")),
        false => Ok(line),
    }
}

fn not_an_object(error: &serde_json::Error) -> Reject {
    Reject::new(RejectCode::InvalidJson, format!("the line is not a JSON object: {error}"))
}

fn key_of(name: &str, value: Option<FoundValue<'_>>) -> Result<String, Reject> {
    if let Some(FoundValue::Exact(json)) = &value
        && is_large_integer(json)
    {
        return Ok((*json).to_owned());
    }
    match value.map(FoundValue::into_json) {
        Some(Json::String(key)) => Ok(key),
        Some(Json::Number(key)) if !key.is_f64() => Ok(key.to_string()),
        other => Err(unusable(name, other.as_ref(), "a string or an integer", "key_field")),
    }
}

fn unusable(name: &str, found: Option<&Json>, wanted: &str, option: &str) -> Reject {
    let missing = |message: String| Reject::new(RejectCode::MissingField, message);
    let kind = match found {
        None => {
            // Golden datasets contain this message with the flag, so it stays.
            let flag = option.replace('_', "-");
            return missing(format!("there is no field {name:?}; --{flag} names the field"));
        }
        Some(Json::Null) => return missing(format!("the field {name:?} is null")),
        Some(Json::Bool(_)) => "a boolean",
        // Larger numbers have no fraction.
        Some(Json::Number(number)) if number.is_f64() && !exact::is_large(number) => {
            "a number with a fraction"
        }
        Some(Json::Number(_)) => "a number",
        Some(Json::String(_)) => "a string",
        Some(Json::Array(_)) => "a list",
        Some(Json::Object(_)) => "an object",
    };
    Reject::new(RejectCode::WrongType, format!("the field {name:?} is {kind}, not {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::FieldType;

    fn of(text: &str) -> TextFields {
        TextFields::Text(text.to_owned())
    }

    fn wanted(text: &str) -> WantedFields {
        let kept = [("meta.lang", FieldType::String), ("n", FieldType::Int64), ("meta", FieldType::Json)];
        WantedFields::new(&of(text), Some("meta.id"), &kept.map(|(name, ty)| Field::nullable(name, ty)))
    }

    /// Text and key of a line whose fields are members of the line itself.
    fn found(line: &str) -> Result<(String, Option<String>), RejectCode> {
        let wanted = WantedFields::new(&of("text"), Some("id"), &[]);
        wanted.find(line.as_bytes()).map(|f| (f.text.into_owned(), f.key)).map_err(|r| r.code)
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
    fn fields_are_found_by_path_and_by_name() {
        let line = r#"{"meta": {"id": 7, "lang": "de"}, "a": {"b": "nested"}, "n": "5", "x": [1]}"#;
        let nested = wanted("a.b");
        let found = nested.find(line.as_bytes()).unwrap();
        assert_eq!((&*found.text, found.key.as_deref()), ("nested", Some("7")));
        let meta = Value::Text(r#"{"id":7,"lang":"de"}"#.into());
        assert_eq!(found.kept, [Value::Text("de".into()), Value::Int(5), meta]);
        let line = r#"{"a.b": "whole", "a": {"b": "nested"}, "meta.id": "k", "n": null}"#;
        let found = nested.find(line.as_bytes()).unwrap();
        assert_eq!((&*found.text, found.key.as_deref()), ("whole", Some("k")));
        assert_eq!(found.kept, [Value::Null, Value::Null, Value::Null]);
        let twice = r#"{"a": {"b": "1"}, "meta.id": 1, "\u0061": {"b": "2\u00e9"}}"#;
        assert_eq!(nested.find(twice.as_bytes()).unwrap().text, "2é");
    }

    #[test]
    fn integers_of_any_size_keep_their_digits() {
        let large = "123456789012345678901234567890";
        let kept = [("id", FieldType::String), ("id", FieldType::Json), ("id", FieldType::Float64)];
        let kept = [&kept[..], &[("m.n", FieldType::String), ("m", FieldType::Json)]].concat();
        let kept: Vec<Field> = kept.iter().map(|(name, ty)| Field::nullable(name, *ty)).collect();
        let wanted = WantedFields::new(&of("text"), Some("id"), &kept);
        for name in ["id", "\\u0069d"] {
            let line = format!(r#"{{"{name}": {large}, "text": "x", "m": {{"n": -{large}, "k" : 1e2}}}}"#);
            let found = wanted.find(line.as_bytes()).unwrap();
            assert_eq!(found.key.as_deref(), Some(large));
            let text = |text: &str| Value::Text(text.into());
            let number = Value::Float(123456789012345678901234567890.0);
            let m = format!("{{\"n\": -{large}, \"k\" : 1e2}}");
            assert_eq!(
                found.kept,
                [text(large), text(large), number, text(&format!("-{large}")), text(&m)],
                "{line}"
            );
            let object = JsonObject::read(line.as_bytes()).unwrap();
            assert_eq!(object.value("id", FieldType::String).unwrap(), text(large));
            assert_eq!(object.value("m", FieldType::Json).unwrap(), text(&m));
            assert_eq!(object.value("none", FieldType::Json).unwrap(), Value::Null);
            assert_eq!((object.large_integer("id"), object.large_integer("m")), (Some(large), None));
            assert_eq!(object.value("id", FieldType::UInt64).unwrap_err().code, RejectCode::InvalidValue);
        }
        let line = format!(r#"{{"text": "x", "id": {large}.5}}"#);
        assert_eq!(wanted.find(line.as_bytes()).unwrap_err().code, RejectCode::WrongType);
    }

    #[test]
    fn the_text_can_also_be_the_key_and_be_kept() {
        let wanted = WantedFields::new(&of("t"), Some("t"), &[Field::nullable("t", FieldType::String)]);
        let found = wanted.find(br#"{"t": "x"}"#).unwrap();
        assert!(matches!(found.text, Cow::Borrowed("x")));
        assert_eq!((found.key.as_deref(), found.kept), (Some("x"), vec![Value::Text("x".into())]));
    }

    #[test]
    fn several_fields_become_one_object() {
        let member = |name, field: &str| JsonMember {
            name,
            field: field.to_owned(),
            option: "messages_field",
            is_required: name == "messages",
            is_named: true,
            is_nested: true,
        };
        let members = vec![member("messages", "a.chat"), member("tools", "tools")];
        let wanted = WantedFields::new(&TextFields::Json(members), Some("id"), &[]);
        let line =
            r#"{"id": 7, "a": {"b": 1, "chat": [{"x":  1e2, "n": 123456789012345678901}]}, "tools": null}"#;
        let found = wanted.find(line.as_bytes()).unwrap();
        assert_eq!(found.text, r#"{"messages":[{"x":  1e2, "n": 123456789012345678901}]}"#);
        assert_eq!(found.key.as_deref(), Some("7"));
        let line = r#"{"id": 7, "a.chat": [NaN], "tools": "[1]", "a": 5}"#;
        assert_eq!(wanted.find(line.as_bytes()).unwrap().text, r#"{"messages":[null],"tools":[1]}"#);
        let alone = WantedFields { key: None, ..wanted.clone() };
        assert_eq!(alone.find(line.as_bytes()).unwrap().text, wanted.find(line.as_bytes()).unwrap().text);
        for (line, code) in [
            (r#"{"id": 7, "a": [1]}"#, RejectCode::MissingField),
            (r#"{"id": 7, "a": {"chat": [}}"#, RejectCode::InvalidJson),
            (r#"{"id": 7, "a": {"chat": [1]}} {}"#, RejectCode::InvalidJson),
            ("[1]", RejectCode::InvalidJson),
        ] {
            assert_eq!(wanted.find(line.as_bytes()).unwrap_err().code, code, "{line}");
            assert_eq!(alone.find(line.as_bytes()).unwrap_err().code, code, "{line}");
        }
    }

    #[test]
    fn numbers_that_only_python_writes_are_null() {
        let wanted = WantedFields::new(&of("text"), Some("id"), &[Field::nullable("x", FieldType::Float64)]);
        for value in ["NaN", "Infinity", "-Infinity"] {
            let line = format!("{{\"text\": \"NaN é\", \"other\": [{value}], \"x\": {value}, \"id\": 7}}");
            let found = wanted.find(line.as_bytes()).unwrap();
            assert_eq!((&*found.text, found.key.as_deref()), ("NaN é", Some("7")));
            assert_eq!(found.kept, [Value::Null]);
            let object = JsonObject::read(line.as_bytes()).unwrap();
            assert_eq!(object.value("x", FieldType::Float64).unwrap(), Value::Null);
            assert_eq!(object.value("other", FieldType::Json).unwrap(), Value::Text("[null]".into()));
        }
        let broken = wanted.find(br#"{"text": NaN, "x": }"#).unwrap_err();
        assert_eq!(broken.code, RejectCode::InvalidJson);
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
            (r#"{"text": ["x"], "id": 1}"#, RejectCode::WrongType),
            (r#"{"text": "x"}"#, RejectCode::MissingField),
            (r#"{"text": "x", "id": 1.5}"#, RejectCode::WrongType),
        ] {
            assert_eq!(found(line), Err(code), "{line}");
        }
        let wanted_alone = WantedFields::new(&of("text"), None, &[]);
        assert_eq!(wanted_alone.find(b"{\"text\": \"\xff\"}").unwrap_err().code, RejectCode::InvalidUtf8);
        for (line, code) in [
            (r#"{"a": {"b": "\udc00"}, "meta.id": 1}"#, RejectCode::InvalidJson),
            (r#"{"a": {"c": "x"}, "meta.id": 1}"#, RejectCode::MissingField),
            (r#"{"a": "x", "meta.id": 1}"#, RejectCode::MissingField),
            (r#"{"a": {"b": null}, "meta.id": 1}"#, RejectCode::MissingField),
            (r#"{"a": {"b": [1]}, "meta.id": 1}"#, RejectCode::WrongType),
            (r#"{"a": {"b": "x"}, "meta.id": 1.5}"#, RejectCode::WrongType),
            (r#"{"a": {"b": "x"}}"#, RejectCode::MissingField),
            (r#"{"a": {"b": "x"}, "meta.id": 1, "n": "many"}"#, RejectCode::InvalidValue),
        ] {
            assert_eq!(wanted("a.b").find(line.as_bytes()).unwrap_err().code, code, "{line}");
        }
    }
}
