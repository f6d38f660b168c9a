//! The tokens that are a single character.

use std::collections::HashMap;

use ahash::RandomState;

use super::merges::NO_TOKEN;
use crate::bpe_file::BpeVocab;

/// A map from characters to tokens.
pub(super) struct CharTokens {
    /// [`NO_TOKEN`] for a character without a token.
    ascii: [u32; 128],
    others: HashMap<char, u32, RandomState>,
}

impl CharTokens {
    /// Collects the tokens of `vocab` that are one character followed by `suffix`.
    pub(super) fn new(vocab: &BpeVocab, suffix: &str) -> Self {
        let mut tokens = Self { ascii: [NO_TOKEN; 128], others: HashMap::default() };
        for (token, id) in vocab.iter() {
            let mut chars = token.strip_suffix(suffix).unwrap_or_default().chars();
            if let (Some(char), None) = (chars.next(), chars.next()) {
                tokens.set(char, id);
            }
        }
        tokens
    }

    pub(super) fn set(&mut self, char: char, id: u32) {
        match self.ascii.get_mut(char as usize) {
            Some(token) => *token = id,
            None => drop(self.others.insert(char, id)),
        }
    }

    /// Returns the token of `char`, or [`NO_TOKEN`].
    #[inline(always)]
    pub(super) fn get(&self, char: char) -> u32 {
        match self.ascii.get(char as usize) {
            Some(&token) => token,
            None => self.others.get(&char).copied().unwrap_or(NO_TOKEN),
        }
    }
}
