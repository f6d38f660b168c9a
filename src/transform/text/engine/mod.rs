//! The engines that turn text into ids, behind one trait.
//!
//! An engine knows the added tokens, the normalizer, the pre-tokenizer and the model of one tokenizer. It knows nothing
//! of BOS and EOS, of rejects by policy, or of the other engines: [`Tokenizer`](super::Tokenizer) does.

pub(super) mod bytes;
pub(super) mod fast;
pub(super) mod proof;
pub(super) mod reference;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::Scratch;
use crate::sample::Reject;

/// Name and version of an engine, for the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineInfo {
    /// Name of the crate or of the module of this crate.
    pub name: String,
    /// Version of that crate.
    pub version: String,
}

/// What an engine did with a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The ids are appended.
    Done,
    /// The engine does not know how to encode this document; nothing is appended.
    Declined,
}

/// Text in, ids out.
pub(super) trait Engine: Send + Sync {
    /// Name and version.
    fn info(&self) -> EngineInfo;

    /// Appends the ids of `text` to `out`. On [`Outcome::Declined`] and on a reject, `out` is as it was.
    fn encode(&self, text: &str, scratch: &mut Scratch, out: &mut Vec<u32>) -> Result<Outcome, Reject>;

    /// Where `text` can be divided, from byte `from` on: the ids of the whole are those of what stands before and of what
    /// stands behind, in a row, whatever that is. What stands there, often nothing, is part of neither. `None` when there is
    /// no such place, or the engine does not know.
    fn divide(&self, text: &str, from: usize) -> Option<Range<usize>> {
        let _ = (text, from);
        None
    }
}
