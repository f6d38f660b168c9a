//! Reading ahead, for loops that ask for one record after another.
//!
//! A single record of a parquet shard costs a page of each column, which it shares with its neighbours. Who asks for the
//! next record after the last one will want the neighbours too: they are decoded together and kept. Random access never
//! comes here, so it pays nothing.
//!
//! The lock is never waited for (see [`shards`](super::shards)).

use std::sync::Mutex;

use super::record::Record;

/// Records that were read ahead.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The record after the last one that was asked for; 0 before the first.
    next: u64,
    /// Consecutive records.
    block: Vec<Record>,
}

/// What is known of a record that is asked for.
pub(super) enum Sought {
    /// It was read ahead.
    Found(Record),
    /// It comes after the last one, so those after it will be wanted as well.
    Continues,
    /// Nothing.
    Alone,
}

impl Ahead {
    /// Looks for `record`, and remembers that it was asked for.
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

    /// Keeps consecutive records, instead of those that were kept.
    pub(super) fn keep(&self, block: Vec<Record>) {
        if let Ok(mut state) = self.state.try_lock() {
            state.block = block;
        }
    }
}
