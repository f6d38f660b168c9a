//! Why bytes of a source could not be read.

use std::{fmt, io};

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

impl From<Reject> for Broken {
    fn from(reject: Reject) -> Self {
        Self::Damaged(reject)
    }
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

/// Damage to the bytes of a file, as the cause of an [`io::Error`] of their reader. Any other cause is a failure to read
/// the file.
#[derive(Debug, Clone)]
pub(in crate::source) struct DamagedInput(Reject);

impl fmt::Display for DamagedInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for DamagedInput {}

impl DamagedInput {
    /// Returns the damage that `error` contains.
    pub(in crate::source) fn of(error: &io::Error) -> Option<&Reject> {
        error.get_ref()?.downcast_ref::<Self>().map(|damage| &damage.0)
    }

    /// Returns damage with this `code` and `message` as an error.
    pub(in crate::source) fn error(code: RejectCode, message: impl Into<String>) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, Self(Reject::new(code, message)))
    }
}
