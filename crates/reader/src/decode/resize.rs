//! Resamples images with `fast_image_resize`.

use dsconvert_dataset::sample::Reject;
use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

use super::pixels::{Pixels, Size};
use super::reject::corrupt;

/// The part of a source that is resampled to the target, in source pixels. Coordinates may be fractions: decoding at a
/// reduced scale leaves a last row or column that is only partly covered, and a crop after the resize starts anywhere.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SourceRegion {
    /// First column.
    pub left: f64,
    /// First row.
    pub top: f64,
    /// Number of columns.
    pub width: f64,
    /// Number of rows.
    pub height: f64,
}

/// Resamples `part` of `source` to `target` pixels in `out`, which has exactly the size needed. RGBA colours are
/// weighted by their alpha.
pub fn resize(
    resizer: &mut Resizer,
    filter: FilterType,
    source: &Pixels,
    part: SourceRegion,
    target: Size,
    out: &mut [u8],
) -> Result<(), Reject> {
    let pixel_type = match source.channels {
        1 => PixelType::U8,
        3 => PixelType::U8x3,
        _ => PixelType::U8x4,
    };
    let from = ImageRef::new(source.width, source.height, &source.data, pixel_type).map_err(defect)?;
    let mut to = Image::from_slice_u8(target.width, target.height, out, pixel_type).map_err(defect)?;
    let options =
        ResizeOptions::new().resize_alg(ResizeAlg::Convolution(filter)).use_alpha(source.channels == 4).crop(
            part.left,
            part.top,
            // Rounding may have passed the edge by a tiny amount.
            part.width.min(f64::from(source.width) - part.left),
            part.height.min(f64::from(source.height) - part.top),
        );
    resizer.resize(&from, &mut to, &options).map_err(defect)
}

/// Converts an error of the resizer into a reject. Buffers are sized and crops kept inside beforehand, so no error is
/// expected. If one occurs, it affects the image, not the run.
fn defect(error: impl std::fmt::Display) -> Reject {
    corrupt(format!("it cannot be resized: {error}"))
}
