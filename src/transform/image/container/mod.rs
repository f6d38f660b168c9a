//! Structure walks of image files: they read what a file declares about itself, and check that its structure is
//! complete, before any pixel is decoded.
//!
//! Pixel decoders disagree on what they accept (a missing end, a wrong checksum, bytes between segments). These walks
//! apply the rules of dsconvert, cheaply: they read headers and lengths, never pixels, and make no allocation whose
//! size the file controls.

pub(super) mod avif;
pub(super) mod bmp;
pub(super) mod gif;
pub(super) mod jpeg;
pub(super) mod png;
pub(super) mod pnm;
pub(super) mod qoi;
pub(super) mod tga;
pub(super) mod tiff;
pub(super) mod webp;

use super::geometry::Size;
use super::orientation::Orientation;
use super::outcome::Tolerated;
pub(super) use crate::decode::{corrupt, truncated, unsupported};
use crate::sample::{Reject, RejectCode};

/// The result of a structure walk.
#[derive(Debug)]
pub(super) struct Structure {
    /// Size as stored, before the orientation is applied.
    pub(super) size: Size,
    pub(super) orientation: Orientation,
    /// Whether the file is an animation of several frames.
    pub(super) animated: bool,
    /// Whether simple readers show another image of the file: the image of a TIFF is not its first directory.
    pub(super) hides_image: bool,
    /// Number of further images that are left out.
    pub(super) further_pages: u64,
    /// Number of channels that are neither colors nor alpha, which are left out.
    pub(super) further_channels: u64,
    /// Memory that the decoder needs in addition to the usual, in bytes.
    pub(super) decoder_bytes: u64,
    /// A defect that loses no pixel. It is removed from the file before the file is converted.
    pub(super) tolerated: Option<Tolerated>,
    /// Set if the data of the file cannot hold its pixels, which must not be allocated.
    pub(super) lacks_data: Option<Reject>,
    /// Damage that may still allow the pixels to be decoded. A strict conversion rejects the file with it.
    pub(super) damage: Option<Reject>,
}

impl Structure {
    pub(super) fn of_size(size: Size) -> Self {
        Self {
            size,
            orientation: Orientation::Upright,
            animated: false,
            hides_image: false,
            further_pages: 0,
            further_channels: 0,
            decoder_bytes: 0,
            tolerated: None,
            lacks_data: None,
            damage: None,
        }
    }

    /// Records damage; only the first is kept.
    pub(super) fn note(&mut self, damage: Reject) {
        self.damage.get_or_insert(damage);
    }
}

/// Number of decoded pixels or bytes up to which no ratio is checked.
const UNCHECKED: u64 = 4 << 20;

/// Rejects a file whose `stored` bytes would become more than `ratio` pixels each: a small file must not make the
/// converter allocate gigabytes.
pub(super) fn check_pixels_per_byte(pixels: u64, stored: u64, ratio: u64) -> Result<(), Reject> {
    check_ratio(pixels, "pixels", stored, ratio)
}

/// Rejects a file whose `stored` bytes would become more than `ratio` bytes each, for the same reason.
pub(super) fn check_decoded_bytes(decoded: u64, stored: u64, ratio: u64) -> Result<(), Reject> {
    check_ratio(decoded, "bytes of samples", stored, ratio)
}

/// Returns the reject of a file that is cut off so early that its data cannot hold its pixels.
pub(super) fn cut_off(reject: Reject) -> Reject {
    Reject::new(RejectCode::Truncated, format!("the file is cut off: {}", reject.message))
}

fn check_ratio(decoded: u64, unit: &str, stored: u64, ratio: u64) -> Result<(), Reject> {
    if decoded <= stored.saturating_mul(ratio).max(UNCHECKED) {
        return Ok(());
    }
    let message = format!("the header declares {decoded} {unit}, but the file has {stored} bytes of data");
    Err(Reject::new(RejectCode::TooLarge, message))
}

/// Creates a size from header values. Both must be at least 1.
pub(super) fn size(width: u32, height: u32) -> Result<Size, Reject> {
    if width == 0 || height == 0 {
        return Err(corrupt(format!("the header declares {width}×{height} pixels")));
    }
    Ok(Size::new(width, height))
}

pub(super) fn u16_le(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

pub(super) fn u32_le(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

pub(super) fn u16_be(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

pub(super) fn u32_be(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..)?.first_chunk().copied()?))
}
