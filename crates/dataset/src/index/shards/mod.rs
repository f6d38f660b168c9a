//! The shard table: all shards of a dataset with their sizes and hashes.
//!
//! It is small (one row per shard) and, unlike the other sidecar files, read completely.

mod file;

use std::collections::HashSet;

pub use file::{SHARD_TABLE_PATH, write_shard_table};

use super::check_split_name;
use crate::error::{Error, ErrorKind, Result};

/// Maximum length of a shard file name in bytes. Leaves room for the suffixes of temporary files.
const MAX_SHARD_NAME_BYTES: usize = 200;

/// One row of the shard table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardEntry {
    /// File name; the path is `<split>/<name>`.
    pub name: String,
    /// Name of the split.
    pub split: String,
    /// Number of records.
    pub records: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// SHA-256 of the file in lower-case hexadecimal.
    pub sha256: String,
    /// Ordinal of the first record in the split: the total number of records in the preceding shards.
    pub first_record: u64,
}

impl ShardEntry {
    /// Returns the path of the shard relative to the dataset.
    pub fn path(&self) -> String {
        format!("{}/{}", self.split, self.name)
    }

    /// Returns the work unit from a name of the form `<split>-<unit>-<ordinal>.<extension>`; `None` for other names.
    pub fn unit(&self) -> Option<u32> {
        let (rest, _) = self.name.strip_prefix(self.split.as_str())?.strip_prefix('-')?.split_once('-')?;
        rest.parse().ok()
    }
}

/// Shards of a dataset, grouped by split.
#[derive(Debug, Clone, Default)]
pub struct ShardTable {
    splits: Vec<SplitShards>,
}

impl ShardTable {
    /// Returns the splits that have shards, in table order.
    pub fn splits(&self) -> &[SplitShards] {
        &self.splits
    }

    /// Returns the shards of `split`, or `None` if it has none.
    pub fn split(&self, split: &str) -> Option<&SplitShards> {
        self.splits.iter().find(|s| s.name() == split)
    }

    /// Iterates over all shards in table order.
    pub fn shards(&self) -> impl Iterator<Item = &ShardEntry> {
        self.splits.iter().flat_map(|split| &split.shards)
    }

    /// Appends a row, or returns what is wrong with it. `paths` contains the paths of the previous rows.
    fn push(&mut self, entry: ShardEntry, paths: &mut HashSet<String>) -> Result<(), String> {
        let path = entry.path();
        check_split_name(&entry.split).map_err(|e| e.to_string())?;
        if !is_shard_name(&entry.name) {
            return Err(format!("invalid shard name {:?}", entry.name));
        }
        if self.splits.last().is_none_or(|last| last.name() != entry.split) {
            if self.split(&entry.split).is_some() {
                return Err(format!("the shards of split {:?} are not adjacent", entry.split));
            }
            self.splits.push(SplitShards { name: entry.split.clone(), shards: Vec::new(), records: 0 });
        }
        if let Some(split) = self.splits.last_mut() {
            if entry.first_record != split.records {
                let (first, before) = (entry.first_record, split.records);
                return Err(format!("{path} starts at record {first}, but {before} records precede it"));
            }
            if split.shards.len() > u32::MAX as usize {
                return Err(format!("split {:?} has too many shards", entry.split));
            }
            split.records = split
                .records
                .checked_add(entry.records)
                .ok_or_else(|| format!("split {:?} has too many records", entry.split))?;
            split.shards.push(entry);
        }
        if paths.contains(&path) {
            return Err(format!("{path} is listed twice"));
        }
        paths.insert(path);
        Ok(())
    }
}

/// Shards of one split in record order.
#[derive(Debug, Clone)]
pub struct SplitShards {
    name: String,
    shards: Vec<ShardEntry>,
    records: u64,
}

impl SplitShards {
    /// Returns the name of the split.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the shards. The ordinal of a shard is its position here.
    pub fn shards(&self) -> &[ShardEntry] {
        &self.shards
    }

    /// Returns the number of records in all shards.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the shard with the ordinal `shard`, as stored in a record index.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the table has no such shard: the record index belongs to another dataset.
    pub fn get(&self, shard: u32) -> Result<&ShardEntry> {
        self.shards.get(shard as usize).ok_or_else(|| {
            let shards = self.shards.len();
            Error::corrupt(format!(
                "the record index refers to shard {shard}, but there are only {shards} in split {:?}",
                self.name
            ))
        })
    }

    /// Returns the shard that contains `record`: its ordinal, its entry, and the row of the record within it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`] if the split does not have that many records.
    pub fn of_record(&self, record: u64) -> Result<(u32, &ShardEntry, u64)> {
        let after = self.shards.partition_point(|shard| shard.first_record <= record);
        after
            .checked_sub(1)
            .and_then(|shard| Some((u32::try_from(shard).ok()?, self.shards.get(shard)?)))
            .map(|(shard, entry)| (shard, entry, record - entry.first_record))
            .filter(|(_, entry, row)| *row < entry.records)
            .ok_or_else(|| {
                let records = if self.records == 1 { "record" } else { "records" };
                let what = format!("split {:?} has {} {records}", self.name, self.records);
                Error::new(ErrorKind::OutOfRange, what).at_row(record)
            })
    }
}

/// Returns whether `name` is a plain file name: letters, digits, `.`, `_`, `-`, not starting with a dot.
fn is_shard_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=MAX_SHARD_NAME_BYTES).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn entry(split: &str, name: &str, first_record: u64, records: u64) -> ShardEntry {
        ShardEntry {
            name: name.to_owned(),
            split: split.to_owned(),
            records,
            bytes: 10,
            sha256: "0f".repeat(32),
            first_record,
        }
    }

    fn table(entries: impl IntoIterator<Item = ShardEntry>) -> Result<ShardTable, String> {
        let mut table = ShardTable::default();
        let mut paths = HashSet::new();
        entries.into_iter().try_for_each(|e| table.push(e, &mut paths)).map(|()| table)
    }

    #[test]
    fn a_record_is_found_in_its_shard() {
        let entries =
            [entry("a", "x", 0, 3), entry("a", "empty", 3, 0), entry("a", "y", 3, 2), entry("b", "x", 0, 1)];
        let table = table(entries).unwrap();
        let split = table.split("a").unwrap();
        let found = |record| split.of_record(record).map(|(shard, e, row)| (shard, e.name.clone(), row)).ok();
        assert_eq!(found(0), Some((0, "x".into(), 0)));
        assert_eq!(found(2), Some((0, "x".into(), 2)));
        assert_eq!(found(3), Some((2, "y".into(), 0)));
        assert_eq!(found(4), Some((2, "y".into(), 1)));
        assert_eq!(split.of_record(5).unwrap_err().kind(), ErrorKind::OutOfRange);
        assert_eq!(split.get(3).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(table.split("b").unwrap().records(), 1);
        assert!(table.split("c").is_none());
        assert_eq!(
            table.shards().map(ShardEntry::path).collect::<Vec<_>>(),
            ["a/x", "a/empty", "a/y", "b/x"]
        );
    }

    #[test]
    fn contradictory_rows_are_rejected() {
        let bad = [
            vec![entry("a", "x", 1, 1)],
            vec![entry("a", "x", 0, 2), entry("a", "y", 1, 1)],
            vec![entry("a", "x", 0, 1), entry("b", "x", 0, 1), entry("a", "y", 1, 1)],
            vec![entry("a", "x", 0, 1), entry("a", "x", 1, 1)],
            vec![entry("a", "x", 0, u64::MAX), entry("a", "y", u64::MAX, 1)],
            vec![entry("..", "x", 0, 1)],
        ];
        for entries in bad {
            assert!(table(entries.clone()).is_err(), "{entries:?}");
        }
        for name in ["", ".", "..", ".x", "a/b", "a\\b", "a b", &"x".repeat(201)] {
            assert!(table([entry("a", name, 0, 1)]).is_err(), "{name:?}");
        }
    }
}
