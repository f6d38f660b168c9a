//! What a user decides about tokenization.

use serde::{Deserialize, Serialize};

/// How many documents in a million [`Verify::Sample`] encodes a second time: 0.1%.
pub const VERIFY_PER_MILLION: u64 = 1_000;

/// Bytes of the longest document that the reference encodes, unless
/// [`max_reference_bytes`](TokenizerOptions::max_reference_bytes) says otherwise.
pub const DEFAULT_MAX_REFERENCE_BYTES: u64 = 4 << 20;

/// Options of a [`Tokenizer`](super::Tokenizer). The default adds nothing to the text and lets nothing in it act as a
/// control token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokenizerOptions {
    /// Put the beginning-of-sequence token before every document.
    pub add_bos: bool,
    /// Put the end-of-sequence token after every document.
    pub add_eos: bool,
    /// Put around every document what the post-processor of the tokenizer puts there. Excludes the two above.
    pub add_special_tokens: bool,
    /// The token that [`add_bos`](Self::add_bos) adds, when the tokenizer does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bos_token: Option<String>,
    /// The token that [`add_eos`](Self::add_eos) adds, when the tokenizer does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eos_token: Option<String>,
    /// What the string of a special token means inside a document.
    pub special_in_text: SpecialInText,
    /// Which engine makes the ids.
    pub engine: EngineChoice,
    /// How much of the input the reference encodes a second time.
    pub verify: Verify,
    /// Longest document that the reference encodes, in bytes before and after normalization; [`DEFAULT_MAX_REFERENCE_BYTES`] when not given. It takes some
    /// 150 bytes of memory for each of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_reference_bytes: Option<u64>,
}

impl TokenizerOptions {
    /// The limit that holds.
    pub fn max_reference_bytes(&self) -> u64 {
        self.max_reference_bytes.unwrap_or(DEFAULT_MAX_REFERENCE_BYTES)
    }
}

/// What the string of a special token, `<|endoftext|>` for example, means inside a document.
///
/// Added tokens that are not special always match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SpecialInText {
    /// Ordinary characters: no document can inject a control token.
    #[default]
    Text,
    /// The special token.
    Parse,
    /// A reason to reject the document.
    Error,
}

/// Which engine makes the ids. All of them make the same ids: this is a choice of speed and of trust.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineChoice {
    /// The fast engine when it knows this tokenizer and agrees with the reference on the built-in corpus, otherwise the
    /// reference.
    #[default]
    Auto,
    /// The reference, `tokenizers` 0.23.2.
    Reference,
    /// The fast engine, or an error.
    Fast,
}

/// How much of the input the reference encodes a second time, to compare.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// Documents, and parts of long ones, chosen by the hash of their key, [`VERIFY_PER_MILLION`] of a million.
    #[default]
    Sample,
    /// Every document.
    All,
}

impl Verify {
    /// Whether the document whose key hashes to `key_hash` (64 well-mixed bits) is encoded a second time.
    pub fn selects(self, key_hash: u64) -> bool {
        match self {
            // The high bits, by multiplication: `%` would favour nothing here, but low bits often pick splits.
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
    fn options_survive_json_and_refuse_what_they_do_not_know() {
        let options = TokenizerOptions { add_bos: true, ..Default::default() };
        let json = serde_json::to_string(&options).unwrap();
        assert_eq!(serde_json::from_str::<TokenizerOptions>(&json).unwrap(), options);
        assert!(serde_json::from_str::<TokenizerOptions>(r#"{"add_boss":true}"#).is_err());
    }
}
