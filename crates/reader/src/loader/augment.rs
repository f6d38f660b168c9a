//! Image augmentation: the crop and the horizontal flip are a function of seed, epoch and ordinal.

use super::options::{Channels, Crop, ImageBatchOptions};
use crate::batch::{Purpose, key};
use crate::split_mix;

/// Attempts before the random crop falls back to the center, as in torchvision.
const TRIES: usize = 10;

/// The part of an image that becomes a row of the batch, in pixels of the stored image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct View {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    /// Width of the result in pixels.
    pub(super) out_width: u32,
    /// Height of the result in pixels.
    pub(super) out_height: u32,
    pub(super) mirrored: bool,
}

impl View {
    /// Returns the view that `options` select in an image of `width` × `height` pixels.
    pub(super) fn of(
        options: &ImageBatchOptions,
        width: u32,
        height: u32,
        random: &mut RecordRandom,
    ) -> Self {
        // Drawn first and always, so that it does not depend on the crop.
        let mirrored = random.unit() < options.hflip;
        let (left, top, taken_width, taken_height, out_height, out_width) = match options.crop {
            Crop::None => (0.0, 0.0, f64::from(width), f64::from(height), height, width),
            Crop::Center { height: h, width: w } => {
                let (left, top, tw, th) = center(width, height, w, h);
                match options.channels {
                    // At a chroma sample, so that planes are copied.
                    Channels::Yuv if (tw, th) == (w.into(), h.into()) => {
                        (left - left % 2.0, top - top % 2.0, tw, th, h, w)
                    }
                    _ => (left, top, tw, th, h, w),
                }
            }
            Crop::RandomResized { height: h, width: w, scale, ratio } => {
                let (left, top, tw, th) = random_part(width, height, scale, ratio, random);
                (f64::from(left), f64::from(top), f64::from(tw), f64::from(th), h, w)
            }
        };
        Self { left, top, width: taken_width, height: taken_height, out_width, out_height, mirrored }
    }
}

/// Returns the center of an image in the shape of the crop: left, top, width and height. If the image is smaller than
/// the crop, it is the part that covers the crop when enlarged.
fn center(width: u32, height: u32, crop_width: u32, crop_height: u32) -> (f64, f64, f64, f64) {
    if crop_width <= width && crop_height <= height {
        // An odd remainder puts the extra pixel on the right and at the bottom.
        let (left, top) = ((width - crop_width) / 2, (height - crop_height) / 2);
        return (left.into(), top.into(), crop_width.into(), crop_height.into());
    }
    let (w, h) = (f64::from(width), f64::from(height));
    let scale = (f64::from(crop_width) / w).max(f64::from(crop_height) / h);
    let (taken_w, taken_h) =
        ((f64::from(crop_width) / scale).min(w), (f64::from(crop_height) / scale).min(h));
    ((w - taken_w) / 2.0, (h - taken_h) / 2.0, taken_w, taken_h)
}

/// Same as torchvision's `RandomResizedCrop.get_params`. Returns left, top, width and height.
fn random_part(
    width: u32,
    height: u32,
    scale: (f64, f64),
    ratio: (f64, f64),
    random: &mut RecordRandom,
) -> (u32, u32, u32, u32) {
    let area = f64::from(width) * f64::from(height);
    for _ in 0..TRIES {
        let taken = area * random.between(scale.0, scale.1);
        let shape = random.between(ratio.0.ln(), ratio.1.ln()).exp();
        let (w, h) = ((taken * shape).sqrt().round() as u32, (taken / shape).sqrt().round() as u32);
        if (1..=width).contains(&w) && (1..=height).contains(&h) {
            let top = random.below(height - h + 1);
            let left = random.below(width - w + 1);
            return (left, top, w, h);
        }
    }
    let shape = f64::from(width) / f64::from(height);
    let (w, h) = if shape < ratio.0 {
        (width, (f64::from(width) / ratio.0).round() as u32)
    } else if shape > ratio.1 {
        ((f64::from(height) * ratio.1).round() as u32, height)
    } else {
        (width, height)
    };
    let (w, h) = (w.clamp(1, width), h.clamp(1, height));
    ((width - w) / 2, (height - h) / 2, w, h)
}

/// The random numbers of one record in one epoch: SplitMix64 from a hash of both.
#[derive(Debug)]
pub(super) struct RecordRandom(u64);

impl RecordRandom {
    pub(super) fn new(seed: u64, epoch: u64, ordinal: u64) -> Self {
        Self(key(seed, Purpose::Images, epoch, ordinal))
    }

    /// Returns those that decide which values are left out.
    pub(super) fn of_drop(seed: u64, epoch: u64, ordinal: u64) -> Self {
        Self(key(seed, Purpose::Drops, epoch, ordinal))
    }

    fn next(&mut self) -> u64 {
        split_mix::next(&mut self.0)
    }

    /// Returns a uniform number from 0 to 1, without 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.unit()
    }

    /// Returns a uniform number from 0 to `n`, without `n`.
    fn below(&mut self, n: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn view(crop: Crop, width: u32, height: u32, ordinal: u64) -> View {
        let options = ImageBatchOptions { crop, hflip: 0.5, ..ImageBatchOptions::default() };
        View::of(&options, width, height, &mut RecordRandom::new(7, 3, ordinal))
    }

    proptest! {
        #[test]
        fn parts_lie_inside_the_image(
            (width, height) in (1u32..3000, 1u32..3000),
            (h, w) in (1u32..400, 1u32..400),
            ordinal: u64,
        ) {
            for crop in [Crop::None, Crop::center(h, w), Crop::random_resized(h, w)] {
                let view = view(crop, width, height, ordinal);
                prop_assert!(view.left >= 0.0 && view.top >= 0.0 && view.width > 0.0 && view.height > 0.0);
                prop_assert!(view.left + view.width <= f64::from(width) + 1e-6);
                prop_assert!(view.top + view.height <= f64::from(height) + 1e-6);
            }
        }
    }

    #[test]
    fn center_crops_are_not_resized_unless_the_image_is_too_small() {
        let large = view(Crop::center(224, 200), 301, 256, 0);
        assert_eq!((large.left, large.top, large.width, large.height), (50.0, 16.0, 200.0, 224.0));
        let small = view(Crop::center(200, 200), 100, 50, 0);
        assert_eq!((small.left, small.top, small.width, small.height), (25.0, 0.0, 50.0, 50.0));
    }

    #[test]
    fn random_parts_have_the_requested_area_and_aspect_ratio() {
        let mut mirrored = 0;
        for ordinal in 0..1000 {
            let view = view(Crop::random_resized(9, 9), 640, 480, ordinal);
            let (share, shape) = (view.width * view.height / (640.0 * 480.0), view.width / view.height);
            assert!((0.078..=1.0).contains(&share), "{share}");
            assert!((0.74..=1.35).contains(&shape), "{shape}");
            mirrored += u32::from(view.mirrored);
        }
        assert!((420..580).contains(&mirrored), "{mirrored} of 1000");
    }

    /// The same seed gives the same augmentations in every version, so these numbers never change.
    #[test]
    fn random_numbers_never_change() {
        let mut random = RecordRandom::new(42, 1, 1000);
        assert_eq!([random.next(), random.next()], [13_388_605_464_051_800_748, 14_101_298_173_081_915_154]);
    }
}
