//! Decoding of all types except JPEG, at full size.

use image::{ColorType, ExtendedColorType, ImageDecoder};

use super::container::{self, corrupt};
use super::geometry::Size;
use super::icc::ColorSpace;
use super::libwebp;
use super::pixels::Pixels;
use super::source::CheckedImage;
use crate::decode::other::{limits, open, open_damaged_png, reject};
use crate::decode::{ImageType, TiffFile, fill_zeros, to_8_bits, too_large};
use crate::sample::{Reject, RejectCode};

/// The result of a decode, in addition to the pixels.
#[derive(Debug)]
pub(super) struct DecodedFile {
    /// The embedded profile, which is not applied to the pixels.
    pub(super) icc: Option<Vec<u8>>,
    /// The channels that the profile must be for.
    pub(super) space: ColorSpace,
    /// Whether the file contains only 8-bit RGB, so that its pixels are those of the output.
    pub(super) is_plain_rgb: bool,
    /// Whether the file contains CMYK, which the decoder converts without the embedded profile.
    pub(super) is_cmyk: bool,
    /// Whether the samples exceed the range of their type, or hardly use it.
    pub(super) has_odd_range: bool,
    /// The damage at which decoding stopped; only with the lenient option.
    pub(super) damage: Option<Reject>,
}

/// Decodes `source` into `out` as RGB, or as RGBA if it has alpha. `buffer` receives the samples as stored.
pub(super) fn decode(
    source: &CheckedImage<'_>,
    lenient: bool,
    buffer: &mut Vec<u8>,
    out: &mut Pixels,
) -> Result<DecodedFile, Reject> {
    if source.image_type == ImageType::Tiff {
        return decode_tiff(source, lenient, buffer, out);
    }
    let opened = open(source.bytes, source.image_type, source.structure.size).map_err(reject);
    let (mut decoder, opening_damage) = match opened {
        Err(damage) if lenient && has_wrong_checksum(source, &damage) => {
            (open_damaged_png(source.bytes, source.structure.size).map_err(reject)?, Some(damage))
        }
        opened => (opened?, None),
    };
    let (width, height) = decoder.dimensions();
    let size = Size::new(width, height);
    if size != source.structure.size {
        return Err(corrupt(format!("its second header declares {width}×{height} pixels, unlike the first")));
    }
    let decoded = decoder.total_bytes();
    decoder.set_limits(limits(decoded)).map_err(reject)?;
    let icc = decoder.icc_profile().ok().flatten();
    let color_type = decoder.color_type();
    let original = decoder.original_color_type();
    let is_plain_rgb = original == ExtendedColorType::Rgb8 && color_type == ColorType::Rgb8;
    let space = if color_type.has_color() { ColorSpace::Rgb } else { ColorSpace::Gray };
    buffer.clear();
    buffer.resize(usize::try_from(decoded).map_err(|_| too_large())?, 0);
    let damage = match decoder.read_image(buffer).map_err(reject) {
        Ok(()) => opening_damage,
        Err(damage) if may_keep(&damage, lenient) && has_rows(source, &damage, buffer) => Some(damage),
        Err(damage) => return Err(damage),
    };
    let damage = match damage {
        None if !libwebp_agrees(source)? => {
            let damage = corrupt("libwebp finds its data damaged");
            if !lenient {
                return Err(damage);
            }
            Some(damage)
        }
        damage => damage,
    };
    to_8_bits(buffer, color_type, size, out)?;
    Ok(DecodedFile { icc, space, is_plain_rgb, is_cmyk: false, has_odd_range: false, damage })
}

/// Decodes the TIFF `source`.
fn decode_tiff(
    source: &CheckedImage<'_>,
    lenient: bool,
    buffer: &mut Vec<u8>,
    out: &mut Pixels,
) -> Result<DecodedFile, Reject> {
    let file = TiffFile::read(source.bytes)?;
    let color_type = file.color_type();
    let bytes = file.size().pixels().saturating_mul(color_type.bytes_per_pixel().into());
    fill_zeros(buffer, usize::try_from(bytes).map_err(|_| too_large())?)?;
    let mut has_odd_range = false;
    let damage = match file.decode(buffer) {
        Ok(is_odd) => {
            has_odd_range = is_odd;
            None
        }
        Err(damage) if may_keep(&damage, lenient) && has_rows(source, &damage, buffer) => Some(damage),
        Err(damage) => return Err(damage),
    };
    to_8_bits(buffer, color_type, file.size(), out)?;
    Ok(DecodedFile {
        icc: file.icc_profile().map(<[u8]>::to_vec),
        space: if color_type.has_color() { ColorSpace::Rgb } else { ColorSpace::Gray },
        is_plain_rgb: false,
        is_cmyk: file.is_cmyk(),
        has_odd_range,
        damage,
    })
}

/// Returns whether what was decoded before `damage` may be kept.
fn may_keep(damage: &Reject, lenient: bool) -> bool {
    lenient && matches!(damage.code, RejectCode::Truncated | RejectCode::Corrupt)
}

/// Returns whether `damage` may be a wrong checksum, so that the rest of the file can be decoded without it.
fn has_wrong_checksum(source: &CheckedImage<'_>, damage: &Reject) -> bool {
    source.image_type == ImageType::Png && damage.code == RejectCode::Corrupt
}

/// Returns whether there are rows to keep of a file that could not be decoded because of `damage`. Decodes a PNG again
/// without its checksums, because the decoder finds a wrong one before it returns the rows that precede it.
fn has_rows(source: &CheckedImage<'_>, damage: &Reject, buffer: &mut [u8]) -> bool {
    if has_wrong_checksum(source, damage)
        && let Ok(decoder) = open_damaged_png(source.bytes, source.structure.size)
        && decoder.total_bytes() == buffer.len() as u64
    {
        buffer.fill(0);
        if decoder.read_image(buffer).is_ok() {
            return true;
        }
    }
    // The decoders write rows as they arrive.
    buffer.iter().any(|sample| *sample != 0)
}

/// Returns whether libwebp decodes a still lossy WebP; true for all other files.
fn libwebp_agrees(source: &CheckedImage<'_>) -> Result<bool, Reject> {
    let has = |kind: &[u8; 4]| container::webp::chunks(source.bytes).any(|chunk| &chunk.kind == kind);
    match source.image_type == ImageType::Webp && has(b"VP8 ") && !has(b"ANMF") {
        true => libwebp::decodes(source.bytes),
        false => Ok(true),
    }
}
