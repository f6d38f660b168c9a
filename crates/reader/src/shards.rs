//! Cache of the open shards of a split.
//!
//! A split may have more shards than a process may have open files or maps, so only a limited number stays open. Each
//! shard has one slot (its ordinal modulo the number of slots). Another shard that needs the slot replaces it, and the
//! old shard closes when the last record that views it is dropped.
//!
//! Locks are non-blocking: a process that was forked while another thread held a slot would wait forever. A caller that
//! finds a slot locked opens the shard without caching it.

use std::fmt;
use std::sync::{Arc, Mutex};

use dsconvert_dataset::error::Result;
use dsconvert_dataset::format::ShardReader;
use dsconvert_dataset::storage::briefly;

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
