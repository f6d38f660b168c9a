//! Resizing: which region of the source the target covers, and its resampling.

use fast_image_resize::{FilterType, Resizer};

use super::filter_support::box_filter;
use super::geometry::{Rect, Size};
use super::lanczos::{SUPPORT, lanczos3};
use super::option_values::Filter;
use super::pixels::Pixels;
pub(super) use crate::decode::SourceRegion;
use crate::sample::Reject;

/// Returns the region of a source, decoded at 1/`reduction` of `size`, that becomes `crop` of an image of `resized`
/// size.
pub(super) fn source_region(size: Size, reduction: u32, resized: Size, crop: Rect) -> SourceRegion {
    let scale = |source: u32, resized: u32| f64::from(source) / f64::from(reduction) / f64::from(resized);
    let (x, y) = (scale(size.width, resized.width), scale(size.height, resized.height));
    SourceRegion {
        left: f64::from(crop.left) * x,
        top: f64::from(crop.top) * y,
        width: f64::from(crop.size.width) * x,
        height: f64::from(crop.size.height) * y,
    }
}

/// Returns the pixels of a source of `size` that [`resize`] reads to resample `part`.
pub(super) fn pixels_read(filter: Filter, size: Size, part: SourceRegion, target: Size) -> Rect {
    let range = |start: f64, length: f64, target: u32, all: u32| {
        let reach = filter.support() * (length / f64::from(target)).max(1.0);
        // One pixel more than is read, so that rounding cannot matter.
        let first = (start - reach - 1.0).floor().max(0.0) as u32;
        let end = ((start + length + reach + 1.0).ceil() as u32).min(all);
        (first.min(end), end - first.min(end))
    };
    let (left, width) = range(part.left, part.width, target.width, size.width);
    let (top, height) = range(part.top, part.height, target.height, size.height);
    Rect { left, top, size: Size::new(width, height) }
}

fn algorithm(filter: Filter) -> FilterType {
    match filter {
        // The supports are valid, so the fallbacks to the library's own filters are never used.
        Filter::Lanczos3 => fast_image_resize::Filter::new("lanczos3", lanczos3, SUPPORT)
            .map_or(FilterType::Lanczos3, FilterType::Custom),
        Filter::CatmullRom => FilterType::CatmullRom,
        Filter::Bilinear => FilterType::Bilinear,
        Filter::Box => fast_image_resize::Filter::new("box", box_filter, filter.support())
            .map_or(FilterType::Box, FilterType::Custom),
    }
}

/// Resamples `part` of `source` to `target` pixels in `out`.
pub(super) fn resize(
    resizer: &mut Resizer,
    filter: Filter,
    source: &mut Pixels,
    part: SourceRegion,
    target: Size,
    out: &mut Pixels,
) -> Result<(), Reject> {
    out.reshape(target, source.channels);
    crate::decode::resize(resizer, algorithm(filter), source, part, target, &mut out.data)
}
