//! BMP: a file header of 14 bytes, and a DIB header whose first value is its own size.

use super::super::outcome::Tolerated;
use super::{Structure, check_pixels_per_byte, corrupt, cut_off, size, truncated, u16_le, u32_le};
use crate::sample::Reject;

/// Size of the OS/2 1.x header, which uses 16-bit sizes.
const CORE_HEADER_BYTES: u32 = 12;

/// Values of the compression field: run-length encoding of 8 and of 4 bits per pixel.
const RLE8: u32 = 1;
const RLE4: u32 = 2;

/// Maximum number of pixels per stored byte of a run-length encoded file, and of one that is cut off. Runs alone reach 128.
const MAX_RLE_RATIO: u64 = 1024;

/// Reads the structure of the BMP file `bytes`, and checks that its pixel data is complete.
pub(in crate::transform::image) fn walk(bytes: &[u8]) -> Result<Structure, Reject> {
    let cut = || truncated("its header");
    let is_core = u32_le(bytes, 14).ok_or_else(cut)? == CORE_HEADER_BYTES;
    let (width, height, depth) = if is_core {
        let side = |at| u16_le(bytes, at).ok_or_else(cut);
        (u32::from(side(18)?), u32::from(side(20)?), side(24)?)
    } else {
        let width = u32_le(bytes, 18).ok_or_else(cut)?.cast_signed();
        // A negative height means rows from top to bottom.
        let height = u32_le(bytes, 22).ok_or_else(cut)?.cast_signed().unsigned_abs();
        let width = u32::try_from(width)
            .map_err(|_| corrupt(format!("the header declares a width of {width} pixels")))?;
        (width, height, u16_le(bytes, 28).ok_or_else(cut)?)
    };
    let mut structure = Structure::of_size(size(width, height)?);
    if planes_at(bytes).and_then(|at| u16_le(bytes, at)).is_some_and(|planes| planes != 1) {
        structure.tolerated = Some(Tolerated::BmpHeader);
    }
    let compression = if is_core { 0 } else { u32_le(bytes, 30).ok_or_else(cut)? };
    let start = usize::try_from(u32_le(bytes, 10).ok_or_else(cut)?).unwrap_or(usize::MAX);
    let data = bytes.get(start..).unwrap_or_default();
    if matches!(compression, RLE8 | RLE4) {
        check_pixels_per_byte(structure.size.pixels(), bytes.len() as u64, MAX_RLE_RATIO)?;
        if let Err(damage) = check_runs(data, (width.into(), height.into()), compression == RLE4) {
            structure.note(damage);
        }
        return Ok(structure);
    }
    let row_bytes = (u64::from(width) * u64::from(depth)).div_ceil(32) * 4;
    if (data.len() as u64) < row_bytes.saturating_mul(height.into()) {
        let checked = check_pixels_per_byte(structure.size.pixels(), bytes.len() as u64, MAX_RLE_RATIO);
        structure.lacks_data = checked.map_err(cut_off).err();
        structure.note(truncated("its pixels"));
    }
    Ok(structure)
}

/// Returns where the number of planes is, which must be 1.
fn planes_at(bytes: &[u8]) -> Option<usize> {
    Some(if u32_le(bytes, 14)? == CORE_HEADER_BYTES { 22 } else { 26 })
}

/// Returns the BMP file `bytes` with one plane.
pub(in crate::transform::image) fn with_one_plane(bytes: &[u8]) -> Option<Vec<u8>> {
    let at = planes_at(bytes)?;
    let mut file = bytes.to_vec();
    file.get_mut(at..at + 2)?.copy_from_slice(&1u16.to_le_bytes());
    Some(file)
}

/// Checks that the runs reach the end of the last row.
fn check_runs(mut data: &[u8], (width, height): (u64, u64), is_rle4: bool) -> Result<(), Reject> {
    let (mut x, mut y) = (0, 0);
    let is_full = |x: u64, y: u64| y >= height || (y + 1 == height && x == width);
    while !is_full(x, y) {
        let [first, second, rest @ ..] = data else {
            return Err(truncated("its run lengths"));
        };
        data = rest;
        match (*first, *second) {
            (0, 0) => (x, y) = (0, y + 1),
            (0, 1) => return Err(corrupt("the run lengths end before the last row does")),
            (0, 2) => {
                let [right, up, rest @ ..] = data else { return Err(truncated("its run lengths")) };
                (x, y) = (x + u64::from(*right), y + u64::from(*up));
                data = rest;
            }
            (0, count) => {
                let stored = if is_rle4 { usize::from(count).div_ceil(2) } else { count.into() };
                let rest = data.get(stored.next_multiple_of(2)..);
                data = rest.ok_or_else(|| truncated("its run lengths"))?;
                x += u64::from(count);
            }
            // Readers truncate a run at the end of the row.
            (count, _) => x = (x + u64::from(count)).min(width),
        }
        if x > width || y > height {
            return Err(corrupt("the run lengths go beyond the last row or column"));
        }
    }
    Ok(())
}
