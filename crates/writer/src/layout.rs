//! Names in the working directory of an output, and what a run does with what it finds there.

/// How to treat existing content of the output directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Existing {
    /// Refuse a directory that is not empty.
    #[default]
    Refuse,
    /// Finish the interrupted run in the directory, or start a new run if there is none.
    Resume(ResumeCheck),
    /// Remove the existing dataset, then convert.
    Overwrite,
}

/// How a resumed run verifies finished work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResumeCheck {
    /// Check the sizes of all files, and the SHA-256 of all files except shards.
    #[default]
    Sizes,
    /// Check the SHA-256 of all files.
    Hashes,
    /// Check as [`ResumeCheck::Hashes`] does, and rebuild damaged files of a committed dataset.
    Repair,
}

/// Name of the working directory inside the output directory. It is removed after the commit.
pub const WORK_NAME: &str = ".dsconvert";
/// Name of the plan in the working directory. It is written last, so that it marks a run as started.
pub const PLAN_NAME: &str = "plan.jsonl";
/// Name of the lock file in the working directory.
pub const LOCK_NAME: &str = "lock";
/// The manifest of a dataset that is being removed; empty if an unfinished run is being removed.
pub(crate) const RETIRED_NAME: &str = "retired.json";
