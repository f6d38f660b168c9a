//! Tests that compare the resampler with floating-point sums.

use proptest::prelude::*;

use super::super::option_values::Filter;
use super::portable::Portable;
use super::resample::{Plane, resample, resample_with};
use super::weights::{SampleAxis, WEIGHT_BITS, Weights};
use super::*;

fn filter() -> impl Strategy<Value = Filter> {
    prop_oneof![Just(Filter::Lanczos3), Just(Filter::CatmullRom), Just(Filter::Bilinear), Just(Filter::Box)]
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
        let kernel = FilterKernel::of(filter);
        let (columns, rows) = (Weights::new(across, kernel), Weights::new(down, kernel));
        let stride = across.length + margin;
        let samples = noise(stride * down.length, seed);
        let plane = Plane { samples: &samples, stride, left: 0, top: 0 };
        let mut out = vec![0; across.count * down.count];
        let mut portable = out.clone();
        resample(plane, &columns, &rows, &mut Vec::new(), &mut out).unwrap();
        resample_with(Portable, plane, &columns, &rows, &mut Vec::new(), &mut portable).unwrap();
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
        let kernel = FilterKernel::of(filter);
        let (columns, rows) = (Weights::new(across, kernel), Weights::new(down, kernel));
        let samples = noise(across.length * down.length, seed);
        let whole = Plane { samples: &samples, stride: across.length, left: 0, top: 0 };
        let mut expected = vec![0; across.count * down.count];
        resample(whole, &columns, &rows, &mut Vec::new(), &mut expected).unwrap();
        let (left, top, stride) = (columns.span.start + cut, rows.span.start, columns.span.len());
        let part: Vec<u8> = (rows.span.clone())
            .flat_map(|y| (left..left + stride).map(move |x| (x, y)))
            .map(|(x, y)| samples.get(y * across.length + x).copied().unwrap_or(0))
            .collect();
        let mut found = expected.clone();
        found.fill(7);
        let done = resample(Plane { samples: &part, stride, left, top }, &columns, &rows, &mut Vec::new(), &mut found);
        prop_assert_eq!(done.is_some(), cut == 0);
        prop_assert!(cut > 0 || found == expected);
    }
}
