//! The engines that encode text to ids, and their common trait.
//!
//! An engine implements the added tokens, the normalizer, the pre-tokenizer and the model of one tokenizer.
//! [`Tokenizer`](crate::Tokenizer) handles BOS and EOS, the policy for special tokens, and the choice of the engine.

pub(crate) mod bytes;
pub(crate) mod fast;
mod mix;
pub(crate) mod proof;
pub(crate) mod reference;
pub(crate) mod trie;

use std::ops::Range;

use crate::error::EncodeError;
use crate::info::EngineInfo;
use crate::scratch::Scratch;

/// Result of encoding a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The ids are appended.
    Done,
    /// The engine does not support this text; nothing is appended.
    Declined,
}

/// Encodes texts to ids.
pub(crate) trait Engine: Send + Sync {
    /// Returns the name and version of the engine.
    fn info(&self) -> EngineInfo;

    /// Appends the ids of `text` to `out`. On [`Outcome::Declined`] and on an error, `out` is unchanged.
    fn encode(&self, text: &str, scratch: &mut Scratch, out: &mut Vec<u32>) -> Result<Outcome, EncodeError>;

    /// Appends the ids of a part of a text between added tokens. It has none of those that are searched for in the raw
    /// text, nor, if the tokenizer has no normalizer or only NFC, any others. `is_first`: whether it is at the start of
    /// the text. As [`encode`](Self::encode) otherwise.
    fn encode_piece(
        &self,
        piece: &str,
        is_first: bool,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<Outcome, EncodeError> {
        let _ = (piece, is_first, scratch, out);
        Ok(Outcome::Declined)
    }

    /// Appends the range in `text` of each of the `ids` of its part `piece`, which
    /// [`encode_piece`](Self::encode_piece) returned. Returns false, and appends nothing, if the engine cannot determine
    /// the ranges.
    fn ranges(
        &self,
        text: &str,
        piece: Range<usize>,
        ids: &[u32],
        scratch: &mut Scratch,
        out: &mut Vec<Range<u32>>,
    ) -> bool {
        let _ = (text, piece, ids, scratch, out);
        false
    }

    /// Returns the first range at or after byte `from` where `text` can be divided: the ids of the whole text are those
    /// of the text before the range, followed by those of the text after it. The range, often empty, belongs to neither
    /// part. `None` if the text cannot be divided, or the engine cannot determine it.
    fn divide(&self, text: &str, from: usize) -> Option<Range<usize>> {
        let _ = (text, from);
        None
    }
}
