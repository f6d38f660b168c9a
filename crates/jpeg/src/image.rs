//! Decoded images.

use crate::pixel_format::PixelFormat;

/// The size and format of decoded pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageInfo {
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// The samples of a pixel.
    pub format: PixelFormat,
    /// Whether damage was concealed. Only lenient decodes do so.
    pub is_damaged: bool,
}

/// A decoded image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Size and format.
    pub info: ImageInfo,
    /// 8-bit samples, interleaved, rows from top to bottom without gaps.
    pub pixels: Vec<u8>,
}
