//! GIF: a header, then blocks: extensions, images and the trailer (GIF89a specification, CompuServe 1990).

use super::super::outcome::Tolerated;
use super::{Structure, corrupt, size, truncated, u16_le};
use crate::sample::Reject;

const EXTENSION: u8 = 0x21;
const IMAGE: u8 = 0x2c;
const TRAILER: u8 = 0x3b;

/// Returns the size of a color table in bytes, from the flags byte that declares it.
fn color_table_bytes(flags: u8) -> usize {
    if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
}

/// Returns the position after the data sub-blocks that start at `at`; `None` if the file ends first.
fn skip_sub_blocks(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1 + length;
        if length == 0 {
            return Some(at);
        }
    }
}

/// Reads the structure of the GIF file `bytes`. Its size is the size of the logical screen.
pub(in crate::transform::image) fn walk(bytes: &[u8]) -> Result<Structure, Reject> {
    let cut = || truncated("its header");
    let (width, height) = (u16_le(bytes, 6).ok_or_else(cut)?, u16_le(bytes, 8).ok_or_else(cut)?);
    let mut structure = Structure::of_size(size(width.into(), height.into())?);
    let mut at = 13 + color_table_bytes(*bytes.get(10).ok_or_else(cut)?);
    // Frames that start, and the end of the first one.
    let (mut frames, mut first_end) = (0u32, None);
    loop {
        let next = match bytes.get(at) {
            Some(&TRAILER) => break,
            Some(&EXTENSION) => skip_sub_blocks(bytes, at + 2),
            Some(&IMAGE) => {
                frames += 1;
                let end = frame_end(bytes, at);
                first_end = first_end.or(end);
                end
            }
            Some(&other) => {
                structure.note(corrupt(format!("byte {at} starts a block of unknown kind {other:#04x}")));
                break;
            }
            None => None,
        };
        match next {
            Some(next) => at = next,
            None => {
                structure.note(truncated("its blocks"));
                break;
            }
        }
    }
    if frames == 0 {
        return Err(structure.damage.unwrap_or_else(|| corrupt("the GIF has no frames")));
    }
    structure.animated = frames > 1;
    if first_end.is_some() && structure.damage.take().is_some() {
        // Only the first frame is used.
        structure.tolerated = Some(Tolerated::GifEnd);
    }
    Ok(structure)
}

/// Returns the position after the frame at `at`.
fn frame_end(bytes: &[u8], at: usize) -> Option<usize> {
    let flags = *bytes.get(at + 9)?;
    skip_sub_blocks(bytes, at + 11 + color_table_bytes(flags))
}

/// Returns the GIF file `bytes` up to its first frame; `None` if that is incomplete.
pub(in crate::transform::image) fn first_frame(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut at = 13 + color_table_bytes(*bytes.get(10)?);
    loop {
        at = match *bytes.get(at)? {
            EXTENSION => skip_sub_blocks(bytes, at + 2)?,
            IMAGE => return Some([bytes.get(..frame_end(bytes, at)?)?, &[TRAILER]].concat()),
            _ => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::RejectCode;

    /// Creates a 1×1 GIF with `frames` frames.
    pub(in crate::transform::image) fn gif(frames: usize) -> Vec<u8> {
        let mut out = b"GIF89a\x01\0\x01\0\x80\0\0\xff\xff\xff\0\0\0".to_vec();
        for _ in 0..frames {
            out.extend(b"\x2c\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0");
        }
        out.push(TRAILER);
        out
    }

    #[test]
    fn frames_are_counted() {
        assert!(!walk(&gif(1)).unwrap().animated);
        assert!(walk(&gif(2)).unwrap().animated);
        assert_eq!(walk(&gif(0)).unwrap_err().code, RejectCode::Corrupt);
    }

    #[test]
    fn every_truncation_is_detected() {
        let whole = gif(1);
        for end in 6..whole.len() - 1 {
            let damage = match walk(&whole[..end]) {
                Ok(structure) => structure.damage.expect("a cut file is damaged"),
                Err(reject) => reject,
            };
            assert_eq!(damage.code, RejectCode::Truncated, "cut at {end}");
            assert_eq!(first_frame(&whole[..end]), None);
        }
    }

    #[test]
    fn what_follows_the_first_frame_may_be_missing_or_damaged() {
        let (one, two) = (gif(1), gif(2));
        let other = [&one[..one.len() - 1], b"\x47garbage"].concat();
        for file in [&one[..one.len() - 1], &two[..two.len() - 1], &two[..two.len() - 4], &other[..]] {
            let found = walk(file).unwrap();
            assert_eq!((found.tolerated, found.damage), (Some(Tolerated::GifEnd), None));
            assert_eq!(first_frame(file).as_ref(), Some(&one));
        }
        assert!(walk(&two[..two.len() - 4]).unwrap().animated);
        assert_eq!(walk(&two).unwrap().tolerated, None);
    }
}
