//! Dequantization, inverse transform and storage of blocks in a plane.

use super::coded_blocks::CodedBlock;
use super::declined::Declined;
use crate::block::QuantTable;
use crate::idct::{Backend, MAX_COEFFICIENT, dc_sample};

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
