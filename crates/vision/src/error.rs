//! Errors of processors and of plans.

use std::fmt;

/// A processor that cannot be used: what is wrong, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    what: String,
    help: String,
}

impl Error {
    pub(crate) fn new(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { what: what.into(), help: help.into() }
    }

    /// Returns what is wrong.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Returns what to do about it.
    pub fn help(&self) -> &str {
        &self.help
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Error {}

/// Why a processor refuses an image of some size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PlanError {
    /// A side is 0.
    Empty,
    /// The longer side is more than 200 times as long as the shorter one.
    Aspect(f64),
    /// The number of patches exceeds 32 bits.
    TooLarge,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::Empty => f.write_str("a side of the image is 0"),
            PlanError::Aspect(ratio) => {
                write!(f, "one side of the image is {ratio:.1} times as long as the other; the limit is 200")
            }
            PlanError::TooLarge => f.write_str("the image has more patches than a record can count"),
        }
    }
}

impl std::error::Error for PlanError {}
