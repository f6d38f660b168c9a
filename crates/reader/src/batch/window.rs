//! Sorted windows: several steps of the shuffled order, sorted by length so that neighbors have similar lengths.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use dsconvert_dataset::error::Result;

/// A record and its length, after truncation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) record: u64,
    pub(super) length: u64,
}

/// Cache of the last sorted window. Results do not depend on it. Its lock is non-blocking, because after a fork it may
/// be held forever by a thread that no longer exists.
#[derive(Debug, Default)]
pub(super) struct WindowCache(Mutex<Option<SortedWindow>>);

#[derive(Debug, Clone)]
struct SortedWindow {
    epoch: u64,
    positions: Range<u64>,
    items: Arc<[Item]>,
}

impl WindowCache {
    /// Returns the items of the window at `positions` of the shuffled order, longest first, those of equal length in
    /// record order. `item` returns the item at a position.
    pub(super) fn sorted(
        &self,
        epoch: u64,
        positions: Range<u64>,
        item: impl Fn(u64) -> Result<Item>,
    ) -> Result<Arc<[Item]>> {
        if let Ok(held) = self.0.try_lock()
            && let Some(window) = &*held
            && window.epoch == epoch
            && window.positions == positions
        {
            return Ok(Arc::clone(&window.items));
        }
        // Not under the lock: threads may request different windows.
        let mut items = positions.clone().map(item).collect::<Result<Vec<Item>>>()?;
        items.sort_unstable_by_key(|item| (Reverse(item.length), item.record));
        let items: Arc<[Item]> = items.into();
        if let Ok(mut held) = self.0.try_lock() {
            *held = Some(SortedWindow { epoch, positions, items: Arc::clone(&items) });
        }
        Ok(items)
    }
}
