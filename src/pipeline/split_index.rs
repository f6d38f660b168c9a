//! The record index and the length index of a split, built from the rows of its units.

use std::path::{Path, PathBuf};

use super::commit::SORT_BYTES;
use super::rows::{RowEntry, for_each_row, rows_name};
use super::stop::Stop;
use super::unit_dirs::UnitDirs;
use super::unit_result::{UnitResult, UnitSplit};
use super::workers::in_order;
use crate::error::{Error, Result};
use crate::index::{IndexEntry, LengthIndexBuilder, RecordIndexWriter};
use crate::manifest::{Counts, Split};
use crate::schema::Kind;

/// Maximum rows of small units held in memory at a time.
const HELD_ROWS: u64 = 1 << 18;

/// Writer of the indexes of a split.
pub(super) struct SplitIndex<'a> {
    name: &'a str,
    /// Ordinal of the split.
    ordinal: usize,
    kind: Kind,
    staged: &'a Path,
    dirs: &'a UnitDirs,
    records: RecordIndexWriter,
    lengths: LengthIndexBuilder,
    counts: Counts,
    record_count: u64,
    shards: u64,
    bytes: u64,
}

impl<'a> SplitIndex<'a> {
    /// Creates the indexes in `staged`. Temporary files that do not fit in memory are in `work`.
    pub(super) fn create(
        name: &'a str,
        ordinal: usize,
        kind: Kind,
        work: &Path,
        staged: &'a Path,
        dirs: &'a UnitDirs,
    ) -> Result<Self> {
        Ok(Self {
            name,
            ordinal,
            kind,
            staged,
            dirs,
            records: RecordIndexWriter::create(staged, name, kind)?,
            lengths: LengthIndexBuilder::new(work.to_owned(), SORT_BYTES),
            counts: Counts::default(),
            record_count: 0,
            shards: 0,
            bytes: 0,
        })
    }

    /// Adds `units`, in order. The rows of small units are read concurrently.
    pub(super) fn add_units(&mut self, units: &[UnitResult]) -> Result<()> {
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

    fn add_row(&mut self, row: RowEntry) -> Result<()> {
        self.lengths.push(row.length)?;
        self.records.push(&IndexEntry {
            shard: self.shards as u32 + row.shard,
            position: row.position,
            bytes: row.bytes,
            length: row.length,
            crc32c: row.crc32c,
            width: row.width,
            height: row.height,
        })
    }

    fn end_unit(&mut self, split: &UnitSplit) {
        self.counts.add(&split.counts);
        self.record_count += split.records;
        self.shards += split.shards.len() as u64;
        self.bytes += split.shards.iter().map(|shard| shard.bytes).sum::<u64>();
    }

    /// Finishes writing the indexes.
    pub(super) fn finish(self) -> Result<Split> {
        let record_index = self.records.finish()?;
        let (mut length_index, length) =
            self.lengths.finish(self.staged, self.name, self.kind.length_unit())?;
        let length_histogram =
            length_index.pop().ok_or_else(|| Error::internal("the length index has no histogram"))?;
        Ok(Split {
            counts: self.counts,
            records: self.record_count,
            shards: self.shards,
            bytes: self.bytes,
            length,
            class_counts: None,
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
