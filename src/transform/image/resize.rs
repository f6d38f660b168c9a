//! Resampling, through `fast_image_resize`.

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

use super::container::corrupt;
use super::geometry::Size;
use super::pixels::Pixels;
use super::text::Filter;
use crate::sample::Reject;

/// The part of a source that becomes the target, in source pixels, from its left upper corner. A decode at a smaller
/// scale leaves a last row or column that is only partly covered, hence fractions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Extent {
    pub(super) width: f64,
    pub(super) height: f64,
}

fn kernel(filter: Filter) -> FilterType {
    match filter {
        Filter::Lanczos3 => FilterType::Lanczos3,
        Filter::CatmullRom => FilterType::CatmullRom,
        Filter::Bilinear => FilterType::Bilinear,
        Filter::Box => FilterType::Box,
    }
}

/// Resamples the covered part of `source` to `target` pixels in `out`. Colours of RGBA are weighted by their alpha.
pub(super) fn resize(
    resizer: &mut Resizer,
    filter: Filter,
    source: &Pixels,
    extent: Extent,
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
    let options = ResizeOptions::new()
        .resize_alg(ResizeAlg::Convolution(kernel(filter)))
        .use_alpha(source.channels == 4)
        .crop(0.0, 0.0, extent.width.min(source.width.into()), extent.height.min(source.height.into()));
    resizer.resize(&from, &mut to, &options).map_err(defect)
}

/// Buffers are sized here and crops kept inside, so the resizer has nothing to refuse; should it, the image is to blame
/// and not the run.
fn defect(error: impl std::fmt::Display) -> Reject {
    corrupt(format!("it cannot be resized: {error}"))
}
