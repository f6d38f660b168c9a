//! What an output directory, or a prefix in object storage, holds before a run.

use crate::manifest::Manifest;

/// Name of the working directory inside the output directory. It is removed after the commit.
pub(super) const WORK_NAME: &str = ".dsconvert";

/// State of an output when a run opens it.
pub(super) enum OutputState {
    /// It holds neither a plan nor a dataset.
    Empty,
    /// An earlier run has stored its plan, but has not committed.
    Planned,
    /// The dataset is committed.
    Committed(Box<Manifest>),
}
