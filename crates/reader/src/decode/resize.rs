//! Resamples images with `fast_image_resize`.

use dsconvert_dataset::sample::Reject;
use fast_image_resize::images::TypedImage;
use fast_image_resize::pixels::{U8, U8x3, U8x4};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};

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

impl SourceRegion {
    /// Returns this region in an image that is decoded at 1/`reduction` of its size.
    pub fn reduced(self, reduction: u32) -> Self {
        let [left, top, width, height] =
            [self.left, self.top, self.width, self.height].map(|n| n / f64::from(reduction));
        Self { left, top, width, height }
    }
}

/// Resamples `part` of `source` to `target` pixels in `out`, which has exactly the size needed. RGBA colors are
/// weighted by their alpha. `source` is not modified; it is mutable only to reduce the compiled code, see
/// `resize_typed`.
pub fn resize(
    resizer: &mut Resizer,
    filter: FilterType,
    source: &mut Pixels,
    part: SourceRegion,
    target: Size,
    out: &mut [u8],
) -> Result<(), Reject> {
    let options =
        ResizeOptions::new().resize_alg(ResizeAlg::Convolution(filter)).use_alpha(source.channels == 4).crop(
            part.left,
            part.top,
            // Rounding may have moved the edge slightly past the end of the image.
            part.width.min(f64::from(source.width) - part.left),
            part.height.min(f64::from(source.height) - part.top),
        );
    match source.channels {
        1 => resize_typed::<U8>(resizer, source, target, out, &options),
        3 => resize_typed::<U8x3>(resizer, source, target, out, &options),
        _ => resize_typed::<U8x4>(resizer, source, target, out, &options),
    }
}

/// Resamples pixels of one type. `Resizer::resize` would compile the resampling of all 13 pixel types. The source is a
/// [`TypedImage`] like the intermediate images, because the library is generic over the type of the source.
fn resize_typed<P: PixelTrait>(
    resizer: &mut Resizer,
    source: &mut Pixels,
    target: Size,
    out: &mut [u8],
    options: &ResizeOptions,
) -> Result<(), Reject> {
    let from = TypedImage::<P>::from_buffer(source.width, source.height, &mut source.data).map_err(defect)?;
    let mut to = TypedImage::<P>::from_buffer(target.width, target.height, out).map_err(defect)?;
    resizer.resize_typed(&from, &mut to, options).map_err(defect)
}

/// Converts an error of the resizer into a reject. Buffers are sized and crops kept inside beforehand, so no error is
/// expected. If one occurs, it affects the image, not the run.
fn defect(error: impl std::fmt::Display) -> Reject {
    corrupt(format!("it cannot be resized: {error}"))
}
