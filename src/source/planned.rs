//! Source files as recorded in the plan.
//!
//! A source may change while it is read. Its size and modification time are compared with the plan when it is opened,
//! and again after its last byte was read. No record therefore mixes two states of a file. A change is a failure to
//! read the file, never a defect of an item. For objects, the entity tag is compared with every response of the store.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::numbers::{count, plural};

/// Help for a source that changed.
pub(super) const CHANGED_HELP: &str = "do not change the sources during a run; start again with `overwrite`";

/// A source file as it was when the run was planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFile {
    /// Path, or URL of an object.
    pub path: PathBuf,
    /// Size in bytes.
    pub bytes: u64,
    /// Modification time, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// Entity tag of an object, if its store provides one.
    pub etag: Option<String>,
    /// Whether `path` may be a symbolic link.
    pub follow_symlinks: bool,
}

/// Returns the modification time, in nanoseconds since 1970.
pub(super) fn modified_ns(meta: &Metadata) -> i128 {
    i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec())
}

impl PlannedFile {
    pub(super) fn check(&self, now: &Metadata) -> Result<()> {
        if now.len() != self.bytes {
            return Err(self.resized(now.len()));
        }
        if modified_ns(now) != self.modified_ns {
            return Err(changed(&self.path, "the file was written to after the run was planned"));
        }
        Ok(())
    }

    pub(super) fn resized(&self, now: u64) -> Error {
        let planned = plural(self.bytes, "byte");
        let what = format!("the file had {planned} when the run was planned and has {} now", count(now));
        changed(&self.path, what)
    }
}

/// Returns whether `error` says that a source changed after the run was planned.
pub fn is_source_change(error: &Error) -> bool {
    error.remedy() == Some(CHANGED_HELP)
}

pub(super) fn changed(path: &Path, what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Io, what).at_path(path).help(CHANGED_HELP)
}
