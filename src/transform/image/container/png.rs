//! PNG: a signature, then chunks of length, type, data and CRC (W3C PNG, third edition).

use super::super::exif;
use super::png_chunks::chunks;
use super::{Structure, check_decoded_bytes, corrupt, png_exif, size, truncated, u32_be};
use crate::sample::Reject;

/// Reads the structure of the PNG file `bytes`. All checksums are verified.
pub(in crate::transform::image) fn walk(bytes: &[u8]) -> Result<Structure, Reject> {
    let (Some(width), Some(height)) = (u32_be(bytes, 16), u32_be(bytes, 20)) else {
        return Err(truncated("its header"));
    };
    if bytes.get(12..16) != Some(b"IHDR") {
        return Err(corrupt("the first chunk is not IHDR"));
    }
    let mut structure = Structure::of_size(size(width, height)?);
    let (mut ended, mut data_bytes, mut headers) = (false, 0u64, 0);
    for chunk in chunks(bytes) {
        if !chunk.crc_is_valid() {
            let kind = chunk.kind.escape_ascii();
            structure.note(corrupt(format!("the checksum of chunk {kind} is wrong")));
        }
        match &chunk.kind {
            b"IHDR" => headers += 1,
            b"IDAT" => data_bytes += chunk.data.len() as u64,
            b"PLTE" => {}
            b"acTL" => structure.animated = u32_be(chunk.data, 0).is_some_and(|frames| frames > 1),
            b"IEND" => {
                ended = true;
                break;
            }
            _ if chunk.is_critical() => {
                let kind = chunk.kind.escape_ascii();
                structure.note(corrupt(format!("the critical chunk {kind} is unknown")));
            }
            _ => {}
        }
    }
    structure.orientation =
        png_exif::exif(bytes).and_then(|block| exif::orientation(&block)).unwrap_or_default();
    if headers > 1 {
        structure.note(corrupt("the PNG has two headers"));
    }
    if !ended {
        structure.note(truncated("its chunks"));
    } else {
        let row_bits = u64::from(width) * bits_per_pixel(bytes);
        check_decoded_bytes(row_bits.div_ceil(8) * u64::from(height), data_bytes, MAX_DEFLATE_RATIO)?;
    }
    Ok(structure)
}

/// Maximum expansion ratio of deflate.
const MAX_DEFLATE_RATIO: u64 = 1032;

/// Returns the bits per pixel, from the depth and the color type in the header.
fn bits_per_pixel(bytes: &[u8]) -> u64 {
    let (depth, color_type) = (bytes.get(24).copied().unwrap_or(1), bytes.get(25).copied().unwrap_or(0));
    let channels = match color_type {
        2 => 3,
        4 => 2,
        6 => 4,
        _ => 1,
    };
    u64::from(depth) * channels
}
