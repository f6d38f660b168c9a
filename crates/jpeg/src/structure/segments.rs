//! Parsing of markers and segments.

use crate::error::Error;

pub(crate) const SOI: u8 = 0xd8;
pub(crate) const EOI: u8 = 0xd9;

/// Returns the marker at `at` and the position after it. Any number of fill bytes may precede the marker.
pub(crate) fn next_marker(bytes: &[u8], at: usize) -> Result<(u8, usize), Error> {
    let rest = bytes.get(at..).unwrap_or_default();
    let fill = rest.iter().take_while(|byte| **byte == 0xff).count();
    match (fill, rest.get(fill)) {
        (_, None) => Err(Error::truncated("its markers")),
        (0, Some(_)) | (_, Some(0)) => Err(Error::corrupt("the file has stray bytes between segments")),
        (_, Some(&marker)) => Ok((marker, at + fill + 1)),
    }
}

/// Returns the payload of the segment whose length field is at `at`.
pub(crate) fn payload(bytes: &[u8], at: usize) -> Result<&[u8], Error> {
    let truncated = || Error::truncated("a segment");
    let (length, rest) = bytes.get(at..).and_then(|rest| rest.split_first_chunk()).ok_or_else(truncated)?;
    let length = usize::from(u16::from_be_bytes(*length));
    let length =
        length.checked_sub(2).ok_or_else(|| Error::corrupt(format!("a segment has a length of {length}")))?;
    rest.get(..length).ok_or_else(truncated)
}

/// Returns the entropy-coded data from `at` to the marker that ends it, or to the end of the file.
pub(crate) fn entropy_coded(bytes: &[u8], at: usize) -> &[u8] {
    let data = bytes.get(at..).unwrap_or_default();
    let mut end = 0;
    while let Some(next) = data[end..].iter().position(|byte| *byte == 0xff) {
        match data.get(end + next + 1) {
            // Byte stuffing and restart markers.
            Some(0 | 0xd0..=0xd7) => end += next + 2,
            Some(0xff) => end += next + 1,
            Some(_) => return &data[..end + next],
            None => break,
        }
    }
    data
}
