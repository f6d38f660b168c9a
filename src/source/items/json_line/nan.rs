//! `NaN`, `Infinity` and `-Infinity`, which are not JSON, but are what Python writes for such numbers by default.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

/// Parses `json`, in which these numbers are null. Also returns the text that was parsed.
pub(crate) fn parse<T: DeserializeOwned>(json: &str) -> serde_json::Result<(T, Cow<'_, str>)> {
    serde_json::from_str(json).map(|value| (value, Cow::Borrowed(json))).or_else(|error| {
        let replaced = without_nan(json).ok_or(error)?;
        serde_json::from_str(&replaced).map(|value| (value, Cow::Owned(replaced)))
    })
}

/// Replaces these numbers by null. Returns `None` if there are none outside of strings.
pub(super) fn without_nan(json: &str) -> Option<String> {
    let mut replaced = String::new();
    // What is not yet in `replaced`, and how much of it has been examined.
    let (mut rest, mut at) = (json, 0);
    while let Some(found) = rest[at..].find(['"', 'N', 'I', '-']) {
        at += found;
        if rest[at..].starts_with('"') {
            at += string_bytes(&rest[at..]);
            continue;
        }
        match ["NaN", "Infinity", "-Infinity"].into_iter().find(|name| rest[at..].starts_with(name)) {
            Some(name) => {
                replaced.push_str(&rest[..at]);
                replaced.push_str("null");
                (rest, at) = (&rest[at + name.len()..], 0);
            }
            None => at += 1,
        }
    }
    (rest.len() < json.len()).then(|| replaced + rest)
}

/// Returns the number of bytes of the string that `json` starts with, including its quotes.
fn string_bytes(json: &str) -> usize {
    let mut escaped = false;
    let end = json.bytes().skip(1).position(|byte| {
        let is_end = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        is_end
    });
    end.map_or(json.len(), |end| end + 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value as Json;

    use super::*;

    #[test]
    fn only_numbers_outside_of_strings_are_replaced() {
        for (json, expected) in [
            (r#"{"a": NaN}"#, Some(r#"{"a": null}"#)),
            (r#"[-Infinity,Infinity , -1,NaN]"#, Some("[null,null , -1,null]")),
            (
                r#"{"NaN\"": "-Infinity\\", "é": NaN, "b": "NaN"}"#,
                Some(r#"{"NaN\"": "-Infinity\\", "é": null, "b": "NaN"}"#),
            ),
            (r#"{"NaN": "Infinity"}"#, None),
            ("\"NaN", None),
            ("-\"\\", None),
            ("nan", None),
        ] {
            assert_eq!(without_nan(json).as_deref(), expected, "{json}");
        }
    }

    proptest! {
        #[test]
        fn json_has_no_such_numbers(
            text in any::<String>(), parts in prop::collection::vec("[NaIinfty\\-\"\\\\]{0,9}", 0..5),
        ) {
            let json = serde_json::json!([text, parts, -1]).to_string();
            prop_assert_eq!(without_nan(&json), None);
            let with = format!("[{json},NaN,{json}]");
            let expected = format!("[{json},null,{json}]");
            prop_assert_eq!(without_nan(&with).unwrap(), expected);
            // Anything else does not panic.
            let _ = without_nan(&text);
            prop_assert!(serde_json::from_str::<Json>(&json).is_ok());
        }
    }
}
