//! Geometry: from the size of a source to the sizes of its resize, crop and canvas. All arithmetic uses integers, so
//! that every machine agrees on every pixel.

use super::buckets::{Buckets, is_smaller};
use super::option_values::Resize;
use super::options::ImageOptions;
use super::orientation::Orientation;
pub(super) use crate::decode::{Rect, Size};

/// The sizes of one image from source to output, in oriented coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SizePlan {
    /// Size of the source.
    pub(super) source: Size,
    /// Size after the resize.
    pub(super) resized: Size,
    /// The part of the resized image that is kept.
    pub(super) crop: Rect,
    /// Size of the output.
    pub(super) canvas: Size,
}

impl SizePlan {
    /// Plans the sizes of an image of `source` size with `options`.
    pub(super) fn new(options: &ImageOptions, source: Size) -> Self {
        if let Some(buckets) = &options.buckets {
            let bucket = buckets.choose(source);
            if options.enlarge || !is_smaller(source, bucket) {
                return Self::in_bucket(buckets, source, bucket);
            }
            // It is filtered.
        }
        let resized = resized(options.resize, options.enlarge, source);
        let kept = match options.crop {
            Some(crop) => Size::new(crop.width.min(resized.width), crop.height.min(resized.height)),
            None => resized,
        };
        let crop = centered(resized, kept);
        let canvas = match options.pad {
            Some(pad) => Size::new(pad.width.max(kept.width), pad.height.max(kept.height)),
            None => kept,
        };
        Self { source, resized, crop, canvas }
    }

    /// Plans the sizes of an image of `source` size that covers `bucket`, and is cropped to it.
    pub(super) fn in_bucket(buckets: &Buckets, source: Size, bucket: Size) -> Self {
        let resized = buckets.covering(source, bucket);
        Self { source, resized, crop: centered(resized, bucket), canvas: bucket }
    }

    /// Returns the size after the resize in the coordinates of the stored pixels, which `orientation` turns upright.
    pub(super) fn stored_resized(&self, orientation: Orientation) -> Size {
        if orientation.transposes() { self.resized.transposed() } else { self.resized }
    }

    /// Returns the crop in the coordinates of the stored pixels, which `orientation` turns upright.
    pub(super) fn stored_crop(&self, orientation: Orientation) -> Rect {
        let Rect { left, top, size } = self.crop;
        let right = self.resized.width - left - size.width;
        let bottom = self.resized.height - top - size.height;
        let (columns, rows, size) = match orientation.transposes() {
            true => ((top, bottom), (left, right), size.transposed()),
            false => ((left, right), (top, bottom), size),
        };
        let (mirrors_columns, mirrors_rows) = orientation.mirrors();
        let left = if mirrors_columns { columns.1 } else { columns.0 };
        Rect { left, top: if mirrors_rows { rows.1 } else { rows.0 }, size }
    }

    /// Returns whether every pixel stays where it is.
    pub(super) fn is_identity(&self) -> bool {
        self.source == self.resized && self.source == self.crop.size && self.source == self.canvas
    }
}

/// Returns the center of an image of `size`, of the size `kept`. If the remainder is odd, the extra pixel is cut off on the
/// right and at the bottom.
fn centered(size: Size, kept: Size) -> Rect {
    Rect { left: (size.width - kept.width) / 2, top: (size.height - kept.height) / 2, size: kept }
}

/// Returns `side × numerator / denominator`, rounded half up, at least 1, at most `u32::MAX`.
pub(super) fn scaled(side: u32, numerator: u32, denominator: u32) -> u32 {
    let (side, numerator, denominator) =
        (u64::from(side), u64::from(numerator), u64::from(denominator.max(1)));
    let rounded = (side * numerator + denominator / 2) / denominator;
    u32::try_from(rounded).unwrap_or(u32::MAX).max(1)
}

fn resized(resize: Resize, enlarge: bool, source: Size) -> Size {
    let by_ratio = |target: u32, side: u32| {
        if target == side || (target > side && !enlarge) {
            source
        } else {
            Size::new(scaled(source.width, target, side), scaled(source.height, target, side))
        }
    };
    match resize {
        Resize::None => source,
        Resize::Shorter(n) => by_ratio(n, source.shorter()),
        Resize::Longer(n) => by_ratio(n, source.longer()),
        Resize::Exact(w, h) if enlarge => Size::new(w, h),
        Resize::Exact(w, h) => Size::new(w.min(source.width), h.min(source.height)),
        Resize::Area(pixels) => {
            if pixels == source.pixels() || (pixels > source.pixels() && !enlarge) {
                return source;
            }
            // width² = pixels × aspect; rounding down keeps the product within the bound.
            let side = |this: u32, other: u32| {
                let squared = u128::from(pixels) * u128::from(this) / u128::from(other.max(1));
                u32::try_from(squared.isqrt()).unwrap_or(u32::MAX).max(1)
            };
            let (width, height) = (side(source.width, source.height), side(source.height, source.width));
            // If one side was raised to 1, the other may take the whole area, but no more.
            let at_most = |side: u32, other: u32| {
                side.min(u32::try_from(pixels / u64::from(other)).unwrap_or(u32::MAX)).max(1)
            };
            let width = at_most(width, height);
            Size::new(width, at_most(height, width))
        }
    }
}

/// The orientation of one image, and its sizes from source to output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    pub(super) plan: SizePlan,
    /// Size of the stored pixels.
    pub(super) stored: Size,
    pub(super) orientation: Orientation,
}

impl Geometry {
    /// Returns the upright size of the source, the size after the resize, the top left corner of the crop in it, and the size
    /// of the output: heights and widths, or y and x, in pixels. `None` if one of them exceeds 31 bits.
    pub fn pairs(&self) -> Option<[[i32; 2]; 4]> {
        let SizePlan { source, resized, crop, canvas } = self.plan;
        let pair = |y: u32, x: u32| Some([i32::try_from(y).ok()?, i32::try_from(x).ok()?]);
        let of = |size: Size| pair(size.height, size.width);
        Some([of(source)?, of(resized)?, pair(crop.top, crop.left)?, of(canvas)?])
    }

    /// Returns the orientation of a mask or an additional image of `size` whose own orientation is `own`; `None` if it
    /// does not fit the image. Without an orientation, it belongs to the stored pixels of the image if it has their
    /// size, otherwise to the upright image.
    pub(super) fn orientation_of(&self, size: Size, own: Orientation) -> Option<Orientation> {
        let oriented = if own.transposes() { size.transposed() } else { size };
        match own {
            Orientation::Upright if size == self.stored => Some(self.orientation),
            _ => (oriented == self.plan.source).then_some(own),
        }
    }

    /// Returns the positions of the output rows and columns in a mask of `size` that `orientation` turns upright.
    /// Positions are offsets in pixels: the sum of a row offset and a column offset is the nearest pixel. Padding is
    /// `None`.
    pub(super) fn source_positions(&self, size: Size, orientation: Orientation) -> [Vec<Option<usize>>; 2] {
        let SizePlan { source, resized, crop, canvas } = self.plan;
        let (width, height) = (size.width as usize, size.height as usize);
        let nearest = |source: u32, resized: u32, start: u32, kept: u32, canvas: u32| {
            let before = (canvas - kept) / 2;
            (0..canvas).map(move |at| {
                let at = at.checked_sub(before).filter(|at| *at < kept)?;
                let middle = 2 * u64::from(start + at) + 1;
                Some((middle * u64::from(source) / (2 * u64::from(resized))) as usize)
            })
        };
        let columns = nearest(source.width, resized.width, crop.left, crop.size.width, canvas.width);
        let rows = nearest(source.height, resized.height, crop.top, crop.size.height, canvas.height);
        let (mirrors_columns, mirrors_rows) = orientation.mirrors();
        let stored_column = |x: usize| if mirrors_columns { width - 1 - x } else { x };
        let stored_row = |y: usize| width * if mirrors_rows { height - 1 - y } else { y };
        match orientation.transposes() {
            true => {
                [rows.map(|y| y.map(stored_column)).collect(), columns.map(|x| x.map(stored_row)).collect()]
            }
            false => {
                [rows.map(|y| y.map(stored_row)).collect(), columns.map(|x| x.map(stored_column)).collect()]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::option_values::{Crop, Pad, Rgb};
    use super::*;

    fn to(resize: Resize, width: u32, height: u32) -> (u32, u32) {
        let size = resized(resize, false, Size::new(width, height));
        (size.width, size.height)
    }

    #[test]
    fn sizes_follow_the_request() {
        assert_eq!(to(Resize::Shorter(256), 500, 375), (341, 256));
        assert_eq!(to(Resize::Shorter(256), 375, 500), (256, 341));
        assert_eq!(to(Resize::Shorter(256), 200, 900), (200, 900));
        assert_eq!(to(Resize::Longer(512), 4000, 3000), (512, 384));
        assert_eq!(to(Resize::Longer(10), 10_000, 3), (10, 1));
        assert_eq!(to(Resize::Exact(100, 100), 50, 200), (50, 100));
        assert_eq!(to(Resize::Area(50_176), 4000, 3000), (258, 193));
        assert_eq!(resized(Resize::Shorter(256), true, Size::new(100, 50)), Size::new(512, 256));
        assert_eq!(resized(Resize::Exact(9, 7), true, Size::new(1, 1)), Size::new(9, 7));
        assert_eq!(
            resized(Resize::Shorter(u32::MAX), true, Size::new(1, u32::MAX)),
            Size::new(u32::MAX, u32::MAX)
        );
    }

    #[test]
    fn crop_is_centered_and_pad_never_crops() {
        let options = ImageOptions {
            resize: Resize::Shorter(256),
            crop: Some(Crop { width: 224, height: 300 }),
            pad: Some(Pad { width: 100, height: 300, color: Rgb::BLACK }),
            ..ImageOptions::default()
        };
        let plan = SizePlan::new(&options, Size::new(500, 375));
        assert_eq!(plan.crop, Rect { left: 58, top: 0, size: Size::new(224, 256) });
        assert_eq!(plan.canvas, Size::new(224, 300));
        assert!(!plan.is_identity());
        assert!(SizePlan::new(&ImageOptions::default(), Size::new(3, 4)).is_identity());
    }

    proptest! {
        #[test]
        fn images_are_not_enlarged_unless_requested(
            width in 1u32..70_000, height in 1u32..70_000, n in 1u32..5_000, m in 1u32..5_000, kind in 0..4,
        ) {
            let resize = match kind {
                0 => Resize::Shorter(n),
                1 => Resize::Longer(n),
                2 => Resize::Exact(n, m),
                _ => Resize::Area(u64::from(n) * u64::from(m)),
            };
            let source = Size::new(width, height);
            let small = resized(resize, false, source);
            prop_assert!(small.width >= 1 && small.width <= width && small.height >= 1 && small.height <= height);
            let any = resized(resize, true, source);
            match resize {
                Resize::Shorter(n) => prop_assert_eq!(any.shorter(), n),
                Resize::Longer(n) => prop_assert_eq!(any.longer(), n),
                Resize::Exact(w, h) => prop_assert_eq!(any, Size::new(w, h)),
                Resize::Area(pixels) => prop_assert!(any.pixels() <= pixels),
                Resize::None => {}
            }
        }
    }
}
