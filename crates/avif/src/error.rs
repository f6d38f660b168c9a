//! The error type of this crate.

use std::borrow::Cow;
use std::fmt;

/// The kind of an [`Error`]. The kinds are stable; messages may change between versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file ends before its content is complete.
    Truncated,
    /// The content contradicts the format.
    Corrupt,
    /// The format allows the content, but this crate does not decode it.
    Unsupported,
    /// The image exceeds a limit, or its buffers cannot be allocated.
    TooLarge,
    /// The decoder panicked; see [`contain_panic`](crate::contain_panic).
    Panicked,
}

/// The reason why a file was not decoded. Displays as a human-readable message without a trailing period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: Cow<'static, str>,
}

impl Error {
    /// Returns the kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Creates an error for a file that ends inside `what`.
    pub(crate) fn truncated(what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Truncated, format!("the file ends inside {what}"))
    }

    pub(crate) fn corrupt(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    pub(crate) fn unsupported(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    pub(crate) fn too_large(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::TooLarge, message)
    }

    pub(crate) fn out_of_memory() -> Self {
        Self::too_large("cannot allocate memory for the image")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// The result of a fallible function of this crate.
pub(crate) type Result<T> = std::result::Result<T, Error>;
