//! Files derived from the units of a dataset: indexes, the shard table, and the lists of items without a record.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use super::stop::Stop;
use super::unit::{DUPLICATES_NAME, FILTERED_NAME, REJECTS_NAME, rows};
use super::units::{UnitResult, UnitSplit};
use super::workers::in_order;
use super::writer::DatasetWriter;
use crate::error::{Error, Result};
use crate::index::{
    IndexEntry, IndexFile, LengthIndexBuilder, RecordIndexWriter, ShardEntry, write_shard_table,
};
use crate::manifest::{Counts, FileEntry, Split};
use crate::schema::{Schema, TRAINED};
use crate::storage::{NewFile, Written, create_dir};

/// Memory limit of all sorts at a time, in bytes.
pub const SORT_BYTES: usize = 64 << 20;

/// All units of a dataset, which must be finished.
pub(crate) struct FinishedUnits<'a> {
    pub writer: &'a DatasetWriter,
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

impl FinishedUnits<'_> {
    /// Writes the derived files to the staging folder, in which they have their paths in the dataset.
    pub(crate) fn write_derived(&self) -> Result<WrittenFiles> {
        let staged = self.writer.dir().staged();
        create_dir(&staged.join("index"))?;
        let mut splits = BTreeMap::new();
        for (ordinal, name) in self.writer.units().splits.iter().enumerate() {
            splits.insert(name.clone(), self.write_indexes(ordinal, name, &staged)?);
        }
        let shard_table = write_shard_table(&staged, &self.shards())?;
        let mut counts = Counts::default();
        self.units.iter().for_each(|unit| counts.add(&unit.counts()));
        let mut lists = vec![self.concatenate(REJECTS_NAME, &staged)?];
        if counts.filtered > 0 {
            lists.push(self.concatenate(FILTERED_NAME, &staged)?);
        }
        if counts.duplicates > 0 {
            lists.push(self.concatenate(DUPLICATES_NAME, &staged)?);
        }
        Ok(WrittenFiles { splits, shard_table, lists })
    }

    /// Writes the indexes of the split `name`. The rows of small units are read concurrently.
    fn write_indexes(&self, ordinal: usize, name: &str, staged: &Path) -> Result<Split> {
        let (dirs, schema) = (self.writer.dirs(), &*self.writer.units().schema);
        let mut index = SplitIndex {
            schema,
            records: RecordIndexWriter::create(staged, name, schema)?,
            lengths: LengthIndexBuilder::new(self.writer.dir().work(), SORT_BYTES),
            shards: 0,
            trained: schema.masks_field().map(|_| 0),
        };
        for group in groups(self.units, |unit| unit.splits[ordinal].records) {
            if let [unit] = group {
                index.add_unit(&unit.splits[ordinal], rows(dirs, unit, ordinal)?)?;
                continue;
            }
            let read = |unit: &UnitResult| rows(dirs, unit, ordinal)?.collect::<Result<Vec<_>>>();
            in_order(group, "reading rows", &Stop::default(), read, |unit, rows| {
                index.add_unit(&unit.splits[ordinal], rows.into_iter().map(Ok))
            })?;
        }
        let record_index = index.records.finish()?;
        let (mut length_index, length) = index.lengths.finish(staged, name, schema.length_unit())?;
        let length_histogram =
            length_index.pop().ok_or_else(|| Error::internal("the length index has no histogram"))?;
        let parts = || self.units.iter().map(|unit| &unit.splits[ordinal]);
        let mut counts = Counts::default();
        parts().for_each(|part| counts.add(&part.counts));
        Ok(Split {
            counts,
            records: parts().map(|part| part.records).sum(),
            shards: index.shards,
            bytes: parts().flat_map(|part| &part.shards).map(|shard| shard.bytes).sum(),
            length,
            class_counts: None,
            trained_tokens: index.trained,
            record_index,
            length_index,
            length_histogram,
        })
    }

    /// Returns the rows of the shard table, ordered by split, unit and ordinal.
    fn shards(&self) -> Vec<ShardEntry> {
        let mut table = Vec::new();
        for (ordinal, split) in self.writer.units().splits.iter().enumerate() {
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
    fn concatenate(&self, name: &str, staged: &Path) -> Result<FileEntry> {
        let target = staged.join(name);
        let mut all = NewFile::create_shared(&target)?;
        let has_lines =
            |unit: &&UnitResult| unit.files.iter().any(|file| file.name == name && file.bytes > 0);
        for unit in self.units.iter().filter(has_lines) {
            let path = self.writer.dirs().done(unit.unit).join(name);
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

/// Writers of the indexes of a split.
struct SplitIndex<'a> {
    schema: &'a Schema,
    records: RecordIndexWriter,
    lengths: LengthIndexBuilder,
    /// Shards of the units whose rows were added.
    shards: u64,
    /// Number of tokens to train on, if they are marked.
    trained: Option<u64>,
}

impl SplitIndex<'_> {
    /// Adds the rows of the next unit, whose part of the split is `part`.
    fn add_unit(
        &mut self,
        part: &UnitSplit,
        mut rows: impl Iterator<Item = Result<IndexEntry>>,
    ) -> Result<()> {
        rows.try_for_each(|row| {
            let row = row?;
            self.lengths.push(row.length)?;
            if let (Some(all), Some(trained)) = (&mut self.trained, row.column(self.schema, TRAINED)) {
                *all += u64::from(trained);
            }
            self.records.push(&IndexEntry { shard: self.shards as u32 + row.shard, ..row })
        })?;
        self.shards += part.shards.len() as u64;
        Ok(())
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
