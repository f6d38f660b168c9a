//! Checks index files against the SHA-256 in the manifest.
//!
//! Every record has a checksum, but a length that is read from an index alone has none. An index file is therefore
//! hashed once, before the first value from it is returned.

use std::sync::atomic::{AtomicBool, Ordering};

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::index::IndexFile;
use dsconvert_dataset::storage::Blob;

use super::dataset_state::DatasetState;
use super::hash::check_sha256;

/// Flags for the index files of a split: set once a file matched its hash.
#[derive(Debug, Default)]
pub(super) struct CheckedIndexes {
    pub(super) records: AtomicBool,
    pub(super) permutation: AtomicBool,
    pub(super) histogram: AtomicBool,
}

impl CheckedIndexes {
    /// Copies the flags for another handle on the same files.
    pub(super) fn copy(&self) -> Self {
        let copy = |flag: &AtomicBool| AtomicBool::new(flag.load(Ordering::Acquire));
        Self {
            records: copy(&self.records),
            permutation: copy(&self.permutation),
            histogram: copy(&self.histogram),
        }
    }
}

impl DatasetState {
    /// Compares `blobs` with the hashes of `files`, unless this was done before (`done`) or checksums are not verified.
    /// Concurrent callers repeat the work, because a lock could stay locked forever in the child of a fork.
    pub(super) fn check_files<'a>(
        &self,
        done: &AtomicBool,
        blobs: impl Iterator<Item = &'a Blob>,
        files: &[IndexFile],
    ) -> Result<()> {
        if done.load(Ordering::Acquire) || !self.options.verifies() {
            return Ok(());
        }
        let mut files = files.iter();
        for blob in blobs {
            let file = files.next().ok_or_else(|| Error::corrupt("the manifest lacks an index file"))?;
            check_sha256(blob, &file.sha256, |_| {}).inspect_err(|_| {
                // The index stays as it is in this process; the next one fetches it again.
                self.location.forget(&[(&file.path, &file.sha256)]);
            })?;
        }
        done.store(true, Ordering::Release);
        Ok(())
    }
}
