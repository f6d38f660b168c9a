//! Buffers that outlive one image.
//!
//! Returning a large buffer to the system and faulting it in again costs up to a quarter of the time of a large photo,
//! so each worker thread keeps one [`Scratch`]. A worker that has met one giant image must not hold its memory for ever
//! either: buffers far above the usual are given back after each image.

use super::icc::Profiles;
use super::pixels::Pixels;

/// Capacity above which a buffer is given back after an image: what a 16-megapixel photo needs.
const KEPT_BYTES: usize = 48 << 20;

/// Per-thread buffers of the image transform. They never influence a result.
#[derive(Default)]
pub struct Scratch {
    pub(super) samples: Vec<u8>,
    pub(super) decoded: Pixels,
    pub(super) resized: Pixels,
    pub(super) resizer: fast_image_resize::Resizer,
    pub(super) profiles: Profiles,
}

impl Scratch {
    /// Empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes held for the next image.
    pub fn kept_bytes(&self) -> usize {
        self.samples.capacity()
            + self.decoded.data.capacity()
            + self.resized.data.capacity()
            + self.resizer.size_of_internal_buffers()
    }

    /// Gives back what is larger than the usual image needs.
    pub(super) fn trim(&mut self) {
        for buffer in [&mut self.samples, &mut self.decoded.data, &mut self.resized.data] {
            if buffer.capacity() > KEPT_BYTES {
                *buffer = Vec::new();
            }
        }
        if self.resizer.size_of_internal_buffers() > KEPT_BYTES {
            self.resizer.reset_internal_buffers();
        }
    }
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch").field("kept_bytes", &self.kept_bytes()).finish_non_exhaustive()
    }
}
