//! Resizing: which region of the source the target covers, and its resampling.

use fast_image_resize::{FilterType, Resizer};

use super::filters::{SUPPORT, box_filter, lanczos3};
use super::geometry::{Rect, Size};
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
    // The supports are valid, so the fallbacks to the library's own filters are never used.
    let (name, kernel, library): (_, fn(f64) -> f64, _) = match filter {
        Filter::Lanczos3 => ("lanczos3", |x| without_zeros(x, SUPPORT, lanczos3(x)), FilterType::Lanczos3),
        Filter::CatmullRom => {
            ("catmullrom", |x| without_zeros(x, 2.0, catmullrom(x)), FilterType::CatmullRom)
        }
        Filter::Bilinear => return FilterType::Bilinear,
        Filter::Box => ("box", box_filter, FilterType::Box),
    };
    fast_image_resize::Filter::new(name, kernel, filter.support()).map_or(library, FilterType::Custom)
}

/// Replaces zeros inside the support by a weight that is rounded to zero later.
///
/// `fast_image_resize` drops samples of weight zero at the edge of a window, and assumes that no window starts before the
/// first one. If only the window of the first pixel of a crop has zeros, it reads outside its buffer.
fn without_zeros(x: f64, support: f64, weight: f64) -> f64 {
    if weight == 0.0 && x.abs() < support { f64::MIN_POSITIVE } else { weight }
}

/// Returns the kernel of Keys with a slope of −1/2, in the operations of `fast_image_resize`.
fn catmullrom(x: f64) -> f64 {
    let x = x.abs();
    if x < 1.0 {
        (1.5 * x - 2.5) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5
    } else {
        0.0
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crop_of_one_color_keeps_it() {
        let mut resizer = Resizer::new();
        for filter in [Filter::Lanczos3, Filter::CatmullRom, Filter::Bilinear, Filter::Box] {
            for source in 1..12 {
                for target in (1..48).step_by(3).chain([source, 2 * source, 4 * source, 5 * source]) {
                    let size = Size::new(source, source);
                    let (data, mut out) = (vec![77; (source * source) as usize], Pixels::default());
                    let mut pixels = Pixels { data, width: source, height: source, channels: 1 };
                    let crop = Size::new(target.div_ceil(2), target.div_ceil(3));
                    let (left, top) = ((target - crop.width) / 2, (target - crop.height) / 2);
                    let part =
                        source_region(size, 1, Size::new(target, target), Rect { left, top, size: crop });
                    resize(&mut resizer, filter, &mut pixels, part, crop, &mut out).unwrap();
                    assert!(out.data.iter().all(|&level| level == 77), "{filter:?}: {source} to {target}");
                }
            }
        }
    }
}
