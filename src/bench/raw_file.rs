//! Files that are no dataset yet.

use std::path::PathBuf;

/// A file that is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawFile {
    pub(super) path: PathBuf,
    /// Path under the target, with `/`; empty when the target is the file.
    pub(super) name: String,
    pub(super) bytes: u64,
}
