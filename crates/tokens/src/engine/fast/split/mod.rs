//! Hand-written splitters for the split patterns of byte-level tokenizers.
//!
//! Each splitter implements the leftmost-first alternation of one regular expression, quoted in [`pattern`]. Every
//! character is matched by an alternative, so the words cover the text.
//!
//! Each splitter finds words in two ways: one word at a time, character by character ([`steps::Split::end`]), and all
//! words in a block of ASCII at once ([`steps::Split::starts`]), which is several times as fast.

pub(super) mod cl100k;
pub(super) mod deepseek;
pub(super) mod gpt2;
pub(super) mod o200k;
pub(crate) mod pattern;
pub(super) mod steps;
#[cfg(test)]
mod tests;
