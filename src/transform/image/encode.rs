//! Encoding of pixels as image files.

use image::ExtendedColorType;
use image::ImageEncoder;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::codecs::webp::WebPEncoder;
use libjpeg_turbo_rs::{Encoder, PixelFormat};

use super::container::unsupported;
use super::encoding::{Encode, Subsampling};
use super::libwebp;
use super::pixels::Pixels;
use crate::decode::planes_of_pixels;
use crate::sample::{Reject, RejectCode};

/// Encodes `pixels` as `encode`. The caller resolves [`Encode::Keep`] to a type; here it means PNG.
pub(super) fn encode(pixels: &Pixels, encode: Encode) -> Result<Vec<u8>, Reject> {
    let longest = encode.max_side();
    if pixels.size().longer() > longest {
        return Err(Reject::new(
            RejectCode::TooLarge,
            format!("{}×{} pixels: {encode} allows at most {longest} per side", pixels.width, pixels.height),
        ));
    }
    match encode {
        Encode::Jpeg { quality, subsampling } => jpeg(pixels, quality, subsampling),
        Encode::Png | Encode::Keep => {
            let mut out = Vec::new();
            // Adaptive filters with the fast deflate of `fdeflate`: a tenth larger than the best, but many times
            // faster.
            PngEncoder::new_with_quality(&mut out, CompressionType::Fast, FilterType::Adaptive)
                .write_image(&pixels.data, pixels.width, pixels.height, color_type(pixels))
                .map_err(refused)?;
            Ok(out)
        }
        Encode::Webp { quality } => libwebp::encode(pixels, quality),
        Encode::WebpLossless => {
            let mut out = Vec::new();
            WebPEncoder::new_lossless(&mut out)
                .write_image(&pixels.data, pixels.width, pixels.height, color_type(pixels))
                .map_err(refused)?;
            Ok(out)
        }
        Encode::Yuv(subsampling) => Ok(planes_of_pixels(pixels, subsampling.planes())),
        Encode::Raw => Ok(pixels.data.clone()),
    }
}

fn color_type(pixels: &Pixels) -> ExtendedColorType {
    match pixels.channels {
        1 => ExtendedColorType::L8,
        3 => ExtendedColorType::Rgb8,
        _ => ExtendedColorType::Rgba8,
    }
}

fn refused(error: impl std::fmt::Display) -> Reject {
    unsupported(format!("it cannot be encoded: {error}"))
}

fn jpeg(pixels: &Pixels, quality: u8, subsampling: Subsampling) -> Result<Vec<u8>, Reject> {
    let format = match pixels.channels {
        1 => PixelFormat::Grayscale,
        3 => PixelFormat::Rgb,
        _ => PixelFormat::Rgbx,
    };
    Encoder::new(&pixels.data, pixels.width as usize, pixels.height as usize, format)
        .quality(quality)
        // Quantization values of more than 8 bits are not baseline; few readers support them.
        .force_baseline(true)
        .subsampling(match subsampling {
            Subsampling::S420 => libjpeg_turbo_rs::Subsampling::S420,
            Subsampling::S444 => libjpeg_turbo_rs::Subsampling::S444,
        })
        .encode()
        .map_err(refused)
}

/// Encodes planes as a JPEG. The last two have half the resolution. Returns `None` if that is not possible.
pub(super) fn jpeg_of_planes(planes: &[Pixels; 3], quality: u8) -> Option<Vec<u8>> {
    let [width, height] = [planes[0].width as usize, planes[0].height as usize];
    let samples = planes.each_ref().map(|plane| plane.data.as_slice());
    libjpeg_turbo_rs::compress_raw(
        &samples,
        &planes.each_ref().map(|plane| plane.width as usize),
        &planes.each_ref().map(|plane| plane.height as usize),
        width,
        height,
        quality,
        libjpeg_turbo_rs::Subsampling::S420,
    )
    .ok()
}
