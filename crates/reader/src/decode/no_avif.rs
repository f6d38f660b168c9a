//! The interface of `avif.rs` in builds without the feature `avif`: no image is AVIF.

use std::panic::PanicHookInfo;

use dsconvert_dataset::sample::Reject;
use image::error::{DecodingError, ImageFormatHint, UnsupportedError};
use image::{ImageDecoder, ImageError, ImageFormat, ImageResult};

pub use super::AvifHeader;
use super::unsupported;

/// Returns false: this build does not read AVIF.
pub fn is_avif(_: &[u8]) -> bool {
    false
}

/// Rejects the image: this build does not read AVIF.
///
/// # Errors
///
/// Always.
pub fn header(_: &[u8]) -> Result<AvifHeader, Reject> {
    Err(unsupported("AVIF images cannot be read by this build"))
}

/// Rejects the image: this build does not read AVIF.
///
/// # Errors
///
/// Always.
pub fn check_data(_: &[u8]) -> Result<(), Reject> {
    Err(unsupported("AVIF images cannot be read by this build"))
}

/// Returns nothing: this build does not read AVIF.
pub fn exif_block(_: &[u8]) -> Option<Vec<u8>> {
    None
}

/// Does nothing: this build has no AVIF decoder that could panic.
pub fn contain_panic(_: &PanicHookInfo<'_>) {}

pub(super) fn reject_of(_: &DecodingError) -> Option<Reject> {
    None
}

pub(super) fn open(_: &[u8]) -> ImageResult<Box<dyn ImageDecoder + '_>> {
    Err(ImageError::Unsupported(UnsupportedError::from(ImageFormatHint::Exact(ImageFormat::Avif))))
}
