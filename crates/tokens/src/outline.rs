//! The parts of a `tokenizer.json` that this crate parses itself; the reference parses the rest.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// The supported model types.
pub const MODEL_TYPES: [&str; 4] = ["BPE", "WordPiece", "Unigram", "WordLevel"];

/// The character that represents a space in SentencePiece models.
pub(crate) const METASPACE: char = '\u{2581}';

/// The top-level members of the file that this crate uses. All but the model are unparsed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Outline {
    pub(crate) model: Option<ModelOutline>,
    pub(crate) normalizer: Value,
    pub(crate) pre_tokenizer: Value,
    pub(crate) post_processor: Value,
    pub(crate) decoder: Value,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ModelOutline {
    #[serde(rename = "type")]
    pub(crate) ty: Option<Value>,
    pub(crate) vocab: Option<IgnoredAny>,
    pub(crate) unk_id: Option<usize>,
}

/// Returns the steps of a part of the file in order: none if there is no part, one if it is not a sequence. A sequence has
/// them in the member `name`.
pub(crate) fn steps<'a>(part: &'a Value, name: &str) -> &'a [Value] {
    match part.get(name).and_then(Value::as_array) {
        Some(parts) => parts,
        None if part.is_null() => &[],
        None => std::slice::from_ref(part),
    }
}

/// Returns the `type` of a part of the file.
pub(crate) fn type_of(part: &Value) -> Option<&str> {
    part.get("type").and_then(Value::as_str)
}
