//! The rejects that decoders give.

use dsconvert_dataset::sample::{Reject, RejectCode};

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
