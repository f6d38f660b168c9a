//! Options of a tokenizer.

use serde::{Deserialize, Serialize};

/// Number of texts per million that [`Verify::Sample`] selects: 0.1%.
pub const VERIFY_PER_MILLION: u64 = 1_000;

/// Default of [`max_reference_bytes`](TokenizerOptions::max_reference_bytes): 4 MiB.
pub const DEFAULT_MAX_REFERENCE_BYTES: u64 = 4 << 20;

/// Options of a [`Tokenizer`](crate::Tokenizer). By default, no tokens are added, and no text acts as a control token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokenizerOptions {
    /// Adds the beginning-of-sequence token before every text.
    pub add_bos: bool,
    /// Adds the end-of-sequence token after every text.
    pub add_eos: bool,
    /// Adds the post-processor's tokens around every text. Excludes the two options above.
    pub add_special_tokens: bool,
    /// The token that [`add_bos`](Self::add_bos) adds. Needed only if the tokenizer does not determine it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bos_token: Option<String>,
    /// The token that [`add_eos`](Self::add_eos) adds. Needed only if the tokenizer does not determine it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eos_token: Option<String>,
    /// Treatment of the strings of special tokens in a text.
    pub special_in_text: SpecialInText,
    /// The engine that produces the ids.
    pub engine: EngineChoice,
    /// The texts that [`Tokenizer::verify`](crate::Tokenizer::verify) compares with the reference.
    pub verify: Verify,
    /// Maximum size of a text that the reference encodes, in bytes, before and after normalization;
    /// [`DEFAULT_MAX_REFERENCE_BYTES`] by default. The reference needs 80 to 500 bytes of memory per byte of text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_reference_bytes: Option<u64>,
}

impl TokenizerOptions {
    /// Returns [`max_reference_bytes`](Self::max_reference_bytes), or its default.
    pub fn max_reference_bytes(&self) -> u64 {
        self.max_reference_bytes.unwrap_or(DEFAULT_MAX_REFERENCE_BYTES)
    }
}

/// Treatment of the strings of special tokens, such as `<|endoftext|>`, in a text.
///
/// Added tokens that are not special always match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SpecialInText {
    /// Ordinary characters: no text can inject a control token.
    ///
    /// Control tokens in the model's own vocabulary get an internal name: `control token N`, with U+0000 and U+10FFFF
    /// before and after it. A text that contains such a name is refused with
    /// [`EncodeError::HiddenName`](crate::EncodeError::HiddenName).
    #[default]
    Text,
    /// The special token.
    Parse,
    /// An error, [`EncodeError::SpecialToken`](crate::EncodeError::SpecialToken).
    Error,
}

/// Choice of the engine. All engines produce the same ids, so this is a choice between speed and trust.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineChoice {
    /// The fast engine if the tokenizer has one that passes the proof, otherwise the reference.
    #[default]
    Auto,
    /// The reference, `tokenizers` at version [`REFERENCE_VERSION`](crate::REFERENCE_VERSION).
    Reference,
    /// The fast engine, or an error.
    Fast,
}

/// Selection of the texts that [`Tokenizer::verify`](crate::Tokenizer::verify) compares with the reference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// [`VERIFY_PER_MILLION`] of a million texts, or windows of long texts, selected by a hash that the caller passes.
    #[default]
    Sample,
    /// Every text.
    All,
}

impl Verify {
    /// Returns whether to compare the text identified by `key_hash` (64 well-mixed bits).
    pub fn selects(self, key_hash: u64) -> bool {
        match self {
            // Multiplication selects by the high bits. `%` would be unbiased too, but low bits often choose dataset
            // splits.
            Verify::Sample => (u128::from(key_hash) * 1_000_000) >> 64 < u128::from(VERIFY_PER_MILLION),
            Verify::All => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_one_document_in_a_thousand() {
        let step = u64::MAX / 1_000_000;
        let chosen = (0..1_000_000u64).filter(|i| Verify::Sample.selects(i * step)).count();
        assert!((999..=1001).contains(&chosen), "{chosen}");
        assert!(Verify::All.selects(u64::MAX));
    }

    #[test]
    fn options_round_trip_through_json_and_refuse_unknown_fields() {
        let options = TokenizerOptions { add_bos: true, ..Default::default() };
        let json = serde_json::to_string(&options).unwrap();
        assert_eq!(serde_json::from_str::<TokenizerOptions>(&json).unwrap(), options);
        assert!(serde_json::from_str::<TokenizerOptions>(r#"{"add_boss":true}"#).is_err());
    }
}
