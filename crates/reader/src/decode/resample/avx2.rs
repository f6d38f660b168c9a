//! Resampling for processors with AVX2: one instruction multiplies sixteen values by their weights and adds adjacent
//! products.
//! Integer sums do not depend on their order, so the results equal those of [`Portable`].

use std::arch::x86_64::{__m128i, __m256i};

use pulp::x86::V3;

use super::backend::{Backend, HORIZONTAL_SHIFT, VERTICAL_SHIFT};
use super::portable::Portable;
use super::weights::{GROUP, SAMPLES, SampleStep, WINDOW, Weights};

/// Columns per step of the vertical pass.
const COLUMNS: usize = 32;
/// Weights per sample, if the weights of four samples or of two samples fill a group.
const QUARTER: usize = GROUP / 4;
const HALF: usize = GROUP / 2;

/// The backend for processors with AVX2.
#[derive(Debug, Clone, Copy)]
pub(super) struct Avx2(pub(super) V3);

// No closures here: they would be compiled for the baseline CPU.
impl Backend for Avx2 {
    fn run<F: pulp::NullaryFnOnce>(self, work: F) -> F::Output {
        self.0.vectorize(work)
    }

    #[inline(always)]
    fn vertical(self, rows: &[&[u8]], weights: &[i16], out: &mut [i16]) {
        let width = out.len();
        if width < COLUMNS {
            return Portable.vertical(rows, weights, out);
        }
        let mut x = 0;
        loop {
            if let Some(out) = out[x..].first_chunk_mut() {
                *out = self.columns(rows, weights, x);
            }
            if x + COLUMNS == width {
                break;
            }
            // The last step overlaps the one before it.
            x = (x + COLUMNS).min(width - COLUMNS);
        }
    }

    #[inline(always)]
    fn horizontal(self, row: &[i16], weights: &Weights, out: &mut [u8]) {
        match (weights.stride, &weights.steps) {
            (QUARTER, Some(steps)) => {
                self.few_taps::<QUARTER, { QUARTER * SAMPLES / GROUP }>(row, weights, steps, out);
            }
            (HALF, Some(steps)) => {
                self.few_taps::<HALF, { HALF * SAMPLES / GROUP }>(row, weights, steps, out);
            }
            (GROUP, _) => self.sums::<1>(row, weights, out),
            (stride, _) if stride == 2 * GROUP => self.sums::<2>(row, weights, out),
            (stride, _) if stride == 3 * GROUP => self.sums::<3>(row, weights, out),
            _ => Portable.horizontal(row, weights, out),
        }
    }
}

/// Loads [`COLUMNS`] samples from column `x` on.
#[inline(always)]
fn columns_at(row: &[u8], x: usize) -> Option<__m256i> {
    let row = row.get(x..x + COLUMNS)?.first_chunk::<COLUMNS>()?;
    Some(pulp::cast(*row))
}

/// Loads four values of the window from `at` on. No index of 8 bits needs a check.
#[inline(always)]
fn four_at(window: &[i16; WINDOW], at: u8) -> i64 {
    match window[usize::from(at)..].first_chunk::<QUARTER>() {
        Some(values) => pulp::cast(*values),
        None => 0,
    }
}

/// Loads eight values like [`four_at`].
#[inline(always)]
fn eight_at(window: &[i16; WINDOW], at: u8) -> __m128i {
    match window[usize::from(at)..].first_chunk::<HALF>() {
        Some(values) => pulp::cast(*values),
        None => pulp::cast([0i16; HALF]),
    }
}

impl Avx2 {
    /// Computes [`COLUMNS`] columns of the vertical pass, from column `x` on.
    #[inline(always)]
    fn columns(self, rows: &[&[u8]], weights: &[i16], x: usize) -> [i16; COLUMNS] {
        let V3 { avx, avx2, .. } = self.0;
        let zero = avx._mm256_setzero_si256();
        let mut sums = [avx._mm256_set1_epi32(1 << (VERTICAL_SHIFT - 1)); 4];
        let (pairs, _) = rows.as_chunks::<2>();
        for (rows, weights) in pairs.iter().zip(weights.as_chunks::<2>().0) {
            let (Some(a), Some(b)) = (columns_at(rows[0], x), columns_at(rows[1], x)) else { break };
            let weights = avx._mm256_set1_epi32(pulp::cast(*weights));
            // The two samples of each column, side by side.
            let (low, high) = (avx2._mm256_unpacklo_epi8(a, b), avx2._mm256_unpackhi_epi8(a, b));
            let wide = [
                avx2._mm256_unpacklo_epi8(low, zero),
                avx2._mm256_unpackhi_epi8(low, zero),
                avx2._mm256_unpacklo_epi8(high, zero),
                avx2._mm256_unpackhi_epi8(high, zero),
            ];
            for i in 0..4 {
                sums[i] = avx2._mm256_add_epi32(sums[i], avx2._mm256_madd_epi16(wide[i], weights));
            }
        }
        for sum in &mut sums {
            *sum = avx2._mm256_srai_epi32::<{ VERTICAL_SHIFT as i32 }>(*sum);
        }
        let (first, second) =
            (avx2._mm256_packs_epi32(sums[0], sums[1]), avx2._mm256_packs_epi32(sums[2], sums[3]));
        pulp::cast([
            avx2._mm256_permute2x128_si256::<0x20>(first, second),
            avx2._mm256_permute2x128_si256::<0x31>(first, second),
        ])
    }

    /// Computes the horizontal pass with `TAPS` weights per sample, [`QUARTER`] or [`HALF`]. The weights of [`SAMPLES`]
    /// samples fill `GROUPS` groups.
    #[inline(always)]
    fn few_taps<const TAPS: usize, const GROUPS: usize>(
        self,
        row: &[i16],
        weights: &Weights,
        steps: &[SampleStep],
        out: &mut [u8],
    ) {
        let (out_chunks, out_rest) = out.as_chunks_mut::<SAMPLES>();
        let start_rest = weights.starts.as_chunks::<SAMPLES>().1;
        let groups = weights.values.as_chunks::<GROUP>().0.as_chunks::<GROUPS>().0;
        for ((out, step), groups) in out_chunks.iter_mut().zip(steps).zip(groups) {
            if let Some(window) = row.get(step.first..).and_then(<[i16]>::first_chunk) {
                *out = self.few_tap_samples::<TAPS, GROUPS>(window, &step.offsets, groups);
            }
        }
        let rest = weights.values.as_chunks::<TAPS>().0.iter().skip(out_chunks.len() * SAMPLES);
        for ((out, &start), weights) in out_rest.iter_mut().zip(start_rest).zip(rest) {
            let mut sum = 1 << (HORIZONTAL_SHIFT - 1);
            for (&value, &weight) in row[start..].iter().zip(weights) {
                sum += i32::from(value) * i32::from(weight);
            }
            *out = (sum >> HORIZONTAL_SHIFT).clamp(0, 255) as u8;
        }
    }

    /// Computes [`SAMPLES`] samples like [`Self::few_taps`].
    #[inline(always)]
    fn few_tap_samples<const TAPS: usize, const GROUPS: usize>(
        self,
        window: &[i16; WINDOW],
        offsets: &[u8; SAMPLES],
        groups: &[[i16; GROUP]; GROUPS],
    ) -> [u8; SAMPLES] {
        let V3 { avx, avx2, .. } = self.0;
        let mut sums = [avx._mm256_setzero_si256(); GROUPS];
        for k in 0..GROUPS {
            let values = if TAPS == QUARTER {
                let at = |n: usize| offsets[(4 * k + n) % SAMPLES];
                avx._mm256_set_epi64x(
                    four_at(window, at(3)),
                    four_at(window, at(2)),
                    four_at(window, at(1)),
                    four_at(window, at(0)),
                )
            } else {
                let at = |n: usize| offsets[(2 * k + n) % SAMPLES];
                avx._mm256_set_m128i(eight_at(window, at(1)), eight_at(window, at(0)))
            };
            sums[k] = avx2._mm256_madd_epi16(values, pulp::cast(groups[k]));
        }
        let sum = match sums.as_slice() {
            // Lanes of 64 bits: samples 0 and 1, 4 and 5, 2 and 3, 6 and 7.
            [a, b] => avx2._mm256_permute4x64_epi64::<0b11_01_10_00>(avx2._mm256_hadd_epi32(*a, *b)),
            // Samples 0, 2, 4, 6, then 1, 3, 5, 7.
            [a, b, c, d] => {
                let even_and_odd =
                    avx2._mm256_hadd_epi32(avx2._mm256_hadd_epi32(*a, *b), avx2._mm256_hadd_epi32(*c, *d));
                avx2._mm256_permutevar8x32_epi32(even_and_odd, pulp::cast([0i32, 4, 1, 5, 2, 6, 3, 7]))
            }
            _ => avx._mm256_setzero_si256(),
        };
        self.rounded(sum)
    }

    /// Rounds the sums of [`SAMPLES`] samples.
    #[inline(always)]
    fn rounded(self, sum: __m256i) -> [u8; SAMPLES] {
        let V3 { avx, avx2, .. } = self.0;
        let sum = avx2._mm256_add_epi32(sum, avx._mm256_set1_epi32(1 << (HORIZONTAL_SHIFT - 1)));
        let values = avx2._mm256_srai_epi32::<{ HORIZONTAL_SHIFT as i32 }>(sum);
        // Clamped to 16 bits, then to 8.
        let words = avx2._mm256_packs_epi32(values, values);
        let bytes = avx2._mm256_packus_epi16(words, words);
        // Four bytes are at the start of each half.
        let order = pulp::cast([0i32, 4, 0, 4, 0, 4, 0, 4]);
        let samples: [[u8; SAMPLES]; 4] = pulp::cast(avx2._mm256_permutevar8x32_epi32(bytes, order));
        samples[0]
    }

    /// Computes the horizontal pass, with weights in `GROUPS` groups.
    #[inline(always)]
    fn sums<const GROUPS: usize>(self, row: &[i16], weights: &Weights, out: &mut [u8]) {
        let (listed, _) = weights.values.as_chunks::<GROUP>().0.as_chunks::<GROUPS>();
        let (out_chunks, out_rest) = out.as_chunks_mut::<SAMPLES>();
        let (start_chunks, start_rest) = weights.starts.as_chunks::<SAMPLES>();
        let (weight_chunks, weight_rest) = listed.as_chunks::<SAMPLES>();
        for ((out, starts), weights) in out_chunks.iter_mut().zip(start_chunks).zip(weight_chunks) {
            *out = self.samples(row, starts, weights);
        }
        for ((out, &start), weights) in out_rest.iter_mut().zip(start_rest).zip(weight_rest) {
            let sums: [i32; 8] = pulp::cast(self.products(row, start, weights));
            let mut sum = 1 << (HORIZONTAL_SHIFT - 1);
            for part in sums {
                sum += part;
            }
            *out = (sum >> HORIZONTAL_SHIFT).clamp(0, 255) as u8;
        }
    }

    /// Multiplies the values and weights of one sample of the horizontal pass, and adds the products to eight partial
    /// sums.
    #[inline(always)]
    fn products<const GROUPS: usize>(
        self,
        row: &[i16],
        start: usize,
        weights: &[[i16; GROUP]; GROUPS],
    ) -> __m256i {
        let V3 { avx, avx2, .. } = self.0;
        let mut sum = avx._mm256_setzero_si256();
        if let Some(values) = row.get(start..start + GROUPS * GROUP) {
            for (values, weights) in values.as_chunks::<GROUP>().0.iter().zip(weights) {
                let products = avx2._mm256_madd_epi16(pulp::cast(*values), pulp::cast(*weights));
                sum = avx2._mm256_add_epi32(sum, products);
            }
        }
        sum
    }

    /// Computes [`SAMPLES`] samples of the horizontal pass.
    #[inline(always)]
    fn samples<const GROUPS: usize>(
        self,
        row: &[i16],
        starts: &[usize; SAMPLES],
        weights: &[[[i16; GROUP]; GROUPS]; SAMPLES],
    ) -> [u8; SAMPLES] {
        let V3 { avx, avx2, .. } = self.0;
        let mut sums = [avx._mm256_setzero_si256(); SAMPLES];
        for k in 0..SAMPLES {
            sums[k] = self.products(row, starts[k], &weights[k]);
        }
        let pair = [
            avx2._mm256_hadd_epi32(sums[0], sums[1]),
            avx2._mm256_hadd_epi32(sums[2], sums[3]),
            avx2._mm256_hadd_epi32(sums[4], sums[5]),
            avx2._mm256_hadd_epi32(sums[6], sums[7]),
        ];
        let first = avx2._mm256_hadd_epi32(pair[0], pair[1]);
        let second = avx2._mm256_hadd_epi32(pair[2], pair[3]);
        let sum = avx2._mm256_add_epi32(
            avx2._mm256_permute2x128_si256::<0x20>(first, second),
            avx2._mm256_permute2x128_si256::<0x31>(first, second),
        );
        self.rounded(sum)
    }
}
