//! What is decoded, and what is returned: options, regions, scales, formats and images.

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

/// The size of the decoded image relative to the stored one. Sides are rounded up.
///
/// A reduced decode is cheaper than a full decode and an ordinary resize: blocks are transformed to 4×4, 2×2 or 1×1
/// samples instead of 8×8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Scale {
    /// Every pixel.
    #[default]
    Full,
    /// Half the width and height.
    Half,
    /// A quarter of the width and height.
    Quarter,
    /// An eighth of the width and height: the DC coefficients only.
    Eighth,
}

impl Scale {
    /// Returns the scale that divides sides by `denominator`: 1, 2, 4 or 8.
    pub fn from_denominator(denominator: u32) -> Option<Self> {
        match denominator {
            1 => Some(Self::Full),
            2 => Some(Self::Half),
            4 => Some(Self::Quarter),
            8 => Some(Self::Eighth),
            _ => None,
        }
    }

    /// Returns the number by which sides are divided.
    pub fn denominator(self) -> usize {
        match self {
            Self::Full => 1,
            Self::Half => 2,
            Self::Quarter => 4,
            Self::Eighth => 8,
        }
    }

    /// Returns the length of a decoded side, given the stored length.
    ///
    /// ```
    /// use dsconvert_jpeg::Scale;
    ///
    /// assert_eq!(Scale::Quarter.of_side(101), 26);
    /// ```
    pub fn of_side(self, side: usize) -> usize {
        side.div_ceil(self.denominator())
    }

    /// Returns the samples per side of a block that has 8 at full size.
    pub(crate) fn block_side(self) -> usize {
        8 / self.denominator()
    }
}

/// A rectangle of whole pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Region {
    /// First column.
    pub left: usize,
    /// First row.
    pub top: usize,
    /// Number of columns.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
}

impl Region {
    /// Returns the region that covers an image of `width` × `height` pixels.
    pub fn whole(width: usize, height: usize) -> Self {
        Self { left: 0, top: 0, width, height }
    }

    /// Returns whether the region is not empty and lies inside an image of `width` × `height` pixels.
    pub(crate) fn fits(self, width: usize, height: usize) -> bool {
        let fits = |start: usize, length: usize, all: usize| {
            length > 0 && start.checked_add(length).is_some_and(|end| end <= all)
        };
        fits(self.left, self.width, width) && fits(self.top, self.height, height)
    }
}

/// Samples of a decoded pixel: 8 bits each, interleaved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PixelFormat {
    /// One sample: luma.
    Gray,
    /// Red, green and blue.
    Rgb,
    /// Cyan, magenta, yellow and black.
    Cmyk,
}

impl PixelFormat {
    /// Returns the number of samples per pixel.
    pub fn channels(self) -> usize {
        match self {
            Self::Gray => 1,
            Self::Rgb => 3,
            Self::Cmyk => 4,
        }
    }
}

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
