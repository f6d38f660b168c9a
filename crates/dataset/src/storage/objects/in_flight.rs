//! Tracking of blocks being fetched, so that threads that need the same block send one request.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::storage::briefly;

/// File, identified by a hash of its address, and block number.
pub(super) type BlockId = (u128, u64);

/// Blocks being fetched from the files of one dataset.
#[derive(Debug, Default)]
pub struct InFlight {
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
    pub fn take_used(&self) -> bool {
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
