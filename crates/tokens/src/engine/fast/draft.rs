//! BPE tables, built from the `tokenizer.json` while the reference parses the same file.

use std::borrow::{Borrow, Cow};
use std::collections::HashMap;
use std::fmt;

use ahash::RandomState;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, SeqAccess, Visitor};
use serde_json::Value;

use super::bpe::Bpe;
use super::char_bpe::CharBpe;
use super::classes::{ClassTable, Classes};
use crate::id_set::IdSet;
use crate::outline::type_of;

/// The BPE tables of a `tokenizer.json`. For a large vocabulary, building them is most of the work of loading. They do
/// not depend on the reference, so both are loaded in parallel.
pub(crate) struct Draft {
    pub(super) tables: Tables,
    max_id: u32,
}

/// The tables for merging bytes or characters.
pub(super) enum Tables {
    Bytes(Box<Bpe>),
    Chars(Box<CharBpe>),
}

impl Draft {
    /// Builds the draft for the BPE model in `json`. The error states why there is none.
    pub(crate) fn new(json: &[u8]) -> Result<Self, String> {
        let file: DraftFile =
            serde_json::from_slice(json).map_err(|e| format!("the model is malformed: {e}"))?;
        let DraftModel { vocab, merges, ignore_merges, end_of_word_suffix } = file.model;
        let suffix = end_of_word_suffix.unwrap_or_default();
        let max_id = vocab.values().copied().max().unwrap_or(0);
        let tables = if has_byte_level(&file.pre_tokenizer) {
            // Builds the class table, which is needed in any case.
            Classes::get(ClassTable::Plain);
            Tables::Bytes(Bpe::new(&vocab, pairs(&merges), ignore_merges, &suffix)?.into())
        } else if ignore_merges {
            return Err("a text that is a token is not merged".to_owned());
        } else {
            Tables::Chars(CharBpe::new(&vocab, || pairs(&merges))?.into())
        };
        Ok(Self { tables, max_id })
    }

    /// Removes the ids in `hidden`, which no merge produces, from the draft.
    pub(crate) fn without(mut self, hidden: &IdSet) -> Self {
        if let Tables::Bytes(bpe) = &mut self.tables
            && !hidden.is_empty()
        {
            bpe.hide(|id| hidden.contains(id));
        }
        self
    }

    /// Returns the largest id of the vocabulary.
    pub(crate) fn max_id(&self) -> u32 {
        self.max_id
    }
}

/// The parts of a `tokenizer.json` with a BPE model that the draft needs.
#[derive(Deserialize)]
struct DraftFile<'a> {
    #[serde(borrow)]
    model: DraftModel<'a>,
    #[serde(default)]
    pre_tokenizer: Value,
}

/// Returns whether a pre-tokenizer maps bytes to printable characters.
fn has_byte_level(pre_tokenizer: &Value) -> bool {
    let parts = pre_tokenizer.get("pretokenizers").and_then(Value::as_array);
    type_of(pre_tokenizer) == Some("ByteLevel") || parts.is_some_and(|parts| parts.iter().any(has_byte_level))
}

#[derive(Deserialize)]
struct DraftModel<'a> {
    #[serde(borrow)]
    vocab: HashMap<Part<'a>, u32, RandomState>,
    #[serde(borrow)]
    merges: Vec<Merge<'a>>,
    #[serde(default)]
    ignore_merges: bool,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
}

/// Returns the tokens that each merge joins.
fn pairs<'m>(merges: &'m [Merge<'_>]) -> impl Iterator<Item = (&'m str, &'m str)> {
    merges.iter().filter_map(|merge| match merge {
        Merge::Pair(left, right) => Some((&*left.0, &*right.0)),
        Merge::Line(line) if line.starts_with("#version") => None,
        // The reference refuses lines without a space.
        Merge::Line(line) => line.split_once(' '),
    })
}

/// A merge, written as a list or as a line. There are hundreds of thousands, so the form is detected without trial
/// parsing.
pub(crate) enum Merge<'a> {
    Pair(Part<'a>, Part<'a>),
    Line(Cow<'a, str>),
}

/// One of the two tokens of a merge.
#[derive(Deserialize, PartialEq, Eq, Hash)]
pub(crate) struct Part<'a>(#[serde(borrow)] Cow<'a, str>);

impl Part<'_> {
    pub(crate) fn into_string(self) -> String {
        self.0.into_owned()
    }
}

impl Borrow<str> for Part<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Merge<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MergeVisitor)
    }
}

struct MergeVisitor;

impl<'de> Visitor<'de> for MergeVisitor {
    type Value = Merge<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("two tokens")
    }

    fn visit_borrowed_str<E>(self, line: &'de str) -> Result<Self::Value, E> {
        Ok(Merge::Line(line.into()))
    }

    fn visit_str<E>(self, line: &str) -> Result<Self::Value, E> {
        Ok(Merge::Line(line.to_owned().into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        match (parts.next_element()?, parts.next_element()?, parts.next_element::<IgnoredAny>()?) {
            (Some(left), Some(right), None) => Ok(Merge::Pair(left, right)),
            _ => Err(A::Error::custom("a merge is not of two tokens")),
        }
    }
}
