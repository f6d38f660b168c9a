//! Why bytes of a source could not be read.

use crate::error::{Error, Result};
use crate::sample::{Reject, RejectCode};

/// The reason why bytes could not be read.
#[derive(Debug)]
pub enum Broken {
    /// A failure that is not a defect of the file.
    Failed(Error),
    /// The file is damaged.
    Damaged(Reject),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Broken {
    /// Returns damage with this `code` and `message`.
    pub(in crate::source) fn damaged(code: RejectCode, message: impl Into<String>) -> Self {
        Self::Damaged(Reject::new(code, message))
    }

    /// Returns the damage. A failure is an error.
    pub(in crate::source) fn damage(self) -> Result<Reject> {
        match self {
            Self::Failed(error) => Err(error),
            Self::Damaged(reject) => Ok(reject),
        }
    }
}
