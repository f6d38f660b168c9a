//! Comparing index files with the SHA-256 in the manifest.
//!
//! A record has a checksum of its own, but a length that comes from an index alone does not. So an index file is hashed
//! once, before the first value of it is returned by itself.

use std::sync::atomic::{AtomicBool, Ordering};

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::index::IndexFile;
use dsconvert_dataset::storage::Blob;

use super::common::Common;
use super::hash::check_sha256;

/// The parts of the indexes of a split that were hashed.
#[derive(Debug, Default)]
pub(super) struct CheckedIndexes {
    pub(super) records: AtomicBool,
    pub(super) permutation: AtomicBool,
    pub(super) histogram: AtomicBool,
}

impl CheckedIndexes {
    /// The same parts, for another handle on the same files.
    pub(super) fn copy(&self) -> Self {
        let copy = |flag: &AtomicBool| AtomicBool::new(flag.load(Ordering::Acquire));
        Self {
            records: copy(&self.records),
            permutation: copy(&self.permutation),
            histogram: copy(&self.histogram),
        }
    }
}

impl Common {
    /// Compares `blobs` with the hashes of `files`, unless that was done (`done`) or checksums are not verified. Threads
    /// that come at the same time do it twice, because a lock could be held for ever in the child of a fork.
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
            check_sha256(blob, &file.sha256, |_| {})?;
        }
        done.store(true, Ordering::Release);
        Ok(())
    }
}
