//! Formats of decoded pixels.

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
