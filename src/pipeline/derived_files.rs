//! Files derived from the units of a dataset: indexes, the shard table, and the lists of items without a record.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use super::split_index::SplitIndex;
use super::unit::{DUPLICATES_NAME, FILTERED_NAME, REJECTS_NAME};
use super::unit_dirs::UnitDirs;
use super::unit_result::UnitResult;
use crate::error::{Error, Result};
use crate::index::{IndexFile, ShardEntry, write_shard_table};
use crate::manifest::{Counts, FileEntry, Split};
use crate::schema::Kind;
use crate::storage::{NewFile, Written, create_dir};

/// Input and destination of the derived files.
pub(super) struct DerivedFiles<'a> {
    /// Folder for data that does not fit in memory.
    pub work: &'a Path,
    /// Destination folder, in which the files have their paths in the dataset.
    pub staged: &'a Path,
    pub kind: Kind,
    pub splits: &'a [String],
    pub dirs: &'a UnitDirs,
    /// All units, which must be finished.
    pub units: &'a [UnitResult],
}

/// Manifest entries of the written files.
pub(super) struct WrittenFiles {
    pub splits: BTreeMap<String, Split>,
    pub shard_table: IndexFile,
    /// Lists such as `rejects.jsonl`.
    pub lists: Vec<FileEntry>,
}

impl WrittenFiles {
    /// Returns the SHA-256 of the file at `path` in the dataset; `None` if it was not written.
    pub(super) fn sha256(&self, path: &str) -> Option<&str> {
        let indexes = self.splits.values().flat_map(Split::files).chain([&self.shard_table]);
        let indexes = indexes.map(|file| (&file.path, &file.sha256));
        let mut files = indexes.chain(self.lists.iter().map(|file| (&file.path, &file.sha256)));
        files.find(|(name, _)| *name == path).map(|(_, sha256)| sha256.as_str())
    }
}

impl DerivedFiles<'_> {
    pub(super) fn write(&self) -> Result<WrittenFiles> {
        create_dir(&self.staged.join("index"))?;
        let mut splits = BTreeMap::new();
        for (ordinal, name) in self.splits.iter().enumerate() {
            let mut index = SplitIndex::create(name, ordinal, self.kind, self.work, self.staged, self.dirs)?;
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

pub(super) fn file_entry(path: &str, written: Written) -> FileEntry {
    FileEntry { path: path.to_owned(), bytes: written.bytes, sha256: written.sha256 }
}
