//! What an opened dataset and its splits share, and checks of files against the SHA-256 in the manifest.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dsconvert_dataset::error::{Error, ErrorKind, Result};
use dsconvert_dataset::index::{IndexFile, Segment, ShardTable};
use dsconvert_dataset::manifest::Manifest;
use dsconvert_dataset::schema::Schema;
use dsconvert_dataset::storage::{Blob, Location, hex};
use sha2::{Digest, Sha256};

use super::open_options::OpenOptions;

/// State shared by an opened dataset and all its splits.
#[derive(Debug, Clone)]
pub(super) struct DatasetState {
    pub(super) location: Location,
    pub(super) manifest: Manifest,
    pub(super) shards: ShardTable,
    pub(super) schema: Arc<Schema>,
    pub(super) options: OpenOptions,
}

impl DatasetState {
    /// Returns the directory or URL, for messages.
    pub(super) fn path(&self) -> &Path {
        self.location.path()
    }

    /// Returns whether `error` concerns more than the records that were read: the store does not respond, or the caller
    /// was interrupted. Reading other records would fail as well, each after minutes of retries.
    pub(super) fn is_outage(&self, error: &Error) -> bool {
        match error.kind() {
            ErrorKind::Io => self.location.is_remote(),
            ErrorKind::Interrupted(_) => true,
            _ => false,
        }
    }

    /// Separates outages, which are returned as the outer error, from errors of the records that were read.
    pub(super) fn unless_outage<T>(&self, result: Result<T>) -> Result<Result<T>> {
        match result {
            Err(e) if self.is_outage(&e) => Err(e),
            result => Ok(result),
        }
    }

    /// Opens a file listed in the manifest or the shard table.
    pub(super) fn open(&self, path: &str, bytes: u64, sha256: &str) -> Result<Blob> {
        self.location.open(path, bytes, sha256, self.options.access)
    }

    /// Returns the result of `open`, which opens the index `files`; see [`Location::read_again_if_damaged`].
    pub(super) fn read_index<'a, T>(
        &self,
        files: impl IntoIterator<Item = &'a IndexFile>,
        open: impl Fn() -> Result<T>,
    ) -> Result<T> {
        let names: Vec<(&str, &str)> =
            files.into_iter().map(|f| (f.path.as_str(), f.sha256.as_str())).collect();
        self.location.read_again_if_damaged(&names, open)
    }

    /// Opens the files of an index.
    pub(super) fn segments(&self, files: &[IndexFile]) -> Result<Vec<Segment>> {
        let open = |f: &IndexFile| self.location.open_whole(&f.path, f.bytes, &f.sha256, self.options.access);
        files.iter().map(|f| Ok(Segment { blob: open(f)?, records: f.records })).collect()
    }
}

// Checks index files against the SHA-256 in the manifest.
//
// Every record has a checksum, but a length that is read from an index alone has none. An index file is therefore
// hashed once, before the first value from it is returned.

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
        if done.load(Ordering::Acquire) || !self.options.verify_checksums {
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

/// Bytes hashed between two progress reports.
const CHUNK_BYTES: u64 = 1 << 20;

/// Checks that the SHA-256 of `blob` is `expected` (lower-case hexadecimal). `each_chunk` is called with the number of
/// bytes hashed since its last call.
pub(super) fn check_sha256(blob: &Blob, expected: &str, mut each_chunk: impl FnMut(u64)) -> Result<()> {
    let mut hash = Sha256::new();
    let mut offset = 0;
    while offset < blob.len() {
        let bytes = CHUNK_BYTES.min(blob.len() - offset);
        hash.update(blob.read(offset, bytes)?);
        offset += bytes;
        each_chunk(bytes);
    }
    if hex(&hash.finalize()) == expected {
        return Ok(());
    }
    Err(Error::corrupt("the SHA-256 of the file differs from the recorded one")
        .at_path(blob.path())
        .help("the file was altered; restore it or convert again"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_hash_is_compared_whole() {
        let blob = Blob::from_bytes(Path::new("x"), Bytes::from_static(b"abc"));
        let right = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let mut bytes = 0;
        check_sha256(&blob, right, |n| bytes += n).unwrap();
        assert_eq!(bytes, 3);
        for wrong in ["", "ba", &right[..62], &right.replace("ad", "ae"), &right.to_uppercase()] {
            assert!(check_sha256(&blob, wrong, |_| {}).is_err(), "{wrong}");
        }
    }
}
