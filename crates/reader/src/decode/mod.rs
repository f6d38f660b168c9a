//! Image decoding shared by the converter and the loader.
//!
//! The converter decodes arbitrary files with the parts of this module, none of which depends on conversion options.
//! The loader uses the [`Decoder`], which decodes the requested part of a stored image into the array of a batch.

#[cfg(feature = "avif")]
pub mod avif;
#[cfg(not(feature = "avif"))]
#[path = "no_avif.rs"]
pub mod avif;
mod decoder;
pub mod jpeg_engine;
mod mask;
pub mod other;
mod pixels;
mod plane_scaler;
mod planes_file;
pub mod resample;
mod resize;
mod samples;
mod sniff;
mod tiff;
pub mod turbo;

use dsconvert_dataset::sample::{Reject, RejectCode};
use dsconvert_jpeg::ErrorKind;

pub use decoder::{Decoder, PixelOrder, Stored};
pub use dsconvert_jpeg::luma;
pub use mask::{Mask, Palette};
pub use other::stored_size;
pub use pixels::{Pixels, Rect, Size};
pub use planes_file::{PLANES_HEADER_BYTES, PlanesChroma, PlanesFile, planes_file, planes_of_pixels};
pub use resize::{SourceRegion, reduction, resize, scale};
pub use samples::{divide_by_alpha, to_8_bits};
pub use sniff::{
    ImageType, converter, foreign_format, has_image_extension, has_signature, is_unreadable_photo, sniff,
};
pub use tiff::TiffFile;

/// What the container of an AVIF image declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AvifHeader {
    /// Size of the decoded pixels, before the orientation is applied.
    pub size: Size,
    /// How the decoded pixels are turned to be upright: the value of the EXIF tag, 1 to 8.
    pub orientation: u16,
    /// Number of frames.
    pub frames: u32,
}

/// Returns the reject for a file that ends inside `what`.
pub fn truncated(what: &str) -> Reject {
    Reject::new(RejectCode::Truncated, format!("the file ends inside {what}"))
}

/// Returns the reject for an image of the type `name`, as of [`foreign_format`].
pub fn unreadable(name: &str) -> Reject {
    let how = match converter(name) {
        Some((command, project)) => format!("PNG first, for example with `{command}` of {project}"),
        None => "PNG or JPEG first".to_owned(),
    };
    unsupported(format!("{name} images cannot be read by this build; convert them to {how}"))
}

/// Returns the reject for content that contradicts its format.
pub fn corrupt(message: impl Into<String>) -> Reject {
    Reject::new(RejectCode::Corrupt, message)
}

/// Returns the reject for content that the format allows, but this build cannot decode.
pub fn unsupported(message: impl Into<String>) -> Reject {
    Reject::new(RejectCode::Unsupported, message)
}

/// Converts an error of the JPEG decoder into a reject.
pub fn of_jpeg(error: dsconvert_jpeg::Error) -> Reject {
    let code = match error.kind() {
        ErrorKind::Truncated => RejectCode::Truncated,
        ErrorKind::Unsupported => RejectCode::Unsupported,
        ErrorKind::TooLarge => RejectCode::TooLarge,
        // Requests fit the header that was read first, so a request that does not fit means that the file contradicts
        // itself.
        _ => RejectCode::Corrupt,
    };
    Reject::new(code, error.to_string())
}
