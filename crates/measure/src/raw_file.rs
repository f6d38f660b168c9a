//! A file of a benchmark target.

use std::path::PathBuf;

/// A file to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawFile {
    /// Where it is.
    pub path: PathBuf,
    /// Path relative to the target, separated by `/`; empty if the target is the file itself.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}
