//! Resamples images with `fast_image_resize`, and the rule for decoding JPEGs at a reduced size.

use dsconvert_dataset::sample::Reject;
use dsconvert_jpeg::Scale;
use fast_image_resize::images::TypedImage;
use fast_image_resize::pixels::{U8, U8x3, U8x4};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};

use super::pixels::{Pixels, Rect, Size};
use super::rejects::corrupt;

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

/// Returns the reduction for decoding a region of `width` × `height` pixels that is then resized to `target`: the
/// largest power of two, up to 8, whose result has at least twice the pixels of `target` in each direction. Down to
/// that size, the result differs from a full decode by less than the JPEG compression itself (44 to 50 dB).
pub fn reduction(width: f64, height: f64, target: Size) -> u32 {
    let remains = |side: f64, n: u32, target: u32| side / f64::from(n) >= 2.0 * f64::from(target);
    let fits = |n: &u32| remains(width, *n, target.width) && remains(height, *n, target.height);
    [8, 4, 2].into_iter().find(fits).unwrap_or(1)
}

/// Returns whether a JPEG can be decoded at a reduced size: unlike lossless files, and those with more than 8 bits per
/// sample. Only the segments before the frame header are read. For a damaged file, decoding finds the error.
pub(super) fn is_reducible(jpeg: &[u8]) -> bool {
    let mut rest = jpeg.get(2..).unwrap_or_default();
    while let [0xff, marker, after @ ..] = rest {
        let is_lossless = matches!(marker, 0xc3 | 0xc7 | 0xcb | 0xcf);
        match marker {
            // A fill byte.
            0xff => rest = &rest[1..],
            0xc4 | 0xc8 | 0xcc | 0x00..=0xbf | 0xd0..=0xfe => {
                let Some(length) = after.first_chunk().map(|length| u16::from_be_bytes(*length)) else {
                    break;
                };
                rest = after.get(usize::from(length)..).unwrap_or_default();
            }
            // A frame header: its length, and the precision.
            0xc0..=0xcf => return !is_lossless && after.get(2) == Some(&8),
        }
    }
    true
}

/// Returns the scale of a decode at 1/`reduction`. Every value that [`reduction`] returns has one.
pub fn scale(reduction: u32) -> Scale {
    Scale::from_denominator(reduction).unwrap_or_default()
}

/// Returns `part` if it consists of whole pixels and has the size of the target, so that it is not resampled.
pub(super) fn whole_pixels(part: SourceRegion, target: Size) -> Option<Rect> {
    let (left, top) = (part.left as u32, part.top as u32);
    let is_whole = (part.left, part.top) == (left.into(), top.into())
        && (part.width, part.height) == (target.width.into(), target.height.into());
    is_whole.then_some(Rect { left, top, size: target })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lossless_files_and_12_bit_samples_are_not_reduced() {
        let file = |frame: u8, precision: u8| {
            [&[0xff, 0xd8, 0xff, 0xfe, 0, 4, 0xff, 0xc0, 0xff][..], &[0xff, frame, 0, 11, precision]].concat()
        };
        assert!(is_reducible(&file(0xc0, 8)) && is_reducible(&file(0xc2, 8)));
        assert!(!is_reducible(&file(0xc1, 12)) && !is_reducible(&file(0xc3, 8)));
        assert!(
            is_reducible(&[])
                && is_reducible(&[0xff, 0xd8, 0xff])
                && is_reducible(&[0xff, 0xd8, 0xff, 0xe0, 0])
        );
        assert!(is_reducible(&[0xff, 0xd8, 0xff, 0xe0, 0, 0, 0xff]), "an impossible length ends the search");
    }

    #[test]
    fn at_least_twice_the_target_size_remains() {
        let of = |width, height, target: (u32, u32)| reduction(width, height, Size::new(target.0, target.1));
        assert_eq!(of(896.0, 896.0, (224, 224)), 2);
        assert_eq!(of(895.9, 896.0, (224, 224)), 1);
        assert_eq!(of(896.0, 895.9, (224, 224)), 1);
        assert_eq!(of(1792.0, 4000.0, (224, 224)), 4);
        assert_eq!(of(1e9, 1e9, (1, 1)), 8);
        assert_eq!(of(10.0, 10.0, (u32::MAX, 1)), 1);
    }
}
