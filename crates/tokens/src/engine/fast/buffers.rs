//! What a fast engine needs per thread.

use super::cache::WordCache;
use super::normalizer::NormalizerBuffers;

/// Buffers that grew over a long text are freed above this size in bytes.
const KEEP_BUFFER: usize = 16 << 20;

/// The cache and the buffers.
pub(crate) struct Buffers {
    pub(super) words: WordCache,
    pub(super) normalizer: NormalizerBuffers,
    pub(super) normalized: String,
    pub(super) prefixed: String,
}

impl Buffers {
    pub(crate) fn new() -> Self {
        Self {
            words: WordCache::new(),
            normalizer: NormalizerBuffers::default(),
            normalized: String::new(),
            prefixed: String::new(),
        }
    }

    /// Frees what is too large to keep.
    pub(super) fn trim(&mut self) {
        self.normalizer.trim(KEEP_BUFFER);
        for buffer in [&mut self.normalized, &mut self.prefixed] {
            if buffer.capacity() > KEEP_BUFFER {
                *buffer = String::new();
            }
        }
    }
}
