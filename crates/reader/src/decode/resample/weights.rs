//! The weights of a resampled row or column.

use std::ops::Range;

/// Fractional bits of a weight.
pub(super) const WEIGHT_BITS: u32 = 14;
/// Number of weights in a group of the vector code. Incomplete groups are padded with zeros.
pub(super) const GROUP: usize = 16;

/// Samples per step of the vector code.
pub(super) const SAMPLES: usize = 8;
/// Source samples that the sums of a step may read: from any offset of 8 bits.
pub(super) const WINDOW: usize = 256 + GROUP / 2;

/// Where the sums of a step of [`SAMPLES`] samples start.
#[derive(Debug, Clone, Copy)]
pub(super) struct SampleStep {
    /// The first source sample of all sums.
    pub(super) first: usize,
    /// The first source sample of each sum, counted from there.
    pub(super) offsets: [u8; SAMPLES],
}

/// Returns the number of weights that are stored for a sum of `taps`: a quarter of a group, half of one, or whole groups.
fn stored_weights(taps: usize) -> usize {
    match taps {
        0..=4 => GROUP / 4,
        5..=8 => GROUP / 2,
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
    /// The steps of the vector code, without an incomplete last one; `None` if the sums of a step are too far apart.
    pub(super) steps: Option<Vec<SampleStep>>,
}

impl Weights {
    /// Computes the weights of `kernel`. For downscaling, the kernel is stretched so that it covers every source
    /// sample. The weights of each sample add up to exactly one.
    pub fn new(axis: SampleAxis, kernel: impl Kernel) -> Self {
        let scale = axis.step.abs().max(1.0);
        let reach = kernel.support() * scale;
        let stride = stored_weights((2.0 * reach) as usize + 1);
        let mut weights = Self {
            starts: Vec::with_capacity(axis.count),
            values: vec![0; axis.count * stride],
            taps: 1,
            stride,
            span: Range { start: usize::MAX, end: 0 },
            steps: None,
        };
        let per_sample = (1.0 / scale) as f32;
        let mut exact = vec![0.0; stride];
        for (n, values) in weights.values.chunks_exact_mut(stride).enumerate() {
            let center = axis.first + n as f64 * axis.step;
            // Samples whose center is inside the kernel. The conversion saturates negative numbers to zero.
            let start = ((center - reach + 0.5) as usize).min(axis.length.saturating_sub(1));
            // A sample on the edge is inside, in spite of rounding errors.
            let edges = kernel.with_edges();
            let edge = if edges.is_some() { 1e-6 } else { 0.0 };
            let end = ((center + reach + 0.5 + edge) as usize)
                .clamp(start + 1, axis.length.max(1))
                .min(start + stride);
            let exact = &mut exact[..end - start];
            let mut sum = 0.0;
            let distance_of = |sample: usize| (sample as f64 + 0.5 - center) / scale;
            let mut distance = distance_of(start) as f32;
            for (sample, weight) in (start..).zip(exact.iter_mut()) {
                *weight = match edges {
                    Some(exact) => exact(distance_of(sample)) as f32,
                    None => kernel.at(distance),
                };
                sum += *weight;
                distance += per_sample;
            }
            if sum.abs() < 1e-6 {
                // The kernel fits between two samples.
                let nearest = (center as usize).clamp(start, end - 1);
                exact[nearest - start] = 1.0;
                sum = 1.0;
            }
            let start = start + quantize(exact, sum, values);
            let taps = values.iter().rposition(|&value| value != 0).unwrap_or(0) + 1;
            weights.starts.push(start);
            weights.taps = weights.taps.max(taps);
            weights.span = weights.span.start.min(start)..weights.span.end.max(start + taps);
        }
        weights.in_steps()
    }

    /// Returns the same weights for samples in reverse order.
    pub(crate) fn mirrored(mut self) -> Self {
        self.starts.reverse();
        let mut values = Vec::with_capacity(self.values.len());
        for weights in self.values.chunks_exact(self.stride).rev() {
            values.extend_from_slice(weights);
        }
        self.values = values;
        self.in_steps()
    }

    /// Sets `steps`.
    fn in_steps(mut self) -> Self {
        let step = |starts: &[usize; SAMPLES]| {
            let first = starts.iter().copied().min()?;
            let mut offsets = [0; SAMPLES];
            for (offset, start) in offsets.iter_mut().zip(starts) {
                *offset = u8::try_from(start - first).ok()?;
            }
            Some(SampleStep { first, offsets })
        };
        self.steps = self.starts.as_chunks::<SAMPLES>().0.iter().map(step).collect();
        self
    }

    /// Returns the same weights for a source in which each sample is `by` samples further on.
    pub(crate) fn moved(mut self, by: usize) -> Self {
        self.starts.iter_mut().for_each(|start| *start += by);
        self.steps.iter_mut().flatten().for_each(|step| step.first += by);
        self.span = self.span.start + by..self.span.end + by;
        self
    }

    /// Returns the weights of the same samples over a source of half the resolution, with `length` samples, that is
    /// upsampled before: as by libjpeg-turbo, each upsampled sample is 3/4 of the nearest sample and 1/4 of the next one
    /// if upsampling `is_fancy`, and otherwise the nearest sample.
    pub(crate) fn through_upsampling(&self, length: usize, is_fancy: bool) -> Self {
        let stride = stored_weights(self.taps / 2 + 2);
        let mut weights = Self {
            starts: Vec::with_capacity(self.starts.len()),
            values: vec![0; self.starts.len() * stride],
            taps: 1,
            stride,
            span: Range { start: usize::MAX, end: 0 },
            steps: None,
        };
        let (last, near_share) = (length.saturating_sub(1), if is_fancy { 3 } else { 4 });
        // One more, because the first or the last has no weight.
        let mut exact = vec![0.0; self.taps / 2 + 3];
        for (n, values) in weights.values.chunks_exact_mut(stride).enumerate() {
            exact.fill(0.0);
            let start = self.starts[n];
            let first = (start / 2).saturating_sub(1);
            for (at, &weight) in (start..).zip(&self.of(n)[..self.taps]) {
                let near = (at / 2).min(last);
                let far = if at.is_multiple_of(2) { near.saturating_sub(1) } else { (near + 1).min(last) };
                exact[near - first] += f32::from(weight) * near_share as f32;
                exact[far - first] += f32::from(weight) * (4 - near_share) as f32;
            }
            let start = first + quantize(&mut exact, (4 * ONE) as f32, values);
            let taps = values.iter().rposition(|&value| value != 0).unwrap_or(0) + 1;
            weights.starts.push(start);
            weights.taps = weights.taps.max(taps);
            weights.span = weights.span.start.min(start)..weights.span.end.max(start + taps);
        }
        weights.in_steps()
    }

    /// Returns the weights of sample `n`.
    #[inline(always)]
    pub(super) fn of(&self, n: usize) -> &[i16] {
        &self.values[n * self.stride..][..self.stride]
    }
}

/// Divides `exact` by `sum` and writes the rounded weights to `values`, without leading zeros. Returns the number of
/// leading zeros. The largest weight absorbs the total rounding error.
fn quantize(exact: &mut [f32], sum: f32, values: &mut [i16]) -> usize {
    let (factor, mut rest, mut largest) = (ONE as f32 / sum, ONE, 0);
    let mut max_weight = f32::MIN;
    for (n, weight) in exact.iter_mut().enumerate() {
        if *weight > max_weight {
            (max_weight, largest) = (*weight, n);
        }
        let rounded = nearest(*weight * factor);
        *weight = rounded as f32;
        rest -= rounded;
    }
    exact[largest] += rest as f32;
    let zeros = exact.iter().take_while(|&&weight| weight == 0.0).count();
    for (to, &weight) in values.iter_mut().zip(&exact[zeros..]) {
        *to = nearest(weight) as i16;
    }
    zeros
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
