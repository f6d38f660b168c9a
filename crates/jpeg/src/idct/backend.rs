//! Code for one kind of processor.

use crate::block::{Block, QuantTable};

/// Pixels that are converted together.
pub(crate) const GROUP: usize = 32;

/// The inner loops for one kind of processor. All backends give the same samples.
pub(crate) trait Backend: Copy {
    /// Calls `work`, compiled for this kind of processor. What `work` calls must be inlined into it.
    fn run<F: pulp::NullaryFnOnce>(self, work: F) -> F::Output;

    /// Whether any coefficient but the first is not zero.
    fn has_ac(self, block: &Block) -> bool;

    /// `block` times `quant`; `None` when a coefficient is [`MAX_COEFFICIENT`](super::MAX_COEFFICIENT) or more, or the
    /// sum of their squares is above `MAX_ENERGY`.
    fn dequantize(self, block: &Block, quant: &QuantTable) -> Option<Block>;

    /// The samples of a block of coefficients, row by row.
    fn samples(self, block: &Block) -> [[u8; 8]; 8];

    /// The samples of a block of coefficients at half the size. `block` is the result of [`dequantize`](Self::dequantize).
    fn four(self, block: &Block) -> [[u8; 4]; 4];

    /// As [`four`](Self::four), at a quarter of the size.
    fn two(self, block: &Block) -> [[u8; 2]; 2];

    /// Interleaves red, green and blue.
    fn interleave(self, planes: &[[u8; GROUP]; 3], out: &mut [u8; 3 * GROUP]);
}
