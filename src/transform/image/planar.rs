//! The short way from JPEG to a smaller JPEG: resampling luma and chroma where they are.
//!
//! A photo is stored as luma and, at half the resolution, two chroma planes, and is to be stored like that again. Going
//! through RGB would raise chroma to full resolution, convert, resample three full channels, convert back and halve
//! chroma again. Resampling commutes with the colour conversion (both are linear), so each plane can go straight to
//! its final size: half the samples, no conversion, and one rounding less. Against the resized RGB image the result is
//! as near as that of the long way, or nearer (`docs/images.md` has the figures).
//!
//! Only the plainest case is taken: everything that makes it less plain goes the long way.

use fast_image_resize::images::{CroppedImage, Image, ImageRef};
use fast_image_resize::{PixelType, ResizeOptions};
use libjpeg_turbo_rs::{ColorSpace, RawImage, Subsampling, compress_raw};

use super::container::corrupt;
use super::container::jpeg::{self, Header, Process};
use super::decode_jpeg;
use super::encode;
use super::encoding::{self, Encode};
use super::exif::Orientation;
use super::geometry::{Plan, Size};
use super::options::ImageOptions;
use super::resize;
use super::scratch::Scratch;
use super::text::{Color, Filter};
use crate::sample::Reject;

/// Quality of the output when `source` may go the short way: YCbCr in, 4:2:0 out, smaller, upright, and no step between
/// that needs RGB. A profile to be applied is the caller's to rule out.
pub(super) fn quality(
    header: &Header<'_>,
    orientation: Orientation,
    plan: &Plan,
    options: &ImageOptions,
    encode: Encode,
) -> Option<u8> {
    let Encode::Jpeg { quality, subsampling: encoding::Subsampling::S420 } = encode else { return None };
    let shrinks = plan.resized.width < plan.source.width && plan.resized.height < plan.source.height;
    let is_plain = orientation == Orientation::Upright
        && plan.canvas == plan.crop.size
        && plan.canvas.longer() <= encode.max_side()
        && options.color == Color::Rgb
        && !options.lenient;
    let frame = &header.frame;
    let is_subsampled = match frame.sampling() {
        [(1 | 2, 1 | 2), (1, 1), (1, 1)] => frame.precision == 8 && frame.process != Process::Lossless,
        _ => false,
    };
    (shrinks && is_plain && is_subsampled && decode_jpeg::reduction(header, plan.source, plan.resized) == 1)
        .then_some(quality)
}

/// Converts the JPEG file `bytes`; `None` when its colours turn out not to be YCbCr.
pub(super) fn convert(
    bytes: &[u8],
    header: &Header<'_>,
    plan: &Plan,
    options: &ImageOptions,
    quality: u8,
    scratch: &mut Scratch,
) -> Result<Option<Vec<u8>>, Reject> {
    let reject = |error| decode_jpeg::reject(error, jpeg::is_ended(bytes, header.first_scan));
    let decoder = decode_jpeg::decoder(bytes, options, 1).map_err(reject)?;
    if decoder.jpeg_color_space() != ColorSpace::YCbCr {
        return Ok(None);
    }
    let (raw, warnings) = decoder.decode_raw_with_warnings().map_err(reject)?;
    if let Some(warning) = warnings.first() {
        return Err(corrupt(warning.to_string()));
    }
    let luma = plan.crop.size;
    let chroma = Size::new(luma.width.div_ceil(2), luma.height.div_ceil(2));
    let (luma_h, luma_v) = header.frame.sampling()[0];
    resample(&raw, 0, (1, 1), plan, luma, options.filter, scratch)?;
    for plane in 1..3 {
        resample(&raw, plane, (luma_h, luma_v), plan, chroma, options.filter, scratch)?;
    }
    let [y, cb, cr] = &scratch.planes;
    let widths = [luma.width, chroma.width, chroma.width].map(|side| side as usize);
    let heights = [luma.height, chroma.height, chroma.height].map(|side| side as usize);
    compress_raw(&[y, cb, cr], &widths, &heights, widths[0], heights[0], quality, Subsampling::S420)
        .map(Some)
        .map_err(encode::refused)
}

/// Resamples one plane to `target` samples. A sample of it covers `step` luma samples; where `target` is half the size
/// of the crop, so does a sample of the result.
fn resample(
    raw: &RawImage,
    plane: usize,
    step: (u8, u8),
    plan: &Plan,
    target: Size,
    filter: Filter,
    scratch: &mut Scratch,
) -> Result<(), Reject> {
    // Planes are padded to whole blocks with what the encoder liked: only the image itself is looked at.
    let size =
        Size::new(plan.source.width.div_ceil(step.0.into()), plan.source.height.div_ceil(step.1.into()));
    let (stride, rows) = (raw.plane_widths[plane] as u32, raw.plane_heights[plane] as u32);
    let padded = ImageRef::new(stride, rows, &raw.planes[plane], PixelType::U8).map_err(resize::defect)?;

    // From samples of the result to samples of this plane.
    let axis = |offset: u32, kept: u32, target: u32, resized: u32, source: u32, step: u8| {
        let scale = f64::from(source) / f64::from(resized) / f64::from(step);
        let covered = if target == kept { kept } else { target * 2 };
        (f64::from(offset) * scale, f64::from(covered) * scale)
    };
    let crop = plan.crop;
    let (left, width) =
        axis(crop.left, crop.size.width, target.width, plan.resized.width, plan.source.width, step.0);
    let (top, height) =
        axis(crop.top, crop.size.height, target.height, plan.resized.height, plan.source.height, step.1);
    let part = |size: Size| {
        let (width, height) =
            (width.min(f64::from(size.width) - left), height.min(f64::from(size.height) - top));
        ResizeOptions::new().resize_alg(resize::algorithm(filter)).crop(left, top, width, height)
    };

    let Scratch { samples, planes, resizer, .. } = scratch;
    let out = &mut planes[plane];
    out.resize(target.width as usize * target.height as usize, 0);
    let mut to =
        Image::from_slice_u8(target.width, target.height, out, PixelType::U8).map_err(resize::defect)?;
    // The last chroma sample of an odd size reaches beyond the edge: there the edge is repeated, as encoders do.
    let reach = Size::new((left + width - EDGE).ceil() as u32, (top + height - EDGE).ceil() as u32);
    if reach.width > size.width || reach.height > size.height {
        let reach = Size::new(reach.width.max(size.width), reach.height.max(size.height));
        extend(&raw.planes[plane], stride as usize, size, reach, samples);
        let source =
            ImageRef::new(reach.width, reach.height, samples, PixelType::U8).map_err(resize::defect)?;
        resizer.resize(&source, &mut to, &part(reach)).map_err(resize::defect)
    } else {
        let source = CroppedImage::new(&padded, 0, 0, size.width, size.height).map_err(resize::defect)?;
        resizer.resize(&source, &mut to, &part(size)).map_err(resize::defect)
    }
}

/// By how much of a sample rounding may take a position beyond the edge.
const EDGE: f64 = 1e-6;

/// Copies the `size` samples of `plane`, whose rows are `stride` apart, and repeats its last column and row up to `to`.
fn extend(plane: &[u8], stride: usize, size: Size, to: Size, out: &mut Vec<u8>) {
    out.clear();
    for y in 0..to.height {
        let start = y.min(size.height - 1) as usize * stride;
        let row = &plane[start..start + size.width as usize];
        out.extend_from_slice(row);
        out.resize(out.len() + (to.width - size.width) as usize, row[row.len() - 1]);
    }
}
