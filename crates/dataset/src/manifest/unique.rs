//! Rejection of JSON with duplicate names.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// Rejects JSON with an object that contains the same name twice: readers would disagree on which member counts.
pub(super) fn check_unique_names(json: &[u8]) -> serde_json::Result<()> {
    serde_json::from_slice::<UniqueNames>(json).map(drop)
}

/// Any JSON value whose objects have unique names.
struct UniqueNames;

impl<'de> Deserialize<'de> for UniqueNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueNamesVisitor)
    }
}

struct UniqueNamesVisitor;

impl<'de> Visitor<'de> for UniqueNamesVisitor {
    type Value = UniqueNames;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<UniqueNames, E> {
        Ok(UniqueNames)
    }

    fn visit_i64<E>(self, _: i64) -> Result<UniqueNames, E> {
        Ok(UniqueNames)
    }

    fn visit_u64<E>(self, _: u64) -> Result<UniqueNames, E> {
        Ok(UniqueNames)
    }

    fn visit_f64<E>(self, _: f64) -> Result<UniqueNames, E> {
        Ok(UniqueNames)
    }

    fn visit_str<E>(self, _: &str) -> Result<UniqueNames, E> {
        Ok(UniqueNames)
    }

    fn visit_unit<E>(self) -> Result<UniqueNames, E> {
        Ok(UniqueNames)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<UniqueNames, A::Error> {
        while list.next_element::<UniqueNames>()?.is_some() {}
        Ok(UniqueNames)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<UniqueNames, A::Error> {
        let mut names = BTreeSet::new();
        while let Some(name) = object.next_key::<String>()? {
            if let Some(twice) = names.replace(name) {
                return Err(A::Error::custom(format!("duplicate field {twice:?}")));
            }
            object.next_value::<UniqueNames>()?;
        }
        Ok(UniqueNames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_names_within_an_object_are_rejected() {
        let all = br#"{"a": [1, -1, 0.5, true, null, "x"], "b": {"a": {}}, "c": {"a": 1}}"#;
        assert!(check_unique_names(all).is_ok());
        for twice in [r#"{"a": 1, "a": 1}"#, r#"{"x": [{"a": 1, "b": 2, "\u0061": 3}]}"#] {
            let error = check_unique_names(twice.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("duplicate field \"a\""), "{error}");
        }
    }
}
