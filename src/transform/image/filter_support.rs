//! The support of each filter.

use super::lanczos::SUPPORT;
use super::option_values::Filter;

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
