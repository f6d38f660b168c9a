//! Uniqueness check of the keys in a dataset.
//!
//! Keys that are origins are unique by construction. Keys from a field may repeat: each unit stores the hashes of its
//! keys, and the commit sorts all of them on disk and compares the keys themselves where hashes are equal.

use std::fs::File;
use std::io::{BufReader, Read};
use std::sync::Arc;

use super::output::OutputDir;
use super::rows::{RowEntry, for_each_row, rows_name};
use super::unit::keys_name;
use super::unit_dirs::UnitDirs;
use super::unit_result::UnitResult;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{self, Format, Placed};
use crate::index::sort::ExternalSort;
use crate::sample::Value;
use crate::schema::{KEY, ORIGIN, Schema};
use crate::storage::{Access, Blob};

const HASH_BYTES: usize = 16;
/// Size of a sort row: hash, split (2 bytes), unit (4 bytes), row in unit and split (8 bytes). Big-endian, so that
/// equal keys sort in plan order.
const ROW_BYTES: usize = HASH_BYTES + 2 + 4 + 8;

/// A check that keys are unique, with the data that is needed to look up a key.
pub(super) struct KeyCheck<'a> {
    pub dir: &'a OutputDir,
    pub dirs: &'a UnitDirs,
    pub units: &'a [UnitResult],
    pub splits: &'a [String],
    pub format: Format,
    pub schema: &'a Schema,
}

/// The location of a record: split, unit and row.
struct KeyRow {
    split: usize,
    unit: u32,
    row: u64,
}

impl KeyRow {
    fn to_bytes(&self, hash: [u8; HASH_BYTES]) -> [u8; ROW_BYTES] {
        let mut bytes = [0; ROW_BYTES];
        bytes[..HASH_BYTES].copy_from_slice(&hash);
        bytes[16..18].copy_from_slice(&(self.split as u16).to_be_bytes());
        bytes[18..22].copy_from_slice(&self.unit.to_be_bytes());
        bytes[22..].copy_from_slice(&self.row.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; ROW_BYTES]) -> Self {
        Self {
            split: usize::from(u16::from_be_bytes([bytes[16], bytes[17]])),
            unit: u32::from_be_bytes(std::array::from_fn(|i| bytes[18 + i])),
            row: u64::from_be_bytes(std::array::from_fn(|i| bytes[22 + i])),
        }
    }
}

impl KeyCheck<'_> {
    /// Checks that no key occurs twice in the dataset, across all splits.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotCommitted`] naming the key and both origins.
    pub(super) fn run(&self, memory_bytes: usize) -> Result<()> {
        let mut sort = ExternalSort::<ROW_BYTES>::new(self.dir.work(), memory_bytes);
        for unit in self.units {
            for (split, name) in self.splits.iter().enumerate() {
                if !unit.has_file(&keys_name(name)) {
                    continue;
                }
                let path = self.dirs.done(unit.unit).join(keys_name(name));
                let mut file = BufReader::new(File::open(&path).map_err(|e| Error::io("open", &path, e))?);
                for row in 0..unit.splits[split].records {
                    let mut hash = [0; HASH_BYTES];
                    file.read_exact(&mut hash).map_err(|e| Error::io("read", &path, e))?;
                    sort.push(KeyRow { split, unit: unit.unit, row }.to_bytes(hash))?;
                }
            }
        }
        let mut previous: Option<[u8; ROW_BYTES]> = None;
        for entry in sort.finish()? {
            let entry = entry?;
            if let Some(previous) = previous.filter(|b| b[..HASH_BYTES] == entry[..HASH_BYTES]) {
                self.compare(&KeyRow::from_bytes(&previous), &KeyRow::from_bytes(&entry))?;
            }
            previous = Some(entry);
        }
        Ok(())
    }

    fn compare(&self, first: &KeyRow, second: &KeyRow) -> Result<()> {
        let ((key, first), (other, second)) = (self.read_key(first)?, self.read_key(second)?);
        if key != other {
            return Ok(());
        }
        let message =
            format!("two items have the key {key:?}, so nothing was committed: {first} and {second}");
        Err(Error::new(ErrorKind::NotCommitted, message)
            .help("keys must be unique in a dataset: choose another `key_field`, or leave it out"))
    }

    /// Returns the key and the origin of a record.
    fn read_key(&self, wanted: &KeyRow) -> Result<(String, String)> {
        let (unit, split) = (&self.units[wanted.unit as usize], &self.splits[wanted.split]);
        let mut found: Option<RowEntry> = None;
        let mut at = 0;
        let rows = self.dirs.done(unit.unit).join(rows_name(split));
        for_each_row(&rows, unit.splits[wanted.split].records, |entry| {
            found = if at == wanted.row { Some(entry) } else { found };
            at += 1;
            Ok(())
        })?;
        let missing = || Error::corrupt("a key hash belongs to no record");
        let entry = found.ok_or_else(missing)?;
        let part = &unit.splits[wanted.split];
        let shard = part.shards.get(entry.shard as usize).ok_or_else(missing)?;
        let path = self.dir.find_shard(self.dirs, unit.unit, part, shard)?;
        let path =
            path.ok_or_else(|| self.dirs.unusable(unit.unit, &format!("{} is missing", shard.name)))?;
        let blob = Blob::open(&path, Access::Read, Some(shard.bytes))?;
        let record = format::open(self.format, Arc::new(self.schema.clone()), blob)?
            .get(Placed { position: entry.position, bytes: entry.bytes })?;
        let text = |name: &str| match self.schema.index_of(name).and_then(|i| record.values.get(i)) {
            Some(Value::Text(text)) => text.as_str().to_owned(),
            _ => String::new(),
        };
        Ok((text(KEY), text(ORIGIN)))
    }
}
