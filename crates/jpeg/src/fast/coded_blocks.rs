//! Blocks that are entropy-decoded, and their inverse transform into a plane.

use super::block_reader::Coefficients;
use super::request::Declined;
use crate::block::{DctBlock, QuantTable, ZIGZAG_INDEX};
use crate::idct::{Backend, MAX_COEFFICIENT, dc_sample};
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

/// Transforms `block`, which is not dequantized, to `side` × `side` samples (8, 4, 2 or 1) at the start of `plane`,
/// whose rows have `stride` samples. Sets all coefficients to zero afterwards.
#[inline(always)]
pub(super) fn store(
    backend: impl Backend,
    quant: &QuantTable,
    block: &mut CodedBlock,
    side: usize,
    plane: &mut [u8],
    stride: usize,
) -> Result<(), Declined> {
    let CodedBlock { coefficients: block } = block;
    // A single sample depends on the DC coefficient only.
    if side == 1 || !backend.has_ac(block) {
        let dc = i32::from(block[0]) * i32::from(quant.0[0]);
        if dc.unsigned_abs() >= MAX_COEFFICIENT {
            return Err(Declined);
        }
        *block = [0; 64];
        let sample = dc_sample(dc);
        return match side {
            8 => put(&[[sample; 8]; 8], plane, stride),
            4 => put(&[[sample; 4]; 4], plane, stride),
            2 => put(&[[sample; 2]; 2], plane, stride),
            _ => put(&[[sample]], plane, stride),
        };
    }
    let coefficients = backend.dequantize(block, quant).ok_or(Declined)?;
    *block = [0; 64];
    match side {
        8 => put(&backend.samples(&coefficients), plane, stride),
        4 => put(&backend.four(&coefficients), plane, stride),
        _ => put(&backend.two(&coefficients), plane, stride),
    }
}

/// Copies samples to the start of `plane`.
#[inline(always)]
fn put<const SIDE: usize>(
    samples: &[[u8; SIDE]; SIDE],
    plane: &mut [u8],
    stride: usize,
) -> Result<(), Declined> {
    let plane = plane.get_mut(..(SIDE - 1) * stride + SIDE).ok_or(Declined)?;
    for (row, samples) in plane.chunks_mut(stride).zip(samples) {
        if let Some(row) = row.first_chunk_mut() {
            *row = *samples;
        }
    }
    Ok(())
}
