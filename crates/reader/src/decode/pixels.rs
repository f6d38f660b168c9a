//! Pixels in memory, and their sizes.

/// Width and height in pixels, both at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Pixels per row.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
}

impl Size {
    /// Creates a size of `width` × `height`.
    pub fn new(width: u32, height: u32) -> Self {
        Self { width, height }
    }

    /// Returns the number of pixels.
    pub fn pixels(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// Returns the size with width and height exchanged.
    pub fn transposed(self) -> Self {
        Self { width: self.height, height: self.width }
    }

    /// Returns the size of a JPEG that is decoded at 1/`reduction` of its size.
    pub fn reduced(self, reduction: u32) -> Self {
        Self { width: self.width.div_ceil(reduction), height: self.height.div_ceil(reduction) }
    }

    /// Returns the shorter side.
    pub fn shorter(self) -> u32 {
        self.width.min(self.height)
    }

    /// Returns the longer side.
    pub fn longer(self) -> u32 {
        self.width.max(self.height)
    }
}

/// A rectangle of whole pixels inside an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rect {
    /// First column.
    pub left: u32,
    /// First row.
    pub top: u32,
    /// Width and height.
    pub size: Size,
}

impl From<Rect> for dsconvert_jpeg::Region {
    fn from(rect: Rect) -> Self {
        let [left, top, width, height] =
            [rect.left, rect.top, rect.size.width, rect.size.height].map(|n| n as usize);
        Self { left, top, width, height }
    }
}

/// 8-bit samples, interleaved, rows from top to bottom without gaps.
#[derive(Debug, Default)]
pub struct Pixels {
    /// The samples: `height` rows of `width` pixels of `channels` bytes.
    pub data: Vec<u8>,
    /// Pixels per row.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
    /// Samples per pixel: 1 for gray, 3 for RGB, 4 for RGBA.
    pub channels: usize,
}

impl Pixels {
    /// Returns the width and height.
    pub fn size(&self) -> Size {
        Size::new(self.width, self.height)
    }

    /// Returns the number of bytes per row.
    pub fn stride(&self) -> usize {
        self.width as usize * self.channels
    }

    /// Changes the shape. The samples keep stale values.
    pub fn reshape(&mut self, size: Size, channels: usize) {
        (self.width, self.height, self.channels) = (size.width, size.height, channels);
        self.data.resize(self.stride() * self.height as usize, 0);
    }
}

/// The order of the samples of a decoded image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PixelOrder {
    /// Samples per pixel: 1 for gray, 3 for RGB.
    pub channels: usize,
    /// Whether columns are in reverse order.
    pub is_mirrored: bool,
    /// Whether channels are separate planes.
    pub is_planar: bool,
}

impl PixelOrder {
    /// Returns the order of interleaved samples, `channels` per pixel.
    pub fn interleaved(channels: usize) -> Self {
        Self { channels, is_mirrored: false, is_planar: false }
    }
}
