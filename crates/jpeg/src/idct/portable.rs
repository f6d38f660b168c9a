//! The transform for any processor. One pass transforms eight columns of eight values at once.

use super::reduced;
use super::{Backend, GROUP};
use super::{
    CONST_BITS, FIX_0_298631336, FIX_0_390180644, FIX_0_541196100, FIX_0_765366865, FIX_0_899976223,
    FIX_1_175875602, FIX_1_501321110, FIX_1_847759065, FIX_1_961570560, FIX_2_053119869, FIX_2_562915447,
    FIX_3_072711026, MAX_COEFFICIENT, MAX_ENERGY, PASS1_BITS, sample,
};
use crate::block::{DctBlock, QuantTable, index_of};
use crate::color::ycbcr_to_rgb;

/// The backend for any processor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Portable;

impl Backend for Portable {
    fn run<F: pulp::NullaryFnOnce>(self, work: F) -> F::Output {
        work.call()
    }

    #[inline(always)]
    fn has_ac(self, block: &DctBlock) -> bool {
        block[1..].iter().fold(0, |any, ac| any | ac) != 0
    }

    #[inline(always)]
    fn dequantize(self, block: &DctBlock, quant: &QuantTable) -> Option<DctBlock> {
        const MOST: i32 = MAX_COEFFICIENT as i32;
        let (mut out, mut energy) = ([0; 64], 0);
        for ((out, &c), &quant) in out.iter_mut().zip(block).zip(&quant.0) {
            let product = i32::from(c) * i32::from(quant);
            if !(-MOST..MOST).contains(&product) {
                return None;
            }
            energy += product * product;
            *out = product as i16;
        }
        (energy <= MAX_ENERGY).then_some(out)
    }

    #[inline(always)]
    fn samples(self, block: &DctBlock) -> [[u8; 8]; 8] {
        let rows =
            std::array::from_fn(|row| std::array::from_fn(|column| block[index_of(row, column)].into()));
        let columns = pass(rows, CONST_BITS - PASS1_BITS);
        let rows = pass(transpose(columns), CONST_BITS + PASS1_BITS + 3);
        transpose(rows).map(|row| row.map(sample))
    }

    #[inline(always)]
    fn four(self, block: &DctBlock) -> [[u8; 4]; 4] {
        reduced::four(block)
    }

    #[inline(always)]
    fn two(self, block: &DctBlock) -> [[u8; 2]; 2] {
        reduced::two(block)
    }

    #[inline(always)]
    fn colors(self, luma: &[u8; GROUP], cb: &[u8; GROUP], cr: &[u8; GROUP]) -> [[u8; GROUP]; 3] {
        let mut planes = [[0; GROUP]; 3];
        for i in 0..GROUP {
            [planes[0][i], planes[1][i], planes[2][i]] = ycbcr_to_rgb(luma[i], cb[i], cr[i]);
        }
        planes
    }

    #[inline(always)]
    fn interleave(self, [red, green, blue]: &[[u8; GROUP]; 3], out: &mut [u8; 3 * GROUP]) {
        for (((pixel, &r), &g), &b) in out.as_chunks_mut::<3>().0.iter_mut().zip(red).zip(green).zip(blue) {
            *pixel = [r, g, b];
        }
    }
}

type Lanes = [i32; 8];
type Rows = [Lanes; 8];

#[inline(always)]
fn add(a: Lanes, b: Lanes) -> Lanes {
    std::array::from_fn(|i| a[i].wrapping_add(b[i]))
}

#[inline(always)]
fn sub(a: Lanes, b: Lanes) -> Lanes {
    std::array::from_fn(|i| a[i].wrapping_sub(b[i]))
}

#[inline(always)]
fn times(a: Lanes, factor: i32) -> Lanes {
    std::array::from_fn(|i| a[i].wrapping_mul(factor))
}

#[inline(always)]
fn shl(a: Lanes, bits: u32) -> Lanes {
    std::array::from_fn(|i| a[i] << bits)
}

/// Divides by a power of two, with rounding.
#[inline(always)]
fn descale(a: Lanes, bits: u32) -> Lanes {
    std::array::from_fn(|i| a[i].wrapping_add(1 << (bits - 1)) >> bits)
}

/// Transforms all columns; results are divided by 2 to the power of `bits`.
#[inline(always)]
fn pass(x: Rows, bits: u32) -> Rows {
    let z1 = times(add(x[2], x[6]), FIX_0_541196100);
    let even2 = sub(z1, times(x[6], FIX_1_847759065));
    let even3 = add(z1, times(x[2], FIX_0_765366865));
    let even0 = shl(add(x[0], x[4]), CONST_BITS);
    let even1 = shl(sub(x[0], x[4]), CONST_BITS);
    let (e0, e3) = (add(even0, even3), sub(even0, even3));
    let (e1, e2) = (add(even1, even2), sub(even1, even2));

    let z5 = times(add(add(x[7], x[3]), add(x[5], x[1])), FIX_1_175875602);
    let z1 = times(add(x[7], x[1]), -FIX_0_899976223);
    let z2 = times(add(x[5], x[3]), -FIX_2_562915447);
    let z3 = add(times(add(x[7], x[3]), -FIX_1_961570560), z5);
    let z4 = add(times(add(x[5], x[1]), -FIX_0_390180644), z5);
    let o0 = add(times(x[7], FIX_0_298631336), add(z1, z3));
    let o1 = add(times(x[5], FIX_2_053119869), add(z2, z4));
    let o2 = add(times(x[3], FIX_3_072711026), add(z2, z3));
    let o3 = add(times(x[1], FIX_1_501321110), add(z1, z4));

    [
        descale(add(e0, o3), bits),
        descale(add(e1, o2), bits),
        descale(add(e2, o1), bits),
        descale(add(e3, o0), bits),
        descale(sub(e3, o0), bits),
        descale(sub(e2, o1), bits),
        descale(sub(e1, o2), bits),
        descale(sub(e0, o3), bits),
    ]
}

/// Swaps rows and columns.
#[inline(always)]
fn transpose(x: Rows) -> Rows {
    std::array::from_fn(|row| std::array::from_fn(|column| x[column][row]))
}

#[cfg(test)]
mod tests {
    use super::super::dc_sample;
    use super::*;

    #[test]
    fn the_dc_coefficient_alone_is_the_rounded_mean() {
        for dc in -1100..1100 {
            let mut block = [0; 64];
            block[0] = dc;
            assert_eq!(Portable.samples(&block), [[dc_sample(dc.into()); 8]; 8]);
        }
    }
}
