//! QOI: a header of 14 bytes, chunks of one or more pixels, and an end marker (qoiformat.org, version 1.0).

use super::super::outcome::Tolerated;
use super::{Size, Structure, corrupt, size, truncated, u32_be};
use crate::sample::Reject;

const HEADER_BYTES: usize = 14;
const END: [u8; 8] = [0, 0, 0, 0, 0, 0, 0, 1];

/// Returns the size of the QOI file `bytes`, and what follows the chunks of all its pixels.
fn after_pixels(bytes: &[u8]) -> Result<(Size, &[u8]), Reject> {
    let cut = || truncated("its header");
    let (width, height) = (u32_be(bytes, 4).ok_or_else(cut)?, u32_be(bytes, 8).ok_or_else(cut)?);
    let size = size(width, height)?;
    let mut data = bytes.get(HEADER_BYTES..).ok_or_else(cut)?;
    let mut pixels = size.pixels();
    while pixels > 0 {
        let first = *data.first().ok_or_else(|| truncated("its pixels"))?;
        let (chunk_bytes, count) = match first {
            0xff => (5, 1),
            0xfe => (4, 1),
            0xc0.. => (1, u64::from(first & 0x3f) + 1),
            0x80.. => (2, 1),
            _ => (1, 1),
        };
        pixels = pixels.checked_sub(count).ok_or_else(|| corrupt("a run goes beyond the last pixel"))?;
        data = data.get(chunk_bytes..).ok_or_else(|| truncated("its pixels"))?;
    }
    Ok((size, data))
}

/// Reads the structure of the QOI file `bytes`, and checks that its chunks have all pixels and that nothing but the end
/// marker follows.
pub(in crate::transform::image) fn walk(bytes: &[u8]) -> Result<Structure, Reject> {
    let (size, data) = after_pixels(bytes)?;
    let mut structure = Structure::of_size(size);
    if !data.starts_with(&END) {
        if !END.starts_with(data) {
            return Err(corrupt("the end marker does not follow the last pixel"));
        }
        structure.tolerated = Some(Tolerated::QoiEnd);
    }
    Ok(structure)
}

/// Returns the QOI file `bytes` with its end marker; `None` if pixels are missing.
pub(in crate::transform::image) fn with_end(bytes: &[u8]) -> Option<Vec<u8>> {
    let (_, data) = after_pixels(bytes).ok()?;
    Some([&bytes[..bytes.len() - data.len()], &END].concat())
}
