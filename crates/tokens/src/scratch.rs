//! The state of one thread.

use crate::engine::fast::buffers::Buffers;
use crate::sentencepiece::buffers::SentencePieceBuffers;

/// Buffers and the word cache of one thread.
///
/// Made by [`Tokenizer::scratch`](crate::Tokenizer::scratch) and reused from text to text: the cache is what makes the second text
/// faster than the first. Using a scratch with another tokenizer empties it.
pub struct Scratch {
    serial: u64,
    buffers: Option<Box<Buffers>>,
    sentencepiece: Option<Box<SentencePieceBuffers>>,
    /// Ids that are being made.
    pub(crate) ids: Vec<u32>,
}

impl Scratch {
    /// For the tokenizer with this serial number.
    pub(crate) fn new(serial: u64) -> Self {
        Self { serial, buffers: None, sentencepiece: None, ids: Vec::new() }
    }

    /// Replaces buffers that a panic may have left half modified.
    pub fn renew(&mut self) {
        *self = self.sibling();
    }

    /// An empty one for the same tokenizer.
    pub(crate) fn sibling(&self) -> Self {
        Self::new(self.serial)
    }

    /// Empties it unless it is of the tokenizer with this serial number.
    pub(crate) fn claim(&mut self, serial: u64) {
        if self.serial != serial {
            *self = Self::new(serial);
        }
    }

    /// Allocated at the first use by an engine that needs them.
    pub(crate) fn buffers(&mut self) -> &mut Buffers {
        self.buffers.get_or_insert_with(|| Box::new(Buffers::new()))
    }

    /// The same of a SentencePiece model.
    pub(crate) fn sentencepiece(&mut self) -> &mut SentencePieceBuffers {
        self.sentencepiece.get_or_insert_default()
    }
}
