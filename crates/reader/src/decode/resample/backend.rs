//! The trait of the backends, each of which implements the inner loops for one kind of processor.

use super::weights::{SampleStep, Weights};

/// Fractional bits of a value between the two passes.
pub(super) const VALUE_BITS: u32 = 6;
/// Bits that the vertical pass drops.
pub(super) const VERTICAL_SHIFT: u32 = super::weights::WEIGHT_BITS - VALUE_BITS;
/// Bits that the horizontal pass drops.
pub(super) const HORIZONTAL_SHIFT: u32 = super::weights::WEIGHT_BITS + VALUE_BITS;

/// The inner loops for one kind of processor. All backends produce the same samples.
pub(super) trait Backend: Copy {
    /// Calls `work`, compiled for this kind of processor. Functions that `work` calls must be inlined into it.
    fn run<F: pulp::NullaryFnOnce>(self, work: F) -> F::Output;

    /// Computes the weighted sum of `rows`, which have the length of `out`, with [`VALUE_BITS`] fractional bits.
    fn vertical(self, rows: &[&[u8]], weights: &[i16], out: &mut [i16]);

    /// Computes the weighted sums of `row`, which has [`Weights::stride`] more values than are used. `steps` are those of
    /// the weights, if there are any.
    fn horizontal(self, row: &[i16], weights: &Weights, steps: Option<&[SampleStep]>, out: &mut [u8]);
}
