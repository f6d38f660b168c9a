//! Requests to the fast decoder, and its results.

use crate::options::{PixelFormat, Region, Scale};

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

/// The file is damaged, of a kind that [`FastDecoder`](crate::FastDecoder) does not decode, or does not match
/// the request. Another decoder can tell which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Declined;

impl std::fmt::Display for Declined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the file is damaged or not a common JPEG")
    }
}

impl std::error::Error for Declined {}

/// Selects what [`FastDecoder::decode_planes`](crate::FastDecoder::decode_planes) decodes.
#[derive(Debug, Clone, Copy)]
pub struct PlanesRequest {
    /// Width and height of the file, which the caller must know.
    pub size: (usize, usize),
    /// The scale of the output.
    pub scale: Scale,
    /// The pixels to decode, at that scale.
    pub region: Region,
    /// Whether the file is read to its end, even below the region, so that damage anywhere is found.
    pub reads_to_end: bool,
}

/// The components of an image at their stored resolution: chroma is not upsampled, and colors are not converted.
#[derive(Debug, Clone, Copy)]
pub struct StoredPlanes<'a> {
    /// Luma.
    pub luma: StoredPlane<'a>,
    /// Cb and Cr; `None` when the image is grayscale.
    pub chroma: Option<[StoredPlane<'a>; 2]>,
}

/// The samples of one component, or of a part of it.
#[derive(Debug, Clone, Copy)]
pub struct StoredPlane<'a> {
    /// Complete rows, one after the other. Samples past `width` and `height` only complete blocks.
    pub samples: &'a [u8],
    /// Samples from the start of one row to the start of the next.
    pub stride: usize,
    /// Column of the first sample in the component.
    pub left: usize,
    /// Row of the first sample in the component.
    pub top: usize,
    /// Samples per row of the whole component.
    pub width: usize,
    /// Rows of the whole component.
    pub height: usize,
    /// Pixels per sample, horizontally and vertically: 1 or 2. The center of a sample is the center of its pixels.
    pub spread: (usize, usize),
}

impl<'a> StoredPlane<'a> {
    /// Returns whether `samples` are those of the whole component.
    pub(super) fn is_whole(&self) -> bool {
        let needed = self.stride.checked_mul(self.height);
        (self.left, self.top) == (0, 0)
            && (1..=self.stride).contains(&self.width)
            && self.height > 0
            && needed.is_some_and(|needed| needed <= self.samples.len())
    }

    /// Returns the samples of row `y` of the component, from the first column on that `samples` has.
    #[inline(always)]
    pub(super) fn row(&self, y: usize) -> &'a [u8] {
        let start = y.saturating_sub(self.top) * self.stride;
        self.samples.get(start..start + self.stride).unwrap_or_default()
    }
}
