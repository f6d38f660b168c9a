//! Requests to the fast decoder.

use crate::pixel_format::PixelFormat;
use crate::region::Region;
use crate::scale::Scale;

/// Selects what [`FastDecoder::decode_into`](crate::FastDecoder::decode_into) decodes.
#[derive(Debug, Clone, Copy)]
pub struct FastRequest {
    /// Width and height of the file, which the caller must know.
    pub size: (usize, usize),
    /// The scale of the output.
    pub scale: Scale,
    /// The pixels to decode, at that scale.
    pub region: Region,
    /// Pixels from the start of one output row to the start of the next.
    pub stride: usize,
    /// The pixel format of the output: [`PixelFormat::Gray`] or [`PixelFormat::Rgb`].
    pub format: PixelFormat,
    /// Whether the file is read to its end, even outside the region, so that damage anywhere is found.
    pub reads_to_end: bool,
}

impl FastRequest {
    /// Returns the number of samples from the first pixel of the region to the last.
    pub fn sample_count(&self) -> Option<usize> {
        let Region { width, height, .. } = self.region;
        let pixels = height.checked_sub(1)?.checked_mul(self.stride)?.checked_add(width)?;
        pixels.checked_mul(self.format.channels()).filter(|_| width <= self.stride)
    }
}
