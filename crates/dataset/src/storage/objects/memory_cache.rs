//! In-memory blocks of objects, for datasets that are read without a disk cache.

use std::collections::HashMap;
use std::sync::Mutex;

use bytes::Bytes;

use super::in_flight::BlockId;
use crate::storage::briefly;

/// Least-recently-used cache of blocks of several files. No call waits for a lock: a block that cannot be stored is
/// fetched again.
#[derive(Debug)]
pub struct MemoryCache {
    max_bytes: u64,
    blocks: Mutex<CachedBlocks>,
}

#[derive(Debug, Default)]
struct CachedBlocks {
    /// Blocks, each with the time of its last use.
    by_number: HashMap<BlockId, (Bytes, u64)>,
    bytes: u64,
    time: u64,
}

impl MemoryCache {
    /// Creates a cache of up to `max_bytes` bytes.
    pub fn new(max_bytes: u64) -> Self {
        Self { max_bytes, blocks: Mutex::default() }
    }

    pub(super) fn get(&self, block: BlockId) -> Option<Bytes> {
        let mut blocks = briefly(&self.blocks)?;
        blocks.time += 1;
        let now = blocks.time;
        let (bytes, used) = blocks.by_number.get_mut(&block)?;
        *used = now;
        Some(bytes.clone())
    }

    /// Drops the blocks of the file with the hash `file`.
    pub(super) fn forget(&self, file: u128) {
        let Some(mut blocks) = briefly(&self.blocks) else { return };
        let dropped = blocks.by_number.extract_if(|&(of, _), _| of == file);
        let dropped: u64 = dropped.map(|(_, (bytes, _))| bytes.len() as u64).sum();
        blocks.bytes -= dropped;
    }

    pub(super) fn keep(&self, block: BlockId, bytes: Bytes) {
        let Some(mut blocks) = briefly(&self.blocks) else { return };
        blocks.time += 1;
        let (len, now) = (bytes.len() as u64, blocks.time);
        if blocks.by_number.insert(block, (bytes, now)).is_none() {
            blocks.bytes += len;
        }
        while blocks.bytes > self.max_bytes {
            let oldest = blocks.by_number.iter().min_by_key(|(_, (_, used))| *used).map(|(block, _)| *block);
            match oldest.and_then(|oldest| blocks.by_number.remove(&oldest)) {
                Some((bytes, _)) => blocks.bytes -= bytes.len() as u64,
                None => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_forgotten_file_are_fetched_again() {
        let cache = MemoryCache::new(25);
        cache.keep((1, 0), Bytes::from(vec![0; 10]));
        cache.keep((2, 0), Bytes::from(vec![0; 10]));
        cache.forget(1);
        assert!(cache.get((1, 0)).is_none() && cache.get((2, 0)).is_some());
        cache.keep((3, 0), Bytes::from(vec![0; 15]));
        assert!(cache.get((2, 0)).is_some(), "the space of forgotten blocks is free");
    }

    #[test]
    fn the_most_recently_used_blocks_are_kept() {
        let cache = MemoryCache::new(25);
        let block = |byte: u8| Bytes::from(vec![byte; 10]);
        cache.keep((0, 1), block(1));
        cache.keep((0, 2), block(2));
        assert_eq!(cache.get((0, 1)), Some(block(1)));
        cache.keep((0, 3), block(3));
        assert_eq!(
            [cache.get((0, 1)), cache.get((0, 2)), cache.get((0, 3))],
            [Some(block(1)), None, Some(block(3))]
        );
        cache.keep((0, 4), Bytes::from(vec![0; 30]));
        assert_eq!(cache.get((0, 4)), None, "a block larger than the cache is not kept");
    }
}
