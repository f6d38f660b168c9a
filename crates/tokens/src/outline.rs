//! The parts of a `tokenizer.json` that this crate reads itself; the reference reads the rest.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// The model types that can be loaded.
pub const MODEL_TYPES: [&str; 4] = ["BPE", "WordPiece", "Unigram", "WordLevel"];

/// The character that SentencePiece models write for a space.
pub(crate) const METASPACE: char = '\u{2581}';

/// The top level of the file.
#[derive(Debug, Deserialize)]
pub(crate) struct Outline {
    pub(crate) model: Option<ModelOutline>,
    /// As written.
    #[serde(default)]
    pub(crate) normalizer: Value,
    /// As written.
    #[serde(default)]
    pub(crate) pre_tokenizer: Value,
    /// As written.
    #[serde(default)]
    pub(crate) post_processor: Value,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ModelOutline {
    #[serde(rename = "type")]
    pub(crate) ty: Option<Value>,
    pub(crate) vocab: Option<IgnoredAny>,
    #[serde(default)]
    pub(crate) unk_id: Option<usize>,
}

/// The steps of a normalizer in order: none if there is no normalizer, one if it is not a sequence.
pub(crate) fn normalizers(normalizer: &Value) -> &[Value] {
    match normalizer.get("normalizers").and_then(Value::as_array) {
        Some(parts) => parts,
        None if normalizer.is_null() => &[],
        None => std::slice::from_ref(normalizer),
    }
}

/// The `type` of a part of the file.
pub(crate) fn type_of(part: &Value) -> Option<&str> {
    part.get("type").and_then(Value::as_str)
}
