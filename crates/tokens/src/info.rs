//! Descriptions of tokenizers and engines.

use serde::{Deserialize, Serialize};

/// A token and its id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SpecialToken {
    /// The id.
    pub id: u32,
    /// The string.
    pub token: String,
}

/// Name and version of an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineInfo {
    /// `tokenizers` for the reference, `bytes`, or a fast engine: `dsconvert byte-level BPE`, `dsconvert character BPE`,
    /// `dsconvert cached chunks`.
    pub name: String,
    /// Version of the crate that the engine is from.
    pub version: String,
}

impl EngineInfo {
    /// The fast engine `name` of this crate.
    pub(crate) fn fast(name: &str) -> Self {
        Self { name: format!("dsconvert {name}"), version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

/// Describes a tokenizer, in a form that serializes: keep it beside the ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizerInfo {
    /// `bytes`, or the type of the model: `BPE`, `WordPiece`, `Unigram`, `WordLevel`.
    pub model: String,
    /// Number of different tokens, added tokens included.
    pub vocab_size: u64,
    /// The largest id that can occur, added tokens included.
    pub max_id: u32,
    /// SHA-256 of the `tokenizer.json`, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The engine whose ids are right by definition.
    pub reference: EngineInfo,
    /// The engine that makes the ids.
    pub engine: EngineInfo,
    /// Why the reference makes the ids although a faster engine was allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_note: Option<String>,
    /// The token that begins a sequence, if the tokenizer has exactly one; [`add_bos`](crate::TokenizerOptions::add_bos)
    /// adds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bos: Option<SpecialToken>,
    /// The token that ends a sequence, if the tokenizer has exactly one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eos: Option<SpecialToken>,
}
