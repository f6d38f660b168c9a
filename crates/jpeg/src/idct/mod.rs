//! The inverse discrete cosine transform of libjpeg (`islow`): accurate integer arithmetic after Loeffler, Ligtenberg
//! and Moschytz (1989), with 12 multiplications per eight values.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod portable;
mod reduced;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
pub(crate) use portable::Portable;
pub(crate) use reduced::{four, two};

use crate::block::{DctBlock, QuantTable};

/// Coefficients of 8-bit samples are below this value, whatever the quantization.
pub(crate) const MAX_COEFFICIENT: u32 = 1 << 12;

/// Maximum sum of the squares of a block's coefficients for which every intermediate value of every implementation fits
/// in 16 bits. Blocks of real pixels have at most a quarter of it, plus the quantization error.
const MAX_ENERGY: i32 = 1 << 22;

/// Fractional bits of the constants.
const CONST_BITS: u32 = 13;
/// Fractional bits that remain after the first pass.
const PASS1_BITS: u32 = 2;

const FIX_0_298631336: i32 = 2446;
const FIX_0_390180644: i32 = 3196;
const FIX_0_541196100: i32 = 4433;
const FIX_0_765366865: i32 = 6270;
const FIX_0_899976223: i32 = 7373;
const FIX_1_175875602: i32 = 9633;
const FIX_1_501321110: i32 = 12_299;
const FIX_1_847759065: i32 = 15_137;
const FIX_1_961570560: i32 = 16_069;
const FIX_2_053119869: i32 = 16_819;
const FIX_2_562915447: i32 = 20_995;
const FIX_3_072711026: i32 = 25_172;

/// Converts a transformed value to a sample: adds the level shift of T.81, A.3.1, then clamps.
#[inline(always)]
pub(crate) fn sample(value: i32) -> u8 {
    value.wrapping_add(128).clamp(0, 255) as u8
}

/// Returns the sample of a block with only the dequantized DC coefficient `dc`.
#[inline(always)]
pub(crate) fn dc_sample(dc: i32) -> u8 {
    sample((dc + 4) >> 3)
}

/// Number of pixels that are converted at once.
pub(crate) const GROUP: usize = 32;

/// The inner loops for one kind of processor. All backends produce the same samples.
pub(crate) trait Backend: Copy {
    /// Calls `work`, compiled for this kind of processor. Functions that `work` calls must be inlined into it.
    fn run<F: pulp::NullaryFnOnce>(self, work: F) -> F::Output;

    /// Returns whether any AC coefficient is nonzero.
    fn has_ac(self, block: &DctBlock) -> bool;

    /// Returns `block` times `quant`; `None` if a coefficient reaches [`MAX_COEFFICIENT`], or
    /// the sum of their squares exceeds `MAX_ENERGY`.
    fn dequantize(self, block: &DctBlock, quant: &QuantTable) -> Option<DctBlock>;

    /// Returns the samples of a block of coefficients, row by row.
    fn samples(self, block: &DctBlock) -> [[u8; 8]; 8];

    /// Returns the samples of a block of coefficients at half the size. `block` is the result of
    /// [`dequantize`](Self::dequantize).
    fn four(self, block: &DctBlock) -> [[u8; 4]; 4];

    /// Returns the samples like [`four`](Self::four), at a quarter of the size.
    fn two(self, block: &DctBlock) -> [[u8; 2]; 2];

    /// Converts pixels from YCbCr to red, green and blue.
    fn colors(self, luma: &[u8; GROUP], cb: &[u8; GROUP], cr: &[u8; GROUP]) -> [[u8; GROUP]; 3];

    /// Interleaves red, green and blue.
    fn interleave(self, planes: &[[u8; GROUP]; 3], out: &mut [u8; 3 * GROUP]);
}
