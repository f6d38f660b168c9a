//! Resampling for processors with AVX2: one instruction multiplies sixteen values by their weights and adds adjacent
//! products.
//! Integer sums do not depend on their order, so the results equal those of [`Portable`].

use std::arch::x86_64::{__m128i, __m256i};

use pulp::x86::V3;

use super::backend::{Backend, HORIZONTAL_SHIFT, VERTICAL_SHIFT};
use super::portable::Portable;
use super::weights::{GROUP, HALF, QUARTER, SAMPLES, STEP, SampleStep, WINDOW, Weights};

/// Columns per step of the vertical pass.
const COLUMNS: usize = 32;
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
    fn horizontal(self, row: &[i16], weights: &Weights, steps: Option<&[SampleStep]>, out: &mut [u8]) {
        match (weights.stride, steps) {
            (QUARTER, Some(steps)) => self.few_taps::<QUARTER>(row, weights, steps, out),
            (HALF, Some(steps)) => self.few_taps::<HALF>(row, weights, steps, out),
            (GROUP, _) => self.sums::<1>(row, weights, out),
            (stride, _) if stride == 2 * GROUP => self.sums::<2>(row, weights, out),
            (stride, _) if stride == 3 * GROUP => self.sums::<3>(row, weights, out),
            _ => Portable.horizontal(row, weights, steps, out),
        }
    }
}

/// Loads [`COLUMNS`] samples from column `x` on.
#[inline(always)]
fn columns_at(row: &[u8], x: usize) -> Option<__m256i> {
    let row = row.get(x..x + COLUMNS)?.first_chunk::<COLUMNS>()?;
    Some(pulp::cast(*row))
}

/// Loads eight values of the window from `at` on. No index of 8 bits needs a check.
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

    /// Computes the horizontal pass with `TAPS` weights per sample, [`QUARTER`] or [`HALF`].
    #[inline(always)]
    fn few_taps<const TAPS: usize>(
        self,
        row: &[i16],
        weights: &Weights,
        steps: &[SampleStep],
        out: &mut [u8],
    ) {
        let (out_chunks, out_rest) = out.as_chunks_mut();
        let start_rest = weights.starts.as_chunks::<STEP>().1;
        let groups = weights.values.as_chunks::<GROUP>().0.as_chunks::<TAPS>().0;
        for ((out, step), groups) in out_chunks.iter_mut().zip(steps).zip(groups) {
            if let Some(window) = row.get(step.first..).and_then(<[i16]>::first_chunk) {
                *out = self.few_tap_samples(window, step, groups);
            }
        }
        let rest = weights.values.as_chunks::<TAPS>().0.iter().skip(out_chunks.len() * STEP);
        for ((out, &start), weights) in out_rest.iter_mut().zip(start_rest).zip(rest) {
            let mut sum = 1 << (HORIZONTAL_SHIFT - 1);
            for (&value, &weight) in row[start..].iter().zip(weights) {
                sum += i32::from(value) * i32::from(weight);
            }
            *out = (sum >> HORIZONTAL_SHIFT).clamp(0, 255) as u8;
        }
    }

    /// Computes [`STEP`] samples like [`Self::few_taps`].
    #[inline(always)]
    fn few_tap_samples<const TAPS: usize>(
        self,
        window: &[i16; WINDOW],
        step: &SampleStep,
        groups: &[[i16; GROUP]; TAPS],
    ) -> [u8; STEP] {
        let V3 { avx, avx2, sse2, ssse3, .. } = self.0;
        let mut sums = [avx._mm256_setzero_si256(); TAPS];
        for (k, sum) in sums.iter_mut().enumerate() {
            // Half a group has the weights of one or two samples.
            let [first, second] = [2 * k * HALF / TAPS, (2 * k + 1) * HALF / TAPS];
            let first = eight_at(window, step.offsets[first % STEP]);
            let second = eight_at(window, step.offsets[second % STEP]);
            let mut values = avx._mm256_set_m128i(second, first);
            if TAPS == QUARTER {
                let bytes = step.bytes.as_chunks::<{ GROUP / QUARTER }>().0[k % (STEP * QUARTER / GROUP)];
                values = avx2._mm256_shuffle_epi8(values, pulp::cast(bytes));
            }
            *sum = avx2._mm256_madd_epi16(values, pulp::cast(groups[k]));
        }
        let (low, high, order) = match *sums.as_slice() {
            // In the halves: samples 0, 1, 4, 5 and 2, 3, 6, 7.
            [a, b, c, d] => {
                let order: [u8; STEP] = [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15];
                (avx2._mm256_hadd_epi32(a, b), avx2._mm256_hadd_epi32(c, d), order)
            }
            // Even samples and odd samples.
            [a, b, c, d, e, f, g, h] => (
                avx2._mm256_hadd_epi32(avx2._mm256_hadd_epi32(a, b), avx2._mm256_hadd_epi32(c, d)),
                avx2._mm256_hadd_epi32(avx2._mm256_hadd_epi32(e, f), avx2._mm256_hadd_epi32(g, h)),
                [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15],
            ),
            _ => return [0; STEP],
        };
        let half = avx._mm256_set1_epi32(1 << (HORIZONTAL_SHIFT - 1));
        let low = avx2._mm256_srai_epi32::<{ HORIZONTAL_SHIFT as i32 }>(avx2._mm256_add_epi32(low, half));
        let high = avx2._mm256_srai_epi32::<{ HORIZONTAL_SHIFT as i32 }>(avx2._mm256_add_epi32(high, half));
        // Clamped to 16 bits, then to 8.
        let words = avx2._mm256_packs_epi32(low, high);
        let bytes = sse2
            ._mm_packus_epi16(avx._mm256_castsi256_si128(words), avx2._mm256_extracti128_si256::<1>(words));
        pulp::cast(ssse3._mm_shuffle_epi8(bytes, pulp::cast(order)))
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
