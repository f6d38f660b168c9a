//! The inverse transform: the accurate integer one of libjpeg (Loeffler, Ligtenberg and Moschytz, 12 multiplications).

use super::NotOurs;
use super::block::{Content, Quant};
use super::color::GROUP;
use super::idct_reduced;

/// Coefficients. Row and column stand at [`place`].
pub(in crate::decode) type Block = [i16; 64];

/// Where a coefficient stands: rows 0 and 4, 1 and 5, 2 and 6, 3 and 7 take turns, as the transform needs them together.
pub(in crate::decode) const fn place(row: usize, column: usize) -> usize {
    row % 4 * 16 + column * 2 + row / 4
}

/// Coefficients of 8-bit samples are below this, whatever quantisation does.
pub(super) const MAX_COEFFICIENT: u32 = 1 << 12;

/// Sum of the squares of the coefficients of a block up to which no implementation of the transform leaves 16 bits.
/// Blocks of real pixels have at most a quarter of it, and what quantisation adds.
pub(super) const MAX_ENERGY: i32 = 1 << 22;

/// A kind of processor. All give the same samples.
pub(in crate::decode) trait Machine: Copy {
    /// Calls `work` as compiled for this kind of processor. What it calls must be inlined into it.
    fn run<F: pulp::NullaryFnOnce>(self, work: F) -> F::Output;

    /// `block` times `quant`, unless a coefficient is [`MAX_COEFFICIENT`] or more, or all have more than [`MAX_ENERGY`].
    fn dequantised(self, block: &Block, quant: &Quant) -> Option<Block>;

    /// The samples of a block of coefficients, row by row.
    fn samples(self, block: &Block) -> [[u8; 8]; 8];

    /// Red, green and blue of each pixel, one behind the other.
    fn interleave(self, planes: &[[u8; GROUP]; 3], out: &mut [u8; 3 * GROUP]);
}

/// Transforms `block`, stored in units of `quant`, to `side` × `side` samples (8, 4, 2 or 1) at the beginning of `plane`,
/// whose rows have `stride` samples. All coefficients are zero afterwards.
#[inline(always)]
pub(super) fn write(
    machine: impl Machine,
    content: Content,
    quant: &Quant,
    block: &mut Block,
    side: usize,
    plane: &mut [u8],
    stride: usize,
) -> Result<(), NotOurs> {
    if content == Content::Flat {
        let mean = i32::from(block[0]) * i32::from(quant.0[0]);
        if mean.unsigned_abs() >= MAX_COEFFICIENT {
            return Err(NotOurs);
        }
        block[0] = 0;
        let mean = sample(((mean << PASS1_BITS) + (1 << (PASS1_BITS + 2))) >> (PASS1_BITS + 3));
        return match side {
            8 => put(&[[mean; 8]; 8], plane, stride),
            4 => put(&[[mean; 4]; 4], plane, stride),
            2 => put(&[[mean; 2]; 2], plane, stride),
            _ => put(&[[mean]], plane, stride),
        };
    }
    let coefficients = machine.dequantised(block, quant).ok_or(NotOurs)?;
    *block = [0; 64];
    match side {
        8 => put(&machine.samples(&coefficients), plane, stride),
        4 => put(&idct_reduced::four(&coefficients), plane, stride),
        _ => put(&idct_reduced::two(&coefficients), plane, stride),
    }
}

/// Puts samples at the beginning of `plane`.
#[inline(always)]
fn put<const SIDE: usize>(
    samples: &[[u8; SIDE]; SIDE],
    plane: &mut [u8],
    stride: usize,
) -> Result<(), NotOurs> {
    let plane = plane.get_mut(..(SIDE - 1) * stride + SIDE).ok_or(NotOurs)?;
    for (row, samples) in plane.chunks_mut(stride).zip(samples) {
        if let Some(row) = row.first_chunk_mut() {
            *row = *samples;
        }
    }
    Ok(())
}

/// For any processor: a pass over a row of eight numbers is written for eight columns at once.
#[derive(Debug, Clone, Copy)]
pub(in crate::decode) struct Portable;

impl Machine for Portable {
    fn run<F: pulp::NullaryFnOnce>(self, work: F) -> F::Output {
        work.call()
    }

    #[inline(always)]
    fn dequantised(self, block: &Block, quant: &Quant) -> Option<Block> {
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
    fn samples(self, block: &Block) -> [[u8; 8]; 8] {
        let rows = std::array::from_fn(|row| std::array::from_fn(|column| block[place(row, column)].into()));
        let columns = pass(rows, CONST_BITS - PASS1_BITS);
        let rows = pass(transpose(columns), CONST_BITS + PASS1_BITS + 3);
        transpose(rows).map(|row| row.map(sample))
    }

    #[inline(always)]
    fn interleave(self, [red, green, blue]: &[[u8; GROUP]; 3], out: &mut [u8; 3 * GROUP]) {
        for (((pixel, &r), &g), &b) in out.as_chunks_mut::<3>().0.iter_mut().zip(red).zip(green).zip(blue) {
            *pixel = [r, g, b];
        }
    }
}

/// Samples are stored as their distance from the middle.
#[inline(always)]
pub(in crate::decode) fn sample(value: i32) -> u8 {
    value.wrapping_add(128).clamp(0, 255) as u8
}

type Lanes = [i32; 8];
type Rows = [Lanes; 8];

/// Fractional bits of the constants.
pub(super) const CONST_BITS: u32 = 13;
/// Fractional bits that the first pass leaves.
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

/// Divides by a power of two, rounded.
#[inline(always)]
fn descale(a: Lanes, bits: u32) -> Lanes {
    std::array::from_fn(|i| a[i].wrapping_add(1 << (bits - 1)) >> bits)
}

/// One pass over all columns; `bits` are taken off at the end.
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

/// Rows become columns.
#[inline(always)]
fn transpose(x: Rows) -> Rows {
    std::array::from_fn(|row| std::array::from_fn(|column| x[column][row]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_all_different() {
        let mut places: Vec<usize> = (0..64).map(|n| place(n / 8, n % 8)).collect();
        places.sort_unstable();
        assert_eq!(places, (0..64).collect::<Vec<_>>());
    }
}
