//! Constants and functions shared by all implementations of the transform.

/// Coefficients of 8-bit samples are below this value, whatever the quantization.
pub(crate) const MAX_COEFFICIENT: u32 = 1 << 12;

/// Maximum sum of the squares of a block's coefficients for which every intermediate value of every implementation fits
/// in 16 bits. Blocks of real pixels have at most a quarter of it, plus the quantization error.
pub(super) const MAX_ENERGY: i32 = 1 << 22;

/// Fractional bits of the constants.
pub(super) const CONST_BITS: u32 = 13;
/// Fractional bits that remain after the first pass.
pub(super) const PASS1_BITS: u32 = 2;

pub(super) const FIX_0_298631336: i32 = 2446;
pub(super) const FIX_0_390180644: i32 = 3196;
pub(super) const FIX_0_541196100: i32 = 4433;
pub(super) const FIX_0_765366865: i32 = 6270;
pub(super) const FIX_0_899976223: i32 = 7373;
pub(super) const FIX_1_175875602: i32 = 9633;
pub(super) const FIX_1_501321110: i32 = 12_299;
pub(super) const FIX_1_847759065: i32 = 15_137;
pub(super) const FIX_1_961570560: i32 = 16_069;
pub(super) const FIX_2_053119869: i32 = 16_819;
pub(super) const FIX_2_562915447: i32 = 20_995;
pub(super) const FIX_3_072711026: i32 = 25_172;

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
