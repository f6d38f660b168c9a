//! Blocks of objects in memory, for datasets that are read without a cache on disk.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use bytes::Bytes;

/// Looks at the lock before it counts as taken: by a thread that did not come along when this process was forked.
const TRIES: u32 = 1000;

/// A block: the number of its file among those that share the memory, and its own.
pub(super) type Block = (u64, u64);

/// Memory for blocks of several files; those that were used last stay. What cannot be held is only fetched again, so no call waits.
#[derive(Debug)]
pub struct Held {
    most: u64,
    files: AtomicU64,
    blocks: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    /// Each with the time of its last use.
    by_number: HashMap<Block, (Bytes, u64)>,
    bytes: u64,
    time: u64,
}

impl Held {
    /// Room for `most` bytes.
    pub fn new(most: u64) -> Self {
        Self { most, files: AtomicU64::new(0), blocks: Mutex::default() }
    }

    /// The number of a further file.
    pub(super) fn file(&self) -> u64 {
        self.files.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn get(&self, block: Block) -> Option<Bytes> {
        let mut blocks = self.lock()?;
        blocks.time += 1;
        let now = blocks.time;
        let (bytes, used) = blocks.by_number.get_mut(&block)?;
        *used = now;
        Some(bytes.clone())
    }

    pub(super) fn keep(&self, block: Block, bytes: Bytes) {
        let Some(mut blocks) = self.lock() else { return };
        blocks.time += 1;
        let (len, now) = (bytes.len() as u64, blocks.time);
        if blocks.by_number.insert(block, (bytes, now)).is_none() {
            blocks.bytes += len;
        }
        while blocks.bytes > self.most {
            let oldest = blocks.by_number.iter().min_by_key(|(_, (_, used))| *used).map(|(block, _)| *block);
            match oldest.and_then(|oldest| blocks.by_number.remove(&oldest)) {
                Some((bytes, _)) => blocks.bytes -= bytes.len() as u64,
                None => break,
            }
        }
    }

    fn lock(&self) -> Option<MutexGuard<'_, Blocks>> {
        for _ in 0..TRIES {
            match self.blocks.try_lock() {
                Ok(held) => return Some(held),
                Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_used_blocks_stay() {
        let held = Held::new(25);
        let block = |byte: u8| Bytes::from(vec![byte; 10]);
        held.keep((0, 1), block(1));
        held.keep((0, 2), block(2));
        assert_eq!(held.get((0, 1)), Some(block(1)));
        held.keep((0, 3), block(3));
        assert_eq!(
            [held.get((0, 1)), held.get((0, 2)), held.get((0, 3))],
            [Some(block(1)), None, Some(block(3))]
        );
        held.keep((0, 4), Bytes::from(vec![0; 30]));
        assert_eq!(held.get((0, 4)), None, "what is larger than the room is not held");
    }
}
