//! Decoding options.

use crate::pixel_format::PixelFormat;
use crate::region::Region;
use crate::scale::Scale;

/// Default limit of the number of pixels of an image.
const DEFAULT_MAX_PIXELS: u64 = 1 << 27;

/// Selects what [`Decoder::decode`](crate::Decoder::decode) decodes, and how strictly.
///
/// ```
/// use dsconvert_jpeg::{DecodeOptions, PixelFormat, Scale};
///
/// let thumbnails = DecodeOptions::new().scale(Scale::Eighth).format(PixelFormat::Rgb);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct DecodeOptions {
    pub(crate) scale: Scale,
    pub(crate) format: Option<PixelFormat>,
    pub(crate) region: Option<Region>,
    pub(crate) reads_to_end: bool,
    pub(crate) is_lenient: bool,
    pub(crate) max_pixels: u64,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self {
            scale: Scale::Full,
            format: None,
            region: None,
            reads_to_end: false,
            is_lenient: false,
            max_pixels: DEFAULT_MAX_PIXELS,
        }
    }
}

impl DecodeOptions {
    /// Creates the default options: the whole image at full size, in grayscale if it is stored that way, otherwise in
    /// RGB. Damage is an error.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the scale of the output.
    pub fn scale(self, scale: Scale) -> Self {
        Self { scale, ..self }
    }

    /// Sets the pixel format of the output. CMYK images are converted to RGB and gray without a color profile. Only
    /// CMYK images can be decoded to [`PixelFormat::Cmyk`]; 255 is then full ink, however the file stores it.
    pub fn format(self, format: PixelFormat) -> Self {
        Self { format: Some(format), ..self }
    }

    /// Sets the part to decode, in pixels of the scaled image. Common JPEGs are decoded only down to the last row of
    /// the region and, if they have restart markers, without the segments outside it.
    pub fn region(self, region: Region) -> Self {
        Self { region: Some(region), ..self }
    }

    /// Sets whether the file is read to its end, even outside the region, so that damage anywhere is an error. This takes
    /// extra time.
    pub fn reads_to_end(self, reads_to_end: bool) -> Self {
        Self { reads_to_end, ..self }
    }

    /// Sets whether damage is concealed instead of being an error: parts that cannot be decoded are gray, or as coarse
    /// as the scans before them. [`ImageInfo::is_damaged`](crate::ImageInfo::is_damaged) reports it.
    pub fn lenient(self, is_lenient: bool) -> Self {
        Self { is_lenient, ..self }
    }

    /// Limits the number of stored pixels, 2²⁷ by default. Larger images are
    /// [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge). The limit bounds memory use: at most about 20 bytes per
    /// pixel, for a progressive CMYK file.
    pub fn max_pixels(self, max_pixels: u64) -> Self {
        Self { max_pixels, ..self }
    }
}
