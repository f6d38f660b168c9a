//! Tests that compare the resampler with floating-point sums.

use proptest::prelude::*;

use super::weights::{Triangle, WEIGHT_BITS};
use super::*;

/// Kernels with and without edges and negative weights.
#[derive(Debug, Clone, Copy)]
pub(super) enum TestKernel {
    Triangle,
    /// The kernel of Keys with a slope of −1/2.
    Keys,
    Box,
}

pub(super) const ALL: [TestKernel; 3] = [TestKernel::Triangle, TestKernel::Keys, TestKernel::Box];

impl Kernel for TestKernel {
    fn support(self) -> f64 {
        match self {
            TestKernel::Triangle => Triangle.support(),
            TestKernel::Keys => 2.0,
            TestKernel::Box => 0.5,
        }
    }

    fn at(self, x: f32) -> f32 {
        let x = x.abs();
        match self {
            TestKernel::Triangle => Triangle.at(x),
            _ if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            _ if x < 2.0 => ((2.5 - 0.5 * x) * x - 4.0) * x + 2.0,
            _ => 0.0,
        }
    }

    fn with_edges(self) -> Option<fn(f64) -> f64> {
        // A sample exactly between two pixels belongs to the first.
        let inside = |x: f64| if x > -0.5 + 1e-9 && x <= 0.5 + 1e-9 { 1.0 } else { 0.0 };
        matches!(self, TestKernel::Box).then_some(inside)
    }
}

fn filter() -> impl Strategy<Value = TestKernel> {
    prop::sample::select(ALL.to_vec())
}

/// Generates an arbitrary part of a row of up to 150 samples, at any scale.
fn axis() -> impl Strategy<Value = SampleAxis> {
    (1usize..150, 1usize..90, 0.0f64..1.0, 0.05f64..1.0, any::<bool>()).prop_map(
        |(length, count, place, part, is_mirrored)| {
            let covered = length as f64 * part;
            let (start, step) = ((length as f64 - covered) * place, covered / count as f64);
            let first = if is_mirrored { start + covered - step / 2.0 } else { start + step / 2.0 };
            SampleAxis { first, step: if is_mirrored { -step } else { step }, count, length }
        },
    )
}

fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Extremes are frequent, so that sums overshoot.
        match state >> 60 {
            0..5 => 0,
            5..10 => 255,
            _ => (state >> 40) as u8,
        }
    };
    std::iter::repeat_with(next).take(length).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn samples_are_the_weighted_sums_on_every_processor(
        (across, down) in (axis(), axis()),
        filter in filter(),
        seed: u64,
        margin in 0usize..40,
    ) {
        let (columns, rows) = (Weights::new(across, filter), Weights::new(down, filter));
        let stride = across.length + margin;
        let samples = noise(stride * down.length, seed);
        let plane = Plane { samples: &samples, stride, left: 0, top: 0 };
        let mut out = vec![0; across.count * down.count];
        let mut portable = out.clone();
        resample(plane, &columns, &rows, &mut Buffers::default(), &mut out).unwrap();
        resample_with(Portable, plane, &columns, &rows, &mut Buffers::default(), &mut portable).unwrap();
        prop_assert!(out == portable, "the backends disagree");
        let one = f64::from(1 << WEIGHT_BITS);
        let sum = |weights: &Weights, n: usize, of: &dyn Fn(usize) -> f64| -> f64 {
            let weights_of = weights.of(n).iter().enumerate().filter(|(_, weight)| **weight != 0);
            weights_of.map(|(k, &weight)| f64::from(weight) / one * of(weights.starts[n] + k)).sum()
        };
        for (n, &found) in out.iter().enumerate() {
            let (x, y) = (n % across.count, n / across.count);
            let exact =
                sum(&columns, x, &|x| sum(&rows, y, &|y| samples[y * stride + x].into())).clamp(0.0, 255.0);
            prop_assert!((exact - f64::from(found)).abs() < 0.55, "{found} instead of {exact}");
        }
    }

    /// A part of a plane gives the same result as the whole plane, or `None` if samples are missing.
    #[test]
    fn parts_of_a_plane_are_enough((across, down) in (axis(), axis()), filter in filter(), seed: u64, cut in 0usize..2) {
        let (columns, rows) = (Weights::new(across, filter), Weights::new(down, filter));
        let samples = noise(across.length * down.length, seed);
        let whole = Plane { samples: &samples, stride: across.length, left: 0, top: 0 };
        let mut expected = vec![0; across.count * down.count];
        resample(whole, &columns, &rows, &mut Buffers::default(), &mut expected).unwrap();
        let (left, top, stride) = (columns.span.start + cut, rows.span.start, columns.span.len());
        let part: Vec<u8> = (rows.span.clone())
            .flat_map(|y| (left..left + stride).map(move |x| (x, y)))
            .map(|(x, y)| samples.get(y * across.length + x).copied().unwrap_or(0))
            .collect();
        let mut found = expected.clone();
        found.fill(7);
        let done = resample(Plane { samples: &part, stride, left, top }, &columns, &rows, &mut Buffers::default(), &mut found);
        prop_assert_eq!(done.is_some(), cut == 0);
        prop_assert!(cut > 0 || found == expected);
    }
}
