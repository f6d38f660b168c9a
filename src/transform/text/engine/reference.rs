//! The reference: the `tokenizers` crate, whose ids are right by definition.
//!
//! Its regular expressions give up on some inputs (a million white-space characters in a row), and a broken
//! `tokenizer.json` can make it panic; both become a reject of the document, never a dead worker.

use tokenizers::{AddedVocabulary, OffsetReferential, OffsetType};

use super::{Engine, EngineInfo, Outcome};
use crate::panics::caught;
use crate::sample::{Reject, RejectCode};
use crate::transform::text::Scratch;

/// Version of the reference, pinned in `Cargo.toml` and checked by a test.
pub(crate) const REFERENCE_VERSION: &str = "0.23.2";

/// A loaded tokenizer that neither truncates, nor pads, nor adds special tokens.
pub(crate) struct Reference {
    tokenizer: tokenizers::Tokenizer,
    /// The same added tokens, special ones matched: to find special tokens in normalized text.
    added: AddedVocabulary,
}

impl Reference {
    /// `parse_special`: whether the strings of special tokens in the text become those tokens.
    pub(crate) fn new(mut tokenizer: tokenizers::Tokenizer, parse_special: bool) -> Self {
        let mut added = tokenizer.get_added_vocabulary().clone();
        added.set_encode_special_tokens(false);
        tokenizer.set_encode_special_tokens(!parse_special);
        Self { tokenizer, added }
    }

    /// The loaded tokenizer.
    pub(crate) fn tokenizer(&self) -> &tokenizers::Tokenizer {
        &self.tokenizer
    }

    /// The special tokens that the text would become if they were parsed, by the rules of the reference.
    pub(crate) fn special_tokens_in(&self, text: &str) -> Result<Vec<u32>, Reject> {
        let normalizer = self.tokenizer.get_normalizer();
        let splits = guarded(|| Ok(self.added.extract_and_normalize(normalizer, text)))?;
        let decoder = self.added.get_added_tokens_decoder();
        Ok(splits
            .get_splits(OffsetReferential::Original, OffsetType::None)
            .into_iter()
            .filter_map(|(_, _, tokens)| tokens.as_ref().and_then(|t| t.first()).map(|t| t.id))
            .filter(|id| decoder.get(id).is_some_and(|t| t.special))
            .collect())
    }
}

impl Engine for Reference {
    fn info(&self) -> EngineInfo {
        EngineInfo { name: "tokenizers".to_owned(), version: REFERENCE_VERSION.to_owned() }
    }

    fn encode(&self, text: &str, _: &mut Scratch, out: &mut Vec<u32>) -> Result<Outcome, Reject> {
        let encoding = guarded(|| self.tokenizer.encode_fast(text, false))?;
        out.extend_from_slice(encoding.get_ids());
        Ok(Outcome::Done)
    }
}

/// Runs a call of the reference; its error or panic is a reject of the document.
pub(super) fn guarded<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, Reject> {
    match caught(call) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => {
            Err(Reject::new(RejectCode::Unsupported, format!("the tokenizer cannot encode this text: {e}")))
        }
        Err(panic) => Err(panic.into_reject()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_one_that_is_built() {
        let lock = include_str!("../../../../Cargo.lock");
        assert!(lock.contains(&format!("name = \"tokenizers\"\nversion = \"{REFERENCE_VERSION}\"")));
    }

    #[test]
    fn a_panic_of_the_reference_is_a_reject() {
        let reject = guarded::<()>(|| panic!("as on a malformed character map")).unwrap_err();
        assert_eq!(reject.code, RejectCode::DecoderPanicked);
        assert!(reject.message.ends_with("as on a malformed character map"), "{}", reject.message);
    }
}
