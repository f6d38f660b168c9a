//! The members of an object that may be or contain a requested field, in two ways that give equal results:
//! [`Members::quick`] for most lines, and [`Members::any`] for all.
//!
//! The text is most of a line, and removing its escapes is most of the work. `serde_json` copies a string with escapes
//! twice, first into memory that grows. [`Members::quick`] reads requested strings by itself (see [`string`]) and leaves
//! all other values to `serde_json`. The whole conversion of source code is then 1.09 times as fast to Parquet, and 1.18
//! times to msgpack (`benches/python/json_strings.py`).

use std::borrow::Cow;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;

use super::{MemberPath, exact, string};

/// Maximum number of brackets and braces that open in a list or object that [`Members::quick`] reads. `serde_json`
/// limits the nesting of a line to 128, but here it sees only the value.
const QUICK_OPENINGS: usize = 100;

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
    pub(super) fn any(line: &'a str, needs: impl Fn(&str) -> bool) -> serde_json::Result<Self> {
        let mut json = serde_json::Deserializer::from_str(line);
        let members = json.deserialize_map(MembersVisitor(needs))?;
        json.end().map(|()| members)
    }

    /// Reads a line like [`Self::any`]. Returns `None` if the line is unusual or not a JSON object, and if the CPU does
    /// not support AVX2.
    pub(super) fn quick(line: &'a str, needs: impl Fn(&str) -> bool) -> Option<Self> {
        let mut members = Self::default();
        let mut rest = Rest(line);
        rest.skip_space();
        rest.eat('{')?;
        loop {
            rest.skip_space();
            rest.eat('"')?;
            // Names with escapes are rare.
            let Cow::Borrowed(name) = rest.string()? else { return None };
            rest.skip_space();
            rest.eat(':')?;
            rest.skip_space();
            if !needs(name) {
                rest.value::<IgnoredAny>()?;
            } else if rest.eat('"').is_some() {
                members.insert(Cow::Borrowed(name), Member::Text(rest.string()?));
            } else {
                members.insert(Cow::Borrowed(name), Member::Other(rest.value()?));
            }
            rest.skip_space();
            if rest.eat(',').is_none() {
                break;
            }
        }
        rest.eat('}')?;
        rest.skip_space();
        rest.0.is_empty().then_some(members)
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

/// The rest of a line that [`Members::quick`] reads. Its methods return `None` if they do not find what they expect.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn skip_space(&mut self) {
        self.0 = self.0.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    fn eat(&mut self, expected: char) -> Option<()> {
        self.0 = self.0.strip_prefix(expected)?;
        Some(())
    }

    /// Reads a value.
    fn value<T: DeserializeOwned>(&mut self) -> Option<T> {
        let mut values = serde_json::Deserializer::from_str(self.0).into_iter();
        let value = values.next()?.ok()?;
        let (json, rest) = self.0.split_at_checked(values.byte_offset())?;
        self.0 = rest;
        // Strings may be long, and have no nesting.
        let is_nested = json.starts_with(['[', '{']);
        let openings = || json.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count();
        (!is_nested || openings() <= QUICK_OPENINGS).then_some(value)
    }

    /// Reads the content of a string and its closing quote.
    fn string(&mut self) -> Option<Cow<'a, str>> {
        let (text, rest) = string::read(self.0)?;
        self.0 = rest;
        Some(text)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parts of lines, valid and broken.
    fn parts() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            "\"",
            ",",
            ":",
            " ",
            "\t",
            "\r",
            "\n",
            "\"text\":",
            "\"id\":",
            "\"a\": ",
            "\"other\": ",
            "\"text\"",
            "\"id\"",
            "\"\\u0074ext\":",
            "null",
            "true",
            "fals",
            "[1]",
            "{}",
            "{\"b\": [\"\\n\", {}]}",
            "0",
            "-",
            "-0",
            "01",
            "7",
            "-12",
            "1.5",
            "1e3",
            "1e999",
            "123456789012345678",
            "1234567890123456789012",
            "\\n",
            "\\\\",
            "\\\"",
            "\\/",
            "\\b\\f\\r\\t",
            "\\u00e9",
            "\\ud83d\\ude00",
            "\\uD83D\\uDE00",
            "\\ud83d",
            "\\ude00",
            "\\u12",
            "\\u+123",
            "\\x",
            "\u{1}",
            "\u{1f}",
            "é",
            "日本",
            "😀",
            "a",
            "plain text",
            "\"value\"",
            "\"id\": \"k\", ",
            "\"text\": \"some \\\"text\\\"\"",
            "\u{7f}",
            "\u{80}",
            "\u{0}",
        ])
    }

    fn lines() -> impl Strategy<Value = String> {
        let some = |max| prop::collection::vec(parts(), 0..max).prop_map(|parts| parts.concat());
        prop_oneof![
            some(12),
            (some(3), some(12), some(3)).prop_map(|(id, text, other)| {
                let id = if id.is_empty() { "5" } else { &id };
                let other = if other.is_empty() { "{\"b\": 1.5}" } else { &other };
                format!("{{\"id\": {id}, \"text\": \"{text}\", \"a\": {other}}}")
            }),
        ]
    }

    fn needs(name: &str) -> bool {
        ["text", "id", "a"].contains(&name)
    }

    /// Returns whether [`Members::quick`] can read a line at all.
    fn has_quick() -> bool {
        string::read("\"").is_some()
    }

    /// Checks that [`Members::quick`] reads a line.
    fn assert_quick(line: &str) {
        let quick = Members::quick(line, needs);
        if has_quick() {
            assert_eq!(quick, Some(Members::any(line, needs).unwrap()), "{line}");
        } else {
            assert_eq!(quick, None);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn both_ways_find_the_same(line in lines()) {
            if let Some(members) = Members::quick(&line, needs) {
                prop_assert_eq!(Some(members), Members::any(&line, needs).ok(), "{:?}", line);
            }
        }

        #[test]
        fn lines_of_a_json_writer_are_read_quickly(text: String, id: i64, other: String, score: f64) {
            let value = serde_json::json!({ "text": text, "id": id, "other": other, "a": { "b": [score, null] } });
            assert_quick(&value.to_string());
            assert_quick(&serde_json::to_string_pretty(&value).unwrap());
        }

        #[test]
        fn strings_longer_than_a_window_are_read_quickly(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "a", "\n", "\"", "\\", "é", "😀", "\u{1}", "/", "more than a few plain letters ",
                ]),
                0..100,
            ),
            escape_all: bool,
        ) {
            let text = pieces.concat();
            let mut written = serde_json::json!(text).to_string();
            if escape_all {
                // Some writers escape all characters that are not ASCII.
                let units = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
                written = format!("\"{}\"", units.collect::<String>());
            }
            assert_quick(&format!("{{\"id\": 7, \"text\": {written}, \"other\": 1}}"));
        }
    }

    #[test]
    fn brackets_in_a_string_are_no_nesting() {
        let brackets = "[{".repeat(QUICK_OPENINGS);
        assert_quick(&format!("{{\"other\": \"{brackets}\", \"id\": 1, \"text\": \"{brackets}\"}}"));
    }

    #[test]
    fn the_limit_of_nesting_is_the_same() {
        for depth in [1, 99, 100, 101, 125, 126, 127, 128, 129, 1000] {
            for name in ["a", "other"] {
                let line = format!("{{\"{name}\": {}{}}}", "[".repeat(depth), "]".repeat(depth));
                let quick = Members::quick(&line, needs);
                assert_eq!(quick.is_some(), has_quick() && depth <= QUICK_OPENINGS, "{depth}");
                if let Some(members) = quick {
                    assert_eq!(members, Members::any(&line, needs).unwrap());
                }
            }
        }
    }
}
