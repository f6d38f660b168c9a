//! The rejects that decoders give.

use dsconvert_dataset::sample::{Reject, RejectCode};
use dsconvert_jpeg::ErrorKind;

/// The file ends inside `what`.
pub fn truncated(what: &str) -> Reject {
    Reject::new(RejectCode::Truncated, format!("the file ends inside {what}"))
}

/// The content contradicts its format.
pub fn corrupt(message: impl Into<String>) -> Reject {
    Reject::new(RejectCode::Corrupt, message)
}

/// The format allows this content and this build cannot decode it.
pub fn unsupported(message: impl Into<String>) -> Reject {
    Reject::new(RejectCode::Unsupported, message)
}

/// The reject for an error of the JPEG decoder.
pub fn of_jpeg(error: dsconvert_jpeg::Error) -> Reject {
    let code = match error.kind() {
        ErrorKind::Truncated => RejectCode::Truncated,
        ErrorKind::Unsupported => RejectCode::Unsupported,
        ErrorKind::TooLarge => RejectCode::TooLarge,
        // Requests are made to fit the header that was read first, so one that does not fit is a contradiction in the file.
        _ => RejectCode::Corrupt,
    };
    Reject::new(code, error.to_string())
}
