//! Blocks between reading and transform.

use super::declined::Declined;
use crate::block::{Block, ZIGZAG_INDEX};
use crate::memory;

/// Blocks that are read before they are transformed: few enough for the fastest cache, beside the tables.
pub(super) const GROUP_BLOCKS: usize = 48;

/// A block as it is stored, not dequantized.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(super) struct CodedBlock {
    pub(super) coefficients: Block,
}

impl CodedBlock {
    /// Stores a coefficient. Only the lower six bits of `at`, its index in zigzag order, count.
    #[inline(always)]
    pub(super) fn put(&mut self, at: u32, value: i16) {
        self.coefficients[usize::from(ZIGZAG_INDEX[at as usize & 63] & 63)] = value;
    }
}

/// Blocks that are used again and again. All are zero after a successful decode: the transform clears what it has read.
#[derive(Debug, Default)]
pub(super) struct CodedBlocks(Vec<CodedBlock>);

impl CodedBlocks {
    pub(super) fn kept_bytes(&self) -> usize {
        self.0.capacity() * size_of::<CodedBlock>()
    }

    /// The first `count` blocks.
    pub(super) fn reset(&mut self, count: usize) -> Result<&mut [CodedBlock], Declined> {
        if self.0.len() < count {
            let zeros = CodedBlock { coefficients: [0; 64] };
            memory::resize(&mut self.0, count, zeros).map_err(|_| Declined)?;
        }
        self.0.get_mut(..count).ok_or(Declined)
    }
}
