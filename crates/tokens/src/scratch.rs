//! The state of one encoding thread.

use crate::engine::fast::buffers::Buffers;
use crate::sentencepiece::SentencePieceBuffers;

/// Buffers and word cache of one thread.
///
/// Created by [`Tokenizer::scratch`](crate::Tokenizer::scratch) and reused for all texts: its cache makes later texts
/// faster. Using a scratch with another tokenizer empties it.
pub struct Scratch {
    serial: u64,
    buffers: Option<Box<Buffers>>,
    sentencepiece: Option<Box<SentencePieceBuffers>>,
    /// Ids of the text that is being encoded.
    pub(crate) ids: Vec<u32>,
}

impl Scratch {
    /// Creates a scratch for the tokenizer with this serial number.
    pub(crate) fn new(serial: u64) -> Self {
        Self { serial, buffers: None, sentencepiece: None, ids: Vec::new() }
    }

    /// Replaces all buffers, which a panic may have left half modified.
    pub fn renew(&mut self) {
        *self = self.sibling();
    }

    /// Returns an empty scratch for the same tokenizer.
    pub(crate) fn sibling(&self) -> Self {
        Self::new(self.serial)
    }

    /// Empties the scratch unless it belongs to the tokenizer with this serial number.
    pub(crate) fn claim(&mut self, serial: u64) {
        if self.serial != serial {
            *self = Self::new(serial);
        }
    }

    /// Returns the buffers of the fast engines, allocated on first use.
    pub(crate) fn buffers(&mut self) -> &mut Buffers {
        self.buffers.get_or_insert_with(|| Box::new(Buffers::new()))
    }

    /// Returns the buffers of SentencePiece models, allocated on first use.
    pub(crate) fn sentencepiece(&mut self) -> &mut SentencePieceBuffers {
        self.sentencepiece.get_or_insert_default()
    }
}
