//! State shared by a dataset and all its splits.

use std::path::Path;
use std::sync::Arc;

use dsconvert_dataset::error::{Error, ErrorKind, Result};
use dsconvert_dataset::index::{IndexFile, Segment, ShardTable};
use dsconvert_dataset::manifest::Manifest;
use dsconvert_dataset::schema::Schema;
use dsconvert_dataset::storage::{Blob, Location};

use super::open_options::OpenOptions;

/// State shared by an opened dataset and all its splits.
#[derive(Debug)]
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
