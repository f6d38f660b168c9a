//! Passthrough without metadata: copies the coded pixels, and leaves out segments and chunks that only describe them.
//!
//! The parts that determine how the pixels look are kept: JFIF and Adobe segments in JPEG, critical chunks and
//! transparency in PNG, the image and alpha chunks in WebP. Profiles can be removed because only files in sRGB pass
//! through.

use bytes::Bytes;

use super::container::{jpeg, png, webp};
use super::source::CheckedImage;
use crate::decode::ImageType;

/// Returns the file of `source` without metadata. Returns the same bytes if there is none, or if it cannot be removed
/// from files of this type.
pub(super) fn strip(bytes: &Bytes, source: &CheckedImage<'_>) -> Bytes {
    match (source.image_type, &source.jpeg) {
        (ImageType::Jpeg, Some(header)) => strip_jpeg(bytes, header),
        (ImageType::Png, _) => strip_png(bytes),
        (ImageType::Webp, _) => strip_webp(bytes),
        _ => bytes.clone(),
    }
}

/// Returns the JPEG of `source` without bytes between the segments before its first scan; `None` for other types.
pub(super) fn without_stray_bytes(source: &CheckedImage<'_>) -> Option<Bytes> {
    let header = source.jpeg.as_ref()?;
    Some(with_segments(source.bytes, header, source.bytes.len(), |_| true))
}

fn strip_jpeg(bytes: &Bytes, header: &jpeg::JpegHeader<'_>) -> Bytes {
    let Some(end) = jpeg::end(bytes, header.first_scan) else { return bytes.clone() };
    if !header.has_metadata {
        return bytes.slice(..end);
    }
    with_segments(bytes, header, end, |segment| !segment.is_metadata())
}

/// Returns the JPEG up to `end` with only the segments before its first scan that `is_kept` returns true for.
fn with_segments(
    bytes: &[u8],
    header: &jpeg::JpegHeader<'_>,
    end: usize,
    is_kept: impl Fn(&jpeg::MarkerSegment<'_>) -> bool,
) -> Bytes {
    let mut out = Vec::with_capacity(end);
    out.extend_from_slice(&[0xff, jpeg::SOI]);
    let mut segments = jpeg::MarkerSegments::new(bytes);
    while let Ok(Some(segment)) = segments.next() {
        if is_kept(&segment) {
            out.extend_from_slice(segment.whole);
        }
    }
    out.extend_from_slice(&bytes[header.first_scan..end]);
    out.into()
}

fn strip_png(bytes: &Bytes) -> Bytes {
    let out = with_chunks(bytes, |chunk| !chunk.is_ancillary());
    if out.len() == bytes.len() { bytes.clone() } else { out.into() }
}

/// Returns the PNG file `bytes` up to its end with only the chunks that `is_kept` returns true for.
pub(super) fn with_chunks(bytes: &[u8], is_kept: impl Fn(&png::PngChunk<'_>) -> bool) -> Vec<u8> {
    let mut out = png::SIGNATURE.to_vec();
    for chunk in png::chunks(bytes) {
        if is_kept(&chunk) {
            out.extend_from_slice(chunk.whole);
        }
        if &chunk.kind == b"IEND" {
            break;
        }
    }
    out
}

/// VP8X flags for a profile, EXIF and XMP.
const WEBP_METADATA_FLAGS: u8 = 0x20 | 0x08 | 0x04;

fn strip_webp(bytes: &Bytes) -> Bytes {
    let is_metadata = |kind: &[u8; 4]| matches!(kind, b"ICCP" | b"EXIF" | b"XMP ");
    if !webp::chunks(bytes).any(|chunk| is_metadata(&chunk.kind)) {
        return bytes.slice(..webp::container(bytes).len());
    }
    let mut out = b"RIFF\0\0\0\0WEBP".to_vec();
    for chunk in webp::chunks(bytes).filter(|chunk| !is_metadata(&chunk.kind)) {
        out.extend_from_slice(&chunk.kind);
        out.extend_from_slice(&(chunk.data.len() as u32).to_le_bytes());
        let data = out.len();
        out.extend_from_slice(chunk.data);
        if let (b"VP8X", Some(flags)) = (&chunk.kind, out.get_mut(data)) {
            *flags &= !WEBP_METADATA_FLAGS;
        }
        out.resize(out.len().next_multiple_of(2), 0);
    }
    let length = (out.len() - 8) as u32;
    out[4..8].copy_from_slice(&length.to_le_bytes());
    out.into()
}
