//! The members of an object that may be or contain a requested field.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};

use super::exact;

/// Where a field is in an object: a member of exactly that name or, if there is none, a path of nested members such as
/// `a.b.c`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberPath {
    pub(super) whole: String,
    /// The parts of a path; empty if the name contains no dot.
    parts: Vec<String>,
}

impl MemberPath {
    /// Creates the path of the field `name`.
    pub(crate) fn new(name: &str) -> Self {
        let parts = match name.contains('.') {
            true => name.split('.').map(str::to_owned).collect(),
            false => Vec::new(),
        };
        Self { whole: name.to_owned(), parts }
    }

    /// Returns whether an object has the field, even if it is null.
    pub(crate) fn is_in(&self, object: &Map<String, Json>) -> bool {
        object.contains_key(&self.whole) || self.nested(|name| object.get(name)).is_some()
    }

    /// Returns whether the member `name` of a line is the field or contains it.
    pub(crate) fn needs(&self, name: &str) -> bool {
        self.whole == name || self.parts.first().is_some_and(|first| first == name)
    }

    /// Returns the text of the value in an object whose members have these texts.
    pub(super) fn text_in<'a>(&self, members: &HashMap<String, &'a RawValue>) -> Option<&'a str> {
        if let Some(value) = members.get(&self.whole) {
            return Some(value.get());
        }
        let (first, rest) = self.parts.split_first()?;
        let nested = |json, name: &String| Some(exact::members(json).get(name)?.get());
        rest.iter().try_fold(members.get(first)?.get(), nested)
    }

    /// Returns the field of an object, if there is one.
    pub(crate) fn find_in<'a>(&self, object: &'a Map<String, Json>) -> Option<&'a Json> {
        object.get(&self.whole).or_else(|| self.nested(|name| object.get(name)))
    }

    /// Returns the nested member, given how to find a member of the line.
    fn nested<'a>(&self, member: impl Fn(&str) -> Option<&'a Json>) -> Option<&'a Json> {
        let (first, rest) = self.parts.split_first()?;
        rest.iter().try_fold(member(first)?, |value, name| value.get(name))
    }
}

/// The members of a line that may be or contain a requested field, each name once: of several values, the last counts.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Members<'a>(Vec<(Cow<'a, str>, Member<'a>)>);

/// The value of a member. Only strings are borrowed: texts are long, all else is short.
#[derive(Debug, PartialEq)]
enum Member<'a> {
    Text(Cow<'a, str>),
    Other(Json),
    /// The text of a value with an integer of more than 64 bits.
    Exact(&'a str),
}

/// The value of a field.
#[derive(Debug)]
pub(super) enum FoundValue<'m> {
    Json(Cow<'m, Json>),
    /// The text of a value that `serde_json` may have rounded: an integer of more than 64 bits, or a value with one.
    Exact(&'m str),
}

impl FoundValue<'_> {
    /// Returns the value, with large integers rounded.
    pub(super) fn into_json(self) -> Json {
        match self {
            Self::Json(value) => value.into_owned(),
            Self::Exact(json) => serde_json::from_str(json).unwrap_or_default(),
        }
    }

    fn of_text(json: &str) -> FoundValue<'_> {
        let value: Json = serde_json::from_str(json).unwrap_or_default();
        match exact::may_be_rounded(&value) {
            true => FoundValue::Exact(json),
            false => FoundValue::Json(Cow::Owned(value)),
        }
    }
}

impl<'a> Members<'a> {
    /// Reads a line. `needs` tells whether the member of a name is requested.
    ///
    /// # Errors
    ///
    /// Returns an error if the line is not a JSON object.
    pub(super) fn read(line: &'a str, needs: impl Fn(&str) -> bool) -> serde_json::Result<Self> {
        let mut json = serde_json::Deserializer::from_str(line);
        let members = json.deserialize_map(MembersVisitor(needs))?;
        json.end().map(|()| members)
    }

    fn insert(&mut self, name: Cow<'a, str>, value: Member<'a>) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, earlier)) => *earlier = value,
            None => self.0.push((name, value)),
        }
    }

    /// Replaces the values in which integers were rounded by their texts in `line`, from which the members were read.
    pub(super) fn restore_large_integers(&mut self, line: &'a str) {
        let others = self.0.iter().filter_map(|(name, member)| match member {
            Member::Other(value) => Some((&**name, value)),
            Member::Text(_) | Member::Exact(_) => None,
        });
        for (name, json) in exact::rounded(others, line) {
            if let Some((_, member)) = self.0.iter_mut().find(|(known, _)| *known == name) {
                *member = Member::Exact(json);
            }
        }
    }

    /// Returns the value of a field, if the line has it.
    pub(super) fn find(&self, path: &MemberPath) -> Option<FoundValue<'_>> {
        let member = |name: &str| self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        match member(&path.whole) {
            Some(Member::Text(text)) => {
                return Some(FoundValue::Json(Cow::Owned(Json::String(text.clone().into_owned()))));
            }
            Some(Member::Other(value)) => return Some(FoundValue::Json(Cow::Borrowed(value))),
            Some(Member::Exact(json)) => return Some(FoundValue::of_text(json)),
            None => {}
        }
        let (first, rest) = path.parts.split_first()?;
        match member(first)? {
            // A string has no members.
            Member::Text(_) => None,
            Member::Other(value) => {
                let value = rest.iter().try_fold(value, |value, name| value.get(name))?;
                Some(FoundValue::Json(Cow::Borrowed(value)))
            }
            Member::Exact(json) => {
                let nested = |json, name: &String| Some(exact::members(json).get(name)?.get());
                rest.iter().try_fold(*json, nested).map(FoundValue::of_text)
            }
        }
    }

    /// Removes and returns the member `name` if it is a string.
    pub(super) fn take_text(&mut self, name: &str) -> Option<Cow<'a, str>> {
        let at =
            self.0.iter().position(|(known, value)| known == name && matches!(value, Member::Text(_)))?;
        match self.0.swap_remove(at).1 {
            Member::Text(text) => Some(text),
            Member::Other(_) | Member::Exact(_) => None,
        }
    }
}

/// Collects the members that may be or contain a requested field.
struct MembersVisitor<N>(N);

impl<'de, N: Fn(&str) -> bool> Visitor<'de> for MembersVisitor<N> {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Members::default();
        while let Some(Name(name)) = map.next_key()? {
            if (self.0)(&name) {
                members.insert(name, map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(members)
    }
}

/// A member name, borrowed if it has no escapes.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Member<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MemberVisitor)
    }
}

/// Like the visitor of [`Json`], but borrows a string that has no escapes.
struct MemberVisitor;

impl<'de> Visitor<'de> for MemberVisitor {
    type Value = Member<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Member::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Member::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Member::Other(value.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Member::Other(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Member::Other(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Member::Other(number.into()))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Member::Other(Json::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        Json::deserialize(SeqAccessDeserializer::new(list)).map(Member::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        Json::deserialize(MapAccessDeserializer::new(map)).map(Member::Other)
    }
}
