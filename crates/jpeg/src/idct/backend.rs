//! The interface to the code for one kind of processor.

use crate::block::{DctBlock, QuantTable};

/// Number of pixels that are converted at once.
pub(crate) const GROUP: usize = 32;

/// The inner loops for one kind of processor. All backends produce the same samples.
pub(crate) trait Backend: Copy {
    /// Calls `work`, compiled for this kind of processor. Functions that `work` calls must be inlined into it.
    fn run<F: pulp::NullaryFnOnce>(self, work: F) -> F::Output;

    /// Returns whether any AC coefficient is nonzero.
    fn has_ac(self, block: &DctBlock) -> bool;

    /// Returns `block` times `quant`; `None` if a coefficient reaches [`MAX_COEFFICIENT`](super::MAX_COEFFICIENT), or
    /// the sum of their squares exceeds `MAX_ENERGY`.
    fn dequantize(self, block: &DctBlock, quant: &QuantTable) -> Option<DctBlock>;

    /// Returns the samples of a block of coefficients, row by row.
    fn samples(self, block: &DctBlock) -> [[u8; 8]; 8];

    /// Returns the samples of a block of coefficients at half the size. `block` is the result of
    /// [`dequantize`](Self::dequantize).
    fn four(self, block: &DctBlock) -> [[u8; 4]; 4];

    /// Returns the samples like [`four`](Self::four), at a quarter of the size.
    fn two(self, block: &DctBlock) -> [[u8; 2]; 2];

    /// Interleaves red, green and blue.
    fn interleave(self, planes: &[[u8; GROUP]; 3], out: &mut [u8; 3 * GROUP]);
}
