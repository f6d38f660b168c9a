//! Buffers that are reused from one image to the next.
//!
//! Returning a large buffer to the system and faulting it in again costs up to a quarter of the time of a large photo,
//! so each worker thread keeps one [`ImageScratch`]. A worker that has converted one giant image must not keep
//! its memory forever: buffers above a limit are freed after each image.

use dsconvert_jpeg::FastDecoder;

use super::icc::Profiles;
use super::pixels::Pixels;
use super::planar::Planar;

/// Default limit of the bytes kept between images: the buffers of a photo of about 16 megapixels.
pub const DEFAULT_KEPT_BYTES: usize = 192 << 20;

/// Per-thread buffers of the image transform. They never affect a result.
pub struct ImageScratch {
    pub(super) jpeg: FastDecoder,
    pub(super) samples: Vec<u8>,
    pub(super) decoded: Pixels,
    pub(super) resized: Pixels,
    pub(super) resizer: fast_image_resize::Resizer,
    pub(super) profiles: Profiles,
    pub(super) planar: Planar,
    max_kept_bytes: usize,
}

impl Default for ImageScratch {
    fn default() -> Self {
        Self::new()
    }
}

impl ImageScratch {
    /// Creates empty buffers. At most [`DEFAULT_KEPT_BYTES`] are kept between images.
    pub fn new() -> Self {
        Self::keeping(DEFAULT_KEPT_BYTES)
    }

    /// Creates empty buffers. At most `bytes` are kept between images.
    pub fn keeping(bytes: usize) -> Self {
        Self {
            jpeg: FastDecoder::default(),
            samples: Vec::new(),
            decoded: Pixels::default(),
            resized: Pixels::default(),
            resizer: fast_image_resize::Resizer::default(),
            profiles: Profiles::default(),
            planar: Planar::default(),
            max_kept_bytes: bytes,
        }
    }

    /// Replaces all buffers, which a panic may have left in an inconsistent state.
    pub(super) fn renew(&mut self) {
        *self = Self::keeping(self.max_kept_bytes);
    }

    /// Returns the bytes kept for the next image.
    pub fn kept_bytes(&self) -> usize {
        self.jpeg.kept_bytes()
            + self.samples.capacity()
            + self.decoded.data.capacity()
            + self.resized.data.capacity()
            + self.resizer.size_of_internal_buffers()
            + self.planar.kept_bytes()
    }

    /// Frees the buffers if they exceed the limit.
    pub(super) fn trim(&mut self) {
        if self.kept_bytes() > self.max_kept_bytes {
            self.jpeg = FastDecoder::default();
            for buffer in [&mut self.samples, &mut self.decoded.data, &mut self.resized.data] {
                *buffer = Vec::new();
            }
            self.resizer.reset_internal_buffers();
            self.planar = Planar::default();
        }
    }
}

impl std::fmt::Debug for ImageScratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageScratch").field("kept_bytes", &self.kept_bytes()).finish_non_exhaustive()
    }
}
