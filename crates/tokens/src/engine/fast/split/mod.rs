//! The split patterns of byte-level tokenizers, hand-written: where the word that starts at a position ends.
//!
//! Each splitter is the leftmost-first alternation of one regular expression, which [`pattern`] quotes. Every character
//! is matched by one of the alternatives, so the words cover the text.
//!
//! There are two ways to the same words: one at a time, character by character ([`steps::Split::end`]), and all words of a
//! block of ASCII at once ([`steps::Split::starts`]), which is several times as fast.

pub(super) mod cl100k;
pub(super) mod deepseek;
pub(super) mod gpt2;
pub(super) mod o200k;
pub(crate) mod pattern;
pub(super) mod steps;
#[cfg(test)]
mod tests;
