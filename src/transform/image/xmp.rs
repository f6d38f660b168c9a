//! The orientation in XMP, which some programs write instead of EXIF.
//!
//! It is found as Pillow finds it, without parsing the packet: so its encoding, and damage elsewhere in it, do not matter.

use super::orientation::Orientation;

const NAME: &[u8] = b"tiff:Orientation";

/// Returns the orientation in the XMP `packet`: a digit in an attribute or an element.
pub(super) fn orientation(packet: &[u8]) -> Option<Orientation> {
    let digit = memchr::memmem::find_iter(packet, NAME).find_map(|at| match &packet[at + NAME.len()..] {
        [b'=', b'"', digit @ b'0'..=b'9', ..] | [b'>', digit @ b'0'..=b'9', ..] => Some(digit - b'0'),
        _ => None,
    })?;
    Orientation::from_tag(digit.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_and_elements_are_read() {
        for (packet, expected) in [
            (&b"<x tiff:Orientation=\"6\"/>"[..], Some(Orientation::Rotate90)),
            (b"\xff\xfe<tiff:Orientation>3</tiff:Orientation>", Some(Orientation::Rotate180)),
            // The first one counts, even if it is invalid.
            (b"tiff:Orientation=\"9\" tiff:Orientation=\"3\"", None),
            (b"tiff:Orientation tiff:Orientation>8", Some(Orientation::Rotate270)),
            (b"tiff:Orientation='6'", None),
            (b"tiff:Orientation>", None),
            (b"", None),
        ] {
            assert_eq!(orientation(packet), expected, "{packet:?}");
        }
    }
}
