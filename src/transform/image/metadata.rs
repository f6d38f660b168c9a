//! `--keep-metadata` for images that are encoded again: copies their EXIF block to the new file.
//!
//! The orientation is set to upright, because the new pixels are. XMP, IPTC, comments and profiles are not copied: they
//! describe the old pixels in ways that cannot be corrected here.

use std::borrow::Cow;

use super::container::{jpeg, png, webp};
use super::exif;
use super::source::CheckedImage;
use crate::decode::{ImageType, avif};

/// Returns the EXIF block of `source`, with its orientation set to upright.
pub(super) fn upright_exif(source: &CheckedImage<'_>) -> Option<Vec<u8>> {
    let block: Cow<'_, [u8]> = match source.image_type {
        ImageType::Jpeg => source.jpeg.as_ref()?.exif?.into(),
        ImageType::Png => png::exif_block(source.bytes)?,
        ImageType::Webp => webp::chunks(source.bytes).find(|chunk| &chunk.kind == b"EXIF")?.data.into(),
        ImageType::Avif => avif::exif_block(source.bytes)?.into(),
        _ => return None,
    };
    let mut block = block.strip_prefix(jpeg::EXIF_MARK).unwrap_or(&block).to_vec();
    exif::set_upright(&mut block);
    Some(block)
}

/// Inserts the EXIF `block` into `file`, an image of `image_type` that this crate encoded. Returns the file unchanged
/// if the block does not fit or the type cannot hold it.
pub(super) fn with_exif(file: Vec<u8>, image_type: ImageType, size: (u32, u32), block: &[u8]) -> Vec<u8> {
    match image_type {
        ImageType::Jpeg => in_jpeg(file, block),
        ImageType::Png => in_png(file, block),
        ImageType::Webp => in_webp(file, size, block),
        _ => file,
    }
}

/// Returns whether an image of `image_type` can hold the EXIF `block`. [`ImageType::Raw`], which has no metadata at all,
/// counts as if it could.
pub(super) fn fits(image_type: ImageType, block: &[u8]) -> bool {
    image_type != ImageType::Jpeg || segment_length(block).is_some()
}

/// Returns the length that a JPEG segment with the EXIF `block` declares.
fn segment_length(block: &[u8]) -> Option<u16> {
    u16::try_from(2 + jpeg::EXIF_MARK.len() + block.len()).ok()
}

fn in_jpeg(file: Vec<u8>, block: &[u8]) -> Vec<u8> {
    let Some(length) = segment_length(block) else { return file };
    // After the JFIF segment, which must come first.
    let at = match file.get(2..6) {
        Some([0xff, jpeg::APP0, high, low]) => 4 + usize::from(u16::from_be_bytes([*high, *low])),
        _ => 2,
    };
    let mut segment = vec![0xff, jpeg::APP1];
    segment.extend(length.to_be_bytes());
    segment.extend_from_slice(jpeg::EXIF_MARK);
    segment.extend_from_slice(block);
    insert(file, at, &segment)
}

/// Size of the signature and the IHDR chunk, after which other chunks may follow.
const PNG_HEAD_BYTES: usize = 33;

fn in_png(file: Vec<u8>, block: &[u8]) -> Vec<u8> {
    let Ok(length) = u32::try_from(block.len()) else { return file };
    let mut chunk = length.to_be_bytes().to_vec();
    chunk.extend_from_slice(b"eXIf");
    chunk.extend_from_slice(block);
    let crc = crc32fast::hash(&chunk[4..]);
    chunk.extend(crc.to_be_bytes());
    insert(file, PNG_HEAD_BYTES, &chunk)
}

fn insert(mut file: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    if at <= file.len() {
        file.splice(at..at, bytes.iter().copied());
    }
    file
}

const VP8X_ALPHA: u8 = 0x10;
const VP8X_EXIF: u8 = 0x08;

/// Writes the extended form of the container, which EXIF requires: a VP8X chunk, then the image, then the block.
fn in_webp(file: Vec<u8>, (width, height): (u32, u32), block: &[u8]) -> Vec<u8> {
    let mut out = b"RIFF\0\0\0\0WEBP".to_vec();
    let mut push = |kind: &[u8; 4], data: &[u8]| {
        out.extend_from_slice(kind);
        out.extend((data.len() as u32).to_le_bytes());
        out.extend_from_slice(data);
        out.resize(out.len().next_multiple_of(2), 0);
    };
    let chunks: Vec<_> = webp::chunks(&file).filter(|chunk| &chunk.kind != b"VP8X").collect();
    let has_alpha = chunks.iter().any(|chunk| match &chunk.kind {
        b"ALPH" => true,
        // Bit 28 of the lossless header, after its signature byte.
        b"VP8L" => chunk.data.get(4).is_some_and(|byte| byte & 0x10 != 0),
        _ => false,
    });
    let [w, h] = [(width - 1).to_le_bytes(), (height - 1).to_le_bytes()];
    let flags = VP8X_EXIF | if has_alpha { VP8X_ALPHA } else { 0 };
    push(b"VP8X", &[flags, 0, 0, 0, w[0], w[1], w[2], h[0], h[1], h[2]]);
    for chunk in chunks {
        push(&chunk.kind, chunk.data);
    }
    push(b"EXIF", block);
    let length = (out.len() - 8) as u32;
    out[4..8].copy_from_slice(&length.to_le_bytes());
    out
}
