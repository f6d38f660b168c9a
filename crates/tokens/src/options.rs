//! What the caller decides.

use serde::{Deserialize, Serialize};

/// Texts in a million that [`Verify::Sample`] selects: 0.1%.
pub const VERIFY_PER_MILLION: u64 = 1_000;

/// Default of [`max_reference_bytes`](TokenizerOptions::max_reference_bytes): 4 MiB.
pub const DEFAULT_MAX_REFERENCE_BYTES: u64 = 4 << 20;

/// Options of a [`Tokenizer`](crate::Tokenizer). The default adds nothing to the text and lets nothing in it act as a
/// control token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokenizerOptions {
    /// Adds the beginning-of-sequence token before every text.
    pub add_bos: bool,
    /// Adds the end-of-sequence token after every text.
    pub add_eos: bool,
    /// Adds around every text what the post-processor of the tokenizer adds. Excludes the two options above.
    pub add_special_tokens: bool,
    /// The token that [`add_bos`](Self::add_bos) adds. Needed only when the tokenizer does not determine it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bos_token: Option<String>,
    /// The token that [`add_eos`](Self::add_eos) adds. Needed only when the tokenizer does not determine it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eos_token: Option<String>,
    /// What the string of a special token means inside a text.
    pub special_in_text: SpecialInText,
    /// Which engine makes the ids.
    pub engine: EngineChoice,
    /// Which texts [`Tokenizer::verify`](crate::Tokenizer::verify) compares with the reference.
    pub verify: Verify,
    /// Longest text that the reference encodes, in bytes before and after normalization;
    /// [`DEFAULT_MAX_REFERENCE_BYTES`] when not given. The reference takes about 150 bytes of memory for each of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_reference_bytes: Option<u64>,
}

impl TokenizerOptions {
    /// [`max_reference_bytes`](Self::max_reference_bytes), or its default.
    pub fn max_reference_bytes(&self) -> u64 {
        self.max_reference_bytes.unwrap_or(DEFAULT_MAX_REFERENCE_BYTES)
    }
}

/// What the string of a special token, `<|endoftext|>` for example, means inside a text.
///
/// Added tokens that are not special always match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SpecialInText {
    /// Ordinary characters: no text can inject a control token.
    ///
    /// Where the model itself has control tokens in its vocabulary, they get an internal name, `control token N` between U+0000 and
    /// U+10FFFF on both sides. A text that spells such a name is refused with
    /// [`EncodeError::HiddenName`](crate::EncodeError::HiddenName).
    #[default]
    Text,
    /// The special token.
    Parse,
    /// An error, [`EncodeError::SpecialToken`](crate::EncodeError::SpecialToken).
    Error,
}

/// Which engine makes the ids. All engines make the same ids: this is a choice between speed and trust.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineChoice {
    /// The fast engine if there is one for this tokenizer and it passes the proof, otherwise the reference.
    #[default]
    Auto,
    /// The reference, `tokenizers` at version [`REFERENCE_VERSION`](crate::REFERENCE_VERSION).
    Reference,
    /// The fast engine, or an error.
    Fast,
}

/// Which texts [`Tokenizer::verify`](crate::Tokenizer::verify) compares with the reference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// [`VERIFY_PER_MILLION`] texts, and windows of long ones, of a million, selected by a hash that the caller passes.
    #[default]
    Sample,
    /// Every text.
    All,
}

impl Verify {
    /// Whether the text that `key_hash` (64 well-mixed bits) identifies is compared.
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
