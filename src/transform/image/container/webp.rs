//! WebP: a RIFF container of chunks (RFC 9649).

use std::borrow::Cow;

use super::super::exif;
use super::{Structure, corrupt, size, truncated, u16_le, u32_le};
use crate::sample::Reject;

const ANIMATION_FLAG: u8 = 0x02;
const HEADER_BYTES: usize = 12;

/// One chunk of a RIFF file.
#[derive(Debug, Clone, Copy)]
pub(in crate::transform::image) struct RiffChunk<'a> {
    pub(in crate::transform::image) kind: [u8; 4],
    pub(in crate::transform::image) data: &'a [u8],
}

/// Returns the bytes of the RIFF container, without anything after it; truncated if the file is.
pub(in crate::transform::image) fn container(bytes: &[u8]) -> &[u8] {
    let end = u32_le(bytes, 4).and_then(|size| usize::try_from(size).ok()?.checked_add(8));
    end.and_then(|end| bytes.get(..end)).unwrap_or(bytes)
}

/// Returns the chunks of a WebP file, up to its end or the first truncated chunk.
pub(in crate::transform::image) fn chunks(bytes: &[u8]) -> impl Iterator<Item = RiffChunk<'_>> {
    let mut rest = container(bytes).get(HEADER_BYTES..).unwrap_or_default();
    std::iter::from_fn(move || {
        let kind = *rest.first_chunk()?;
        let length = usize::try_from(u32_le(rest, 4)?).ok()?;
        let data = rest.get(8..)?.get(..length)?;
        // Chunks are padded to an even length. If the padding of the last one is missing, `walk` reports it.
        rest = rest.get(8 + length + length % 2..).unwrap_or_default();
        Some(RiffChunk { kind, data })
    })
}

/// Position of the first chunk of a frame in the data of its ANMF chunk.
const FRAME_HEADER_BYTES: usize = 16;

/// Returns whether the pixels are coded losslessly; for an animation, those of its first frame.
pub(in crate::transform::image) fn is_lossless(bytes: &[u8]) -> bool {
    let frame = chunks(bytes).find(|chunk| &chunk.kind == b"ANMF");
    let frame = frame.and_then(|chunk| chunk.data.get(FRAME_HEADER_BYTES..)).unwrap_or_default();
    frame.starts_with(b"VP8L") || chunks(bytes).any(|chunk| &chunk.kind == b"VP8L")
}

fn u24_le(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk::<3>()?;
    Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]))
}

/// Returns width and height from the header of the first chunk.
fn dimensions(first: &RiffChunk<'_>) -> Option<(u32, u32)> {
    match &first.kind {
        b"VP8X" => Some((u24_le(first.data, 4)? + 1, u24_le(first.data, 7)? + 1)),
        b"VP8L" => {
            let bits = u32_le(first.data, 1)?;
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8 " => {
            let side = |at| u16_le(first.data, at).map(|bits| u32::from(bits & 0x3fff));
            Some((side(6)?, side(8)?))
        }
        _ => None,
    }
}

/// Reads the structure of the WebP file `bytes`.
pub(in crate::transform::image) fn walk(bytes: &[u8]) -> Result<Structure, Reject> {
    let cut = || truncated("its chunks");
    let declared = u64::from(u32_le(bytes, 4).ok_or_else(cut)?) + 8;
    let is_cut = (bytes.len() as u64) < declared;
    let first =
        chunks(bytes).next().ok_or_else(|| if is_cut { cut() } else { corrupt("the WebP has no chunks") })?;
    let (width, height) =
        dimensions(&first).ok_or_else(|| corrupt("the first chunk of the WebP has no image header"))?;
    let mut structure = Structure::of_size(size(width, height)?);
    if is_cut {
        structure.note(cut());
    } else if let Err(damage) = check_chunks(bytes, &first, (width, height)) {
        structure.note(damage);
    }
    if &first.kind == b"VP8X" {
        structure.animated = first.data.first().is_some_and(|flags| flags & ANIMATION_FLAG != 0)
            && chunks(bytes).filter(|chunk| &chunk.kind == b"ANMF").count() > 1;
        let data = |kind: &[u8; 4]| chunks(bytes).find(|chunk| &chunk.kind == kind).map(|chunk| chunk.data);
        structure.orientation = exif::orientation_with(data(b"EXIF"), || data(b"XMP ").map(Cow::Borrowed));
    }
    Ok(structure)
}

/// Checks the chunks as `demux.c` of libwebp does: they must fill the container, and contain one image of the size that
/// the container declares.
fn check_chunks(bytes: &[u8], first: &RiffChunk<'_>, canvas: (u32, u32)) -> Result<(), Reject> {
    let used: usize = chunks(bytes).map(|chunk| 8 + chunk.data.len().next_multiple_of(2)).sum();
    if HEADER_BYTES + used != container(bytes).len() {
        return Err(corrupt("the chunks of the WebP do not fill its container"));
    }
    if &first.kind != b"VP8X" {
        return Ok(());
    }
    let count = |kinds: &[&[u8; 4]]| chunks(bytes).filter(|chunk| kinds.contains(&&chunk.kind)).count();
    if count(&[b"VP8X"]) > 1 {
        return Err(corrupt("the WebP has two VP8X chunks"));
    }
    if first.data.first().is_some_and(|flags| flags & ANIMATION_FLAG != 0) {
        return if count(&[b"ANMF"]) > 0 { Ok(()) } else { Err(corrupt("the animated WebP has no frames")) };
    }
    let image = chunks(bytes).find(|chunk| matches!(&chunk.kind, b"VP8 " | b"VP8L"));
    match image.as_ref().map(dimensions) {
        _ if count(&[b"VP8 ", b"VP8L"]) > 1 || count(&[b"ALPH"]) > 1 => {
            Err(corrupt("the WebP contains more than one image"))
        }
        None => Err(corrupt("the WebP contains no image")),
        Some(size) if size != Some(canvas) => Err(corrupt(format!(
            "the size of the image in the WebP differs from its canvas, {}×{}",
            canvas.0, canvas.1
        ))),
        Some(_) => Ok(()),
    }
}
