//! Sums over the units of a run that are not in the manifest.

use super::unit_result::UnitResult;
use crate::source::skipped::SkippedTypes;

/// Statistics of what a run read and wrote, beyond the manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of the texts that became records.
    pub text_bytes: u64,
    /// Files that were skipped, when the sources were listed or when they were read.
    pub skipped: SkippedTypes,
}

impl Totals {
    /// Creates totals with the files that the plan skipped.
    pub(super) fn planned(skipped: &SkippedTypes) -> Self {
        Self { skipped: skipped.clone(), ..Self::default() }
    }

    /// Adds a unit.
    pub(super) fn add(&mut self, unit: &UnitResult) {
        self.text_bytes += unit.text_bytes;
        self.skipped.extend(&unit.skipped);
    }
}
