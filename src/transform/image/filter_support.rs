//! The support of each filter, and the box filter.

use super::lanczos::SUPPORT;
use super::option_values::Filter;

/// Distance below which a sample counts as exactly on the edge of a box: more than the rounding errors of positions, and
/// less than any other distance from the edge.
const ON_EDGE: f64 = 1e-9;

/// Returns the weight in the box filter of a sample at the distance `x`, which is positive to the right or below.
///
/// A sample in the middle between two pixels belongs only to the left or upper one, as Pillow intends. Without a tolerance,
/// rounding errors of the position would decide.
pub(super) fn box_filter(x: f64) -> f64 {
    if x > -0.5 + ON_EDGE && x <= 0.5 + ON_EDGE { 1.0 } else { 0.0 }
}

impl Filter {
    /// Returns the distance from which on the kernel is zero, in pixels of the smaller of the two images.
    pub(super) fn support(self) -> f64 {
        match self {
            Filter::Lanczos3 => SUPPORT,
            Filter::CatmullRom => 2.0,
            Filter::Bilinear => 1.0,
            Filter::Box => 0.5,
        }
    }
}
