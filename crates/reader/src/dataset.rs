//! Opens datasets, lists their splits, and checks their files against the SHA-256 in the manifest.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dsconvert_dataset::error::{Error, ErrorKind, Result};
use dsconvert_dataset::format;
use dsconvert_dataset::index::{IndexFile, Segment, ShardTable};
use dsconvert_dataset::manifest::{FileEntry, Manifest};
use dsconvert_dataset::schema::Schema;
use dsconvert_dataset::storage::{Blob, Location, hex};
use sha2::{Digest, Sha256};

use super::open_options::OpenOptions;
use super::split::{Split, SplitState};

impl OpenOptions {
    /// Opens the dataset in the directory `path`, or at a URL in object storage such as `s3://bucket/dataset`
    /// (with the feature `remote`).
    ///
    /// Reads the manifest and the shard table. Every other file is opened when it is first needed, and its size is
    /// checked then.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] when there is no dataset, [`ErrorKind::Unsupported`] when it has a newer version or needs a
    /// feature that this build lacks, [`ErrorKind::Usage`] when an option does not apply, [`ErrorKind::Corrupt`] when
    /// the manifest and the shard table are inconsistent.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Dataset> {
        let location = Location::new(path.as_ref(), &self.remote)?;
        let dir = location.path();
        let manifest = Manifest::read_at(&location)?;
        format::check_built(manifest.format).map_err(|e| e.at_path(dir))?;
        let file = &manifest.shard_table;
        let blob = location.read_again_if_damaged(&[(&file.path, &file.sha256)], || {
            let blob = location.open(&file.path, file.bytes, &file.sha256, self.access)?;
            // Read once, so that the bytes that are hashed are the bytes that are parsed.
            let blob = Blob::from_bytes(blob.path(), blob.read(0, blob.len())?);
            check_sha256(&blob, &file.sha256, |_| {})?;
            Ok(blob)
        })?;
        let shards = ShardTable::read(Segment { blob, records: file.records })?;
        check_shards(&manifest, &shards).map_err(|e| e.at_path(dir))?;
        let schema = Arc::new(manifest.schema.clone());
        let state = Arc::new(DatasetState { location, manifest, shards, schema, options: self.clone() });
        Ok(Dataset::of(state))
    }
}

/// An opened, committed dataset. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Dataset {
    state: Arc<DatasetState>,
    splits: Vec<Arc<SplitState>>,
}

impl Dataset {
    /// Opens the dataset in the directory `path` with the default [`OpenOptions`].
    ///
    /// # Errors
    ///
    /// Same as [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().open(path)
    }

    fn of(state: Arc<DatasetState>) -> Self {
        let names = state.manifest.splits.keys().cloned();
        let splits = names.map(|name| Arc::new(SplitState::new(Arc::clone(&state), name))).collect();
        Self { state, splits }
    }

    /// Returns whether the dataset is in object storage, where reading may wait for minutes.
    pub fn is_remote(&self) -> bool {
        self.state.location.is_remote()
    }

    /// Returns the same dataset without checksum verification, for reading a few fields of many records.
    #[must_use]
    pub fn unverified(&self) -> Self {
        let options = self.state.options.clone().verify_checksums(false);
        Self::of(Arc::new(DatasetState { options, ..DatasetState::clone(&self.state) }))
    }

    /// Returns the directory or URL.
    pub fn path(&self) -> &Path {
        self.state.path()
    }

    /// Returns the location of the dataset's files.
    pub fn location(&self) -> &Location {
        &self.state.location
    }

    /// Opens a file that the manifest lists in addition to shards and indexes, such as `rejects.jsonl`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] when it is missing, [`ErrorKind::Corrupt`] when its size differs from the manifest.
    pub fn open_file(&self, file: &FileEntry) -> Result<Blob> {
        self.state.open(&file.path, file.bytes, &file.sha256)
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.state.manifest
    }

    /// Returns the schema: kind, fields and class names.
    pub fn schema(&self) -> &Schema {
        &self.state.schema
    }

    /// Returns the names of the classes in label order. Empty if there are no labels.
    pub fn class_names(&self) -> &[String] {
        &self.state.schema.class_names
    }

    /// Returns the table of all shards.
    pub fn shards(&self) -> &ShardTable {
        &self.state.shards
    }

    /// Returns the splits, sorted by name.
    pub fn splits(&self) -> impl ExactSizeIterator<Item = Split> {
        self.splits.iter().map(|split| Split::whole(Arc::clone(split)))
    }

    /// Returns the split `name`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] when there is no such split; the remedy lists the existing ones.
    pub fn split(&self, name: &str) -> Result<Split> {
        self.splits().find(|s| s.name() == name).ok_or_else(|| {
            let names: Vec<&str> = self.state.manifest.splits.keys().map(String::as_str).collect();
            let help = match names.as_slice() {
                [only] => format!(
                    "its only split is {only}; to hold out some records, convert with `split {only}=0.9,{name}=0.1`"
                ),
                _ => format!("its splits are {}", names.join(", ")),
            };
            Error::new(ErrorKind::Usage, format!("the dataset has no split {name:?}"))
                .at_path(self.path())
                .help(help)
        })
    }

    pub(super) fn state(&self) -> &DatasetState {
        &self.state
    }
}

/// Checks that the shard table matches the manifest.
fn check_shards(manifest: &Manifest, shards: &ShardTable) -> Result<()> {
    let unit = manifest.schema.length_unit();
    for (name, split) in &manifest.splits {
        let listed = shards.split(name);
        let records = listed.map_or(0, |s| s.records);
        let entries = listed.map_or(&[][..], |s| &s.shards);
        let bytes = entries.iter().try_fold(0u64, |sum, e| sum.checked_add(e.bytes));
        if (records, entries.len() as u64, bytes) != (split.records, split.shards, Some(split.bytes)) {
            return Err(Error::corrupt(format!("manifest and shard table disagree about split {name:?}")));
        }
        if split.length.unit != unit {
            let (found, kind) = (split.length.unit.name(), manifest.kind().name());
            return Err(Error::corrupt(format!(
                "the lengths of split {name:?} are in {found}, which is not the unit of {kind}"
            )));
        }
    }
    if let Some(plan) = &manifest.plan
        && let Some(shard) = shards.shards().find(|shard| shard.unit().is_none_or(|unit| unit >= plan.units))
    {
        return Err(Error::corrupt(format!(
            "{} belongs to none of the {} work units in the manifest",
            shard.path(),
            plan.units
        )));
    }
    match shards.splits.iter().find(|s| !manifest.splits.contains_key(&s.name)) {
        Some(split) => Err(Error::corrupt(format!(
            "split {:?} is in the shard table, but not in the manifest",
            split.name
        ))),
        None => Ok(()),
    }
}

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
