//! BMP: a file header of 14 bytes and a DIB header whose first number is its own size.

use super::{Structure, corrupt, size, truncated, u16_le, u32_le};
use crate::sample::Reject;

/// Size of the OS/2 1.x header, which counts in 16 bits.
const CORE_HEADER_BYTES: u32 = 12;

/// The structure of the BMP file `bytes`.
pub(in crate::transform::image) fn walk(bytes: &[u8]) -> Result<Structure, Reject> {
    let cut = || truncated("its header");
    let (width, height) = if u32_le(bytes, 14).ok_or_else(cut)? == CORE_HEADER_BYTES {
        (u32::from(u16_le(bytes, 18).ok_or_else(cut)?), u32::from(u16_le(bytes, 20).ok_or_else(cut)?))
    } else {
        let width = u32_le(bytes, 18).ok_or_else(cut)?.cast_signed();
        // A negative height means rows from top to bottom.
        let height = u32_le(bytes, 22).ok_or_else(cut)?.cast_signed().unsigned_abs();
        let width =
            u32::try_from(width).map_err(|_| corrupt(format!("the header says {width} pixels of width")))?;
        (width, height)
    };
    Ok(Structure::of_size(size(width, height)?))
}
