//! Symbols of a word for which a BPE model has no token.

use super::merges::NO_TOKEN;
use crate::bpe_file::ParsedBpe;

/// What a symbol without a token becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unk {
    /// Nothing.
    Drop,
    /// This token.
    Token(u32),
    /// This token, together with the unknown symbols next to it.
    Fused(u32),
}

impl Unk {
    /// Returns what `model` specifies. The error states why the engines do not support it.
    pub(super) fn new(model: &ParsedBpe) -> Result<Self, String> {
        let ParsedBpe { vocab, settings, .. } = model;
        match &settings.unk_token {
            None => Ok(Unk::Drop),
            // After a merge with an empty string, the reference may repeat a merge.
            Some(token) if token.is_empty() => Err("the unknown token is empty".to_owned()),
            Some(token) => {
                let id = vocab.get(token).ok_or("the unknown token is not in the vocabulary")?;
                Ok(if settings.fuse_unk == Some(true) { Unk::Fused(id) } else { Unk::Token(id) })
            }
        }
    }
}

/// Passes the symbols of a word to `each`, in the order of the reference.
pub(super) struct SymbolWriter<F> {
    unk: Unk,
    /// The unknown token of the symbols before, which the reference adds before the next token of a symbol.
    pending: u32,
    each: F,
}

impl<F: FnMut(u32)> SymbolWriter<F> {
    pub(super) fn new(unk: Unk, each: F) -> Self {
        Self { unk, pending: NO_TOKEN, each }
    }

    /// Adds a symbol with a token.
    pub(super) fn token(&mut self, token: u32) {
        self.finish();
        (self.each)(token);
    }

    /// Adds a symbol without a token.
    pub(super) fn unknown(&mut self) {
        match self.unk {
            Unk::Drop => {}
            Unk::Token(unk) => {
                self.finish();
                self.pending = unk;
            }
            Unk::Fused(unk) => self.pending = unk,
        }
    }

    /// Adds the tokens of the bytes of a symbol without a token. The reference adds them before a pending unknown token.
    pub(super) fn fallback(&mut self, tokens: &[u32]) {
        tokens.iter().for_each(|&token| (self.each)(token));
    }

    /// Adds a pending unknown token. Call it at the end of a word.
    pub(super) fn finish(&mut self) {
        if self.pending != NO_TOKEN {
            (self.each)(std::mem::replace(&mut self.pending, NO_TOKEN));
        }
    }
}
