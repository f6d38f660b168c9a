//! QOI: a header of 14 bytes, chunks of one or more pixels, and an end marker (qoiformat.org, version 1.0).

use super::{Structure, corrupt, size, truncated, u32_be};
use crate::sample::Reject;

const HEADER_BYTES: usize = 14;
const END: [u8; 8] = [0, 0, 0, 0, 0, 0, 0, 1];

/// Reads the structure of the QOI file `bytes`, and checks that its chunks have all pixels and that the end marker follows.
pub(in crate::transform::image) fn walk(bytes: &[u8]) -> Result<Structure, Reject> {
    let cut = || truncated("its header");
    let (width, height) = (u32_be(bytes, 4).ok_or_else(cut)?, u32_be(bytes, 8).ok_or_else(cut)?);
    let structure = Structure::of_size(size(width, height)?);
    let mut data = bytes.get(HEADER_BYTES..).ok_or_else(cut)?;
    let mut pixels = structure.size.pixels();
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
    match data.starts_with(&END) {
        true => Ok(structure),
        false if END.starts_with(data) => Err(truncated("its end marker")),
        false => Err(corrupt("the end marker does not follow the last pixel")),
    }
}
