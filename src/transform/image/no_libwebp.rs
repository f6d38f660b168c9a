//! The interface of `libwebp.rs` in builds without the feature `webp`. Lossy WebP is then rejected, also as a source: without
//! libwebp, damage in it would not be found.

use super::container::unsupported;
use super::pixels::Pixels;
use crate::error::missing_feature;
use crate::sample::Reject;

fn reject() -> Reject {
    unsupported(missing_feature("lossy WebP", "webp"))
}

/// Rejects the image.
///
/// # Errors
///
/// Always.
pub(super) fn decodes(_: &[u8]) -> Result<bool, Reject> {
    Err(reject())
}

/// Rejects the image. [`super::encoding::Encode::check`] refuses the option before.
///
/// # Errors
///
/// Always.
pub(super) fn encode(_: &Pixels, _: u8) -> Result<Vec<u8>, Reject> {
    Err(reject())
}
