//! Read-ahead for loops that request one record after another.
//!
//! Reading one record of a Parquet shard decodes a page of each column, and adjacent records share these pages. A
//! caller that requests consecutive records will need the following ones, too, so they are decoded together and kept.
//! Random access does not trigger read-ahead and pays nothing for it.
//!
//! The lock is non-blocking (see [`shards`](super::shards)).

use std::sync::Mutex;

use super::record::Record;

/// The read-ahead cache of a split: one block of consecutive records.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    state: Mutex<ReadAheadState>,
}

#[derive(Debug, Default)]
struct ReadAheadState {
    /// The ordinal after that of the last requested record; 0 before the first request.
    next: u64,
    /// Consecutive records that were read ahead.
    block: Vec<Record>,
}

/// The result of [`ReadAhead::look_up`].
pub(super) enum ReadAheadLookup {
    /// The record was read ahead.
    Hit(Record),
    /// The record follows the last requested one, so the records after it will probably be requested, too.
    Sequential,
    /// Neither is the case: the record is read on its own.
    Random,
}

impl ReadAhead {
    /// Looks up `record` and remembers that it was requested.
    pub(super) fn look_up(&self, record: u64) -> ReadAheadLookup {
        let Ok(mut state) = self.state.try_lock() else { return ReadAheadLookup::Random };
        let sequential = record > 0 && state.next == record;
        state.next = record.saturating_add(1);
        let offset = record.checked_sub(state.block.first().map_or(u64::MAX, Record::ordinal));
        match offset.and_then(|offset| state.block.get(usize::try_from(offset).ok()?)) {
            Some(found) => ReadAheadLookup::Hit(found.clone()),
            None if sequential => ReadAheadLookup::Sequential,
            None => ReadAheadLookup::Random,
        }
    }

    /// Replaces the kept block with these consecutive records.
    pub(super) fn keep(&self, block: Vec<Record>) {
        if let Ok(mut state) = self.state.try_lock() {
            state.block = block;
        }
    }
}
