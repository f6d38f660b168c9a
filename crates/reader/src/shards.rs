//! Cache of the open shards of a split, and single shards without their dataset.
//!
//! A split may have more shards than a process may have open files or maps, so only a limited number stays open. Each
//! shard has one slot (its ordinal modulo the number of slots). Another shard that needs the slot replaces it, and the
//! old shard closes when the last record that views it is dropped.
//!
//! Locks are non-blocking: a process that was forked while another thread held a slot would wait forever. A caller that
//! finds a slot locked opens the shard without caching it.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use dsconvert_dataset::error::{Error, ErrorKind, Result};
use dsconvert_dataset::format::{self, Format, ShardReader};
use dsconvert_dataset::schema::Schema;
use dsconvert_dataset::storage::{Access, Blob, briefly};

use super::record::Record;

type ShardSlot = Mutex<Option<(u32, Arc<dyn ShardReader>)>>;

/// The open shards of one split.
pub(super) struct OpenShards {
    slots: Box<[ShardSlot]>,
}

impl OpenShards {
    /// Creates a cache of `most` open shards, at least one.
    pub(super) fn new(most: usize) -> Self {
        Self { slots: std::iter::repeat_with(ShardSlot::default).take(most.max(1)).collect() }
    }

    /// Returns the shard with the ordinal `shard`, opened by `open` if it is not open yet.
    pub(super) fn get(
        &self,
        shard: u32,
        open: impl FnOnce() -> Result<Box<dyn ShardReader>>,
    ) -> Result<Arc<dyn ShardReader>> {
        let held = self.with_slot(shard, |slot| match slot {
            Some((held, reader)) if *held == shard => Some(Arc::clone(reader)),
            _ => None,
        });
        if let Some(reader) = held.flatten() {
            return Ok(reader);
        }
        let reader: Arc<dyn ShardReader> = Arc::from(open()?);
        // The previous shard is dropped here, after the slot is unlocked: closing may take a system call.
        let _old = self.with_slot(shard, |slot| slot.replace((shard, Arc::clone(&reader))));
        Ok(reader)
    }

    /// Closes the shard with the ordinal `shard`, so that its next use opens it again.
    pub(super) fn close(&self, shard: u32) {
        // Dropped after the slot is unlocked.
        let _old = self.with_slot(shard, |slot| slot.take_if(|(held, _)| *held == shard));
    }

    fn with_slot<T>(
        &self,
        shard: u32,
        f: impl FnOnce(&mut Option<(u32, Arc<dyn ShardReader>)>) -> T,
    ) -> Option<T> {
        let slot = self.slots.get(shard as usize % self.slots.len())?;
        briefly(slot).map(|mut slot| f(&mut slot))
    }
}

impl fmt::Debug for OpenShards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenShards").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

/// A shard file opened on its own, for inspection, not for training. Its format and schema are inferred from its
/// content. There are no indexes and therefore no checksums, and records can only be read in order.
pub struct ShardFile {
    blob: Blob,
    format: Format,
    schema: Arc<Schema>,
    reader: Box<dyn ShardReader>,
}

impl ShardFile {
    /// Opens the shard at `path`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] when there is no such file, [`ErrorKind::Unsupported`] when it is not a shard,
    /// [`ErrorKind::Corrupt`] when it is damaged.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Self> {
        let path = path.as_ref();
        let blob = Blob::open(path, access, None)?;
        let format = format::sniff(&blob).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "this is not a parquet, arrow, msgpack or protobuf shard")
                .at_path(path)
                .help("pass a shard or the directory of a dataset")
        })?;
        let schema = Arc::new(format::infer_schema(format, &blob)?);
        let reader = format::open(format, Arc::clone(&schema), blob.clone())?;
        Ok(Self { blob, format, schema, reader })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.blob.path()
    }

    /// Returns the size of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.blob.len()
    }

    /// Returns the format of the shard.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the schema, as far as it can be inferred from the content ([`format::infer_schema`]).
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns the records in order. The iterator ends after the first error.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] when the shard cannot be read at all.
    pub fn records(&self) -> Result<impl Iterator<Item = Result<Record>> + '_> {
        let records = (0..).zip(self.reader.scan()?);
        Ok(records.map(|(row, next)| match next {
            Ok((_, values)) => Ok(Record::new(Arc::clone(&self.schema), row, values.values)),
            Err(e) => Err(e.at_row(row)),
        }))
    }
}

impl std::fmt::Debug for ShardFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardFile")
            .field("path", &self.path())
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use dsconvert_dataset::error::Error;
    use dsconvert_dataset::format::Placed;
    use dsconvert_dataset::sample::Record;

    use super::*;

    struct Nothing;

    impl ShardReader for Nothing {
        fn get(&self, _: Placed) -> Result<Record> {
            Err(Error::usage("empty"))
        }

        fn scan(&self) -> Result<Box<dyn Iterator<Item = Result<(Placed, Record)>> + '_>> {
            Ok(Box::new(std::iter::empty()))
        }
    }

    #[test]
    fn a_shard_stays_open_until_its_slot_is_needed() {
        let shards = OpenShards::new(2);
        let opened = Cell::new(0);
        let get = |shard| {
            let open = || -> Result<Box<dyn ShardReader>> {
                opened.set(opened.get() + 1);
                Ok(Box::new(Nothing))
            };
            shards.get(shard, open).unwrap();
            opened.get()
        };
        assert_eq!([0, 1, 0, 1, 2, 1, 0].map(get), [1, 2, 2, 2, 3, 3, 4]);
        assert!(shards.get(1, || Err(Error::usage("not needed"))).is_ok());
        assert!(shards.get(3, || Err(Error::usage("no such file"))).is_err());
    }

    #[test]
    fn a_taken_slot_does_not_block() {
        let shards = OpenShards::new(1);
        let _taken = shards.slots[0].lock().unwrap();
        assert!(shards.get(0, || Ok(Box::new(Nothing))).is_ok());
    }
}
