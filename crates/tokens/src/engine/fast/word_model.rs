//! Models that encode one word at a time.

use std::sync::Arc;

use tokenizers::{Model as _, ModelWrapper};

use super::unigram::Unigram;
use super::word_bpe::WordBpe;
use super::wordpiece::WordPiece;
use crate::engine::guarded::guarded;
use crate::engine::reference::Reference;
use crate::error::EncodeError;

/// A model that encodes single words.
pub(super) enum WordModel {
    WordPiece(WordPiece),
    Unigram(Unigram),
    Bpe(Box<WordBpe>),
    /// The reference's model, without its normalizer and pre-tokenizer. Fast enough for words that are not in the
    /// cache.
    Reference(Arc<Reference>),
}

impl WordModel {
    /// Creates the model of `reference`. `unigram_unk` is the index of the unknown token of a Unigram model, and `bpe`
    /// the BPE model, if it is supported. The error states why there is none.
    pub(super) fn new(
        reference: &Arc<Reference>,
        unigram_unk: Option<usize>,
        bpe: Option<Box<WordBpe>>,
    ) -> Result<Self, String> {
        if let Some(bpe) = bpe {
            return Ok(Self::Bpe(bpe));
        }
        let known = match reference.model().ok_or("the model of the reference is not loaded")? {
            ModelWrapper::WordPiece(model) => WordPiece::new(model).map(Self::WordPiece),
            ModelWrapper::Unigram(model) => Unigram::new(model, unigram_unk).map(Self::Unigram),
            ModelWrapper::BPE(_) | ModelWrapper::WordLevel(_) => None,
        };
        Ok(known.unwrap_or_else(|| Self::Reference(Arc::clone(reference))))
    }

    /// Appends the ids of the non-empty `word`.
    pub(super) fn encode(&self, word: &str, out: &mut Vec<u32>) -> Result<(), EncodeError> {
        match self {
            Self::WordPiece(model) => model.encode(word, out),
            Self::Unigram(model) => model.encode(word, out),
            Self::Bpe(model) => model.encode(word, out)?,
            Self::Reference(reference) => {
                let tokens = guarded(|| reference.parts().get_model().tokenize(word))?;
                out.extend(tokens.iter().map(|token| token.id));
            }
        }
        Ok(())
    }
}
