//! Everything but JPEG, through the `image` crate, with its own limits switched on.

use std::io::Cursor;

use dsconvert_dataset::sample::{Reject, RejectCode};
use image::codecs::{bmp::BmpDecoder, gif::GifDecoder, tiff::TiffDecoder, webp::WebPDecoder};
use image::error::{ImageError, LimitErrorKind};
use image::{ImageDecoder, Limits};

use super::pixels::Size;
use super::png::StrictPng;
use super::reject::{corrupt, truncated, unsupported};
use super::sniff::ImageType;

/// What a decoder may allocate beside the output: tables, windows, palettes, compressed strips.
const DECODER_BYTES: u64 = 64 << 20;

/// Limits of a decoder whose output has `decoded_bytes`.
pub fn limits(decoded_bytes: u64) -> Limits {
    let mut limits = Limits::default();
    limits.max_alloc = Some(decoded_bytes.saturating_mul(2).saturating_add(DECODER_BYTES));
    limits
}

/// A decoder of an image of `image_type`, which has `size` if its header is to be believed.
pub fn open(
    bytes: &[u8],
    image_type: ImageType,
    size: Size,
) -> Result<Box<dyn ImageDecoder + '_>, ImageError> {
    let reader = Cursor::new(bytes);
    Ok(match image_type {
        ImageType::Png => {
            // Eight bytes per pixel is the widest it decodes to.
            Box::new(StrictPng::new(bytes, &limits(size.pixels().saturating_mul(8)))?)
        }
        ImageType::Webp => Box::new(WebPDecoder::new(reader)?),
        ImageType::Gif => Box::new(GifDecoder::new(reader)?),
        ImageType::Bmp => Box::new(BmpDecoder::new(reader)?),
        ImageType::Tiff | ImageType::Raw | ImageType::Jpeg => Box::new(TiffDecoder::new(reader)?),
    })
}

/// The reject for output that memory cannot hold.
pub fn too_large() -> Reject {
    Reject::new(RejectCode::TooLarge, "decoding it would pass the memory limit")
}

/// The reject an error of the `image` crate stands for. Its input is in memory, so an I/O error is an early end.
pub fn reject(error: ImageError) -> Reject {
    match error {
        ImageError::IoError(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => truncated("its data"),
        ImageError::IoError(e) => corrupt(e.to_string()),
        ImageError::Limits(e) => match e.kind() {
            LimitErrorKind::Unsupported { .. } => unsupported(e.to_string()),
            _ => too_large(),
        },
        ImageError::Unsupported(e) => unsupported(e.to_string()),
        other => corrupt(other.to_string()),
    }
}
