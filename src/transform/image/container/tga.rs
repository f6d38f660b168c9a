//! TGA: a header of 18 bytes, an identification, a color map, and pixels, which may be run-length encoded (Truevision TGA
//! File Format Specification 2.0).

use super::{Structure, size, truncated, u16_le};
use crate::sample::Reject;

const HEADER_BYTES: usize = 18;
/// Bit of the image type of run-length encoded pixels.
const RUN_LENGTHS: u8 = 8;
/// Bit of a packet that repeats one pixel.
const REPEATED: u8 = 0x80;

/// Reads the structure of the TGA file `bytes`, and checks that its pixels are complete. The decoder rejects what it does
/// not support.
pub(in crate::transform::image) fn walk(bytes: &[u8]) -> Result<Structure, Reject> {
    let cut = || truncated("its header");
    let header = bytes.first_chunk::<HEADER_BYTES>().ok_or_else(cut)?;
    let [identification, map_type, image_type, ..] = *header;
    let side = |at| u16_le(header, at).ok_or_else(cut);
    let (map_length, width, height) = (usize::from(side(5)?), side(12)?, side(14)?);
    let (map_entry_bits, depth) = (usize::from(header[7]), usize::from(header[16]));
    let structure = Structure::of_size(size(width.into(), height.into())?);
    let map_bytes = if map_type == 1 { map_length * map_entry_bits.div_ceil(8) } else { 0 };
    let start = HEADER_BYTES + usize::from(identification) + map_bytes;
    let data = bytes.get(start..).ok_or_else(|| truncated("its color map"))?;
    let pixel_bytes = depth.div_ceil(8);
    let is_complete = match image_type & RUN_LENGTHS {
        0 => data.len() as u64 >= structure.size.pixels().saturating_mul(pixel_bytes as u64),
        _ => has_runs(data, structure.size.pixels(), pixel_bytes),
    };
    if is_complete { Ok(structure) } else { Err(truncated("its pixels")) }
}

/// Returns whether the packets of `data` have `pixels` of `pixel_bytes` each.
fn has_runs(mut data: &[u8], mut pixels: u64, pixel_bytes: usize) -> bool {
    while pixels > 0 {
        let Some((&packet, rest)) = data.split_first() else { return false };
        let count = u64::from(packet & !REPEATED) + 1;
        // Pixels after the last one are not read.
        let stored = if packet & REPEATED == 0 { count.min(pixels) } else { 1 };
        let Some(rest) = rest.get(stored as usize * pixel_bytes..) else { return false };
        (data, pixels) = (rest, pixels.saturating_sub(count));
    }
    true
}
