//! Sums over the units that this process has converted.

use std::collections::BTreeMap;

use super::unit_result::UnitResult;
use crate::manifest::Counts;

/// Sums over the units that this process has converted, excluding those that were finished before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConvertedUnits {
    /// Number of units.
    pub units: u32,
    /// Item counts by outcome.
    pub counts: Counts,
    /// Number of rejects by reason code.
    pub reject_codes: BTreeMap<String, u64>,
    /// Number of records.
    pub records: u64,
    /// Bytes of the source files.
    pub bytes_in: u64,
    /// Bytes of the shards.
    pub bytes_out: u64,
    /// Bytes of the texts that became records.
    pub text_bytes: u64,
    /// Sum of the lengths of all records.
    pub length: u64,
}

impl ConvertedUnits {
    /// Adds a unit. `length` is the sum of the lengths of its records.
    pub(super) fn add(&mut self, result: &UnitResult, length: u64) {
        self.units += 1;
        self.counts.add(&result.counts());
        for (code, count) in &result.reject_codes {
            *self.reject_codes.entry(code.clone()).or_default() += count;
        }
        for split in &result.splits {
            self.records += split.records;
            self.bytes_out += split.shards.iter().map(|shard| shard.bytes).sum::<u64>();
        }
        self.bytes_in += result.source_bytes;
        self.text_bytes += result.text_bytes;
        self.length = self.length.saturating_add(length);
    }
}
