//! What is said about a tokenizer and about what it did.

use serde::{Deserialize, Serialize};

use super::engine::EngineInfo;
use super::pieces::Piece;
use super::special::SpecialToken;

/// What the manifest says of a tokenizer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizerInfo {
    /// `bytes`, or the type of the model: `BPE`, `WordPiece`, `Unigram`, `WordLevel`.
    pub model: String,
    /// Number of different tokens, added ones included.
    pub vocab_size: u64,
    /// The largest id that can be written, added tokens included.
    pub max_id: u32,
    /// SHA-256 of the `tokenizer.json`, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// What decides the ids.
    pub reference: EngineInfo,
    /// What makes the ids.
    pub engine: EngineInfo,
    /// Why the reference makes the ids although a faster engine was allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_note: Option<String>,
    /// The token that begins a sequence, when it is known; whether it is added is an option.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bos: Option<SpecialToken>,
    /// The token that ends a sequence, when it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eos: Option<SpecialToken>,
}

/// What happened to one document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EncodeStats {
    /// Strings of special tokens in the text, whatever was made of them.
    pub special_in_text: u64,
    /// The document itself begins with the token that was added before it.
    pub doubled_bos: bool,
    /// The document itself ends with the token that was added after it.
    pub doubled_eos: bool,
    /// The ids come from the reference.
    pub by_reference: bool,
    /// The pieces that a long document was divided into, in order; none when it was encoded as a whole.
    pub pieces: Vec<Piece>,
}
