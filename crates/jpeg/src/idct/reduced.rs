//! The transforms to 4×4 and 2×2 samples of libjpeg (`jidctred.c`), which prune the transform of Loeffler, Ligtenberg
//! and Moschytz. They leave out coefficients that the smaller block cannot represent.

use super::{
    CONST_BITS, FIX_0_765366865, FIX_0_899976223, FIX_1_847759065, FIX_2_562915447, PASS1_BITS, sample,
};
use crate::block::{DctBlock, index_of};

pub(super) const FIX_0_211164243: i32 = 1730;
pub(super) const FIX_0_509795579: i32 = 4176;
pub(super) const FIX_0_601344887: i32 = 4926;
pub(super) const FIX_0_720959822: i32 = 5906;
pub(super) const FIX_0_850430095: i32 = 6967;
pub(super) const FIX_1_061594337: i32 = 8697;
pub(super) const FIX_1_272758580: i32 = 10_426;
pub(super) const FIX_1_451774981: i32 = 11_893;
pub(super) const FIX_2_172734803: i32 = 17_799;
pub(super) const FIX_3_624509785: i32 = 29_692;

/// Shifts of the two passes to 4 and to 2 samples: one and two bits more than those to 8.
pub(super) const FOUR_BITS: (u32, u32) = (CONST_BITS - PASS1_BITS + 1, CONST_BITS + PASS1_BITS + 3 + 1);
pub(super) const TWO_BITS: (u32, u32) = (CONST_BITS - PASS1_BITS + 2, CONST_BITS + PASS1_BITS + 3 + 2);

/// Transforms `block` to 4×4 samples.
#[inline(always)]
pub(crate) fn four(block: &DctBlock) -> [[u8; 4]; 4] {
    let columns: [[i32; 4]; 8] = std::array::from_fn(|c| four_of(column(block, c), FOUR_BITS.0));
    std::array::from_fn(|r| four_of(columns.map(|column| column[r]), FOUR_BITS.1).map(sample))
}

/// Transforms `block` to 2×2 samples.
#[inline(always)]
pub(crate) fn two(block: &DctBlock) -> [[u8; 2]; 2] {
    let columns: [[i32; 2]; 8] = std::array::from_fn(|c| two_of(column(block, c), TWO_BITS.0));
    std::array::from_fn(|r| two_of(columns.map(|column| column[r]), TWO_BITS.1).map(sample))
}

#[inline(always)]
fn column(block: &DctBlock, column: usize) -> [i32; 8] {
    std::array::from_fn(|row| block[index_of(row, column)].into())
}

/// Computes four samples from eight coefficients, except the fifth. Divides by 2 to the power of `bits`.
#[inline(always)]
fn four_of(x: [i32; 8], bits: u32) -> [i32; 4] {
    let even = x[0] << (CONST_BITS + 1);
    let turn = sum([(x[2], FIX_1_847759065), (x[6], -FIX_0_765366865)]);
    let (e0, e1) = (even.wrapping_add(turn), even.wrapping_sub(turn));
    let o0 = sum([
        (x[3], FIX_0_899976223),
        (x[5], -FIX_0_601344887),
        (x[7], -FIX_0_509795579),
        (x[1], FIX_2_562915447),
    ]);
    let o1 = sum([
        (x[5], FIX_1_451774981),
        (x[7], -FIX_0_211164243),
        (x[3], -FIX_2_172734803),
        (x[1], FIX_1_061594337),
    ]);
    [e0.wrapping_add(o0), e1.wrapping_add(o1), e1.wrapping_sub(o1), e0.wrapping_sub(o0)]
        .map(|sum| descale(sum, bits))
}

/// Computes two samples from the first coefficient and the odd ones. Divides by 2 to the power of `bits`.
#[inline(always)]
fn two_of(x: [i32; 8], bits: u32) -> [i32; 2] {
    let even = x[0] << (CONST_BITS + 2);
    let odd = sum([
        (x[5], FIX_0_850430095),
        (x[7], -FIX_0_720959822),
        (x[3], -FIX_1_272758580),
        (x[1], FIX_3_624509785),
    ]);
    [even.wrapping_add(odd), even.wrapping_sub(odd)].map(|sum| descale(sum, bits))
}

/// Returns the sum of the products. It wraps for coefficients that are larger than those of any real pixels.
#[inline(always)]
fn sum<const N: usize>(terms: [(i32, i32); N]) -> i32 {
    terms.into_iter().fold(0i32, |sum, (value, factor)| sum.wrapping_add(value.wrapping_mul(factor)))
}

/// Divides by a power of two, with rounding.
#[inline(always)]
fn descale(value: i32, bits: u32) -> i32 {
    value.wrapping_add(1 << (bits - 1)) >> bits
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use proptest::prelude::*;

    use super::super::{Avx2, Backend, Portable};
    use crate::block::QuantTable;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Tests blocks of up to the maximum energy.
        #[test]
        fn all_backends_return_the_same_samples(
            seed in prop::collection::vec((0usize..64, -2048i16..=2048), 1..64),
            shift in 0u32..11,
        ) {
            let Some(v3) = pulp::x86::V3::try_new() else { return Ok(()) };
            let mut block = [0; 64];
            for (at, value) in seed {
                block[at] = value >> shift;
            }
            let Some(block) = Portable.dequantize(&block, &QuantTable([1; 64])) else { return Ok(()) };
            prop_assert_eq!(Avx2(v3).four(&block), Portable.four(&block));
            prop_assert_eq!(Avx2(v3).two(&block), Portable.two(&block));
            prop_assert_eq!(Avx2(v3).samples(&block), Portable.samples(&block));
        }
    }
}
