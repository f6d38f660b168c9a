//! The weights of a resampled row or column.

use std::ops::Range;

/// Fractional bits of a weight.
pub(super) const WEIGHT_BITS: u32 = 14;
/// Number of weights in a group of the vector code. Incomplete groups are padded with zeros.
pub(super) const GROUP: usize = 16;

/// Samples whose sums of many weights, or whose weights, are computed together.
pub(super) const SAMPLES: usize = 8;
/// Samples whose sums of few weights are computed together.
pub(super) const STEP: usize = 16;
/// Source samples that the sums of a step may read: from any offset of 8 bits.
pub(super) const WINDOW: usize = 256 + GROUP / 2;

/// Weights per sample, if the weights of four samples or of two samples fill a group.
pub(super) const QUARTER: usize = GROUP / 4;
pub(super) const HALF: usize = GROUP / 2;

/// The source samples of [`STEP`] sums of few weights.
#[derive(Debug, Clone, Copy)]
pub(super) struct SampleStep {
    /// The first source sample of all sums.
    pub(super) first: usize,
    /// The first source sample of each sum, counted from there. With [`QUARTER`] weights, that of the earlier sum of each
    /// pair of sums.
    pub(super) offsets: [u8; STEP],
    /// With [`QUARTER`] weights, where the values of each sum are in the [`HALF`] values from its offset on, as the numbers
    /// of their bytes.
    pub(super) bytes: [u64; STEP],
}

impl SampleStep {
    /// Returns the step of the sums that start at `starts`, or `None` if they are too far apart.
    fn new(starts: &[usize; STEP], stride: usize) -> Option<Self> {
        let first = starts.iter().copied().fold(usize::MAX, usize::min);
        let mut step = Self { first, offsets: [0; STEP], bytes: [0; STEP] };
        for (offset, start) in step.offsets.iter_mut().zip(starts) {
            *offset = u8::try_from(start - first).ok()?;
        }
        if stride == QUARTER {
            for (offsets, bytes) in
                step.offsets.as_chunks_mut::<2>().0.iter_mut().zip(step.bytes.as_chunks_mut::<2>().0)
            {
                let earlier = offsets[0].min(offsets[1]);
                for (offset, bytes) in offsets.iter_mut().zip(bytes) {
                    let values = u64::from(*offset - earlier);
                    if values > (HALF - QUARTER) as u64 {
                        return None;
                    }
                    *bytes = 0x0706_0504_0302_0100 + 0x0202_0202_0202_0202 * values;
                    *offset = earlier;
                }
            }
        }
        Some(step)
    }
}

/// Returns the number of weights that are stored for a sum of `taps`: a quarter of a group, half of one, or whole groups.
fn stored_weights(taps: usize) -> usize {
    match taps {
        taps if taps <= QUARTER => QUARTER,
        taps if taps <= HALF => HALF,
        _ => taps.next_multiple_of(GROUP),
    }
}

const ONE: i32 = 1 << WEIGHT_BITS;

/// A filter kernel: the weight of a sample by its distance, in samples of the smaller of the two images.
pub trait Kernel: Copy {
    /// Returns the distance from which on the kernel is zero.
    fn support(self) -> f64;

    /// Returns the value of the kernel at the distance `x`.
    fn at(self, x: f32) -> f32;

    /// Returns the kernel in double precision if it has edges: there, 32 bits are too few for a distance.
    fn with_edges(self) -> Option<fn(f64) -> f64> {
        None
    }
}

/// The triangle: bilinear interpolation, widened for downscaling.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Triangle;

impl Kernel for Triangle {
    fn support(self) -> f64 {
        1.0
    }

    #[inline]
    fn at(self, x: f32) -> f32 {
        (1.0 - x.abs()).max(0.0)
    }
}

/// Rounds `x` to the nearest integer, ties to even, for results of at most 22 bits. Adding `x` to a number whose last
/// bit has the value one rounds it. A conversion would also check for values out of range.
#[inline]
pub fn nearest(x: f32) -> i32 {
    const LARGE: f32 = 1.5 * (1 << 23) as f32;
    (x + LARGE).to_bits().wrapping_sub(LARGE.to_bits()).cast_signed()
}

/// Positions of the samples of a resampled row or column in its source. The center of sample `n` of `count` is at
/// `first + n × step`. Source sample `i` of `length` spans `i` to `i + 1`. A negative step mirrors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleAxis {
    /// Center of the first sample, in samples of the source.
    pub first: f64,
    /// Source samples per sample.
    pub step: f64,
    /// Number of samples.
    pub count: usize,
    /// Number of samples of the source.
    pub length: usize,
}

/// For each sample of a [`SampleAxis`], the source samples and weights of its weighted sum.
#[derive(Debug)]
pub struct Weights {
    /// The first source sample of each sum.
    pub(super) starts: Vec<usize>,
    /// The weights of each sum, padded to `stride`.
    pub(super) values: Vec<i16>,
    /// Maximum number of source samples of a sum.
    pub(super) taps: usize,
    /// Weights stored per sum: a quarter of [`GROUP`], half of it, or a multiple of it.
    pub(super) stride: usize,
    /// The range of source samples that are read.
    pub(super) span: Range<usize>,
}

impl Weights {
    /// Returns no weights, with memory for those of `count` samples.
    fn empty(count: usize, stride: usize) -> Self {
        let (starts, values) = (Vec::with_capacity(count), Vec::with_capacity(count * stride));
        Self { starts, values, taps: 1, stride, span: Range { start: usize::MAX, end: 0 } }
    }

    /// Computes the weights of `kernel`. For downscaling, the kernel is stretched so that it covers every source
    /// sample. The weights of each sample add up to exactly one.
    pub fn new(axis: SampleAxis, kernel: impl Kernel) -> Self {
        let scale = axis.step.abs().max(1.0);
        let reach = kernel.support() * scale;
        let stride = stored_weights((2.0 * reach) as usize + 1);
        let mut weights = Self::empty(axis.count, stride);
        let per_sample = (1.0 / scale) as f32;
        let edges = kernel.with_edges();
        // A sample on the edge is inside, in spite of rounding errors.
        let edge = if edges.is_some() { 1e-6 } else { 0.0 };
        let (length, last) = (axis.length.max(1), axis.length.saturating_sub(1));
        let mut exact = vec![[0.0; SAMPLES]; stride];
        for first in (0..axis.count).step_by(SAMPLES) {
            let (mut starts, mut counts) = ([0; SAMPLES], [0; SAMPLES]);
            let (mut sums, mut distances) = ([0.0; SAMPLES], [0.0; SAMPLES]);
            let center_of = |lane: usize| axis.first + (first + lane) as f64 * axis.step;
            for lane in 0..SAMPLES {
                let center = center_of(lane);
                // Samples whose center is inside the kernel. The conversion saturates negative numbers to zero.
                let start = ((center - reach + 0.5) as usize).min(last);
                let end = ((center + reach + 0.5 + edge) as usize).clamp(start + 1, length);
                (starts[lane], counts[lane]) = (start, (end - start).min(stride) as u32);
                distances[lane] = ((start as f64 + 0.5 - center) / scale) as f32;
            }
            let taps = counts.iter().copied().fold(1, u32::max);
            for (k, exact) in (0..taps).zip(&mut exact) {
                for lane in 0..SAMPLES {
                    let value = match edges {
                        Some(kernel) => {
                            let sample = starts[lane] as f64 + f64::from(k);
                            kernel((sample + 0.5 - center_of(lane)) / scale) as f32
                        }
                        None => kernel.at(distances[lane]),
                    };
                    exact[lane] = if k < counts[lane] { value } else { 0.0 };
                    sums[lane] += exact[lane];
                    distances[lane] += per_sample;
                }
            }
            for lane in 0..SAMPLES {
                if sums[lane].abs() < 1e-6 {
                    // The kernel fits between two samples.
                    let nearest = (center_of(lane) as usize)
                        .clamp(starts[lane], starts[lane] + counts[lane] as usize - 1);
                    exact[nearest - starts[lane]][lane] = 1.0;
                    sums[lane] = 1.0;
                }
            }
            let count = (axis.count - first).min(SAMPLES);
            weights.push(&starts[..count], &mut exact[..taps as usize], sums);
        }
        weights
    }

    /// Divides the weights of up to [`SAMPLES`] samples by their sums and adds them, rounded and without leading zeros. The
    /// largest weight of a sample absorbs the total rounding error.
    fn push(&mut self, starts: &[usize], exact: &mut [[f32; SAMPLES]], sums: [f32; SAMPLES]) {
        let (mut rest, mut largest, mut max_weight) = ([ONE; SAMPLES], [0; SAMPLES], [f32::MIN; SAMPLES]);
        let factors = sums.map(|sum| ONE as f32 / sum);
        for (k, exact) in (0u32..).zip(exact.iter_mut()) {
            for lane in 0..SAMPLES {
                let is_larger = exact[lane] > max_weight[lane];
                max_weight[lane] = if is_larger { exact[lane] } else { max_weight[lane] };
                largest[lane] = if is_larger { k } else { largest[lane] };
                let rounded = nearest(exact[lane] * factors[lane]);
                exact[lane] = rounded as f32;
                rest[lane] -= rounded;
            }
        }
        // The first weight that is not zero, and the one after the last.
        let (mut first, mut end) = ([u32::MAX; SAMPLES], [1; SAMPLES]);
        for (k, exact) in (0u32..).zip(exact.iter_mut()) {
            for lane in 0..SAMPLES {
                exact[lane] += if k == largest[lane] { rest[lane] as f32 } else { 0.0 };
                first[lane] = if exact[lane] == 0.0 { first[lane] } else { first[lane].min(k) };
                end[lane] = if exact[lane] == 0.0 { end[lane] } else { k + 1 };
            }
        }
        let at = self.values.len();
        self.values.resize(at + starts.len() * self.stride, 0);
        for (lane, values) in self.values[at..].chunks_exact_mut(self.stride).enumerate() {
            let (first, end) = (first[lane] as usize, end[lane] as usize);
            for (to, exact) in values.iter_mut().zip(&exact[first..end]) {
                *to = exact[lane] as i16;
            }
            let start = starts[lane] + first;
            self.starts.push(start);
            self.taps = self.taps.max(end - first);
            self.span = self.span.start.min(start)..self.span.end.max(starts[lane] + end);
        }
    }

    /// Returns the same weights for samples in reverse order.
    pub(crate) fn mirrored(mut self) -> Self {
        self.starts.reverse();
        let mut values = Vec::with_capacity(self.values.len());
        for weights in self.values.chunks_exact(self.stride).rev() {
            values.extend_from_slice(weights);
        }
        self.values = values;
        self
    }

    /// Writes the steps of the vector code to `steps`, without an incomplete last one. Returns whether there are such
    /// steps: only sums of few weights have them.
    pub(super) fn write_steps(&self, steps: &mut Vec<SampleStep>) -> bool {
        steps.clear();
        if self.stride > HALF {
            return false;
        }
        let starts = self.starts.as_chunks().0;
        steps.extend(starts.iter().map_while(|starts| SampleStep::new(starts, self.stride)));
        steps.len() == starts.len()
    }

    /// Returns the same weights for a source in which each sample is `by` samples further on.
    pub(crate) fn moved(mut self, by: usize) -> Self {
        self.starts.iter_mut().for_each(|start| *start += by);
        self.span = self.span.start + by..self.span.end + by;
        self
    }

    /// Returns the weights of the same samples over a source of half the resolution, with `length` samples, that is
    /// upsampled before: as by libjpeg-turbo, each upsampled sample is 3/4 of the nearest sample and 1/4 of the next one
    /// if upsampling `is_fancy`, and otherwise the nearest sample.
    pub(crate) fn through_upsampling(&self, length: usize, is_fancy: bool) -> Self {
        let near_share = if is_fancy { 3.0 } else { 4.0 };
        let far_share = 4.0 - near_share;
        let last = length.saturating_sub(1);
        let mut weights = Self::empty(self.starts.len(), stored_weights(self.taps / 2 + 2));
        let mut exact = vec![[0.0; SAMPLES]; self.taps / 2 + 2];
        // The weights of upsampled samples, from the one before those of the first sample on.
        let mut upsampled = vec![[0.0; SAMPLES]; self.taps + 6];
        for (starts, values) in self.starts.chunks(SAMPLES).zip(self.values.chunks(SAMPLES * self.stride)) {
            upsampled.fill([0.0; SAMPLES]);
            let mut firsts = [0; SAMPLES];
            for (lane, (&start, values)) in starts.iter().zip(values.chunks_exact(self.stride)).enumerate() {
                let first = start.div_ceil(2).saturating_sub(1);
                firsts[lane] = first;
                for (to, &weight) in upsampled[start + 1 - 2 * first..].iter_mut().zip(&values[..self.taps]) {
                    to[lane] = f32::from(weight);
                }
            }
            // Sample `i` is the nearest one of the upsampled samples `2i` and `2i + 1`, and the next one of those beside.
            for (k, exact) in exact.iter_mut().enumerate() {
                let [a, b, c, d] = [0, 1, 2, 3].map(|i| upsampled[2 * k + i]);
                for lane in 0..SAMPLES {
                    exact[lane] = far_share * (a[lane] + d[lane]) + near_share * (b[lane] + c[lane]);
                }
            }
            // At an edge, the nearest sample is the next one, too.
            for (lane, &start) in starts.iter().enumerate() {
                if start == 0 {
                    exact[0][lane] += far_share * upsampled[1][lane];
                }
                let outside = last + 1 - firsts[lane];
                if outside < exact.len() {
                    exact[outside - 1][lane] += exact[outside][lane];
                    exact[outside][lane] = 0.0;
                }
            }
            weights.push(&firsts[..starts.len()], &mut exact, [(4 * ONE) as f32; SAMPLES]);
        }
        weights
    }

    /// Returns the weights of sample `n`.
    #[inline(always)]
    pub(super) fn of(&self, n: usize) -> &[i16] {
        &self.values[n * self.stride..][..self.stride]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ALL, TestKernel};
    use super::*;

    #[test]
    fn weights_add_up_to_one() {
        for filter in ALL {
            for (length, count) in [(1, 1), (1, 9), (9, 1), (500, 341), (341, 500), (1000, 7), (64, 64)] {
                for mirrored in [false, true] {
                    let step = length as f64 / count as f64;
                    let axis = if mirrored {
                        SampleAxis { first: length as f64 - step / 2.0, step: -step, count, length }
                    } else {
                        SampleAxis { first: step / 2.0, step, count, length }
                    };
                    let weights = Weights::new(axis, filter);
                    for n in 0..count {
                        let sum: i32 = weights.of(n).iter().map(|&w| i32::from(w)).sum();
                        assert_eq!(sum, ONE, "{filter:?} {axis:?} {n}");
                        assert!(weights.of(n)[weights.taps..].iter().all(|&w| w == 0));
                    }
                    let span = &weights.span;
                    assert!(span.start < span.end && span.end <= length, "{filter:?} {axis:?}: {span:?}");
                }
            }
        }
    }

    /// Compares with integer arithmetic: a sample exactly between two pixels belongs to the first.
    #[test]
    fn the_box_covers_a_sample_on_its_edge_once() {
        for length in 1..120i64 {
            for count in 1..60i64 {
                let step = length as f64 / count as f64;
                let axis =
                    SampleAxis { first: step / 2.0, step, count: count as usize, length: length as usize };
                let weights = Weights::new(axis, TestKernel::Box);
                for n in 0..count {
                    // Twice the distance in units of 1/count of a sample, and the width of the box in these units.
                    let distance = |sample: i64| (2 * sample + 1) * count - (2 * n + 1) * length;
                    let width = length.max(count);
                    let inside = |sample: &i64| -width < distance(*sample) && distance(*sample) <= width;
                    let samples: Vec<i64> = (0..length).filter(inside).collect();
                    let found = weights.of(n as usize).iter().filter(|&&weight| weight != 0).count();
                    let start = weights.starts[n as usize] as i64;
                    assert_eq!((start, found), (samples[0], samples.len()), "{length} to {count}: {n}");
                }
            }
        }
    }

    #[test]
    fn an_identity_resize_copies_each_sample() {
        let axis = SampleAxis { first: 3.5, step: 1.0, count: 5, length: 20 };
        for filter in ALL {
            let weights = Weights::new(axis, filter);
            assert_eq!(
                (weights.starts.as_slice(), weights.taps),
                ([3, 4, 5, 6, 7].as_slice(), 1),
                "{filter:?}"
            );
        }
    }

    #[test]
    fn a_negative_step_mirrors() {
        let forward =
            Weights::new(SampleAxis { first: 1.2, step: 2.4, count: 20, length: 48 }, TestKernel::Keys);
        let back =
            Weights::new(SampleAxis { first: 46.8, step: -2.4, count: 20, length: 48 }, TestKernel::Keys);
        for n in 0..20 {
            assert_eq!(forward.starts[n], back.starts[19 - n]);
            assert_eq!(forward.of(n), back.of(19 - n));
        }
    }
}
