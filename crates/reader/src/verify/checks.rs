//! The individual checks: one for each file, split and shard.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dsconvert_dataset::error::{Error, ErrorKind, Result};
use dsconvert_dataset::format::{self, Placed, ShardReader};
use dsconvert_dataset::index::{IndexEntry, LengthSummary, ShardEntry};
use dsconvert_dataset::manifest::{CARD_NAME, MANIFEST_NAME, Manifest};
use dsconvert_dataset::sample::{self, Value};
use dsconvert_dataset::schema::TRAINED;
use dsconvert_dataset::storage::{Blob, list_dir};

use super::{Problems, VerifyOptions, VerifyProgress};
use crate::dataset_state::{DatasetState, check_sha256};
use crate::record::check_record;
use crate::{Dataset, Record, Split};

/// The file with one line per reject.
const REJECTS: &str = "rejects.jsonl";
/// The working directory of a run that writes into the dataset directory.
const WORK_NAME: &str = ".dsconvert";
/// Records decoded between two progress reports.
const REPORT_RECORDS: u64 = 1024;

/// One check.
pub(super) enum Check<'a> {
    /// Counts of the manifest.
    Counts,
    /// A file other than a shard: path, size, SHA-256.
    File(&'a str, u64, &'a str),
    /// The indexes of a split.
    Indexes(Split),
    /// The shard with this ordinal.
    Shard(Split, u32),
}

/// State shared by all checks.
pub(super) struct Checks<'a> {
    dataset: &'a Dataset,
    state: &'a DatasetState,
    options: &'a VerifyOptions<'a>,
    total_bytes: u64,
    total_records: u64,
    pub(super) hashed_bytes: AtomicU64,
    pub(super) decoded_records: AtomicU64,
    /// Records by label in each split whose manifest entry has such counts, as read from the shards.
    labels: BTreeMap<&'a str, Vec<AtomicU64>>,
}

impl<'a> Checks<'a> {
    pub(super) fn new(dataset: &'a Dataset, options: &'a VerifyOptions<'a>) -> Self {
        let manifest = dataset.manifest();
        let files = manifest.listed_files().map(|(_, bytes, _)| bytes);
        let shards = dataset.shards().shards().map(|s| s.bytes);
        Self {
            dataset,
            state: dataset.state(),
            options,
            total_bytes: files.chain(shards).fold(0, u64::saturating_add),
            total_records: manifest.splits.values().map(|s| s.records).fold(0, u64::saturating_add),
            hashed_bytes: AtomicU64::new(0),
            decoded_records: AtomicU64::new(0),
            labels: counted(manifest)
                .map(|(name, counts)| (name, counts.iter().map(|_| AtomicU64::new(0)).collect()))
                .collect(),
        }
    }

    /// Returns all checks, in report order.
    pub(super) fn list(&self) -> Vec<Check<'a>> {
        let mut list = vec![Check::Counts];
        list.extend(
            self.dataset.manifest().listed_files().map(|(path, bytes, hash)| Check::File(path, bytes, hash)),
        );
        list.extend(self.dataset.splits().map(Check::Indexes));
        for split in self.dataset.splits() {
            // The shard table has checked that the number of shards fits into a u32.
            list.extend((0..split.shards().len() as u32).map(|ordinal| Check::Shard(split.clone(), ordinal)));
        }
        list
    }

    pub(super) fn files(&self) -> u64 {
        (self.dataset.manifest().listed_files().count() + self.dataset.shards().shards().count()) as u64
    }

    /// Runs a check, which ends with the error that it returns.
    pub(super) fn run(&self, check: &Check<'_>, problems: &mut Problems) -> Result<()> {
        match check {
            Check::Counts => self.counts(),
            Check::File(path, bytes, sha256) => self.file(path, *bytes, sha256),
            Check::Indexes(split) => self.indexes(split),
            Check::Shard(split, ordinal) => match split.shards().get(*ordinal as usize) {
                Some(shard) => self.shard(split, *ordinal, shard, problems),
                None => Ok(()),
            },
        }
    }

    fn counts(&self) -> Result<()> {
        let manifest = self.dataset.manifest();
        let rejected = manifest.reject_codes.values().try_fold(0u64, |sum, &n| sum.checked_add(n));
        if rejected == Some(manifest.counts.rejected) {
            return Ok(());
        }
        let what = format!("the rejects by reason code do not add up to {}", manifest.counts.rejected);
        Err(Error::corrupt(what).at_path(self.state.path().join(MANIFEST_NAME)))
    }

    /// Compares the labels that were read with the counts in the manifest. Called after all other checks, and only if they
    /// found no problem, because the labels of damaged records are unknown.
    pub(super) fn labels(&self, problems: &mut Problems) {
        for (name, counts) in counted(self.dataset.manifest()) {
            let found =
                self.labels.get(name).into_iter().flatten().map(|count| count.load(Ordering::Relaxed));
            if !found.eq(counts.iter().copied()) {
                let what = format!(
                    "the numbers of records per class of split {name:?} differ from the labels of its records"
                );
                problems.push(Error::corrupt(what).at_path(self.state.path().join(MANIFEST_NAME)));
            }
        }
    }

    fn file(&self, path: &str, bytes: u64, sha256: &str) -> Result<()> {
        let blob = self.hash(path, bytes, sha256)?;
        let rejected = self.dataset.manifest().counts.rejected;
        if path == REJECTS && lines(&blob)? != rejected {
            let what = format!("the number of lines is not the number of rejects, {rejected}");
            return Err(Error::corrupt(what).at_path(blob.path()));
        }
        Ok(())
    }

    /// Opens a file and compares it with its hash.
    fn hash(&self, path: &str, bytes: u64, sha256: &str) -> Result<Blob> {
        self.state.location.read_again_if_damaged(&[(path, sha256)], || {
            let blob = self.state.open(path, bytes, sha256)?;
            check_sha256(&blob, sha256, |bytes| self.hashed(bytes))?;
            Ok(blob)
        })
    }

    fn indexes(&self, split: &Split) -> Result<()> {
        let lengths = split.unchecked_length_index()?;
        lengths.verify(split.unchecked_record_index()?)?;
        let unit = self.state.schema.length_unit();
        let summary = LengthSummary::from_runs(unit, split.len(), lengths.histogram()?)?;
        if split.info().is_none_or(|info| info.length != summary) {
            let what =
                format!("the summary of the lengths of split {:?} differs from the index", split.name());
            return Err(Error::corrupt(what).at_path(self.state.path().join(MANIFEST_NAME)));
        }
        let Some(trained) = split.info().and_then(|info| info.trained_tokens) else { return Ok(()) };
        let schema = &self.state.schema;
        let mut entries = split.unchecked_record_index()?.entries(0..split.len())?;
        let found = entries.try_fold(0u64, |sum, entry| {
            Ok::<_, Error>(sum.saturating_add(entry?.column(schema, TRAINED).unwrap_or_default().into()))
        })?;
        if found != trained {
            let what = format!(
                "split {:?} has {trained} tokens to train on, but {found} in the record index",
                split.name()
            );
            return Err(Error::corrupt(what).at_path(self.state.path().join(MANIFEST_NAME)));
        }
        Ok(())
    }

    fn shard(&self, split: &Split, ordinal: u32, shard: &ShardEntry, problems: &mut Problems) -> Result<()> {
        let named = |e: Error| e.at_shard(&shard.name);
        let path = shard.path();
        let hashed = self.hash(&path, shard.bytes, &shard.sha256).or_else(|e| match e.kind() {
            // The records are still checked, to report which of them are damaged.
            ErrorKind::Corrupt => {
                problems.push(named(e));
                self.state.open(&path, shard.bytes, &shard.sha256)
            }
            _ => Err(e),
        });
        let (format, schema) = (self.state.manifest.format, Arc::clone(&self.state.schema));
        let reader = format::open(format, schema, hashed.map_err(named)?).map_err(named)?;
        self.records(split, ordinal, shard, reader.as_ref(), problems)
    }

    /// Compares the records of a shard, as scanned from the shard itself, with the record index.
    fn records(
        &self,
        split: &Split,
        ordinal: u32,
        shard: &ShardEntry,
        reader: &dyn ShardReader,
        problems: &mut Problems,
    ) -> Result<()> {
        let at = |e: Error, row: u64| e.at_shard(&shard.name).at_row(row);
        let scan = reader.scan().map_err(|e| e.at_shard(&shard.name))?;
        let range = shard.first_record..shard.first_record.saturating_add(shard.records);
        let index = split.unchecked_record_index().and_then(|index| index.entries(range));
        let mut index = readable(index, problems);
        let mut rows = 0;
        let labels = self.labels.get(split.name()).zip(self.state.schema.label_field());
        for next in scan {
            if rows == shard.records {
                let what =
                    format!("the shard has more than the {} records of the shard table", shard.records);
                return Err(Error::corrupt(what).at_shard(&shard.name));
            }
            let (placed, values) = next.map_err(|e| at(e, rows))?;
            let entry = index.as_mut().and_then(Iterator::next).and_then(|entry| readable(entry, problems));
            if let Some((counts, field)) = labels
                && let Some(Value::Int(label)) = values.values.get(field)
                && let Some(count) = usize::try_from(*label).ok().and_then(|label| counts.get(label))
            {
                count.fetch_add(1, Ordering::Relaxed);
            }
            let found = (placed, values);
            if let Err(what) = self.record(ordinal, shard.first_record.saturating_add(rows), entry, found) {
                problems.push(at(Error::corrupt(what), rows));
            }
            rows += 1;
            if rows % REPORT_RECORDS == 0 {
                self.decoded(REPORT_RECORDS);
            }
        }
        self.decoded(rows % REPORT_RECORDS);
        if rows == shard.records {
            return Ok(());
        }
        let records = if rows == 1 { "record" } else { "records" };
        let what = format!("the shard has {rows} {records}, but {} in the shard table", shard.records);
        Err(Error::corrupt(what).at_shard(&shard.name))
    }

    fn record(
        &self,
        shard: u32,
        ordinal: u64,
        entry: Option<IndexEntry>,
        (placed, values): (Placed, sample::Record),
    ) -> Result<(), String> {
        let schema = &self.state.schema;
        match entry {
            Some(entry) if (entry.shard, entry.placed()) != (shard, placed) => {
                return Err(format!(
                    "the record is at {placed:?} of shard {shard}, but at {:?} of shard {} in the record index",
                    entry.placed(),
                    entry.shard
                ));
            }
            Some(entry) => check_record(schema, &entry, &values.values)?,
            None => sample::length_of(schema, &values.values).map(drop)?,
        }
        match self.options.decode {
            Some(decode) => decode(&Record::new(Arc::clone(schema), ordinal, values.values)),
            None => Ok(()),
        }
    }

    fn hashed(&self, bytes: u64) {
        self.hashed_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.report();
    }

    fn decoded(&self, records: u64) {
        self.decoded_records.fetch_add(records, Ordering::Relaxed);
        self.report();
    }

    fn report(&self) {
        if let Some(progress) = self.options.progress {
            progress(VerifyProgress {
                bytes: self.hashed_bytes.load(Ordering::Relaxed),
                total_bytes: self.total_bytes,
                records: self.decoded_records.load(Ordering::Relaxed),
                total_records: self.total_records,
            });
        }
    }

    /// Returns the files below the dataset directory that the dataset does not list, sorted, except those of a run in
    /// progress there. Directories that cannot be listed are problems.
    pub(super) fn unlisted(&self, problems: &mut Problems) -> BTreeSet<String> {
        let manifest = self.dataset.manifest();
        let mut listed: BTreeSet<String> =
            manifest.listed_files().map(|(path, ..)| path.to_owned()).collect();
        listed.extend(self.dataset.shards().shards().map(ShardEntry::path));
        listed.insert(MANIFEST_NAME.to_owned());
        listed.extend(HUB_FILES.map(str::to_owned));
        let mut found = BTreeSet::new();
        // Other objects under a prefix do no harm.
        if self.state.location.is_remote() {
            return found;
        }
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let result = list_dir(&self.state.path().join(&folder)).map(|entries| {
                for entry in entries {
                    let name = entry.name.to_string_lossy().into_owned();
                    let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                    if path == WORK_NAME || path == HUB_CACHE {
                        continue;
                    } else if entry.kind.is_dir() {
                        folders.push(path);
                    } else if !listed.contains(&path) {
                        found.insert(path);
                    }
                }
            });
            if let Err(error) = result {
                problems.push(error);
            }
        }
        found
    }
}

/// Returns the splits whose manifest entry has the number of records per label.
fn counted(manifest: &Manifest) -> impl Iterator<Item = (&str, &Vec<u64>)> {
    manifest.splits.iter().filter_map(|(name, split)| Some((name.as_str(), split.class_counts.as_ref()?)))
}

/// Files that a dataset may contain without listing them: the dataset card, and what the Hugging Face Hub adds.
const HUB_FILES: [&str; 2] = [CARD_NAME, ".gitattributes"];

/// The folder in which the client of the Hub notes what it has transferred.
const HUB_CACHE: &str = ".cache/huggingface";

/// Returns what was read from an index, if it could be read. A damaged index is reported by the check of its split. An
/// I/O error is reported here, because it may be temporary and not occur in that check.
fn readable<T>(result: Result<T>, problems: &mut Problems) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(e) => {
            if e.kind() == ErrorKind::Io {
                problems.push(e);
            }
            None
        }
    }
}

/// Counts line feeds.
fn lines(blob: &Blob) -> Result<u64> {
    const CHUNK_BYTES: u64 = 1 << 20;
    let mut lines = 0;
    let mut offset = 0;
    while offset < blob.len() {
        let bytes = blob.read(offset, CHUNK_BYTES.min(blob.len() - offset))?;
        lines += bytes.iter().filter(|&&b| b == b'\n').count() as u64;
        offset += bytes.len() as u64;
    }
    Ok(lines)
}
