//! Upsampling of components to the size of the image, with the methods that `jdsample.c` of libjpeg-turbo selects.

use super::planes::Plane;
use crate::error::Error;
use crate::options::Scale;
use crate::structure::JpegLayout;

/// Minimum width of a component for fancy upsampling. libjpeg-turbo replicates the samples of narrower components.
const MIN_FANCY_WIDTH: usize = 3;

/// The method that upsamples a component to the size of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Upsampling {
    /// Samples per side of a block of the component.
    pub(super) side: usize,
    /// Pixels per sample, horizontally and vertically.
    factors: (usize, usize),
    /// Whether upsampling is fancy (blends neighbors); otherwise it replicates samples.
    is_fancy: bool,
}

impl Upsampling {
    /// Returns the upsampling of each component of `layout` at `scale`. Fractional ratios are unsupported, as in
    /// libjpeg.
    pub(super) fn of(layout: &JpegLayout<'_>, scale: Scale) -> Result<Vec<Self>, Error> {
        let (max_h, max_v) = layout.max_factors();
        let smallest = scale.block_side();
        let upsampling = layout.components.iter().map(|component| {
            // Blocks stay larger if that makes upsampling unnecessary (jdmaster.c).
            let mut side = smallest;
            while side < 8
                && (max_h * smallest).is_multiple_of(component.horizontal * side * 2)
                && (max_v * smallest).is_multiple_of(component.vertical * side * 2)
            {
                side *= 2;
            }
            let (across, down) = (component.horizontal * side, component.vertical * side);
            let (out_across, out_down) = (max_h * smallest, max_v * smallest);
            if !out_across.is_multiple_of(across) || !out_down.is_multiple_of(down) {
                return Err(Error::unsupported(format!(
                    "a JPEG with the sampling factors {} needs fractional upsampling, which is not supported",
                    layout.sampling_text()
                )));
            }
            let factors = (out_across / across, out_down / down);
            let width = (layout.width * across).div_ceil(8 * max_h);
            let is_fancy = smallest > 1
                && match factors {
                    (2, 1 | 2) => width >= MIN_FANCY_WIDTH,
                    (1, 2) => true,
                    _ => false,
                };
            Ok(Self { side, factors, is_fancy })
        });
        upsampling.collect()
    }

    /// Writes row `y` of the image to `out`, upsampled to the width of `out`.
    pub(super) fn row(&self, plane: &Plane, y: usize, out: &mut [u8]) {
        let (across, down) = self.factors;
        let near = y / down;
        let row = plane.row(near);
        if !self.is_fancy {
            for (to, from) in out.chunks_mut(across).zip(row) {
                to.fill(*from);
            }
            return;
        }
        // The neighboring row is above for the first of two rows, and below for the second.
        let far = plane.row(if y.is_multiple_of(2) { near.saturating_sub(1) } else { near + 1 });
        match self.factors {
            (1, _) => {
                let bias = if y.is_multiple_of(2) { 1 } else { 2 };
                for ((to, near), far) in out.iter_mut().zip(row).zip(far) {
                    *to = ((3 * u16::from(*near) + u16::from(*far) + bias) >> 2) as u8;
                }
            }
            (_, 1) => blend(row.len(), out, (1, 2, 2), |x| u16::from(row[x])),
            _ => blend(row.len(), out, (8, 7, 4), |x| 3 * u16::from(row[x]) + u16::from(far[x])),
        }
    }
}

/// Doubles a row of `width` samples: each is 3/4 of the nearest sample and 1/4 of the next one. The tuple contains the
/// rounding biases of the left and the right sample of a pair, and the number of bits to shift right.
fn blend(width: usize, out: &mut [u8], (left, right, bits): (u16, u16, u32), sample: impl Fn(usize) -> u16) {
    for (x, pair) in (0..width).zip(out.chunks_mut(2)) {
        let this = sample(x);
        let before = sample(x.saturating_sub(1));
        let after = sample((x + 1).min(width - 1));
        let pixels = [(3 * this + before + left) >> bits, (3 * this + after + right) >> bits];
        for (to, from) in pair.iter_mut().zip(pixels) {
            *to = from as u8;
        }
    }
}
