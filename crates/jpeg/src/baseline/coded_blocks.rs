//! Blocks between reading and transform.

use super::block_reader::BlockContent;
use super::declined::Declined;
use crate::block::Block;
use crate::memory;

/// A block as it is stored, not dequantized.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(super) struct CodedBlock {
    pub(super) coefficients: Block,
    pub(super) content: BlockContent,
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
            let zeros = CodedBlock { coefficients: [0; 64], content: BlockContent::DcOnly };
            memory::resize(&mut self.0, count, zeros).map_err(|_| Declined)?;
        }
        self.0.get_mut(..count).ok_or(Declined)
    }
}
