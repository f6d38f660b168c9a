//! Positions of the output samples in the components of the file.
//!
//! A sample represents the pixels that it covers, and its center is their center. Decoders interpret half-resolution
//! chroma the same way. Colors therefore do not shift: neither relative to luma nor by the resize, the crop or the
//! rotation.

use dsconvert_jpeg::{Region, StoredPlane};

use super::super::geometry::{Rect, Size};
use super::super::orientation::Orientation;
use crate::decode::resample::SampleAxis;

/// The mapping from output pixels to pixels of the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placement {
    /// Size of the file.
    pub(super) source: Size,
    /// The file is decoded at 1/`reduction` of its size.
    pub(super) reduction: u32,
    /// Size after the resize, in the orientation of the stored pixels.
    pub(super) resized: Size,
    /// The part of the resized image that is kept.
    pub(super) crop: Rect,
    pub(super) orientation: Orientation,
}

/// One dimension of a [`Placement`].
struct AxisPlacement {
    /// Source pixels per pixel of the resized image.
    scale: f64,
    /// First pixel of the resized image that is kept.
    start: f64,
    /// Number of pixels that are kept.
    length: u32,
    is_mirrored: bool,
}

impl Placement {
    /// Returns the axes for the columns and rows of `plane`, for an output with one sample per `per_sample` pixels in
    /// each direction, before it is transposed.
    pub(super) fn axes(&self, plane: &StoredPlane<'_>, per_sample: u32) -> (SampleAxis, SampleAxis) {
        let (across, down) = self.axis_placements();
        (
            across.axis(per_sample, plane.spread.0, plane.width),
            down.axis(per_sample, plane.spread.1, plane.height),
        )
    }

    /// Returns the region of decoded pixels that a filter of `support` reads, at any chroma resolution. It may contain
    /// a few more pixels.
    pub(super) fn region(&self, support: f64) -> Region {
        let (across, down) = self.axis_placements();
        let side = |side: u32| side.div_ceil(self.reduction) as usize;
        let (columns, rows) =
            (across.span(support, side(self.source.width)), down.span(support, side(self.source.height)));
        Region { left: columns.start, top: rows.start, width: columns.len(), height: rows.len() }
    }

    fn axis_placements(&self) -> (AxisPlacement, AxisPlacement) {
        let (mirrors_columns, mirrors_rows) = self.orientation.mirrors();
        let axis = |source: u32, resized: u32, start: u32, length: u32, is_mirrored: bool| AxisPlacement {
            scale: f64::from(source) / f64::from(self.reduction) / f64::from(resized),
            start: f64::from(start),
            length,
            is_mirrored,
        };
        let Rect { left, top, size } = self.crop;
        (
            axis(self.source.width, self.resized.width, left, size.width, mirrors_columns),
            axis(self.source.height, self.resized.height, top, size.height, mirrors_rows),
        )
    }
}

impl AxisPlacement {
    fn axis(&self, per_sample: u32, spread: usize, length: usize) -> SampleAxis {
        let per_pixel = self.scale / spread as f64;
        // A sample of a single pixel has the center of that pixel.
        let half = f64::from(per_sample.min(self.length)) / 2.0;
        let (first, direction) =
            if self.is_mirrored { (f64::from(self.length) - half, -1.0) } else { (half, 1.0) };
        SampleAxis {
            first: (self.start + first) * per_pixel,
            step: direction * f64::from(per_sample) * per_pixel,
            count: self.length.div_ceil(per_sample) as usize,
            length,
        }
    }

    fn span(&self, support: f64, side: usize) -> std::ops::Range<usize> {
        // Half-resolution chroma reaches twice as far.
        let reach = 2.0 * support * self.scale.max(1.0) + 2.0;
        let start = (self.start * self.scale - reach).max(0.0) as usize;
        let end = ((self.start + f64::from(self.length)) * self.scale + reach).ceil() as usize;
        start.min(side - 1)..end.min(side)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane(width: usize, height: usize, spread: (usize, usize)) -> StoredPlane<'static> {
        StoredPlane { samples: &[], stride: width, left: 0, top: 0, width, height, spread }
    }

    /// The center of every chroma sample is between the two luma samples that it covers, in the file and in the output.
    #[test]
    fn chroma_samples_are_centered_on_their_pixels() {
        for orientation in (1..=8).filter_map(Orientation::from_tag) {
            for (crop, reduction) in [((0, 0, 101, 77), 1), ((13, 6, 50, 41), 2)] {
                let (left, top, width, height) = crop;
                let placement = Placement {
                    source: Size::new(333, 251),
                    reduction,
                    resized: Size::new(101, 77),
                    crop: Rect { left, top, size: Size::new(width, height) },
                    orientation,
                };
                let (across, down) = placement.axes(&plane(333, 251, (1, 1)), 1);
                let (chroma_across, chroma_down) = placement.axes(&plane(167, 126, (2, 2)), 2);
                for (luma, chroma) in [(across, chroma_across), (down, chroma_down)] {
                    assert_eq!(chroma.count, luma.count.div_ceil(2));
                    for n in 0..luma.count / 2 {
                        let at = |axis: SampleAxis, n: usize| axis.first + n as f64 * axis.step;
                        let middle = (at(luma, 2 * n) + at(luma, 2 * n + 1)) / 2.0;
                        assert!((at(chroma, n) * 2.0 - middle).abs() < 1e-9, "{orientation:?}");
                    }
                }
            }
        }
    }
    #[test]
    fn a_single_pixel_has_luma_and_chroma_at_the_same_place() {
        for orientation in (1..=8).filter_map(Orientation::from_tag) {
            for left in [0, 13] {
                let placement = Placement {
                    source: Size::new(200, 100),
                    reduction: 1,
                    resized: Size::new(20, 10),
                    crop: Rect { left, top: 3, size: Size::new(1, 1) },
                    orientation,
                };
                let (across, down) = placement.axes(&plane(200, 100, (1, 1)), 1);
                let (chroma_across, chroma_down) = placement.axes(&plane(100, 50, (2, 2)), 2);
                for (luma, chroma) in [(across, chroma_across), (down, chroma_down)] {
                    assert_eq!((chroma.count, chroma.first * 2.0), (1, luma.first), "{orientation:?}");
                }
            }
        }
    }
}
