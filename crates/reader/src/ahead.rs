//! Read-ahead for loops that request one record after another.
//!
//! A single record of a Parquet shard costs one page of each column, which it shares with its neighbours. A caller that
//! requests consecutive records will need the neighbours, too, so they are decoded together and kept. Random access
//! does not trigger read-ahead and pays nothing for it.
//!
//! The lock is non-blocking (see [`shards`](super::shards)).

use std::sync::Mutex;

use super::record::Record;

/// Records that were read ahead.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    state: Mutex<AheadState>,
}

#[derive(Debug, Default)]
struct AheadState {
    /// The ordinal after that of the last requested record; 0 before the first request.
    next: u64,
    /// Consecutive records that were read ahead.
    block: Vec<Record>,
}

/// The result of [`Ahead::seek`].
pub(super) enum Sought {
    /// The record was read ahead.
    Found(Record),
    /// The record follows the last requested one, so the records after it will probably be requested, too.
    Continues,
    /// Neither is the case: the record is read on its own.
    Alone,
}

impl Ahead {
    /// Looks up `record` and remembers that it was requested.
    pub(super) fn seek(&self, record: u64) -> Sought {
        let Ok(mut state) = self.state.try_lock() else { return Sought::Alone };
        let continues = record > 0 && state.next == record;
        state.next = record.saturating_add(1);
        let place = record.checked_sub(state.block.first().map_or(u64::MAX, Record::ordinal));
        match place.and_then(|place| state.block.get(usize::try_from(place).ok()?)) {
            Some(found) => Sought::Found(found.clone()),
            None if continues => Sought::Continues,
            None => Sought::Alone,
        }
    }

    /// Keeps consecutive records in place of the previous block.
    pub(super) fn keep(&self, block: Vec<Record>) {
        if let Ok(mut state) = self.state.try_lock() {
            state.block = block;
        }
    }
}
