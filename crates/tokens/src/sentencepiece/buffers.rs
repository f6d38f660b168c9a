//! What a SentencePiece model needs per thread.

use super::bpe::Words;
use super::unigram::Paths;

/// Buffers of one thread.
#[derive(Default)]
pub(crate) struct SentencePieceBuffers {
    pub(super) normalized: Vec<u8>,
    pub(super) paths: Paths,
    pub(super) words: Words,
}
