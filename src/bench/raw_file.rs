//! A file of a benchmark target.

use std::path::PathBuf;

/// A file to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawFile {
    pub(super) path: PathBuf,
    /// Path relative to the target, separated by `/`; empty if the target is the file itself.
    pub(super) name: String,
    pub(super) bytes: u64,
}
