//! Serialization of files that are converted to a `tokenizer.json`, and of BPE models in them.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;

/// A `tokenizer.json` with added tokens `T` and the model `M`.
#[derive(Serialize)]
pub(crate) struct TokenizerJson<T, M> {
    pub(crate) version: &'static str,
    pub(crate) truncation: Option<()>,
    pub(crate) padding: Option<()>,
    pub(crate) added_tokens: Vec<T>,
    pub(crate) normalizer: Value,
    pub(crate) pre_tokenizer: Value,
    pub(crate) post_processor: Option<()>,
    pub(crate) decoder: Value,
    pub(crate) model: M,
}

/// The member `model` of a `tokenizer.json`.
#[derive(Default, Serialize)]
#[serde(tag = "type", rename = "BPE")]
pub(crate) struct BpeModel<S: AsRef<str> + Serialize> {
    pub(crate) dropout: Option<f32>,
    pub(crate) unk_token: Option<S>,
    pub(crate) continuing_subword_prefix: Option<()>,
    pub(crate) end_of_word_suffix: Option<()>,
    pub(crate) fuse_unk: bool,
    pub(crate) byte_fallback: bool,
    pub(crate) ignore_merges: bool,
    #[serde(serialize_with = "as_map")]
    pub(crate) vocab: Vec<(S, u32)>,
    pub(crate) merges: Vec<(S, S)>,
}

/// Writes `vocab` as an object in the order of the ids, so that the bytes of the file are deterministic.
fn as_map<K: AsRef<str>, S: Serializer>(vocab: &[(K, u32)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(vocab.len()))?;
    for (token, id) in vocab {
        map.serialize_entry(token.as_ref(), id)?;
    }
    map.end()
}
