//! Blocks that are being fetched, so that threads that need the same one send one request.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::storage::briefly;

/// A file, by a hash of its address, and the number of a block of it.
pub(super) type Block = (u128, u64);

/// What the files of one dataset fetch.
#[derive(Debug, Default)]
pub struct InFlight {
    /// With the process that fetches it: after a fork, nobody does in the new process.
    blocks: Mutex<HashMap<Block, u32>>,
    used: AtomicBool,
}

/// Blocks that this thread is to fetch. Others wait until it is dropped.
pub(super) struct Claim<'a> {
    in_flight: &'a InFlight,
    file: u128,
    pub(super) blocks: Vec<u64>,
}

impl InFlight {
    /// Of the blocks `wanted` of `file`, those that nobody fetches.
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

    /// Whether blocks were missing since the last call.
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
