//! Sums over the units of a run that are not in the manifest.

use std::collections::BTreeMap;

use super::finished::UnitResult;
use crate::source::skipped::SkippedTypes;

/// What a run read and wrote, beyond what the manifest says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of the texts that became records.
    pub text_bytes: u64,
    /// Number of records by label. The others have none.
    pub labels: BTreeMap<i64, u64>,
    /// Files that were left out, when the sources were listed or when they were read.
    pub skipped: SkippedTypes,
}

impl Totals {
    /// The files that the plan left out.
    pub(super) fn planned(skipped: &SkippedTypes) -> Self {
        Self { skipped: skipped.clone(), ..Self::default() }
    }

    /// Adds a unit.
    pub(super) fn add(&mut self, unit: &UnitResult) {
        self.text_bytes += unit.text_bytes;
        self.skipped.extend(&unit.skipped);
        for (label, records) in &unit.labels {
            *self.labels.entry(*label).or_default() += records;
        }
    }
}
