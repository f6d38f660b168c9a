//! Sorted windows: some steps' worth of the shuffled order, sorted by length, so that neighbours are about equally long.

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

/// The window that was sorted last. A cache and nothing else: what comes out does not depend on it. Its lock is never
/// waited for, because a thread that is not there any more, after a fork, may hold it for ever.
#[derive(Debug, Default)]
pub(super) struct WindowCache(Mutex<Option<Window>>);

#[derive(Debug, Clone)]
struct Window {
    epoch: u64,
    positions: Range<u64>,
    items: Arc<[Item]>,
}

impl WindowCache {
    /// The items of the window at `positions` of the shuffled order, longest first, those of one length in record
    /// order. `item` says what stands at a position.
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
        // Not under the lock: threads may ask for different windows.
        let mut items = positions.clone().map(item).collect::<Result<Vec<Item>>>()?;
        items.sort_unstable_by_key(|item| (Reverse(item.length), item.record));
        let items: Arc<[Item]> = items.into();
        if let Ok(mut held) = self.0.try_lock() {
            *held = Some(Window { epoch, positions, items: Arc::clone(&items) });
        }
        Ok(items)
    }
}
