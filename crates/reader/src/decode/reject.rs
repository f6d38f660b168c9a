//! The rejects that decoders return.

use dsconvert_dataset::sample::{Reject, RejectCode};
use dsconvert_jpeg::ErrorKind;

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
