//! Resampling, through `fast_image_resize`.

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

use super::container::corrupt;
use super::geometry::{Rect, Size};
use super::lanczos::{SUPPORT, lanczos3};
use super::pixels::Pixels;
use super::text::Filter;
use crate::sample::Reject;

/// The part of a source that becomes the target, in source pixels. A decode at a smaller scale leaves a last row or
/// column that is only partly covered, and a crop after the resize starts anywhere, hence fractions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Part {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Part {
    /// The part of a source, decoded at 1/`reduction` of `size`, that becomes `crop` of an image of `resized` size.
    pub(super) fn new(size: Size, reduction: u32, resized: Size, crop: Rect) -> Self {
        let scale = |source: u32, resized: u32| f64::from(source) / f64::from(reduction) / f64::from(resized);
        let (x, y) = (scale(size.width, resized.width), scale(size.height, resized.height));
        Self {
            left: f64::from(crop.left) * x,
            top: f64::from(crop.top) * y,
            width: f64::from(crop.size.width) * x,
            height: f64::from(crop.size.height) * y,
        }
    }
}

fn algorithm(filter: Filter) -> ResizeAlg {
    ResizeAlg::Convolution(match filter {
        // The support is a valid one, so the library's own Lanczos is never the answer.
        Filter::Lanczos3 => fast_image_resize::Filter::new("lanczos3", lanczos3, SUPPORT)
            .map_or(FilterType::Lanczos3, FilterType::Custom),
        Filter::CatmullRom => FilterType::CatmullRom,
        Filter::Bilinear => FilterType::Bilinear,
        Filter::Box => FilterType::Box,
    })
}

/// Resamples `part` of `source` to `target` pixels in `out`. Colours of RGBA are weighted by their alpha.
pub(super) fn resize(
    resizer: &mut Resizer,
    filter: Filter,
    source: &Pixels,
    part: Part,
    target: Size,
    out: &mut Pixels,
) -> Result<(), Reject> {
    let pixel_type = match source.channels {
        1 => PixelType::U8,
        3 => PixelType::U8x3,
        _ => PixelType::U8x4,
    };
    out.reshape(target, source.channels);
    let from = ImageRef::new(source.width, source.height, &source.data, pixel_type).map_err(defect)?;
    let mut to =
        Image::from_slice_u8(target.width, target.height, &mut out.data, pixel_type).map_err(defect)?;
    let options = ResizeOptions::new().resize_alg(algorithm(filter)).use_alpha(source.channels == 4).crop(
        part.left,
        part.top,
        // Rounding may have gone past the edge by a hair.
        part.width.min(f64::from(source.width) - part.left),
        part.height.min(f64::from(source.height) - part.top),
    );
    resizer.resize(&from, &mut to, &options).map_err(defect)
}

/// Buffers are sized here and crops kept inside, so the resizer has nothing to refuse; should it, the image is to blame
/// and not the run.
fn defect(error: impl std::fmt::Display) -> Reject {
    corrupt(format!("it cannot be resized: {error}"))
}
