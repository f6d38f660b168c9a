//! The interface of `avif.rs` in builds without the feature `avif`: AVIF images are rejected, with the feature in the reason.

use std::panic::PanicHookInfo;

use dsconvert_dataset::error::missing_feature;
use dsconvert_dataset::sample::Reject;
use image::error::{DecodingError, ImageFormatHint, UnsupportedError, UnsupportedErrorKind};
use image::{ImageDecoder, ImageError, ImageFormat, ImageResult};

pub use super::AvifHeader;
use super::unsupported;

fn reason() -> String {
    missing_feature("an AVIF image", "avif")
}

/// Rejects the image: this build does not read AVIF.
///
/// # Errors
///
/// Always.
pub fn header(_: &[u8]) -> Result<AvifHeader, Reject> {
    Err(unsupported(reason()))
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
    let kind = UnsupportedErrorKind::GenericFeature(reason());
    let format = ImageFormatHint::Exact(ImageFormat::Avif);
    Err(ImageError::Unsupported(UnsupportedError::from_format_and_kind(format, kind)))
}
