//! Files derived from the units of a dataset: indexes, the shard table, and the lists of items without a record.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::stop::Stop;
use super::unit::{DUPLICATES_NAME, FILTERED_NAME, REJECTS_NAME, for_each_row, rows_name};
use super::units::{UnitDirs, UnitResult, UnitSplit};
use super::workers::in_order;
use crate::error::{Error, Result};
use crate::index::{
    IndexEntry, IndexFile, LengthIndexBuilder, RecordIndexWriter, ShardEntry, write_shard_table,
};
use crate::manifest::{Counts, FileEntry, Split};
use crate::schema::{Schema, TRAINED};
use crate::storage::{NewFile, Written, create_dir};

/// Memory limit of all sorts at a time, in bytes.
pub const SORT_BYTES: usize = 64 << 20;

/// Input and destination of the derived files.
pub(crate) struct DerivedFiles<'a> {
    /// Folder for data that does not fit in memory.
    pub work: &'a Path,
    /// Destination folder, in which the files have their paths in the dataset.
    pub staged: &'a Path,
    pub schema: &'a Schema,
    pub splits: &'a [String],
    pub dirs: &'a UnitDirs,
    /// All units, which must be finished.
    pub units: &'a [UnitResult],
}

/// Manifest entries of the written files.
pub(crate) struct WrittenFiles {
    pub splits: BTreeMap<String, Split>,
    pub shard_table: IndexFile,
    /// Lists such as `rejects.jsonl`.
    pub lists: Vec<FileEntry>,
}

impl WrittenFiles {
    /// Returns the SHA-256 of the file at `path` in the dataset; `None` if it was not written.
    pub(crate) fn sha256(&self, path: &str) -> Option<&str> {
        let indexes = self.splits.values().flat_map(Split::files).chain([&self.shard_table]);
        let indexes = indexes.map(|file| (&file.path, &file.sha256));
        let mut files = indexes.chain(self.lists.iter().map(|file| (&file.path, &file.sha256)));
        files.find(|(name, _)| *name == path).map(|(_, sha256)| sha256.as_str())
    }
}

impl DerivedFiles<'_> {
    pub(crate) fn write(&self) -> Result<WrittenFiles> {
        create_dir(&self.staged.join("index"))?;
        let mut splits = BTreeMap::new();
        for (ordinal, name) in self.splits.iter().enumerate() {
            let mut index =
                SplitIndex::create(name, ordinal, self.schema, self.work, self.staged, self.dirs)?;
            index.add_units(self.units)?;
            splits.insert(name.clone(), index.finish()?);
        }
        let shard_table = write_shard_table(self.staged, &self.shards())?;
        let mut counts = Counts::default();
        self.units.iter().for_each(|unit| counts.add(&unit.counts()));
        let mut lists = vec![self.concatenate(REJECTS_NAME)?];
        if counts.filtered > 0 {
            lists.push(self.concatenate(FILTERED_NAME)?);
        }
        if counts.duplicates > 0 {
            lists.push(self.concatenate(DUPLICATES_NAME)?);
        }
        Ok(WrittenFiles { splits, shard_table, lists })
    }

    /// Returns the rows of the shard table, ordered by split, unit and ordinal.
    fn shards(&self) -> Vec<ShardEntry> {
        let mut table = Vec::new();
        for (ordinal, split) in self.splits.iter().enumerate() {
            let mut first_record = 0;
            for shard in self.units.iter().flat_map(|unit| &unit.splits[ordinal].shards) {
                table.push(ShardEntry {
                    name: shard.name.clone(),
                    split: split.clone(),
                    records: shard.records,
                    bytes: shard.bytes,
                    sha256: shard.sha256.clone(),
                    first_record,
                });
                first_record += shard.records;
            }
        }
        table
    }

    /// Concatenates the files called `name` of all units that have a non-empty one.
    fn concatenate(&self, name: &str) -> Result<FileEntry> {
        let target = self.staged.join(name);
        let mut all = NewFile::create_shared(&target)?;
        let has_lines =
            |unit: &&UnitResult| unit.files.iter().any(|file| file.name == name && file.bytes > 0);
        for unit in self.units.iter().filter(has_lines) {
            let path = self.dirs.done(unit.unit).join(name);
            let mut part = File::open(&path).map_err(|e| Error::io("open", &path, e))?;
            std::io::copy(&mut part, &mut all).map_err(|e| Error::io("copy", &path, e))?;
        }
        all.flush().map_err(|e| Error::io("write", &target, e))?;
        Ok(file_entry(name, all.commit()?))
    }
}

pub(crate) fn file_entry(path: &str, written: Written) -> FileEntry {
    FileEntry { path: path.to_owned(), bytes: written.bytes, sha256: written.sha256 }
}

/// Maximum rows of small units held in memory at a time.
const HELD_ROWS: u64 = 1 << 18;

/// Writer of the indexes of a split.
pub(crate) struct SplitIndex<'a> {
    name: &'a str,
    /// Ordinal of the split.
    ordinal: usize,
    schema: &'a Schema,
    staged: &'a Path,
    dirs: &'a UnitDirs,
    records: RecordIndexWriter,
    lengths: LengthIndexBuilder,
    counts: Counts,
    record_count: u64,
    shards: u64,
    bytes: u64,
    /// Number of tokens to train on, if they are marked.
    trained: Option<u64>,
}

impl<'a> SplitIndex<'a> {
    /// Creates the indexes in `staged`. Temporary files that do not fit in memory are in `work`.
    pub(crate) fn create(
        name: &'a str,
        ordinal: usize,
        schema: &'a Schema,
        work: &Path,
        staged: &'a Path,
        dirs: &'a UnitDirs,
    ) -> Result<Self> {
        Ok(Self {
            name,
            ordinal,
            schema,
            staged,
            dirs,
            records: RecordIndexWriter::create(staged, name, schema)?,
            lengths: LengthIndexBuilder::new(work.to_owned(), SORT_BYTES),
            counts: Counts::default(),
            record_count: 0,
            shards: 0,
            bytes: 0,
            trained: schema.masks_field().map(|_| 0),
        })
    }

    /// Adds `units`, in order. The rows of small units are read concurrently.
    pub(crate) fn add_units(&mut self, units: &[UnitResult]) -> Result<()> {
        let (dirs, name, ordinal) = (self.dirs, self.name, self.ordinal);
        let path = |unit: &UnitResult| -> PathBuf { dirs.done(unit.unit).join(rows_name(name)) };
        for group in groups(units, |unit| unit.splits[ordinal].records) {
            if let [unit] = group {
                let split = &unit.splits[ordinal];
                for_each_row(&path(unit), split.records, |row| self.add_row(row))?;
                self.end_unit(split);
                continue;
            }
            let read = |unit: &UnitResult| {
                let mut rows = Vec::new();
                for_each_row(&path(unit), unit.splits[ordinal].records, |row| {
                    rows.push(row);
                    Ok(())
                })?;
                Ok(rows)
            };
            in_order(group, "reading rows", &Stop::default(), read, |unit, rows| {
                rows.into_iter().try_for_each(|row| self.add_row(row))?;
                self.end_unit(&unit.splits[ordinal]);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn add_row(&mut self, row: IndexEntry) -> Result<()> {
        self.lengths.push(row.length)?;
        if let (Some(all), Some(trained)) = (&mut self.trained, row.column(self.schema, TRAINED)) {
            *all += u64::from(trained);
        }
        self.records.push(&IndexEntry { shard: self.shards as u32 + row.shard, ..row })
    }

    fn end_unit(&mut self, split: &UnitSplit) {
        self.counts.add(&split.counts);
        self.record_count += split.records;
        self.shards += split.shards.len() as u64;
        self.bytes += split.shards.iter().map(|shard| shard.bytes).sum::<u64>();
    }

    /// Finishes writing the indexes.
    pub(crate) fn finish(self) -> Result<Split> {
        let record_index = self.records.finish()?;
        let (mut length_index, length) =
            self.lengths.finish(self.staged, self.name, self.schema.length_unit())?;
        let length_histogram =
            length_index.pop().ok_or_else(|| Error::internal("the length index has no histogram"))?;
        Ok(Split {
            counts: self.counts,
            records: self.record_count,
            shards: self.shards,
            bytes: self.bytes,
            length,
            class_counts: None,
            trained_tokens: self.trained,
            record_index,
            length_index,
            length_histogram,
        })
    }
}

/// Groups adjacent units with at most [`HELD_ROWS`] rows in total. A unit with more rows is its own group.
fn groups<T>(units: &[T], rows: impl Fn(&T) -> u64) -> Vec<&[T]> {
    let mut groups = Vec::new();
    let (mut start, mut held) = (0, 0u64);
    for (at, unit) in units.iter().enumerate() {
        let more = rows(unit);
        if at > start && held.saturating_add(more) > HELD_ROWS {
            groups.push(&units[start..at]);
            (start, held) = (at, 0);
        }
        held = held.saturating_add(more);
    }
    if start < units.len() {
        groups.push(&units[start..]);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_hold_a_limited_number_of_rows() {
        let units = [1, HELD_ROWS, 5, HELD_ROWS - 5, 1, 2, u64::MAX, 3];
        let found: Vec<&[u64]> = groups(&units, |&rows| rows);
        assert_eq!(found, [&units[..1], &units[1..2], &units[2..4], &units[4..6], &units[6..7], &units[7..]]);
        assert!(groups(&[], |&rows: &u64| rows).is_empty());
    }
}
