//! Shuffling within windows of adjacent records.
//!
//! Together with shuffled units, this implements `--shuffle` where the whole listing is not known in advance. A full
//! shuffle is left to the reader, which has random access.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::outcome::ConvertedRecord;
use super::stage::{NextStage, Stage, Stages};
use crate::error::Result;
use crate::options::OutputOptions;

/// Maximum number of records in a window.
pub(super) const WINDOW_RECORDS: usize = 65_536;
/// Canonical bytes that fill a window.
pub(super) const WINDOW_BYTES: u64 = 32 << 20;
/// Decorrelates this order from the split hash, which has the same seed.
const SALT: u64 = 0x5348_5546_464c_4533;

/// Stage that collects the records of a unit until a window is full, and sorts them by a seeded hash of their keys.
pub(super) struct ShuffleStage {
    seed: u64,
    bytes: u64,
    records: Vec<(u64, ConvertedRecord)>,
}

impl Stages {
    /// Creates the stages that the output options require for every kind of conversion.
    pub(super) fn new(output: &OutputOptions) -> Self {
        Self::default().and(output.shuffle.then(|| ShuffleStage::new(output.seed)))
    }
}

impl ShuffleStage {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed: seed ^ SALT, bytes: 0, records: Vec::new() }
    }
}

impl Stage for ShuffleStage {
    fn push(&mut self, converted: ConvertedRecord, next: &mut NextStage<'_>) -> Result<()> {
        self.bytes += converted.canonical_bytes;
        self.records.push((xxh3_64_with_seed(converted.key(), self.seed), converted));
        if self.records.len() >= WINDOW_RECORDS || self.bytes >= WINDOW_BYTES {
            self.finish(next)?;
        }
        Ok(())
    }

    fn finish(&mut self, next: &mut NextStage<'_>) -> Result<()> {
        self.bytes = 0;
        let mut records = std::mem::take(&mut self.records);
        // The sort is stable: records with equal hashes keep the order of the plan.
        records.sort_by_key(|(hash, _)| *hash);
        records.into_iter().try_for_each(|(_, converted)| next(converted))
    }
}
