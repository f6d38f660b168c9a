//! The EXIF orientation, the only EXIF value that the transform uses.
//!
//! EXIF is a TIFF structure (byte order, first directory, 12-byte entries; Exif 2.3, CIPA DC-008). The orientation is
//! tag 0x0112 of the first directory. A broken block means no orientation, never a reject: other readers do the same,
//! and the pixels are intact.

use std::borrow::Cow;

use super::orientation::Orientation;
use super::xmp;

const ORIENTATION_TAG: u16 = 0x0112;
const SHORT: u16 = 3;
/// Not the type that the standard prescribes, but some programs write it, and image viewers accept it.
const LONG: u16 = 4;

/// Returns the orientation of an image with the EXIF block `exif`. As in Pillow, the orientation in XMP counts if EXIF has none, not
/// even an invalid one.
pub(super) fn orientation_with<'a>(
    exif: Option<&[u8]>,
    xmp: impl FnOnce() -> Option<Cow<'a, [u8]>>,
) -> Orientation {
    match exif.and_then(orientation_tag) {
        Some(tag) => Orientation::from_tag(tag).unwrap_or_default(),
        None => xmp().and_then(|packet| xmp::orientation(&packet)).unwrap_or_default(),
    }
}

/// Returns the value of the orientation in the TIFF structure `block`. An optional `Exif\0\0` prefix is skipped: some
/// encoders keep it where only the TIFF structure belongs.
fn orientation_tag(block: &[u8]) -> Option<u16> {
    let tiff = block.strip_prefix(b"Exif\0\0").unwrap_or(block);
    let (at, little) = orientation_value(tiff)?;
    u16_at(tiff, at, little)
}

/// Sets the orientation in the TIFF structure `tiff` to upright.
pub(super) fn set_upright(tiff: &mut [u8]) {
    if let Some((at, little)) = orientation_value(tiff)
        && let Some(value) = tiff.get_mut(at..at + 2)
    {
        value.copy_from_slice(&if little { 1u16.to_le_bytes() } else { 1u16.to_be_bytes() });
    }
}

/// Returns the position of the orientation value, and whether the structure is little-endian.
fn orientation_value(tiff: &[u8]) -> Option<(usize, bool)> {
    let little = match tiff.get(..4)? {
        [b'I', b'I', 42, 0] => true,
        [b'M', b'M', 0, 42] => false,
        _ => return None,
    };
    let offset: [u8; 4] = *tiff.get(4..)?.first_chunk()?;
    let directory = if little { u32::from_le_bytes(offset) } else { u32::from_be_bytes(offset) };
    let directory = usize::try_from(directory).ok()?;
    let entries = usize::from(u16_at(tiff, directory, little)?);
    for entry in 0..entries {
        let at = directory.checked_add(2 + 12 * entry)?;
        if u16_at(tiff, at, little)? == ORIENTATION_TAG {
            // The upper half of a LONG value must be 0.
            let (value, upper) = if little { (at + 8, at + 10) } else { (at + 10, at + 8) };
            return match u16_at(tiff, at + 2, little)? {
                SHORT => Some((at + 8, little)),
                LONG if u16_at(tiff, upper, little)? == 0 => Some((value, little)),
                _ => None,
            };
        }
    }
    None
}

fn u16_at(tiff: &[u8], at: usize, little: bool) -> Option<u16> {
    let bytes = [*tiff.get(at)?, *tiff.get(at.checked_add(1)?)?];
    Some(if little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn orientation(block: &[u8]) -> Option<Orientation> {
        orientation_tag(block).and_then(Orientation::from_tag)
    }

    /// Creates a minimal EXIF TIFF structure with one orientation entry.
    pub(in crate::transform::image) fn block(tag: u16, little: bool) -> Vec<u8> {
        let u16b = |v: u16| if little { v.to_le_bytes() } else { v.to_be_bytes() };
        let u32b = |v: u32| if little { v.to_le_bytes() } else { v.to_be_bytes() };
        let mut out = if little { b"II".to_vec() } else { b"MM".to_vec() };
        out.extend(u16b(42));
        out.extend(u32b(8));
        out.extend(u16b(2));
        for (id, value) in [(0x0100, 77), (ORIENTATION_TAG, tag)] {
            out.extend(u16b(id));
            out.extend(u16b(SHORT));
            out.extend(u32b(1));
            out.extend(u16b(value));
            out.extend([0, 0]);
        }
        out.extend(u32b(0));
        out
    }

    /// The same with a value of type LONG, and the other half of the value.
    fn long_block(tag: u16, little: bool) -> Vec<u8> {
        let mut out = block(tag, little);
        out[if little { 24 } else { 25 }] = 4;
        if !little {
            out[30..34].rotate_right(2);
        }
        out
    }

    #[test]
    fn both_types_of_values_are_read() {
        for little in [true, false] {
            let mut long = long_block(6, little);
            assert_eq!(orientation(&long), Some(Orientation::Rotate90));
            // A value beyond 16 bits.
            long[if little { 32 } else { 31 }] = 1;
            assert_eq!(orientation(&long), None);
        }
    }

    #[test]
    fn both_byte_orders_are_read() {
        for little in [true, false] {
            assert_eq!(orientation(&block(6, little)), Some(Orientation::Rotate90));
            assert_eq!(orientation(&block(9, little)), None);
            let mut prefixed = b"Exif\0\0".to_vec();
            prefixed.extend(block(3, little));
            assert_eq!(orientation(&prefixed), Some(Orientation::Rotate180));
        }
    }

    #[test]
    fn a_block_is_set_upright() {
        for little in [true, false] {
            let mut turned = block(6, little);
            set_upright(&mut turned);
            assert_eq!(turned, block(1, little));
            let mut long = long_block(6, little);
            set_upright(&mut long);
            assert_eq!(long, long_block(1, little));
        }
    }

    #[test]
    fn broken_blocks_have_no_orientation() {
        let whole = block(6, true);
        for end in 0..30 {
            assert_eq!(orientation(&whole[..end]), None, "cut at {end}");
        }
        let mut far = whole.clone();
        far[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(orientation(&far), None);
        let mut other_type = whole;
        other_type[24] = 7;
        assert_eq!(orientation(&other_type), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_cause_no_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = orientation(&bytes);
            for (byte, fixed) in bytes.iter_mut().zip(b"II*\0\x08\0\0\0\xff\xff") {
                *byte = *fixed;
            }
            let _ = orientation(&bytes);
        }
    }
}
