//! What a fast engine is built from.

use std::sync::Arc;

use crate::engine::reference::Reference;
use crate::outline::Outline;

/// The loaded tokenizer, as every engine needs it.
pub(crate) struct EngineParts<'a> {
    /// The tokenizer, control tokens hidden where that is the policy.
    pub(crate) reference: &'a Arc<Reference>,
    pub(crate) outline: &'a Outline,
    pub(crate) parse_special: bool,
    /// Index of the unknown token of a Unigram model.
    pub(crate) unigram_unk: Option<usize>,
}
