//! The binding of a companion: which records its fields were made for, and from which content.
//!
//! A *companion* is a dataset of further fields for the records of another dataset, its *base*, in the order of the base.
//! Record `i` of a split of the companion belongs to record `i` of that split of the base. Nothing is joined when both are
//! read, so the binding is what notices that the base is another one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::Manifest;
use crate::sample::Value;

/// What a companion records about its base.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// [`Manifest::fingerprint`] of the base.
    pub fingerprint: String,
    /// [`Manifest::digest`] of the base. With an equal one, all files of the base are the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// [`Manifest::digest`] of other companions of the base from whose fields fields were made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub companions: Vec<String>,
    /// SHA-256 of the tokenizer of the base, if fields were made from its token ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<String>,
    /// XXH3-128 of the chat template of the base as the manifest has it, if fields were made from its token ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// The splits of the base by name.
    pub splits: BTreeMap<String, BoundSplit>,
    /// What is known about fields of the companion, by name. The others are values of a record like any other.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, BoundField>,
}

/// What a companion records about a split of its base.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundSplit {
    /// Number of records.
    pub records: u64,
    /// [`ContentDigest`] of the keys.
    pub keys: String,
    /// Digest of the schema and of the checksums of all records: with an equal one, the records are the same, in any shards and
    /// format. Earlier versions did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksums: Option<String>,
    /// [`ContentDigest`] of each field of the base that fields of the companion were made from, or that they have one value per
    /// item of.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub content: BTreeMap<String, String>,
}

/// How the values of a field follow the values of a field of the base.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundField {
    /// Field of the base that has as many items as this one: token ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<String>,
    /// What the value of a token is about.
    #[serde(default, skip_serializing_if = "Alignment::is_target")]
    pub aligned: Alignment,
    /// Field of the base that the value is about as a whole: token ids that must not be cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Field of the companion with the values for mirrored images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flip: Option<String>,
}

/// What a value per token is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Alignment {
    /// The prediction of the token, like a label: the value moves with the labels, and is 0 where there is none.
    #[default]
    Target,
    /// The token as input of the model.
    Input,
}

impl Alignment {
    fn is_target(&self) -> bool {
        *self == Alignment::Target
    }
}

impl Binding {
    /// Returns [`Binding::template`] for a companion of `base`.
    pub fn template_of(base: &Manifest) -> Option<String> {
        let template = base.options.get("chat_template").filter(|template| !template.is_null())?;
        Some(format!("xxh3-128:{:032x}", xxh3_128(template.to_string().as_bytes())))
    }

    /// Returns the names of the fields of the base that fields of the companion were made from.
    pub fn reads(&self) -> impl Iterator<Item = &str> {
        self.splits.values().next().into_iter().flat_map(|split| split.content.keys().map(String::as_str))
    }
}

/// Digest of the values of a field in record order: XXH3-128 of their canonical forms, as `xxh3-128:` and 32 hexadecimal
/// digits.
#[derive(Clone, Default)]
pub struct ContentDigest(Xxh3);

impl ContentDigest {
    /// Adds the value of the next record.
    pub fn push<B: AsRef<[u8]>>(&mut self, value: &Value<B>) {
        value.canonical(&mut |bytes| self.0.update(bytes));
    }

    /// Returns the digest of all values.
    pub fn finish(&self) -> String {
        format!("xxh3-128:{:032x}", self.0.digest128())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_depends_on_the_boundaries_and_the_order_of_values() {
        let digest = |texts: &[&str]| {
            let mut digest = ContentDigest::default();
            texts.iter().for_each(|text| digest.push(&Value::<bytes::Bytes>::Text((*text).into())));
            digest.finish()
        };
        assert_eq!(digest(&[]), "xxh3-128:99aa06d3014798d86001c324468d497f");
        assert_eq!(digest(&["a", "b"]), digest(&["a", "b"]));
        for other in [&["ab"][..], &["b", "a"], &["a"], &["a", "b", ""]] {
            assert_ne!(digest(&["a", "b"]), digest(other), "{other:?}");
        }
    }

    #[test]
    fn members_at_their_default_are_not_written() {
        let json = serde_json::to_value(BoundField::default()).unwrap();
        assert_eq!(json, serde_json::json!({}));
        let binding = Binding {
            fields: [("w".to_owned(), BoundField { aligned: Alignment::Input, ..BoundField::default() })]
                .into(),
            ..Binding::default()
        };
        let json = serde_json::to_value(&binding).unwrap();
        assert_eq!(json["fields"]["w"], serde_json::json!({"aligned": "input"}));
        assert_eq!(serde_json::from_value::<Binding>(json).unwrap(), binding);
    }
}
