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
    /// `tokenizers` for the reference, `bytes`, `dsconvert SentencePiece`, or a fast engine: `dsconvert byte-level
    /// BPE`, `dsconvert character BPE`, `dsconvert cached chunks`.
    pub name: String,
    /// Version of the crate that contains the engine.
    pub version: String,
}

impl EngineInfo {
    /// Describes the engine `name` of this crate.
    pub(crate) fn fast(name: &str) -> Self {
        Self { name: format!("dsconvert {name}"), version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

/// Serializable description of a tokenizer, to be stored with the ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizerInfo {
    /// `bytes`, or the model type: `BPE`, `WordPiece`, `Unigram`, `WordLevel`.
    pub model: String,
    /// Number of distinct tokens, including added tokens.
    pub vocab_size: u64,
    /// The largest id that can occur, including added tokens.
    pub max_id: u32,
    /// SHA-256 of the `tokenizer.json`, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The engine whose ids are correct by definition.
    pub reference: EngineInfo,
    /// The engine that produces the ids.
    pub engine: EngineInfo,
    /// Reason why the reference is used although a faster engine was allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_note: Option<String>,
    /// The BOS token, if the tokenizer has exactly one; [`add_bos`](crate::TokenizerOptions::add_bos) adds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bos: Option<SpecialToken>,
    /// The EOS token, if the tokenizer has exactly one; [`add_eos`](crate::TokenizerOptions::add_eos) adds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eos: Option<SpecialToken>,
}
