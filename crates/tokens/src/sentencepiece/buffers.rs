//! Per-thread buffers of SentencePiece models.

use super::bpe::BpeBuffers;
use super::unigram::Paths;

/// SentencePiece buffers of one thread.
#[derive(Default)]
pub(crate) struct SentencePieceBuffers {
    pub(super) normalized: Vec<u8>,
    pub(super) paths: Paths,
    pub(super) bpe: BpeBuffers,
}
