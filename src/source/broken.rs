//! Why bytes of a source could not be read.

use crate::error::Error;
use crate::sample::Reject;

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
