//! In-memory blocks of objects, for datasets that are read without a disk cache, and the blocks being fetched.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use crate::storage::briefly;

/// Least-recently-used cache of blocks of several files. No call waits for a lock: a block that cannot be stored is
/// fetched again.
#[derive(Debug)]
pub(super) struct MemoryCache {
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
    pub(super) fn new(max_bytes: u64) -> Self {
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

/// File, identified by a hash of its address, and block number.
pub(super) type BlockId = (u128, u64);

/// Blocks being fetched from the files of one dataset.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// Blocks, each with the ID of the process that fetches it. After a fork, the child fetches none of them.
    blocks: Mutex<HashMap<BlockId, u32>>,
    used: AtomicBool,
}

/// Blocks that this thread must fetch. Other threads wait until the claim is dropped.
pub(super) struct Claim<'a> {
    in_flight: &'a InFlight,
    file: u128,
    pub(super) blocks: Vec<u64>,
}

impl InFlight {
    /// Claims those blocks of `wanted` in `file` that no other thread is fetching.
    pub(super) fn claim(&self, file: u128, wanted: &[u64]) -> Claim<'_> {
        self.used.store(true, Ordering::Relaxed);
        let process = std::process::id();
        let Some(mut taken) = briefly(&self.blocks) else {
            return Claim { in_flight: self, file, blocks: wanted.to_vec() };
        };
        let mut blocks = wanted.to_vec();
        blocks.retain(|&block| taken.get(&(file, block)) != Some(&process));
        taken.extend(blocks.iter().map(|&block| ((file, block), process)));
        Claim { in_flight: self, file, blocks }
    }

    /// Returns whether any blocks were missing since the last call.
    pub(super) fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(mut taken) = briefly(&self.in_flight.blocks) {
            for &block in &self.blocks {
                taken.remove(&(self.file, block));
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
