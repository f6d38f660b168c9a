//! The samples of each component, as far as a rectangle needs them.
//!
//! At 1/2, 1/4 and 1/8 of the size, a block has 4, 2 or 1 samples a side. Of colours that are stored at half the
//! resolution it has more, as libjpeg does it: then they need not be blended.

use std::ops::Range;

use super::block::Content;
use super::header::{Frame, Sampling};
use super::idct::Block;
use super::{NotOurs, Rect};

/// How the samples of a component lie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Layer {
    /// Blocks in a minimum coded unit.
    pub(super) columns: usize,
    /// See [`Layer::columns`].
    pub(super) rows: usize,
    /// Samples on a side of a block.
    pub(super) side: usize,
    /// Pixels of the output for a sample, across and down: 1 or 2.
    pub(super) spread: (usize, usize),
    /// Whether colours of half the resolution are blended with their neighbours, or repeated.
    pub(super) is_blended: bool,
    /// Samples of the whole image, without those that only fill the last blocks.
    pub(super) width: usize,
    /// See [`Layer::width`].
    pub(super) height: usize,
}

/// Narrower than this, libjpeg repeats colour samples instead of blending them.
const MIN_BLENDED_WIDTH: usize = 3;

impl Layer {
    /// The layers of `frame` at 1/`reduction` of its size. The second is that of both colours.
    pub(super) fn of(frame: &Frame<'_>, reduction: usize) -> Result<[Self; 2], NotOurs> {
        let side = 8 / reduction;
        let Sampling { columns, rows, .. } = frame.sampling;
        let luma = Self {
            columns,
            rows,
            side,
            spread: (1, 1),
            is_blended: false,
            width: frame.width.div_ceil(reduction),
            height: frame.height.div_ceil(reduction),
        };
        // Twice the samples where that gives the full resolution in both directions (jdmaster.c of libjpeg).
        let (side_of_colors, spread) = if reduction > 1 && (columns, rows) == (2, 2) {
            (2 * side, (1, 1))
        } else {
            (side, (columns, rows))
        };
        let colors = Self {
            columns: 1,
            rows: 1,
            side: side_of_colors,
            spread,
            is_blended: side > 1,
            width: luma.width.div_ceil(spread.0),
            height: luma.height.div_ceil(spread.1),
        };
        if spread.0 > 1 && colors.is_blended && colors.width < MIN_BLENDED_WIDTH {
            return Err(NotOurs);
        }
        Ok([luma, colors])
    }

    /// Pixels of the output that a minimum coded unit has, across and down.
    pub(super) fn unit(&self) -> (usize, usize) {
        (self.columns * self.side * self.spread.0, self.rows * self.side * self.spread.1)
    }
}

/// Minimum coded units that a rectangle needs.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) columns: Range<usize>,
    pub(super) rows: Range<usize>,
}

impl Span {
    pub(super) fn of([luma, colors]: &[Layer; 2], rect: Rect) -> Self {
        let units = |start: usize, length: usize, all: usize, unit: usize, spread: usize| {
            // Colours of half the resolution are blended with their neighbours, one sample in each direction.
            let reach = 2 * (spread - 1);
            let end = (start + length + reach).min(all);
            start.saturating_sub(reach) / unit..end.div_ceil(unit)
        };
        let (unit, spread) = (luma.unit(), colors.spread);
        Self {
            columns: units(rect.left, rect.width, luma.width, unit.0, spread.0),
            rows: units(rect.top, rect.height, luma.height, unit.1, spread.1),
        }
    }
}

/// Samples of the units of a [`Span`].
#[derive(Debug, Default)]
pub(super) struct Planes {
    samples: [Vec<u8>; 3],
    layers: [Layer; 3],
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

    pub(super) fn reshape(&mut self, is_gray: bool, [luma, colors]: [Layer; 2], span: &Span) {
        self.layers = [luma, colors, colors];
        for (component, layer) in self.layers.iter().enumerate() {
            let (width, height) = (layer.columns * layer.side, layer.rows * layer.side);
            self.strides[component] = span.columns.len() * width;
            self.origins[component] = (span.columns.start * width, span.rows.start * height);
            let samples = span.columns.len() * width * span.rows.len() * height;
            let used = component == 0 || !is_gray;
            self.samples[component].resize(if used { samples } else { 0 }, 0);
        }
    }

    /// How the samples of a component lie.
    #[inline(always)]
    pub(super) fn layer(&self, component: usize) -> Layer {
        self.layers[component]
    }

    /// All samples of a component, and how many a row has.
    #[inline(always)]
    pub(super) fn plane(&mut self, component: usize) -> (&mut [u8], usize) {
        (&mut self.samples[component], self.strides[component])
    }

    /// The samples of row `y` of a component, from the first column on that is there.
    #[inline(always)]
    pub(super) fn row(&self, component: usize, y: usize) -> &[u8] {
        let stride = self.strides[component];
        let start = y.saturating_sub(self.origins[component].1) * stride;
        self.samples[component].get(start..start + stride).unwrap_or_default()
    }
}
