//! Pixels of everything but JPEG, through the `image` crate, with its own limits switched on.

use std::io::Cursor;

use image::codecs::{
    bmp::BmpDecoder, gif::GifDecoder, png::PngDecoder, tiff::TiffDecoder, webp::WebPDecoder,
};
use image::error::{ImageError, LimitErrorKind};
use image::{ColorType, ImageDecoder, Limits};

use super::container::{self, Structure, corrupt, unsupported};
use super::exif::Orientation;
use super::geometry::Size;
use super::options::ImageOptions;
use super::pixels::{Pixels, luma};
use super::sniff::ImageType;
use super::source::Source;
use super::text::{Color, Rgb};
use crate::sample::{Reject, RejectCode};

/// What a decoder may allocate beside the output: tables, windows, palettes, compressed strips.
const DECODER_BYTES: u64 = 64 << 20;

/// Size and orientation of the first image of the TIFF file `bytes`.
pub(super) fn tiff_structure(bytes: &[u8]) -> Result<Structure, Reject> {
    let mut decoder = TiffDecoder::new(Cursor::new(bytes)).map_err(reject)?;
    let (width, height) = decoder.dimensions();
    let mut structure = Structure::of_size(container::size(width, height)?);
    structure.orientation = match decoder.orientation() {
        Ok(orientation) => Orientation::from_tag(u16::from(orientation.to_exif())).unwrap_or_default(),
        Err(_) => Orientation::Upright,
    };
    Ok(structure)
}

/// Decodes `source` into `out`, in the colours the options ask for. `buffer` holds the samples as they are stored.
///
/// Gives back the embedded ICC profile, which `out` has not been through.
pub(super) fn decode(
    source: &Source<'_>,
    options: &ImageOptions,
    buffer: &mut Vec<u8>,
    out: &mut Pixels,
) -> Result<Option<Vec<u8>>, Reject> {
    let bytes = source.bytes;
    let limits = |decoded: u64| {
        let mut limits = Limits::default();
        limits.max_alloc = Some(decoded.saturating_mul(2).saturating_add(DECODER_BYTES));
        limits
    };
    // Eight bytes per pixel is the widest the formats here decode to.
    let widest = limits(source.structure.size.pixels().saturating_mul(8));
    let mut decoder: Box<dyn ImageDecoder + '_> = match source.image_type {
        ImageType::Png => Box::new(PngDecoder::with_limits(Cursor::new(bytes), widest).map_err(reject)?),
        ImageType::Webp => Box::new(WebPDecoder::new(Cursor::new(bytes)).map_err(reject)?),
        ImageType::Gif => Box::new(GifDecoder::new(Cursor::new(bytes)).map_err(reject)?),
        ImageType::Bmp => Box::new(BmpDecoder::new(Cursor::new(bytes)).map_err(reject)?),
        ImageType::Tiff | ImageType::Raw | ImageType::Jpeg => {
            Box::new(TiffDecoder::new(Cursor::new(bytes)).map_err(reject)?)
        }
    };
    let (width, height) = decoder.dimensions();
    if Size::new(width, height) != source.structure.size {
        return Err(corrupt(format!(
            "its headers disagree on the size: {width}×{height} pixels in the second"
        )));
    }
    let decoded = decoder.total_bytes();
    decoder.set_limits(limits(decoded)).map_err(reject)?;
    let icc = decoder.icc_profile().ok().flatten();
    let color_type = decoder.color_type();
    let length = usize::try_from(decoded).map_err(|_| too_large())?;
    buffer.clear();
    buffer.resize(length, 0);
    decoder.read_image(buffer).map_err(reject)?;
    to_channels(buffer, color_type, options, Size::new(width, height), out)?;
    Ok(icc)
}

fn too_large() -> Reject {
    Reject::new(RejectCode::TooLarge, "decoding it would pass the memory limit")
}

/// The reject an error of the `image` crate stands for. Its input is in memory, so an I/O error is an early end.
fn reject(error: ImageError) -> Reject {
    match error {
        ImageError::IoError(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            container::truncated("its data")
        }
        ImageError::IoError(e) => corrupt(e.to_string()),
        ImageError::Limits(e) => match e.kind() {
            LimitErrorKind::Unsupported { .. } => unsupported(e.to_string()),
            _ => too_large(),
        },
        ImageError::Unsupported(e) => unsupported(e.to_string()),
        other => corrupt(other.to_string()),
    }
}

/// 16 bits to 8, rounded.
fn narrow(sample: [u8; 2]) -> u8 {
    ((u32::from(u16::from_ne_bytes(sample)) * 255 + 32_767) / 65_535) as u8
}

/// `color` of opacity `alpha` over `background`, rounded.
fn over(color: u8, alpha: u8, background: u8) -> u8 {
    let (color, alpha, background) = (u32::from(color), u32::from(alpha), u32::from(background));
    ((color * alpha + background * (255 - alpha) + 127) / 255) as u8
}

/// Brings stored samples to 8 bits and to the channels of the output.
fn to_channels(
    samples: &[u8],
    color_type: ColorType,
    options: &ImageOptions,
    size: Size,
    out: &mut Pixels,
) -> Result<(), Reject> {
    // First to RGBA, one pixel at a time; the closure is compiled once per layout and inlined.
    let wide = |s: &[u8], i: usize| narrow([s[2 * i], s[2 * i + 1]]);
    match color_type {
        ColorType::L8 => write(samples, 1, options, size, out, |s| [s[0], s[0], s[0], 255]),
        ColorType::La8 => write(samples, 2, options, size, out, |s| [s[0], s[0], s[0], s[1]]),
        ColorType::Rgb8 => write(samples, 3, options, size, out, |s| [s[0], s[1], s[2], 255]),
        ColorType::Rgba8 => write(samples, 4, options, size, out, |s| [s[0], s[1], s[2], s[3]]),
        ColorType::L16 => write(samples, 2, options, size, out, |s| {
            let v = wide(s, 0);
            [v, v, v, 255]
        }),
        ColorType::La16 => write(samples, 4, options, size, out, |s| {
            let v = wide(s, 0);
            [v, v, v, wide(s, 1)]
        }),
        ColorType::Rgb16 => {
            write(samples, 6, options, size, out, |s| [wide(s, 0), wide(s, 1), wide(s, 2), 255])
        }
        ColorType::Rgba16 => {
            write(samples, 8, options, size, out, |s| [wide(s, 0), wide(s, 1), wide(s, 2), wide(s, 3)])
        }
        other => return Err(unsupported(format!("samples of type {other:?} are not supported"))),
    }
    Ok(())
}

fn write(
    samples: &[u8],
    bytes_per_pixel: usize,
    options: &ImageOptions,
    size: Size,
    out: &mut Pixels,
    rgba: impl Fn(&[u8]) -> [u8; 4],
) {
    let Rgb(background) = options.background;
    let flat = |[r, g, b, a]: [u8; 4]| match a {
        255 => [r, g, b],
        a => [over(r, a, background[0]), over(g, a, background[1]), over(b, a, background[2])],
    };
    let pixels = samples.chunks_exact(bytes_per_pixel);
    match options.color {
        Color::Rgb => {
            out.reshape(size, 3);
            for (to, from) in out.data.as_chunks_mut::<3>().0.iter_mut().zip(pixels) {
                *to = flat(rgba(from));
            }
        }
        Color::Rgba => {
            out.reshape(size, 4);
            for (to, from) in out.data.as_chunks_mut::<4>().0.iter_mut().zip(pixels) {
                *to = rgba(from);
            }
        }
        Color::Gray => {
            out.reshape(size, 1);
            for (to, from) in out.data.iter_mut().zip(pixels) {
                *to = luma(flat(rgba(from)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bits_are_rounded() {
        for v in 0..=255u16 {
            assert_eq!(narrow((v * 257).to_ne_bytes()), v as u8);
        }
        assert_eq!(narrow(128u16.to_ne_bytes()), 0);
        assert_eq!(narrow(129u16.to_ne_bytes()), 1);
    }

    #[test]
    fn opacity_is_exact_at_its_ends() {
        for c in 0..=255 {
            assert_eq!(over(c, 255, 17), c);
            assert_eq!(over(c, 0, 17), 17);
            assert_eq!(over(c, 77, c), c);
        }
    }
}
