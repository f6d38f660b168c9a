//! The decoded samples of each component, limited to what a region needs.
//!
//! At 1/2, 1/4 and 1/8 of the size, a block has 4, 2 or 1 samples per side. As in libjpeg, chroma blocks of half the
//! resolution have twice as many if that makes upsampling unnecessary.

use std::ops::Range;

use super::coded_blocks::CodedBlocks;
use super::frame::{Frame, Sampling};
use super::request::{Declined, StoredPlane, StoredPlanes};
use super::upsample::{MIN_FANCY_WIDTH, UpsampledRows};
use crate::memory;
use crate::options::{Region, Scale};

/// The layout of the samples of a component.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PlaneShape {
    /// Blocks per MCU, horizontally.
    pub(super) columns: usize,
    /// Blocks per MCU, vertically.
    pub(super) rows: usize,
    /// Samples per side of a block.
    pub(super) side: usize,
    /// Output pixels per sample, horizontally and vertically: 1 or 2.
    pub(super) spread: (usize, usize),
    /// Whether upsampling is fancy (blends neighbors); otherwise it replicates samples.
    pub(super) is_fancy: bool,
    /// Samples per row of the whole image, without those that only complete MCUs.
    pub(super) width: usize,
    /// Rows of samples of the whole image, without those that only complete MCUs.
    pub(super) height: usize,
}

impl PlaneShape {
    /// Returns the shapes of luma and of both chroma components of `frame` at `scale`. If chroma will not be upsampled,
    /// it keeps its stored resolution relative to luma.
    pub(super) fn of(frame: &Frame<'_>, scale: Scale, is_upsampled: bool) -> Result<[Self; 2], Declined> {
        let side = scale.block_side();
        let Sampling { columns, rows, .. } = frame.sampling;
        let luma = Self {
            columns,
            rows,
            side,
            spread: (1, 1),
            is_fancy: false,
            width: scale.of_side(frame.width),
            height: scale.of_side(frame.height),
        };
        // Twice the samples if that gives full resolution in both directions (jdmaster.c of libjpeg).
        let (chroma_side, spread) = if is_upsampled && scale != Scale::Full && (columns, rows) == (2, 2) {
            (2 * side, (1, 1))
        } else {
            (side, (columns, rows))
        };
        let chroma = Self {
            columns: 1,
            rows: 1,
            side: chroma_side,
            spread,
            is_fancy: side > 1,
            width: luma.width.div_ceil(spread.0),
            height: luma.height.div_ceil(spread.1),
        };
        if is_upsampled && spread.0 > 1 && chroma.is_fancy && chroma.width < MIN_FANCY_WIDTH {
            return Err(Declined);
        }
        Ok([luma, chroma])
    }

    /// Returns the number of blocks per MCU.
    pub(super) fn blocks(&self) -> usize {
        self.columns * self.rows
    }

    /// Returns the output pixels per MCU, horizontally and vertically.
    pub(super) fn mcu(&self) -> (usize, usize) {
        (self.columns * self.side * self.spread.0, self.rows * self.side * self.spread.1)
    }
}

/// The MCUs that a region needs.
#[derive(Debug, Clone)]
pub(super) struct McuSpan {
    pub(super) columns: Range<usize>,
    pub(super) rows: Range<usize>,
}

impl McuSpan {
    pub(super) fn of([luma, chroma]: &[PlaneShape; 2], region: Region) -> Self {
        let mcus = |start: usize, length: usize, all: usize, mcu: usize, spread: usize| {
            // Fancy upsampling reads one more chroma sample in each direction.
            let reach = 2 * (spread - 1);
            let end = (start + length + reach).min(all);
            start.saturating_sub(reach) / mcu..end.div_ceil(mcu)
        };
        let (mcu, spread) = (luma.mcu(), chroma.spread);
        Self {
            columns: mcus(region.left, region.width, luma.width, mcu.0, spread.0),
            rows: mcus(region.top, region.height, luma.height, mcu.1, spread.1),
        }
    }
}

/// The samples of a [`McuSpan`], and the buffers to compute them.
#[derive(Debug, Default)]
pub(super) struct Planes {
    samples: [Vec<u8>; 3],
    shapes: [PlaneShape; 3],
    strides: [usize; 3],
    /// Column and row of the first sample in the image, per component.
    origins: [(usize, usize); 3],
    /// Coefficients of a group of MCUs.
    pub(super) blocks: CodedBlocks,
    /// Chroma of one row at full resolution.
    pub(super) upsampled: UpsampledRows,
}

impl Planes {
    pub(super) fn kept_bytes(&self) -> usize {
        let samples: usize = self.samples.iter().map(Vec::capacity).sum();
        samples + self.upsampled.capacity() + self.blocks.kept_bytes()
    }

    pub(super) fn reshape(
        &mut self,
        is_gray: bool,
        [luma, chroma]: [PlaneShape; 2],
        span: &McuSpan,
    ) -> Result<(), Declined> {
        self.shapes = [luma, chroma, chroma];
        for (component, shape) in self.shapes.iter().enumerate() {
            let (width, height) = (shape.columns * shape.side, shape.rows * shape.side);
            self.strides[component] = span.columns.len() * width;
            self.origins[component] = (span.columns.start * width, span.rows.start * height);
            let samples = span.columns.len() * width * span.rows.len() * height;
            let used = component == 0 || !is_gray;
            let length = if used { samples } else { 0 };
            memory::resize(&mut self.samples[component], length, 0).map_err(|_| Declined)?;
        }
        Ok(())
    }

    /// Returns whether chroma is upsampled by blending neighbors.
    pub(super) fn is_fancy(&self) -> bool {
        self.shapes[1].is_fancy
    }

    /// Returns the components that were decoded: luma and, unless the image `is_gray`, chroma.
    pub(super) fn stored(&self, is_gray: bool) -> StoredPlanes<'_> {
        StoredPlanes { luma: self.view(0), chroma: (!is_gray).then(|| [self.view(1), self.view(2)]) }
    }

    /// Returns all samples of a component, and the number of samples per row.
    #[inline(always)]
    pub(super) fn plane(&mut self, component: usize) -> (&mut [u8], usize) {
        (&mut self.samples[component], self.strides[component])
    }

    /// Returns a component whose samples were decoded.
    fn view(&self, component: usize) -> StoredPlane<'_> {
        let PlaneShape { width, height, spread, .. } = self.shapes[component];
        let (left, top) = self.origins[component];
        let (samples, stride) = (&self.samples[component], self.strides[component]);
        StoredPlane { samples, stride, left, top, width, height, spread }
    }
}
