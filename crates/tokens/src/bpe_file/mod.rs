//! A `tokenizer.json` with a BPE model, parsed once: the vocabulary and merges in compact tables, the other parts
//! unparsed.
//!
//! The file of Llama 3 has 17 MB: 128,000 tokens and 280,000 merges. Parsing it is a large part of loading it, so the
//! fast engines and [the quick way to load](crate::quick) share the result.

mod merge;
mod vocab;

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use tokenizers::models::bpe::{BPE, Vocab};

use self::merge::MergeResolver;
pub(crate) use self::merge::{Merge, MergeStrings, TokenString};
pub(crate) use self::vocab::BpeVocab;

/// The parsed file.
pub(crate) struct BpeFile<'a> {
    /// The parts of the file other than the model, in order.
    pub(crate) parts: Vec<(String, &'a RawValue)>,
    pub(crate) model: ParsedBpe,
    /// Whether no part occurs twice, and the model has a type and no unknown members. Different parsers may treat other
    /// files differently.
    pub(crate) is_plain: bool,
}

/// The BPE model of a file.
#[derive(Debug)]
pub(crate) struct ParsedBpe {
    pub(crate) vocab: BpeVocab,
    pub(crate) merges: Vec<Merge>,
    pub(crate) settings: BpeSettings,
    /// Whether the model has a type and no unknown members.
    is_plain: bool,
}

/// The members of a BPE model other than its vocabulary and its merges.
#[derive(Debug, Default)]
pub(crate) struct BpeSettings {
    pub(crate) dropout: Option<f32>,
    pub(crate) unk_token: Option<String>,
    pub(crate) continuing_subword_prefix: Option<String>,
    pub(crate) end_of_word_suffix: Option<String>,
    pub(crate) fuse_unk: Option<bool>,
    pub(crate) byte_fallback: Option<bool>,
    pub(crate) ignore_merges: Option<bool>,
}

impl BpeSettings {
    /// Builds the reference's model with these settings.
    pub(crate) fn build(&self, vocab: Vocab, merges: Vec<(String, String)>) -> tokenizers::Result<BPE> {
        let mut builder = BPE::builder().vocab_and_merges(vocab, merges);
        if let Some(dropout) = self.dropout {
            builder = builder.dropout(dropout);
        }
        if let Some(token) = &self.unk_token {
            builder = builder.unk_token(token.clone());
        }
        if let Some(prefix) = &self.continuing_subword_prefix {
            builder = builder.continuing_subword_prefix(prefix.clone());
        }
        if let Some(suffix) = &self.end_of_word_suffix {
            builder = builder.end_of_word_suffix(suffix.clone());
        }
        builder
            .fuse_unk(self.fuse_unk.unwrap_or_default())
            .byte_fallback(self.byte_fallback.unwrap_or_default())
            .ignore_merges(self.ignore_merges.unwrap_or_default())
            .build()
    }
}

impl<'a> BpeFile<'a> {
    /// Parses `json`. The error states why it is not such a file.
    pub(crate) fn parse(json: &'a [u8]) -> Result<Self, String> {
        serde_json::from_slice(json).map_err(|e| format!("the model is malformed: {e}"))
    }

    /// Parses a part of the file. `None` if it is missing or has another type.
    pub(crate) fn part<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let (_, part) = self.parts.iter().rev().find(|(other, _)| other == name)?;
        serde_json::from_str(part.get()).ok()
    }

    /// Returns the value of a part, or null if it is missing.
    pub(crate) fn value(&self, name: &str) -> Value {
        self.part(name).unwrap_or_default()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for BpeFile<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FileVisitor)
    }
}

struct FileVisitor;

impl<'de> Visitor<'de> for FileVisitor {
    type Value = BpeFile<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tokenizer")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let (mut parts, mut model, mut is_plain) = (Vec::<(String, _)>::new(), None, true);
        while let Some(name) = members.next_key::<String>()? {
            if name == "model" {
                if model.replace(members.next_value::<ParsedBpe>()?).is_some() {
                    return Err(A::Error::duplicate_field("model"));
                }
                continue;
            }
            is_plain &= !parts.iter().any(|(other, _)| *other == name);
            parts.push((name, members.next_value()?));
        }
        let model = model.ok_or_else(|| A::Error::missing_field("model"))?;
        is_plain &= model.is_plain;
        Ok(BpeFile { parts, model, is_plain })
    }
}

impl<'de> Deserialize<'de> for ParsedBpe {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ModelVisitor)
    }
}

struct ModelVisitor;

impl<'de> Visitor<'de> for ModelVisitor {
    type Value = ParsedBpe;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a BPE model")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut settings = BpeSettings::default();
        let (mut has_type, mut has_unknown) = (false, false);
        let (mut vocab, mut merges) = (None, None);
        // Merges that precede the vocabulary.
        let mut unresolved: Option<Vec<MergeStrings<'de>>> = None;
        let mut seen = Vec::<String>::new();
        while let Some(name) = members.next_key::<String>()? {
            if seen.contains(&name) {
                return Err(A::Error::custom(format!("the member `{name}` occurs twice")));
            }
            match name.as_str() {
                "type" => {
                    let ty: String = members.next_value()?;
                    if ty != "BPE" {
                        return Err(A::Error::custom("the model is not BPE"));
                    }
                    has_type = true;
                }
                "dropout" => settings.dropout = members.next_value()?,
                "unk_token" => settings.unk_token = members.next_value()?,
                "continuing_subword_prefix" => settings.continuing_subword_prefix = members.next_value()?,
                "end_of_word_suffix" => settings.end_of_word_suffix = members.next_value()?,
                "fuse_unk" => settings.fuse_unk = members.next_value()?,
                "byte_fallback" => settings.byte_fallback = members.next_value()?,
                "ignore_merges" => settings.ignore_merges = members.next_value()?,
                "vocab" => vocab = Some(members.next_value::<BpeVocab>()?),
                "merges" => match &vocab {
                    Some(vocab) => merges = Some(members.next_value_seed(MergeResolver::new(vocab))?),
                    None => unresolved = Some(members.next_value()?),
                },
                _ => {
                    has_unknown = true;
                    members.next_value::<IgnoredAny>()?;
                }
            }
            seen.push(name);
        }
        let vocab = vocab.ok_or_else(|| A::Error::missing_field("vocab"))?;
        if let Some(strings) = unresolved {
            let mut resolver = MergeResolver::new(&vocab);
            strings.iter().try_for_each(|merge| resolver.push(merge)).map_err(A::Error::custom)?;
            merges = Some(resolver.merges);
        }
        let merges = merges.ok_or_else(|| A::Error::missing_field("merges"))?;
        Ok(ParsedBpe { vocab, merges, settings, is_plain: has_type && !has_unknown })
    }
}

impl<'de> Deserialize<'de> for BpeVocab {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(VocabVisitor)
    }
}

struct VocabVisitor;

impl<'de> Visitor<'de> for VocabVisitor {
    type Value = BpeVocab;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a vocabulary")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut tokens: A) -> Result<Self::Value, A::Error> {
        let mut vocab = BpeVocab::new();
        while let Some((token, id)) = tokens.next_entry::<TokenString<'de>, u32>()? {
            vocab.insert(&token.0, id).ok_or_else(|| A::Error::custom("the vocabulary is too large"))?;
        }
        Ok(vocab)
    }
}

#[cfg(test)]
impl ParsedBpe {
    /// Creates a model from a vocabulary and merges.
    pub(crate) fn of<'a>(
        tokens: impl IntoIterator<Item = (impl AsRef<str>, u32)>,
        merges: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, String> {
        let mut vocab = BpeVocab::new();
        for (token, id) in tokens {
            vocab.insert(token.as_ref(), id).unwrap();
        }
        let mut resolver = MergeResolver::new(&vocab);
        for (left, right) in merges {
            resolver.push(&MergeStrings::Pair(TokenString(left.into()), TokenString(right.into())))?;
        }
        let merges = resolver.merges;
        Ok(Self { vocab, merges, settings: BpeSettings::default(), is_plain: true })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Tokens with their ids, and the two halves and the result of each merge.
    type WrittenModel = (Vec<(String, u32)>, Vec<[String; 3]>);

    fn model(json: &Value) -> Result<WrittenModel, String> {
        let json = serde_json::to_vec(json).unwrap();
        let ParsedBpe { vocab, merges, .. } = BpeFile::parse(&json)?.model;
        let token = |number| vocab.token(number).to_owned();
        let merges = merges.iter().map(|m| [token(m.left), token(m.right), token(m.result)]).collect();
        Ok((vocab.iter().map(|(token, id)| (token.to_owned(), id)).collect(), merges))
    }

    #[test]
    fn merges_are_resolved_before_and_after_the_vocabulary_and_as_lines() {
        let vocab = r#""vocab":{"a":5,"\"b":3,"a\"b":4,"a\"ba":1,"a":0}"#;
        let pairs = r#""merges":[["a","\"b"],["a\"b","a"],["a","\"b"]]"#;
        let lines = r##""merges":["#version: 0.2","a \"b","a\"b a","a \"b"]"##;
        for model in [[vocab, pairs], [pairs, vocab], [lines, vocab], [vocab, lines]] {
            let json = format!(r#"{{"x":1,"model":{{{},{}}},"x":2}}"#, model[0], model[1]);
            let file = BpeFile::parse(json.as_bytes()).unwrap();
            assert!(!file.is_plain);
            assert_eq!((file.value("x"), file.value("y")), (json!(2), Value::Null));
            let ParsedBpe { vocab, merges, .. } = &file.model;
            let tokens: Vec<(&str, u32)> = vocab.iter().collect();
            assert_eq!(tokens, [("a", 0), ("\"b", 3), ("a\"b", 4), ("a\"ba", 1)]);
            let first = Merge { left: 0, right: 1, result: 2 };
            assert_eq!(*merges, [first, Merge { left: 2, right: 0, result: 3 }, first]);
        }
    }

    #[test]
    fn the_produced_token_is_found_in_any_order() {
        let vocab = json!({"a": 0, "aa": 1, "aaa": 2, "aaaa": 3, "b": 4, "ab": 5});
        let merges = [["a", "a"], ["aa", "aa"], ["a", "b"], ["aa", "a"], ["a", "aa"], ["aaa", "a"]];
        let (_, resolved) = model(&json!({"model": {"vocab": vocab, "merges": merges}})).unwrap();
        let expected = merges.map(|[left, right]| [left.into(), right.into(), format!("{left}{right}")]);
        assert_eq!(resolved, expected);
    }

    #[test]
    fn files_with_unknown_or_repeated_members_are_not_plain() {
        let is_plain = |json: &str| BpeFile::parse(json.as_bytes()).unwrap().is_plain;
        assert!(is_plain(r#"{"version":"1.0","model":{"type":"BPE","vocab":{},"merges":[]}}"#));
        assert!(!is_plain(r#"{"model":{"vocab":{},"merges":[]}}"#));
        assert!(!is_plain(r#"{"model":{"type":"BPE","vocab":{},"merges":[],"more":[1]}}"#));
        assert!(!is_plain(r#"{"a":1,"a":1,"model":{"type":"BPE","vocab":{},"merges":[]}}"#));
    }

    #[test]
    fn other_files_are_refused() {
        for (json, why) in [
            (r#"{"model":{"vocab":{},"merges":[["a","b"]]}}"#, "does not exist"),
            (r#"{"model":{"merges":[["a","b"]],"vocab":{}}}"#, "does not exist"),
            (r#"{"model":{"vocab":{"a":0},"merges":[["a","a","a"]]}}"#, "two tokens"),
            (r#"{"model":{"vocab":{"a":0,"aa":1},"merges":["aa"]}}"#, "two tokens"),
            (r#"{"model":{"vocab":{"a":0,"a a":1,"aa a":2},"merges":["a a a"]}}"#, "two tokens"),
            (r#"{"model":{"vocab":{"a":-1},"merges":[]}}"#, "invalid value"),
            (r#"{"model":{"vocab":{},"vocab":{},"merges":[]}}"#, "twice"),
            (r#"{"model":{"type":"Unigram","vocab":[]}}"#, "not BPE"),
            (r#"{"model":{"vocab":{}}}"#, "merges"),
            (r#"{"model":{"merges":[]}}"#, "vocab"),
            (r#"{}"#, "model"),
            (r#"[]"#, "a tokenizer"),
        ] {
            let error = BpeFile::parse(json.as_bytes()).err().unwrap();
            assert!(error.contains(why), "{error}");
        }
    }
}
