//! Per-thread buffers of the fast engines.

use super::cache::WordCache;
use super::normalizer::NormalizerBuffers;

/// Maximum size in bytes of a buffer that is kept between texts.
const KEEP_BUFFER: usize = 16 << 20;

/// The word cache and the text buffers of one thread.
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

    /// Frees buffers that are too large to keep.
    pub(super) fn trim(&mut self) {
        self.normalizer.trim(KEEP_BUFFER);
        for buffer in [&mut self.normalized, &mut self.prefixed] {
            if buffer.capacity() > KEEP_BUFFER {
                *buffer = String::new();
            }
        }
    }
}
