//! Files of a target.

use std::path::PathBuf;

/// A file to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawFile {
    pub(super) path: PathBuf,
    /// Path under the target, with `/`; empty if the target is the file.
    pub(super) name: String,
    pub(super) bytes: u64,
}
