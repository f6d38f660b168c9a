//! Parameters that differ between the cuttings of a plan.

use super::permute::{Purpose, key};

/// The number of a cutting, which determines its parameters. 0 is the plain cutting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Variation(pub(super) u64);

impl Variation {
    pub(super) const PLAIN: Self = Self(0);

    /// Returns the fraction of the budget that the first step uses, or `None` for all of it.
    pub(super) fn first_step_share(self) -> Option<f64> {
        (self.0 > 0).then(|| self.unit(0))
    }

    /// Returns the factor of `max_waste` for the bucket with this number: from 0.7 to 1.3.
    pub(super) fn waste_factor(self, bucket: u64) -> f64 {
        if self.0 == 0 { 1.0 } else { 0.7 + 0.6 * self.unit(bucket + 1) }
    }

    /// Returns a number between 0 and 1. The numbers of consecutive variations are spread evenly.
    fn unit(self, dimension: u64) -> f64 {
        // A golden-ratio sequence, which is evenly spread, from a start that depends on the dimension.
        let start = key(0, Purpose::Cuttings, 0, dimension);
        let mixed = start.wrapping_add(self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }
}
