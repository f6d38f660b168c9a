//! The merges of a BPE model, resolved to the numbers of tokens while they are parsed.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, SeqAccess, Visitor};

use super::vocab::BpeVocab;

/// A merge of two tokens into a third, as numbers in the [`BpeVocab`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Merge {
    pub(crate) left: u32,
    pub(crate) right: u32,
    pub(crate) result: u32,
}

/// Resolves the strings of merges to the numbers of tokens.
pub(super) struct MergeResolver<'v> {
    vocab: &'v BpeVocab,
    pub(super) merges: Vec<Merge>,
    joined: String,
}

impl<'v> MergeResolver<'v> {
    pub(super) fn new(vocab: &'v BpeVocab) -> Self {
        Self { vocab, merges: Vec::new(), joined: String::new() }
    }

    /// Adds a merge. The error states why it is not one.
    pub(super) fn push(&mut self, merge: &MergeStrings<'_>) -> Result<(), &'static str> {
        let (left, right) = match merge {
            MergeStrings::Pair(left, right) => (&*left.0, &*right.0),
            MergeStrings::Line(line) if line.starts_with("#version") => return Ok(()),
            MergeStrings::Line(line) => match line.split_once(' ') {
                Some((left, right)) if !right.contains(' ') => (left, right),
                _ => return Err("a merge is not two tokens separated by a space"),
            },
        };
        let (left, right, result) =
            (self.vocab.number(left), self.vocab.number(right), self.find_result(left, right));
        match (left, right, result) {
            (Some(left), Some(right), Some(result)) => self.merges.push(Merge { left, right, result }),
            _ => return Err("a merge names a token that does not exist"),
        }
        Ok(())
    }

    /// Returns the number of the token that a merge produces.
    fn find_result(&mut self, left: &str, right: &str) -> Option<u32> {
        let is_result = |number: &u32| {
            *number < self.vocab.len()
                && self.vocab.token(*number).strip_prefix(left).is_some_and(|rest| rest == right)
        };
        // In most files, merges are in the order of the tokens they produce. This saves most lookups.
        let last = self.merges.last().map_or(0, |merge| merge.result);
        if let Some(number) = [last, last.saturating_add(1)].into_iter().find(is_result) {
            return Some(number);
        }
        self.joined.clear();
        self.joined.push_str(left);
        self.joined.push_str(right);
        self.vocab.number(&self.joined)
    }
}

impl<'de> DeserializeSeed<'de> for MergeResolver<'_> {
    type Value = Vec<Merge>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for MergeResolver<'_> {
    type Value = Vec<Merge>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of merges")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut merges: A) -> Result<Self::Value, A::Error> {
        while let Some(merge) = merges.next_element()? {
            self.push(&merge).map_err(A::Error::custom)?;
        }
        Ok(self.merges)
    }
}

/// The strings of a merge, written as a list or as a line. There are hundreds of thousands, so the form is detected
/// without trial parsing.
pub(crate) enum MergeStrings<'a> {
    Pair(TokenString<'a>, TokenString<'a>),
    Line(Cow<'a, str>),
}

/// A string that is borrowed from the file unless it contains an escape sequence.
#[derive(Deserialize)]
pub(crate) struct TokenString<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

impl TokenString<'_> {
    pub(crate) fn into_string(self) -> String {
        self.0.into_owned()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for MergeStrings<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MergeVisitor)
    }
}

struct MergeVisitor;

impl<'de> Visitor<'de> for MergeVisitor {
    type Value = MergeStrings<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("two tokens")
    }

    fn visit_borrowed_str<E>(self, line: &'de str) -> Result<Self::Value, E> {
        Ok(MergeStrings::Line(line.into()))
    }

    fn visit_str<E>(self, line: &str) -> Result<Self::Value, E> {
        Ok(MergeStrings::Line(line.to_owned().into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        match (parts.next_element()?, parts.next_element()?, parts.next_element::<IgnoredAny>()?) {
            (Some(left), Some(right), None) => Ok(MergeStrings::Pair(left, right)),
            _ => Err(A::Error::custom("a merge does not have two tokens")),
        }
    }
}
