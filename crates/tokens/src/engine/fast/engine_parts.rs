//! Inputs for building a fast engine.

use std::sync::Arc;

use crate::engine::reference::Reference;
use crate::outline::Outline;

/// The parts of a loaded tokenizer that the fast engines need.
pub(crate) struct EngineParts<'a> {
    /// The tokenizer, with control tokens hidden if the policy requires it.
    pub(crate) reference: &'a Arc<Reference>,
    pub(crate) outline: &'a Outline,
    pub(crate) parse_special: bool,
    /// Index of the unknown token of a Unigram model.
    pub(crate) unigram_unk: Option<usize>,
}
