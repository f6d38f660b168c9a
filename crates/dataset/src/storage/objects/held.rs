//! In-memory blocks of objects, for datasets that are read without a disk cache.

use std::collections::HashMap;
use std::sync::Mutex;

use bytes::Bytes;

use super::in_flight::BlockId;
use crate::storage::briefly;

/// Memory for blocks of several files; the most recently used ones are kept. A block that cannot be stored is merely
/// fetched again, so no call blocks.
#[derive(Debug)]
pub struct Held {
    most: u64,
    blocks: Mutex<HeldBlocks>,
}

#[derive(Debug, Default)]
struct HeldBlocks {
    /// Blocks, each with the time of its last use.
    by_number: HashMap<BlockId, (Bytes, u64)>,
    bytes: u64,
    time: u64,
}

impl Held {
    /// Creates an instance that holds up to `most` bytes.
    pub fn new(most: u64) -> Self {
        Self { most, blocks: Mutex::default() }
    }

    pub(super) fn get(&self, block: BlockId) -> Option<Bytes> {
        let mut blocks = briefly(&self.blocks)?;
        blocks.time += 1;
        let now = blocks.time;
        let (bytes, used) = blocks.by_number.get_mut(&block)?;
        *used = now;
        Some(bytes.clone())
    }

    pub(super) fn keep(&self, block: BlockId, bytes: Bytes) {
        let Some(mut blocks) = briefly(&self.blocks) else { return };
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
