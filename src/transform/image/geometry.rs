//! Sizes: from the size of a source to the sizes of its resize, crop and canvas. Integers only, so that every machine
//! agrees on every pixel.

use super::exif::Orientation;
use super::options::ImageOptions;
use super::text::Resize;
pub(super) use crate::decode::{Rect, Size};

/// What happens to the size of one image, in oriented coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SizePlan {
    /// Size of the source.
    pub(super) source: Size,
    /// Size after the resize.
    pub(super) resized: Size,
    /// What is kept of the resized image.
    pub(super) crop: Rect,
    /// Size of the output.
    pub(super) canvas: Size,
}

impl SizePlan {
    /// What `options` make of an image of `source` size.
    pub(super) fn new(options: &ImageOptions, source: Size) -> Self {
        let resized = resized(options.resize, options.enlarge, source);
        let kept = match options.crop {
            Some(crop) => Size::new(crop.width.min(resized.width), crop.height.min(resized.height)),
            None => resized,
        };
        // An odd remainder puts the extra pixel on the right and at the bottom.
        let crop = Rect {
            left: (resized.width - kept.width) / 2,
            top: (resized.height - kept.height) / 2,
            size: kept,
        };
        let canvas = match options.pad {
            Some(pad) => Size::new(pad.width.max(kept.width), pad.height.max(kept.height)),
            None => kept,
        };
        Self { source, resized, crop, canvas }
    }

    /// Size after the resize in the coordinates of the stored pixels, which `orientation` turns upright.
    pub(super) fn stored_resized(&self, orientation: Orientation) -> Size {
        if orientation.transposes() { self.resized.transposed() } else { self.resized }
    }

    /// The crop in the coordinates of the stored pixels, which `orientation` turns upright.
    pub(super) fn stored_crop(&self, orientation: Orientation) -> Rect {
        let Rect { left, top, size } = self.crop;
        let right = self.resized.width - left - size.width;
        let bottom = self.resized.height - top - size.height;
        let (left, top) = match orientation {
            Orientation::Upright => (left, top),
            Orientation::FlipHorizontal => (right, top),
            Orientation::Rotate180 => (right, bottom),
            Orientation::FlipVertical => (left, bottom),
            Orientation::Transpose => (top, left),
            Orientation::Rotate90 => (top, right),
            Orientation::Transverse => (bottom, right),
            Orientation::Rotate270 => (bottom, left),
        };
        Rect { left, top, size: if orientation.transposes() { size.transposed() } else { size } }
    }

    /// Whether every pixel stays where it is.
    pub(super) fn is_identity(&self) -> bool {
        self.source == self.resized && self.source == self.crop.size && self.source == self.canvas
    }
}

/// `side × numerator / denominator`, rounded half up, at least 1, at most `u32::MAX`.
fn scaled(side: u32, numerator: u32, denominator: u32) -> u32 {
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
            // Where one side was lifted to 1, the other may take the whole area, and no more.
            let at_most = |side: u32, other: u32| {
                side.min(u32::try_from(pixels / u64::from(other)).unwrap_or(u32::MAX)).max(1)
            };
            let width = at_most(width, height);
            Size::new(width, at_most(height, width))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::text::{Crop, Pad, Rgb};
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
    fn crop_is_centred_and_pad_never_cuts() {
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
        fn nothing_grows_unasked(
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
