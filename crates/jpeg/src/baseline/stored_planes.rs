//! Components as they are stored.

use crate::region::Region;
use crate::scale::Scale;

/// What [`BaselineDecoder::decode_planes`](crate::BaselineDecoder::decode_planes) decodes.
#[derive(Debug, Clone, Copy)]
pub struct PlanesRequest {
    /// Width and height that the file is known to have.
    pub size: (usize, usize),
    /// The size of the output.
    pub scale: Scale,
    /// The pixels to decode, at that scale.
    pub region: Region,
    /// Whether the file is read to its end, even below the region, so that damage anywhere is found.
    pub reads_to_end: bool,
}

/// The components of an image at the resolution at which they are stored: chroma is not upsampled, and colors are not
/// converted.
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
    /// Whole rows, one after the other. Past `width` and `height` are samples that complete blocks.
    pub samples: &'a [u8],
    /// Samples from one row to the next.
    pub stride: usize,
    /// Column of the first sample in the component.
    pub left: usize,
    /// Row of the first sample in the component.
    pub top: usize,
    /// Samples per row of the whole component.
    pub width: usize,
    /// Rows of the whole component.
    pub height: usize,
    /// Pixels per sample, across and down: 1 or 2. The center of a sample is the center of its pixels.
    pub spread: (usize, usize),
}
