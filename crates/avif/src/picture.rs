//! Decoded samples, before their conversion to RGB.

use crate::error::{Error, Result};

/// How many samples of chroma there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chroma {
    /// None.
    Monochrome,
    /// One for 2 × 2 pixels.
    S420,
    /// One for 2 pixels of a row.
    S422,
    /// One for each pixel.
    S444,
}

impl Chroma {
    /// Returns the binary logarithms of the number of pixels per sample, horizontally and vertically.
    pub(crate) fn shifts(self) -> (u32, u32) {
        match self {
            Self::S420 => (1, 1),
            Self::S422 => (1, 0),
            Self::S444 | Self::Monochrome => (0, 0),
        }
    }
}

/// The samples of one component, rows from top to bottom without gaps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plane {
    pub(crate) width: usize,
    pub(crate) samples: Vec<u16>,
}

impl Plane {
    /// Creates a plane of zeros.
    pub(crate) fn new(width: usize, height: usize) -> Result<Self> {
        let count = width.checked_mul(height).ok_or_else(Error::out_of_memory)?;
        let mut samples = Vec::new();
        samples.try_reserve_exact(count).map_err(|_| Error::out_of_memory())?;
        samples.resize(count, 0);
        Ok(Self { width, samples })
    }

    pub(crate) fn row(&self, y: usize) -> &[u16] {
        self.samples.get(y * self.width..(y + 1) * self.width).unwrap_or_default()
    }

    /// Copies `tile` to the position `left`, `top`. What lies outside this plane is dropped.
    fn paste(&mut self, tile: &Self, left: usize, top: usize) {
        let width = self.width;
        let rows = self.samples.chunks_exact_mut(width.max(1)).skip(top);
        for (to, from) in rows.zip(tile.samples.chunks_exact(tile.width.max(1))) {
            let to = to.get_mut(left..).unwrap_or_default();
            let count = to.len().min(from.len());
            to[..count].copy_from_slice(&from[..count]);
        }
    }
}

/// A decoded AV1 picture.
#[derive(Debug, Clone)]
pub(crate) struct Picture {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Bits per sample: 8, 10 or 12.
    pub(crate) depth: u8,
    pub(crate) chroma: Chroma,
    /// The colors, as the AV1 data declares them.
    pub(crate) cicp: crate::properties::Cicp,
    /// Luma, then chroma unless it is monochrome.
    pub(crate) planes: [Plane; 3],
}

impl Picture {
    /// Creates a picture of zeros with the properties of `like`.
    pub(crate) fn blank(width: u32, height: u32, like: &Self) -> Result<Self> {
        let (across, down) = like.chroma.shifts();
        let side = |side: u32, shift: u32| side.div_ceil(1 << shift) as usize;
        let luma = Plane::new(width as usize, height as usize)?;
        let chroma = |_| match like.chroma {
            Chroma::Monochrome => Ok(Plane::default()),
            _ => Plane::new(side(width, across), side(height, down)),
        };
        let planes = [luma, chroma(1)?, chroma(2)?];
        Ok(Self { width, height, planes, ..*like })
    }

    /// Copies `tile` to the position `left`, `top`, in pixels. It must have the properties of this picture.
    pub(crate) fn paste(&mut self, tile: &Self, left: u32, top: u32) -> Result<()> {
        if (tile.depth, tile.chroma, tile.cicp) != (self.depth, self.chroma, self.cicp) {
            return Err(Error::corrupt("the tiles of its grid have different colors or depths"));
        }
        let (across, down) = self.chroma.shifts();
        for (index, (plane, tile)) in self.planes.iter_mut().zip(&tile.planes).enumerate() {
            let (across, down) = if index == 0 { (0, 0) } else { (across, down) };
            plane.paste(tile, (left >> across) as usize, (top >> down) as usize);
        }
        Ok(())
    }
}
