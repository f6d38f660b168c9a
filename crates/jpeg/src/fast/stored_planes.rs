//! Components at their stored resolution.

use crate::region::Region;
use crate::scale::Scale;

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
