//! What an output directory, or a prefix in object storage, holds before a run.

use crate::manifest::Manifest;

/// Name of the working directory inside the output directory. It is removed after the commit.
pub(super) const WORK_NAME: &str = ".dsconvert";
/// Name of the plan in the working directory. It is written last, so that it marks a run as started.
pub(super) const PLAN_NAME: &str = "plan.jsonl";
/// Name of the lock file in the working directory.
pub(super) const LOCK_NAME: &str = "lock";
/// The manifest of a dataset that is being removed; empty if an unfinished run is being removed.
pub(super) const RETIRED_NAME: &str = "retired.json";

/// State of an output when a run opens it.
pub(super) enum OutputState {
    /// It holds neither a plan nor a dataset.
    Empty,
    /// An earlier run has stored its plan, but has not committed.
    Planned,
    /// The dataset is committed.
    Committed(Box<Manifest>),
}
