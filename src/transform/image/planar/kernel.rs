//! Resize filters as functions of the distance.

use std::sync::LazyLock;

use super::super::filters::{SUPPORT, box_filter, lanczos3};
use super::super::option_values::Filter;
use crate::decode::resample::{Kernel, nearest};

/// The kernel of a filter.
///
/// The weights of a row take thousands of evaluations of the kernel. Lanczos is therefore interpolated between
/// precomputed points, so close together that the error is a hundredth of the rounding error of a weight. All
/// operations are specified exactly by IEEE 754, so every processor computes the same values.
#[derive(Debug, Clone, Copy)]
pub(super) struct FilterKernel {
    filter: Filter,
    points: &'static [f32; POINTS],
}

/// Points per unit of distance.
const RESOLUTION: usize = 512;
/// Number of points up to the support, plus one for interpolation.
const POINTS: usize = SUPPORT as usize * RESOLUTION + 2;

static LANCZOS: LazyLock<[f32; POINTS]> =
    LazyLock::new(|| std::array::from_fn(|n| lanczos3(n as f64 / RESOLUTION as f64) as f32));

impl FilterKernel {
    pub(super) fn of(filter: Filter) -> Self {
        Self { filter, points: &LANCZOS }
    }
}

impl Kernel for FilterKernel {
    fn support(self) -> f64 {
        self.filter.support()
    }

    fn with_edges(self) -> Option<fn(f64) -> f64> {
        (self.filter == Filter::Box).then_some(box_filter)
    }

    #[inline]
    fn at(self, x: f32) -> f32 {
        let distance = x.abs();
        match self.filter {
            Filter::Lanczos3 => {
                let at = distance * RESOLUTION as f32;
                // The point below `at`. If `at` is itself a point, either neighbor interval is correct.
                let n = nearest(at - 0.5);
                match self.points.get(n as usize..n as usize + 2) {
                    Some(points) => points[0] + (points[1] - points[0]) * (at - n as f32),
                    None => 0.0,
                }
            }
            // The kernel of Keys with a slope of −1/2.
            Filter::CatmullRom if distance < 1.0 => (1.5 * distance - 2.5) * distance * distance + 1.0,
            Filter::CatmullRom if distance < 2.0 => {
                ((2.5 - 0.5 * distance) * distance - 4.0) * distance + 2.0
            }
            Filter::Bilinear if distance < 1.0 => 1.0 - distance,
            Filter::Box => box_filter(x.into()) as f32,
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_one_in_the_middle_and_zero_at_whole_distances() {
        for filter in [Filter::Lanczos3, Filter::CatmullRom, Filter::Bilinear, Filter::Box] {
            let kernel = FilterKernel::of(filter);
            assert!((kernel.at(0.0) - 1.0).abs() < 1e-6);
            for distance in [1.0, 2.0, 3.0, 4.0] {
                assert!(kernel.at(distance).abs() < 1e-6 && kernel.at(-distance).abs() < 1e-6, "{filter:?}");
            }
            assert_eq!(kernel.at(kernel.support() as f32 + 1e-3), 0.0);
        }
        assert!((FilterKernel::of(Filter::CatmullRom).at(0.5) - 0.5625).abs() < 1e-6);
        assert!((FilterKernel::of(Filter::CatmullRom).at(1.5) + 0.0625).abs() < 1e-6);
    }

    #[test]
    fn numbers_are_rounded() {
        for (x, expected) in
            [(0.0, 0), (-0.5, 0), (0.5, 0), (1.5, 2), (-1.4, -1), (20_000.6, 20_001), (-32_768.0, -32_768)]
        {
            assert_eq!(nearest(x), expected);
        }
    }

    #[test]
    fn interpolation_error_is_below_the_rounding_error_of_a_weight() {
        let kernel = FilterKernel::of(Filter::Lanczos3);
        for n in 0..30_000 {
            let x = n as f64 / 10_000.0;
            assert!((f64::from(kernel.at(x as f32)) - lanczos3(x)).abs() < 3e-6, "{x}");
        }
    }
}
