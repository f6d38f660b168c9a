//! Sums over the units of a run that are not in the manifest.

use std::collections::BTreeMap;

use super::unit_result::{UnitResult, add_all};

/// Statistics of what a run read and wrote, beyond the manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of the texts that became records.
    pub text_bytes: u64,
    /// Number of files that were skipped, when the sources were listed or when they were read, by type.
    pub skipped: BTreeMap<String, u64>,
}

impl Totals {
    /// Creates totals with the files that were skipped before the units were written.
    pub(super) fn planned(skipped: &BTreeMap<String, u64>) -> Self {
        Self { skipped: skipped.clone(), ..Self::default() }
    }

    /// Adds a unit.
    pub(super) fn add(&mut self, unit: &UnitResult) {
        self.text_bytes += unit.text_bytes;
        add_all(&mut self.skipped, &unit.skipped);
    }
}
