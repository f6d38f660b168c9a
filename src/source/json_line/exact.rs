//! Integers that 64 bits cannot hold, which `serde_json` rounds to floating-point numbers.
//!
//! Lines are parsed by `serde_json` first. Only a value with a number that may be such an integer is read again, from its
//! text.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fmt;

use memchr::memchr2;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Number, Value as Json};

/// Integers from here on, 2⁶³, may be too large for 64 bits. Smaller ones are never read as floating-point numbers.
const LARGE: f64 = 9_223_372_036_854_775_808.0;

/// Returns whether a value that `serde_json` has read may contain rounded integers.
pub(super) fn may_be_rounded(value: &Json) -> bool {
    match value {
        Json::Number(number) => is_large(number),
        Json::Array(values) => values.iter().any(may_be_rounded),
        Json::Object(members) => members.values().any(may_be_rounded),
        _ => false,
    }
}

/// Returns whether a number was read as a floating-point number of at least [`LARGE`].
pub(super) fn is_large(number: &Number) -> bool {
    number.is_f64() && number.as_f64().is_some_and(|x| x.abs() >= LARGE)
}

/// Returns whether the text of a value is an integer that 64 bits cannot hold.
pub(in crate::source) fn is_large_integer(json: &str) -> bool {
    let digits = json.strip_prefix('-').unwrap_or(json);
    let is_integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_integer && json.parse::<i64>().is_err() && json.parse::<u64>().is_err()
}

/// Returns the text of each member of an object. Of several members with one name, the last counts.
pub(super) fn members(object: &str) -> HashMap<String, &RawValue> {
    serde_json::from_str(object).unwrap_or_default()
}

/// Returns a JSON text as `serde_json` writes it, but with all digits of large integers.
pub(in crate::source) fn compact(json: &str) -> String {
    let numbers = RefCell::new(large_numbers(json));
    let mut reader = serde_json::Deserializer::from_str(json);
    CompactText(&numbers).deserialize(&mut reader).unwrap_or_else(|_| json.to_owned())
}

/// Returns the numbers that `serde_json` reads as floating-point numbers of at least [`LARGE`], in order.
fn large_numbers(json: &str) -> VecDeque<&str> {
    let mut found = VecDeque::new();
    let mut rest = json;
    while let Some(at) = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
        rest = &rest[at..];
        if let Some(string) = rest.strip_prefix('"') {
            rest = after_string(string);
            continue;
        }
        let end = rest.find(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c))).unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        rest = after;
        let is_float = number.contains(['.', 'e', 'E']);
        if is_large_integer(number)
            || (is_float && number.parse::<f64>().is_ok_and(|number| number.abs() >= LARGE))
        {
            found.push_back(number);
        }
    }
    found
}

/// Returns what follows a string, given what follows its first quote.
fn after_string(mut rest: &str) -> &str {
    while let Some(at) = memchr2(b'"', b'\\', rest.as_bytes()) {
        let is_end = rest.as_bytes()[at] == b'"';
        let mut chars = rest[at..].chars();
        chars.next();
        if is_end {
            return chars.as_str();
        }
        chars.next();
        rest = chars.as_str();
    }
    ""
}

/// Writes a value. Takes the text of each large number from the queue.
#[derive(Clone, Copy)]
struct CompactText<'a>(&'a RefCell<VecDeque<&'a str>>);

impl<'de> DeserializeSeed<'de> for CompactText<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for CompactText<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(Json::from(text).to_string())
    }

    fn visit_bool<E>(self, value: bool) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_i64<E>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_u64<E>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_f64<E>(self, number: f64) -> Result<String, E> {
        let text = (number.abs() >= LARGE).then(|| self.0.borrow_mut().pop_front()).flatten();
        Ok(match text.filter(|text| is_large_integer(text)) {
            Some(integer) => integer.to_owned(),
            None => Json::from(number).to_string(),
        })
    }

    fn visit_unit<E>(self) -> Result<String, E> {
        Ok("null".to_owned())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<String, A::Error> {
        let mut text = "[".to_owned();
        while let Some(value) = list.next_element_seed(self)? {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&value);
        }
        Ok(text + "]")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<String, A::Error> {
        let (mut members, mut places) = (Vec::new(), HashMap::new());
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value_seed(self)?;
            let at = *places.entry(name.clone()).or_insert(members.len());
            match members.get_mut(at) {
                Some((_, earlier)) => *earlier = value,
                None => members.push((name, value)),
            }
        }
        let members = members.into_iter().map(|(name, value)| format!("{}:{value}", Json::from(name)));
        Ok(format!("{{{}}}", members.collect::<Vec<_>>().join(",")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_large_integers_differ_from_the_text_of_serde_json() {
        let json = r#" {"a\"1" : [-9223372036854775809, 1e30, 1.50, "7\\", 18446744073709551616],
            "b": {"x": 1, "y": "\u00e9", "x": 123456789012345678901234567890}, "c": [ ], "d": {}, "e": -0} "#;
        assert_eq!(
            compact(json),
            concat!(
                r#"{"a\"1":[-9223372036854775809,1e+30,1.5,"7\\",18446744073709551616],"#,
                r#""b":{"x":123456789012345678901234567890,"y":"é"},"c":[],"d":{},"e":-0.0}"#
            )
        );
        for (json, expected) in [
            ("9223372036854775807", false),
            ("-9223372036854775808", false),
            ("-9223372036854775809", true),
            ("18446744073709551615", false),
            ("18446744073709551616", true),
            ("18446744073709551616.0", false),
            ("\"18446744073709551616\"", false),
            ("-", false),
        ] {
            assert_eq!(is_large_integer(json), expected, "{json}");
        }
    }

    proptest! {
        #[test]
        fn other_values_have_the_text_of_serde_json(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "\"a\"", "\"\\\\\\\"1\"", "1", "-0", "1e19", "-2.5e40", "1.5", "18446744073709551615", "null",
                    "{\"a\":1e30,\"b\":\"é9\",\"a\":[2]}", "[ 1, 1E25 ]", "9223372036854775808.5",
                ]),
                0..9,
            ),
        ) {
            let json = format!("[{}]", parts.join(" , "));
            prop_assert_eq!(compact(&json), serde_json::from_str::<Json>(&json).unwrap().to_string());
        }
    }
}
