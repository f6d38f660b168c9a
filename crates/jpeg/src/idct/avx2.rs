//! The transform for processors with AVX2: sixteen 16-bit values at once. A single instruction multiplies two pairs and
//! adds the products. The sums are those of [`Portable`](super::Portable), written out, so all results are rounded
//! identically. `pulp` makes the instructions safe to call: its token proves that the processor was checked.

use std::arch::x86_64::__m256i;

use pulp::x86::V3;

use super::reduced::{
    FIX_0_211164243, FIX_0_509795579, FIX_0_601344887, FIX_0_720959822, FIX_0_850430095, FIX_1_061594337,
    FIX_1_272758580, FIX_1_451774981, FIX_2_172734803, FIX_3_624509785, FOUR_BITS, TWO_BITS,
};
use super::{Backend, GROUP};
use super::{
    CONST_BITS, FIX_0_298631336, FIX_0_390180644, FIX_0_541196100, FIX_0_765366865, FIX_0_899976223,
    FIX_1_175875602, FIX_1_501321110, FIX_1_847759065, FIX_1_961570560, FIX_2_053119869, FIX_2_562915447,
    FIX_3_072711026, MAX_COEFFICIENT, MAX_ENERGY, PASS1_BITS,
};
use crate::block::{DctBlock, QuantTable};

/// Right shifts of the two passes.
const FIRST: i32 = (CONST_BITS - PASS1_BITS) as i32;
const SECOND: i32 = (CONST_BITS + PASS1_BITS + 3) as i32;

/// The factors of two inputs of one output.
type Pair = (i32, i32);

const ONE: i32 = 1 << CONST_BITS;
/// Factors of inputs 0 and 4.
const EVEN_0: Pair = (ONE, ONE);
const EVEN_1: Pair = (ONE, -ONE);
/// Factors of inputs 2 and 6.
const EVEN_2: Pair = (FIX_0_541196100, FIX_0_541196100 - FIX_1_847759065);
const EVEN_3: Pair = (FIX_0_541196100 + FIX_0_765366865, FIX_0_541196100);
/// Factors of inputs 1 and 5, then of inputs 3 and 7. The names match the portable pass, with `z5` added to `z3` and
/// `z4`.
const Z3: i32 = FIX_1_175875602 - FIX_1_961570560;
const Z4: i32 = FIX_1_175875602 - FIX_0_390180644;
const ODD_0: (Pair, Pair) =
    ((-FIX_0_899976223 + FIX_1_175875602, FIX_1_175875602), (Z3, FIX_0_298631336 - FIX_0_899976223 + Z3));
const ODD_1: (Pair, Pair) =
    ((Z4, FIX_2_053119869 - FIX_2_562915447 + Z4), (-FIX_2_562915447 + FIX_1_175875602, FIX_1_175875602));
const ODD_2: (Pair, Pair) =
    ((FIX_1_175875602, -FIX_2_562915447 + FIX_1_175875602), (FIX_3_072711026 - FIX_2_562915447 + Z3, Z3));
const ODD_3: (Pair, Pair) =
    ((FIX_1_501321110 - FIX_0_899976223 + Z4, Z4), (FIX_1_175875602, -FIX_0_899976223 + FIX_1_175875602));

/// Factors of the transform to four samples.
const FOUR_ODD_0: (Pair, Pair) = ((FIX_2_562915447, -FIX_0_601344887), (FIX_0_899976223, -FIX_0_509795579));
const FOUR_ODD_1: (Pair, Pair) = ((FIX_1_061594337, FIX_1_451774981), (-FIX_2_172734803, -FIX_0_211164243));
/// Factors of the transform to two samples.
const TWO_ODD: (Pair, Pair) = ((FIX_3_624509785, FIX_0_850430095), (-FIX_1_272758580, -FIX_0_720959822));

/// The factors of eight columns for each of the four samples of a row, repeated for two rows.
const FOUR: [[i16; 16]; 4] = {
    let (c0, c2, c6) = (2 * ONE, FIX_1_847759065, -FIX_0_765366865);
    let ((c1, c5), (c3, c7)) = FOUR_ODD_0;
    let ((d1, d5), (d3, d7)) = FOUR_ODD_1;
    [
        for_two_rows([c0, c1, c2, c3, 0, c5, c6, c7]),
        for_two_rows([c0, d1, -c2, d3, 0, d5, -c6, d7]),
        for_two_rows([c0, -d1, -c2, -d3, 0, -d5, -c6, -d7]),
        for_two_rows([c0, -c1, c2, -c3, 0, -c5, c6, -c7]),
    ]
};

/// The factors of eight columns for the left sample of a row, times −1, repeated for two rows.
const TWO_LEFT: [i16; 16] = {
    let ((c1, c5), (c3, c7)) = TWO_ODD;
    for_two_rows([-4 * ONE, -c1, 0, -c3, 0, -c5, 0, -c7])
};
/// The same as [`TWO_LEFT`], for the right sample.
const TWO_RIGHT: [i16; 16] = {
    let ((c1, c5), (c3, c7)) = TWO_ODD;
    for_two_rows([-4 * ONE, c1, 0, c3, 0, c5, 0, c7])
};

const fn for_two_rows(factors: [i32; 8]) -> [i16; 16] {
    let (mut both, mut n) = ([0; 16], 0);
    while n < 16 {
        both[n] = factors[n % 8] as i16;
        n += 1;
    }
    both
}

/// Shuffle that interleaves the two groups of four values in each 128-bit half.
const INTERLEAVED: [u8; 32] = {
    let mut order = [0; 32];
    let mut n = 0;
    while n < 32 {
        // Value n / 2 of the eight values of a half comes from one group or the other.
        let value = n % 16 / 2;
        order[n] = ((value / 2 + value % 2 * 4) * 2 + n % 2) as u8;
        n += 1;
    }
    order
};

/// The backend for processors with AVX2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2(pub(crate) V3);

// No closures here: they would be compiled for the baseline CPU.
impl Backend for Avx2 {
    fn run<F: pulp::NullaryFnOnce>(self, work: F) -> F::Output {
        self.0.vectorize(work)
    }

    #[inline(always)]
    fn has_ac(self, block: &DctBlock) -> bool {
        let [first, rest @ ..]: [__m256i; 4] = pulp::cast(*block);
        let V3 { avx, avx2, .. } = self.0;
        let rest = avx2._mm256_or_si256(avx2._mm256_or_si256(rest[0], rest[1]), rest[2]);
        // All values of the first vector except the DC coefficient.
        let mask = avx._mm256_setr_epi16(0, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
        let any = avx2._mm256_or_si256(rest, avx2._mm256_and_si256(first, mask));
        avx._mm256_testz_si256(any, any) == 0
    }

    #[inline(always)]
    fn dequantize(self, block: &DctBlock, quant: &QuantTable) -> Option<DctBlock> {
        let (block, quant): ([__m256i; 4], [__m256i; 4]) = (pulp::cast(*block), pulp::cast(quant.0));
        let V3 { avx, avx2, .. } = self.0;
        let most = avx._mm256_set1_epi16(MAX_COEFFICIENT as i16);
        let outside = avx._mm256_set1_epi16(!(2 * MAX_COEFFICIENT as i16 - 1));
        let (mut out, mut excess) = ([avx._mm256_setzero_si256(); 4], avx._mm256_setzero_si256());
        let mut energy = avx._mm256_setzero_si256();
        for n in 0..4 {
            let product = avx2._mm256_mullo_epi16(block[n], quant[n]);
            // Bits are lost unless the upper half of a product repeats the sign of the lower half.
            let upper = avx2._mm256_mulhi_epi16(block[n], quant[n]);
            let lost = avx2._mm256_xor_si256(upper, avx2._mm256_srai_epi16::<15>(product));
            let large = avx2._mm256_and_si256(avx2._mm256_add_epi16(product, most), outside);
            excess = avx2._mm256_or_si256(excess, avx2._mm256_or_si256(lost, large));
            // If no product is out of range, the sum fits in 32 bits.
            energy = self.add(energy, avx2._mm256_madd_epi16(product, product));
            out[n] = product;
        }
        let energy: [i32; 8] = pulp::cast(energy);
        let energy = energy.iter().fold(0, |sum: i32, e| sum.wrapping_add(*e));
        (avx._mm256_testz_si256(excess, excess) != 0 && energy <= MAX_ENERGY).then_some(pulp::cast(out))
    }

    #[inline(always)]
    fn samples(self, block: &DctBlock) -> [[u8; 8]; 8] {
        let [x04, x15, x26, x37]: [__m256i; 4] = pulp::cast(*block);
        let columns = self.pass::<FIRST>([x04, x15, x26, x37], 1 << (FIRST - 1));
        let [x04, x15, x26, x37] = self.transpose(columns);
        let rows = [
            self.interleave_rows(x04),
            self.interleave_rows(x15),
            self.interleave_rows(x26),
            self.interleave_rows(x37),
        ];
        // The level shift is added together with the rounding.
        let samples = self.pass::<SECOND>(rows, (1 << (SECOND - 1)) + (128 << SECOND));
        let [r04, r15, r26, r37] = self.transpose(samples);
        let r0145: [[u8; 8]; 4] = pulp::cast(self.0.avx2._mm256_packus_epi16(r04, r15));
        let r2367: [[u8; 8]; 4] = pulp::cast(self.0.avx2._mm256_packus_epi16(r26, r37));
        [r0145[0], r0145[1], r2367[0], r2367[1], r0145[2], r0145[3], r2367[2], r2367[3]]
    }

    #[inline(always)]
    fn four(self, block: &DctBlock) -> [[u8; 4]; 4] {
        let [x04, x15, x26, x37]: [__m256i; 4] = pulp::cast(*block);
        let avx2 = self.0.avx2;
        // The rows after the first pass, each with its eight columns.
        let rounding = self.0.avx._mm256_set1_epi32(1 << (FOUR_BITS.0 - 1));
        let even = self.add(self.sum(x04, (2 * ONE, 0)), rounding);
        let turn = self.sum(x26, (FIX_1_847759065, -FIX_0_765366865));
        let (e0, e1) = (self.add(even, turn), self.sub(even, turn));
        let o0 = self.add(self.sum(x15, FOUR_ODD_0.0), self.sum(x37, FOUR_ODD_0.1));
        let o1 = self.add(self.sum(x15, FOUR_ODD_1.0), self.sum(x37, FOUR_ODD_1.1));
        const FIRST: i32 = FOUR_BITS.0 as i32;
        let r0 = self.shift::<FIRST>(self.add(e0, o0));
        let r1 = self.shift::<FIRST>(self.add(e1, o1));
        let r2 = self.shift::<FIRST>(self.sub(e1, o1));
        let r3 = self.shift::<FIRST>(self.sub(e0, o0));
        let (upper, lower) = (self.four_of_rows(r0, r1), self.four_of_rows(r2, r3));
        let words = avx2._mm256_packs_epi32(upper, lower);
        let samples: [[u8; 4]; 8] = pulp::cast(avx2._mm256_packus_epi16(words, words));
        // Each half contains two rows.
        [samples[0], samples[4], samples[1], samples[5]]
    }

    #[inline(always)]
    fn two(self, block: &DctBlock) -> [[u8; 2]; 2] {
        let [x04, x15, _, x37]: [__m256i; 4] = pulp::cast(*block);
        let avx2 = self.0.avx2;
        let rounding = self.0.avx._mm256_set1_epi32(1 << (TWO_BITS.0 - 1));
        // A factor of 1 (`4 * ONE`) is one too large for 16 bits; a factor of −1 fits.
        let even = self.sub(rounding, self.sum(x04, (-4 * ONE, 0)));
        let odd = self.add(self.sum(x15, TWO_ODD.0), self.sum(x37, TWO_ODD.1));
        const FIRST: i32 = TWO_BITS.0 as i32;
        let rows =
            self.row_pair(self.shift::<FIRST>(self.add(even, odd)), self.shift::<FIRST>(self.sub(even, odd)));
        // The factors are negated for the same reason.
        let left = avx2._mm256_madd_epi16(rows, pulp::cast(TWO_LEFT));
        let right = avx2._mm256_madd_epi16(rows, pulp::cast(TWO_RIGHT));
        let sums = avx2._mm256_hadd_epi32(left, right);
        let sums = avx2._mm256_hadd_epi32(sums, sums);
        const SECOND: i32 = TWO_BITS.1 as i32;
        let rounding = self.0.avx._mm256_set1_epi32((1 << (SECOND - 1)) + (128 << SECOND));
        let values = self.shift::<SECOND>(self.sub(rounding, sums));
        let words = avx2._mm256_packs_epi32(values, values);
        let samples: [[u8; 2]; 16] = pulp::cast(avx2._mm256_packus_epi16(words, words));
        [samples[0], samples[8]]
    }

    #[inline(always)]
    fn colors(self, luma: &[u8; GROUP], cb: &[u8; GROUP], cr: &[u8; GROUP]) -> [[u8; GROUP]; 3] {
        let V3 { avx, avx2, .. } = self.0;
        let (zero, sign) = (avx._mm256_setzero_si256(), avx._mm256_set1_epi8(-128));
        let y = pulp::cast(*luma);
        let cb = avx2._mm256_xor_si256(pulp::cast(*cb), sign);
        let cr = avx2._mm256_xor_si256(pulp::cast(*cr), sign);
        let [r0, g0, b0] = self.sixteen_colors(
            avx2._mm256_unpacklo_epi8(y, zero),
            avx2._mm256_srai_epi16::<7>(avx2._mm256_unpacklo_epi8(zero, cb)),
            avx2._mm256_srai_epi16::<7>(avx2._mm256_unpacklo_epi8(zero, cr)),
        );
        let [r1, g1, b1] = self.sixteen_colors(
            avx2._mm256_unpackhi_epi8(y, zero),
            avx2._mm256_srai_epi16::<7>(avx2._mm256_unpackhi_epi8(zero, cb)),
            avx2._mm256_srai_epi16::<7>(avx2._mm256_unpackhi_epi8(zero, cr)),
        );
        pulp::cast([
            avx2._mm256_packus_epi16(r0, r1),
            avx2._mm256_packus_epi16(g0, g1),
            avx2._mm256_packus_epi16(b0, b1),
        ])
    }

    #[inline(always)]
    fn interleave(self, planes: &[[u8; GROUP]; 3], out: &mut [u8; 3 * GROUP]) {
        let planes: [__m256i; 3] = pulp::cast(*planes);
        let thirds: [[[u8; 16]; 2]; 3] = pulp::cast([
            self.third(planes, SPREAD[0]),
            self.third(planes, SPREAD[1]),
            self.third(planes, SPREAD[2]),
        ]);
        let [[a0, a1], [b0, b1], [c0, c1]] = thirds;
        *out = pulp::cast([a0, b0, c0, a1, b1, c1]);
    }
}

/// For each third of sixteen pixels and each color: the sample index for each byte, or 128 for none; repeated for the
/// other half of a vector.
const SPREAD: [[[u8; 32]; 3]; 3] = {
    let mut spread = [[[128; 32]; 3]; 3];
    let mut n = 0;
    while n < 48 {
        spread[n / 16][n % 3][n % 16] = (n / 3) as u8;
        spread[n / 16][n % 3][n % 16 + 16] = (n / 3) as u8;
        n += 1;
    }
    spread
};

/// Half of 1.402 and 1.772 with 15 fractional bits, as factors of doubled chroma: of the factors around them, those whose
/// rounded products are equal to libjpeg's for every sample.
const TWICE_CR_TO_RED: i16 = 22_971;
const TWICE_CB_TO_BLUE: i16 = 29_033;
/// Half of −0.344136 and −0.714136 with 16 fractional bits.
const TWICE_TO_GREEN: Pair = (-11_277, -23_401);

impl Avx2 {
    /// Transforms eight columns. Inputs 0 and 4, 1 and 5, 2 and 6, 3 and 7 are interleaved. `rounding` is added before
    /// the shift by `BITS`.
    #[inline(always)]
    fn pass<const BITS: i32>(self, [x04, x15, x26, x37]: [__m256i; 4], rounding: i32) -> [__m256i; 8] {
        let rounding = self.0.avx._mm256_set1_epi32(rounding);
        let even0 = self.add(self.sum(x04, EVEN_0), rounding);
        let even1 = self.add(self.sum(x04, EVEN_1), rounding);
        let (even2, even3) = (self.sum(x26, EVEN_2), self.sum(x26, EVEN_3));
        let (e0, e3) = (self.add(even0, even3), self.sub(even0, even3));
        let (e1, e2) = (self.add(even1, even2), self.sub(even1, even2));
        let o0 = self.add(self.sum(x15, ODD_0.0), self.sum(x37, ODD_0.1));
        let o1 = self.add(self.sum(x15, ODD_1.0), self.sum(x37, ODD_1.1));
        let o2 = self.add(self.sum(x15, ODD_2.0), self.sum(x37, ODD_2.1));
        let o3 = self.add(self.sum(x15, ODD_3.0), self.sum(x37, ODD_3.1));
        [
            self.shift::<BITS>(self.add(e0, o3)),
            self.shift::<BITS>(self.add(e1, o2)),
            self.shift::<BITS>(self.add(e2, o1)),
            self.shift::<BITS>(self.add(e3, o0)),
            self.shift::<BITS>(self.sub(e3, o0)),
            self.shift::<BITS>(self.sub(e2, o1)),
            self.shift::<BITS>(self.sub(e1, o2)),
            self.shift::<BITS>(self.sub(e0, o3)),
        ]
    }

    /// Packs two rows of eight 32-bit values to 16 bits, one row per half.
    #[inline(always)]
    fn row_pair(self, first: __m256i, second: __m256i) -> __m256i {
        self.0.avx2._mm256_permute4x64_epi64::<0b11_01_10_00>(self.0.avx2._mm256_packs_epi32(first, second))
    }

    /// Applies the second pass of the transform to four samples to two rows. Each half of the result has the samples of
    /// one row.
    #[inline(always)]
    fn four_of_rows(self, first: __m256i, second: __m256i) -> __m256i {
        let avx2 = self.0.avx2;
        let rows = self.row_pair(first, second);
        let left = avx2._mm256_hadd_epi32(
            avx2._mm256_madd_epi16(rows, pulp::cast(FOUR[0])),
            avx2._mm256_madd_epi16(rows, pulp::cast(FOUR[1])),
        );
        let right = avx2._mm256_hadd_epi32(
            avx2._mm256_madd_epi16(rows, pulp::cast(FOUR[2])),
            avx2._mm256_madd_epi16(rows, pulp::cast(FOUR[3])),
        );
        const SECOND: i32 = FOUR_BITS.1 as i32;
        let rounding = self.0.avx._mm256_set1_epi32((1 << (SECOND - 1)) + (128 << SECOND));
        self.shift::<SECOND>(self.add(avx2._mm256_hadd_epi32(left, right), rounding))
    }

    /// Converts sixteen pixels. `cb` and `cr` are twice the distance of the samples from 128.
    #[inline(always)]
    fn sixteen_colors(self, y: __m256i, cb: __m256i, cr: __m256i) -> [__m256i; 3] {
        let V3 { avx, avx2, .. } = self.0;
        let half = avx._mm256_set1_epi32(1 << 15);
        let red = avx2._mm256_mulhrs_epi16(cr, avx._mm256_set1_epi16(TWICE_CR_TO_RED));
        let blue = avx2._mm256_mulhrs_epi16(cb, avx._mm256_set1_epi16(TWICE_CB_TO_BLUE));
        let lower = self.add(self.sum(avx2._mm256_unpacklo_epi16(cb, cr), TWICE_TO_GREEN), half);
        let upper = self.add(self.sum(avx2._mm256_unpackhi_epi16(cb, cr), TWICE_TO_GREEN), half);
        let green = avx2._mm256_packs_epi32(self.shift::<16>(lower), self.shift::<16>(upper));
        [avx2._mm256_add_epi16(y, red), avx2._mm256_add_epi16(y, green), avx2._mm256_add_epi16(y, blue)]
    }

    /// Returns one third of the bytes of sixteen interleaved pixels in each half.
    #[inline(always)]
    fn third(self, [red, green, blue]: [__m256i; 3], spread: [[u8; 32]; 3]) -> __m256i {
        let avx2 = self.0.avx2;
        let red = avx2._mm256_shuffle_epi8(red, pulp::cast(spread[0]));
        let green = avx2._mm256_shuffle_epi8(green, pulp::cast(spread[1]));
        let blue = avx2._mm256_shuffle_epi8(blue, pulp::cast(spread[2]));
        avx2._mm256_or_si256(avx2._mm256_or_si256(red, green), blue)
    }

    #[inline(always)]
    fn add(self, a: __m256i, b: __m256i) -> __m256i {
        self.0.avx2._mm256_add_epi32(a, b)
    }

    #[inline(always)]
    fn sub(self, a: __m256i, b: __m256i) -> __m256i {
        self.0.avx2._mm256_sub_epi32(a, b)
    }

    #[inline(always)]
    fn shift<const BITS: i32>(self, a: __m256i) -> __m256i {
        self.0.avx2._mm256_srai_epi32::<BITS>(a)
    }

    /// Multiplies the two values of each pair by their factors and adds the products.
    #[inline(always)]
    fn sum(self, pairs: __m256i, (first, second): Pair) -> __m256i {
        // Both factors in one 32-bit value.
        let factors = self.0.avx._mm256_set1_epi32(second << 16 | first & 0xffff);
        self.0.avx2._mm256_madd_epi16(pairs, factors)
    }

    /// Transposes columns of 32-bit values to rows of 16-bit values: 0 and 4, 1 and 5, 2 and 6, 3 and 7, one after the
    /// other.
    #[inline(always)]
    fn transpose(self, x: [__m256i; 8]) -> [__m256i; 4] {
        let avx2 = self.0.avx2;
        // Rows 0 to 3 in the lower halves, 4 to 7 in the upper halves.
        let (x01, x23) = (self.pack(x[0], x[1]), self.pack(x[2], x[3]));
        let (x45, x67) = (self.pack(x[4], x[5]), self.pack(x[6], x[7]));
        let (low03, high03) = (avx2._mm256_unpacklo_epi32(x01, x23), avx2._mm256_unpackhi_epi32(x01, x23));
        let (low47, high47) = (avx2._mm256_unpacklo_epi32(x45, x67), avx2._mm256_unpackhi_epi32(x45, x67));
        [
            avx2._mm256_unpacklo_epi64(low03, low47),
            avx2._mm256_unpackhi_epi64(low03, low47),
            avx2._mm256_unpacklo_epi64(high03, high47),
            avx2._mm256_unpackhi_epi64(high03, high47),
        ]
    }

    /// Packs two columns to 16 bits and interleaves them.
    #[inline(always)]
    fn pack(self, a: __m256i, b: __m256i) -> __m256i {
        self.interleave_groups(self.0.avx2._mm256_packs_epi32(a, b))
    }

    /// Interleaves two consecutive rows.
    #[inline(always)]
    fn interleave_rows(self, rows: __m256i) -> __m256i {
        self.interleave_groups(self.0.avx2._mm256_permute4x64_epi64::<0b11_01_10_00>(rows))
    }

    #[inline(always)]
    fn interleave_groups(self, groups: __m256i) -> __m256i {
        self.0.avx2._mm256_shuffle_epi8(groups, pulp::cast(INTERLEAVED))
    }
}
