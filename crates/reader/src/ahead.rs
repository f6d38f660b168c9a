//! Reading ahead, for loops that ask for one record after another.
//!
//! A single record of a parquet shard costs a page of each column, which it shares with its neighbours. Who asks for the
//! next record after the last one will want the neighbours too: they are decoded together and kept. Random access never
//! comes here, so it pays nothing.
//!
//! The lock is never waited for (see [`shards`](super::shards)) and not held while anything is read.

use std::sync::Mutex;

use super::iter::block_end;
use super::record::Record;
use super::split::Split;

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

impl Ahead {
    /// The record `record`, when it continues a sequence and can be read. `most_bytes` bounds what is kept.
    pub(super) fn get(&self, split: &Split, record: u64, most_bytes: u64) -> Option<Record> {
        if most_bytes == 0 || record >= split.len() {
            return None;
        }
        {
            let mut state = self.state.try_lock().ok()?;
            let continues = record > 0 && state.next == record;
            state.next = record + 1; // at most the number of records
            let place = record.checked_sub(state.block.first().map_or(u64::MAX, Record::ordinal));
            if let Some(found) = place.and_then(|place| state.block.get(usize::try_from(place).ok()?)) {
                return Some(found.clone());
            }
            if !continues {
                return None;
            }
        }
        let end = block_end(split, record..split.len(), most_bytes).ok()?;
        let ordinals: Vec<u64> = (record..end).collect();
        // Up to the first that cannot be read: that one gives its error when it is asked for.
        let block: Vec<Record> = split.get_each(&ordinals).ok()?.into_iter().map_while(Result::ok).collect();
        let first = block.first().cloned();
        if let Ok(mut state) = self.state.try_lock() {
            state.block = block;
        }
        first
    }
}
