//! Resampling: which part of a source becomes the target, and how.

use fast_image_resize::{FilterType, Resizer};

use super::geometry::{Rect, Size};
use super::lanczos::{SUPPORT, lanczos3};
use super::pixels::Pixels;
use super::text::Filter;
pub(super) use crate::decode::Part;
use crate::sample::Reject;

/// The part of a source, decoded at 1/`reduction` of `size`, that becomes `crop` of an image of `resized` size.
pub(super) fn part(size: Size, reduction: u32, resized: Size, crop: Rect) -> Part {
    let scale = |source: u32, resized: u32| f64::from(source) / f64::from(reduction) / f64::from(resized);
    let (x, y) = (scale(size.width, resized.width), scale(size.height, resized.height));
    Part {
        left: f64::from(crop.left) * x,
        top: f64::from(crop.top) * y,
        width: f64::from(crop.size.width) * x,
        height: f64::from(crop.size.height) * y,
    }
}

fn algorithm(filter: Filter) -> FilterType {
    match filter {
        // The support is a valid one, so the library's own Lanczos is never the answer.
        Filter::Lanczos3 => fast_image_resize::Filter::new("lanczos3", lanczos3, SUPPORT)
            .map_or(FilterType::Lanczos3, FilterType::Custom),
        Filter::CatmullRom => FilterType::CatmullRom,
        Filter::Bilinear => FilterType::Bilinear,
        Filter::Box => FilterType::Box,
    }
}

/// Resamples `part` of `source` to `target` pixels in `out`.
pub(super) fn resize(
    resizer: &mut Resizer,
    filter: Filter,
    source: &Pixels,
    part: Part,
    target: Size,
    out: &mut Pixels,
) -> Result<(), Reject> {
    out.reshape(target, source.channels);
    crate::decode::resize(resizer, algorithm(filter), source, part, target, &mut out.data)
}
