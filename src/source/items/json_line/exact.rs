//! Integers that 64 bits cannot hold, which `serde_json` rounds to floating-point numbers.
//!
//! Lines are parsed by `serde_json` first. Only a value with a number that may be such an integer is read again, and its
//! text is kept.

use std::collections::HashMap;

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

/// Returns the name and the text of each of the `members` of `object` that may contain rounded integers.
pub(super) fn rounded<'m, 'a>(
    members: impl Iterator<Item = (&'m str, &'m Json)>,
    object: &'a str,
) -> Vec<(String, &'a str)> {
    let names: Vec<&str> = members.filter(|(_, value)| may_be_rounded(value)).map(|(name, _)| name).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let texts = self::members(object);
    names.into_iter().filter_map(|name| Some((name.to_owned(), texts.get(name)?.get()))).collect()
}

/// Returns the text of each member of an object. Of several members with one name, the last counts.
pub(super) fn members(object: &str) -> HashMap<String, &RawValue> {
    serde_json::from_str(object).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::table::typed_values::is_large_integer;

    #[test]
    fn only_integers_beyond_64_bits_are_large() {
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
        for (json, expected) in [
            ("[1, {\"a\": -9223372036854775809}]", true),
            ("1e30", true),
            ("[18446744073709551615, -9223372036854775808, 1.5, \"18446744073709551616\"]", false),
        ] {
            assert_eq!(may_be_rounded(&serde_json::from_str(json).unwrap()), expected, "{json}");
        }
    }
}
