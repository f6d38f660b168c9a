//! The samples of each component, as far as a rectangle needs them.

use std::ops::Range;

use super::Rect;
use super::block::Content;
use super::header::{Frame, Sampling};
use super::idct::Block;

/// Minimum coded units that a rectangle needs.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) columns: Range<usize>,
    pub(super) rows: Range<usize>,
}

impl Span {
    pub(super) fn of(frame: &Frame<'_>, rect: Rect) -> Self {
        // Colours of half resolution are blended with their neighbours, one sample in each direction.
        let reach = if frame.sampling == Sampling::Half { 2 } else { 0 };
        let mcu = frame.sampling.mcu();
        let units = |start: usize, length: usize, all: usize| {
            let end = (start + length + reach).min(all);
            start.saturating_sub(reach) / mcu..end.div_ceil(mcu)
        };
        Self {
            columns: units(rect.left, rect.width, frame.width),
            rows: units(rect.top, rect.height, frame.height),
        }
    }
}

/// Samples of the units of a [`Span`].
#[derive(Debug, Default)]
pub(super) struct Planes {
    samples: [Vec<u8>; 3],
    strides: [usize; 3],
    /// Position of the first sample in the image, per component.
    pub(super) origins: [(usize, usize); 3],
    /// Coefficients of one row of units. All are zero between two images that were decoded.
    pub(super) blocks: Vec<(Block, Content)>,
    /// Colours of one row at full resolution.
    pub(super) blended: [Vec<u8>; 2],
}

impl Planes {
    pub(super) fn kept_bytes(&self) -> usize {
        let samples: usize = self.samples.iter().chain(&self.blended).map(Vec::capacity).sum();
        samples + self.blocks.capacity() * size_of::<(Block, Content)>()
    }

    pub(super) fn reshape(&mut self, sampling: Sampling, span: &Span) {
        let mcu = sampling.mcu();
        for component in 0..3 {
            let side = if component == 0 { mcu } else { 8 };
            self.strides[component] = span.columns.len() * side;
            self.origins[component] = (span.columns.start * side, span.rows.start * side);
            let samples = span.columns.len() * side * span.rows.len() * side;
            let used = component == 0 || sampling != Sampling::Gray;
            self.samples[component].resize(if used { samples } else { 0 }, 0);
        }
    }

    /// Where the block at `place` (column, row; in blocks) of a component begins.
    #[inline(always)]
    pub(super) fn block(&mut self, component: usize, place: (usize, usize)) -> (&mut [u8], usize, usize) {
        let stride = self.strides[component];
        (&mut self.samples[component], stride, place.1 * 8 * stride + place.0 * 8)
    }

    /// The samples of row `y` of a component, from the first column on that is there.
    #[inline(always)]
    pub(super) fn row(&self, component: usize, y: usize) -> &[u8] {
        let stride = self.strides[component];
        let start = y.saturating_sub(self.origins[component].1) * stride;
        self.samples[component].get(start..start + stride).unwrap_or_default()
    }
}
