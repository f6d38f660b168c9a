//! Buffers of blocks that are entropy-decoded but not yet transformed.

use super::block_reader::Coefficients;
use super::declined::Declined;
use crate::block::{DctBlock, ZIGZAG_INDEX};
use crate::memory;

/// Number of blocks read before they are transformed: few enough to fit in the L1 cache together with the tables.
pub(super) const GROUP_BLOCKS: usize = 48;

/// The coefficients of a block as stored in the file, not dequantized.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(super) struct CodedBlock {
    pub(super) coefficients: DctBlock,
}

impl Coefficients for CodedBlock {
    #[inline(always)]
    fn put(&mut self, at: u32, value: i16) {
        self.coefficients[usize::from(ZIGZAG_INDEX[at as usize & 63] & 63)] = value;
    }
}

/// A reusable buffer of blocks. After a successful decode, all blocks are zero, because the transform clears each block
/// that it reads.
#[derive(Debug, Default)]
pub(super) struct CodedBlocks(Vec<CodedBlock>);

impl CodedBlocks {
    pub(super) fn kept_bytes(&self) -> usize {
        self.0.capacity() * size_of::<CodedBlock>()
    }

    /// Returns the first `count` blocks, and allocates them if necessary.
    pub(super) fn reset(&mut self, count: usize) -> Result<&mut [CodedBlock], Declined> {
        if self.0.len() < count {
            let zeros = CodedBlock { coefficients: [0; 64] };
            memory::resize(&mut self.0, count, zeros).map_err(|_| Declined)?;
        }
        self.0.get_mut(..count).ok_or(Declined)
    }
}
