//! What becomes of an image.

use bytes::Bytes;

use crate::decode::ImageType;

/// What became of an image that is no reject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageOutcome {
    /// It is a record.
    Converted(Converted),
    /// The selection options leave it out.
    Filtered(Filtered),
}

/// An encoded image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    /// The image file, or bare samples for [`ImageType::Raw`].
    pub bytes: Bytes,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// What `bytes` are.
    pub encoding: ImageType,
    /// Whether the coded pixels are those of the source, untouched.
    pub passthrough: bool,
    /// Whether the source was damaged and is kept as far as it decodes.
    pub lenient: bool,
}

/// Why the selection options leave an image out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Filtered {
    /// The shorter side is below `min_size`.
    MinSize,
    /// The sides differ by more than `max_aspect`.
    MaxAspect,
    /// There are fewer pixels than `min_pixels`.
    MinPixels,
}

impl Filtered {
    /// The name in the list of filtered items.
    pub fn name(self) -> &'static str {
        match self {
            Filtered::MinSize => "min-size",
            Filtered::MaxAspect => "max-aspect",
            Filtered::MinPixels => "min-pixels",
        }
    }
}
