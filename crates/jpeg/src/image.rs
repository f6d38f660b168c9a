//! Decoded images.

use crate::pixel_format::PixelFormat;

/// The size and format of decoded pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageInfo {
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// Pixel format.
    pub format: PixelFormat,
    /// Whether damage was concealed. Only lenient decodes conceal damage.
    pub is_damaged: bool,
}

/// A decoded image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Size and format.
    pub info: ImageInfo,
    /// Interleaved 8-bit samples, rows from top to bottom without gaps.
    pub pixels: Vec<u8>,
}
