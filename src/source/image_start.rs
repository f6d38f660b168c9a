//! Detection of images from the first bytes of a file, whatever its name.

use std::path::Path;

use super::planned::PlannedFile;
use crate::decode::{has_signature, is_unreadable_photo};
use crate::error::Result;

/// Bytes inspected at the start of a file whose name does not indicate its type.
const SNIFFED_BYTES: u64 = 4096;

/// Returns whether the first bytes of a file are those of an image.
///
/// # Errors
///
/// Returns an error if the file cannot be read.
pub fn begins_as_image(path: &Path) -> Result<bool> {
    Ok(has_signature(&PlannedFile::now(path)?.start(SNIFFED_BYTES)?))
}

/// As [`begins_as_image`], but also accepts HEIC, JPEG XL and JPEG 2000 images, and AVIF images in a build without their
/// decoder.
///
/// # Errors
///
/// Returns an error if the file cannot be read.
pub fn begins_as_any_image(file: &PlannedFile) -> Result<bool> {
    let start = file.start(SNIFFED_BYTES)?;
    Ok(has_signature(&start) || is_unreadable_photo(&start))
}
