//! Rejects of images that do not decode, and what they are in the `image` crate.

use dsconvert_dataset::sample::{Reject, RejectCode};
use dsconvert_jpeg::ErrorKind;
use image::ImageError;
use image::error::{
    DecodingError, ImageFormatHint, LimitError, LimitErrorKind, UnsupportedError, UnsupportedErrorKind,
};

/// Returns the reject for a file that ends inside `what`.
pub fn truncated(what: &str) -> Reject {
    Reject::new(RejectCode::Truncated, format!("the file ends inside {what}"))
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

/// Returns the reject for output that exceeds the memory limit.
pub fn too_large() -> Reject {
    Reject::new(RejectCode::TooLarge, "decoding it would exceed the memory limit")
}

/// Converts a reject into an error of the `image` crate, which has no reject codes. Truncation is an unexpected end of the
/// file there.
pub(super) fn image_error(reject: Reject) -> ImageError {
    match reject.code {
        RejectCode::Truncated => ImageError::IoError(std::io::ErrorKind::UnexpectedEof.into()),
        RejectCode::Unsupported => ImageError::Unsupported(UnsupportedError::from_format_and_kind(
            ImageFormatHint::Unknown,
            UnsupportedErrorKind::GenericFeature(reject.message),
        )),
        RejectCode::TooLarge => ImageError::Limits(LimitError::from_kind(LimitErrorKind::InsufficientMemory)),
        _ => ImageError::Decoding(DecodingError::new(ImageFormatHint::Unknown, reject.message)),
    }
}

/// Replaces the content of `buffer` with `bytes` zeros. The size may come from a hostile file.
pub fn fill_zeros(buffer: &mut Vec<u8>, bytes: usize) -> Result<(), Reject> {
    buffer.clear();
    buffer.try_reserve_exact(bytes).map_err(|_| too_large())?;
    buffer.resize(bytes, 0);
    Ok(())
}
