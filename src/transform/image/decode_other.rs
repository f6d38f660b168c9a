//! Pixels of everything but JPEG, through the `image` crate, with its own limits switched on.

use std::io::Cursor;

use image::codecs::{
    bmp::BmpDecoder, gif::GifDecoder, png::PngDecoder, tiff::TiffDecoder, webp::WebPDecoder,
};
use image::error::{ImageError, LimitErrorKind};
use image::{ColorType, ImageDecoder, Limits};

use super::colors;
use super::container::{self, Structure, corrupt, unsupported};
use super::exif::Orientation;
use super::geometry::Size;
use super::icc::Space;
use super::pixels::Pixels;
use super::sniff::ImageType;
use super::source::Source;
use crate::sample::{Reject, RejectCode};

/// What a decoder may allocate beside the output: tables, windows, palettes, compressed strips.
const DECODER_BYTES: u64 = 64 << 20;

/// What came of a decode beside the pixels.
#[derive(Debug)]
pub(super) struct Decoded {
    /// The embedded profile, which the pixels have not been through.
    pub(super) icc: Option<Vec<u8>>,
    /// The channels the profile is for.
    pub(super) space: Space,
    /// Whether the file holds 8-bit RGB and nothing else, so that its pixels are those of the output.
    pub(super) is_plain_rgb: bool,
    /// Where decoding stopped before its end; only with the lenient option.
    pub(super) damage: Option<Reject>,
}

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

fn limits(decoded_bytes: u64) -> Limits {
    let mut limits = Limits::default();
    limits.max_alloc = Some(decoded_bytes.saturating_mul(2).saturating_add(DECODER_BYTES));
    limits
}

fn open<'a>(source: &Source<'a>) -> Result<Box<dyn ImageDecoder + 'a>, ImageError> {
    let reader = Cursor::new(source.bytes);
    Ok(match source.image_type {
        ImageType::Png => {
            // Eight bytes per pixel is the widest it decodes to.
            let limits = limits(source.structure.size.pixels().saturating_mul(8));
            Box::new(PngDecoder::with_limits(reader, limits)?)
        }
        ImageType::Webp => Box::new(WebPDecoder::new(reader)?),
        ImageType::Gif => Box::new(GifDecoder::new(reader)?),
        ImageType::Bmp => Box::new(BmpDecoder::new(reader)?),
        ImageType::Tiff | ImageType::Raw | ImageType::Jpeg => Box::new(TiffDecoder::new(reader)?),
    })
}

/// Decodes `source` into `out` as RGB or, where it has alpha, RGBA. `buffer` holds the samples as they are stored.
pub(super) fn decode(
    source: &Source<'_>,
    lenient: bool,
    buffer: &mut Vec<u8>,
    out: &mut Pixels,
) -> Result<Decoded, Reject> {
    let mut decoder = open(source).map_err(reject)?;
    let (width, height) = decoder.dimensions();
    let size = Size::new(width, height);
    if size != source.structure.size {
        return Err(corrupt(format!("its second header says {width}×{height} pixels, the first does not")));
    }
    let decoded = decoder.total_bytes();
    decoder.set_limits(limits(decoded)).map_err(reject)?;
    let icc = decoder.icc_profile().ok().flatten();
    let color_type = decoder.color_type();
    let is_plain_rgb =
        decoder.original_color_type() == image::ExtendedColorType::Rgb8 && color_type == ColorType::Rgb8;
    let space = if color_type.has_color() { Space::Rgb } else { Space::Gray };
    buffer.clear();
    buffer.resize(usize::try_from(decoded).map_err(|_| too_large())?, 0);
    let damage = match decoder.read_image(buffer).map_err(reject) {
        Ok(()) => None,
        // The decoders write rows as they come; where none came, there is nothing to keep.
        Err(damage)
            if lenient
                && matches!(damage.code, RejectCode::Truncated | RejectCode::Corrupt)
                && buffer.iter().any(|sample| *sample != 0) =>
        {
            Some(damage)
        }
        Err(damage) => return Err(damage),
    };
    colors::to_8_bits(buffer, color_type, size, out)?;
    Ok(Decoded { icc, space, is_plain_rgb, damage })
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
