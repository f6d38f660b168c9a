//! Shuffling of the records of a unit.
//!
//! Together with shuffled units, this implements `--shuffle`: the records of a unit are sorted by a seeded hash of their
//! keys. Records that fit into a window are sorted in memory. Otherwise each window becomes a sorted run in a temporary
//! file, and the runs are merged at the end (external merge sort), so memory does not depend on the size of a unit.

mod record_bytes;
mod runs;

use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::runs::{MergedRuns, Runs};
use crate::error::Result;
use crate::options::OutputOptions;
use crate::writer::outcome::ConvertedRecord;
use crate::writer::stage::{Finished, NextStage, Stage, Stages};

/// Maximum number of records in a window.
const WINDOW_RECORDS: usize = 65_536;
/// Canonical bytes that fill a window.
const WINDOW_BYTES: u64 = 32 << 20;
/// Decorrelates this order from the split hash, which has the same seed.
const SALT: u64 = 0x5348_5546_464c_4533;

/// Stage that collects the records of a unit, and passes them on in the order of a seeded hash of their keys.
pub(super) struct ShuffleStage {
    seed: u64,
    /// Directory for the temporary file.
    work: PathBuf,
    /// Canonical bytes of the window.
    bytes: u64,
    window: Vec<(u64, ConvertedRecord)>,
    /// The full windows.
    runs: Option<Runs>,
    merged: Option<MergedRuns>,
}

/// Creates the stages that the output options require for every kind of conversion. `work` is a directory for temporary
/// files.
pub(super) fn output_stages(output: &OutputOptions, work: &Path) -> Stages {
    Stages::default().and(output.shuffle.then(|| ShuffleStage::new(output.seed, work)))
}

impl ShuffleStage {
    fn new(seed: u64, work: &Path) -> Self {
        Self {
            seed: seed ^ SALT,
            work: work.to_owned(),
            bytes: 0,
            window: Vec::new(),
            runs: None,
            merged: None,
        }
    }

    /// Returns the records of the window in order.
    fn sorted_window(&mut self) -> Vec<(u64, ConvertedRecord)> {
        self.bytes = 0;
        let mut window = std::mem::take(&mut self.window);
        // The sort is stable: records with equal hashes keep the order of the plan.
        window.sort_by_key(|(hash, _)| *hash);
        window
    }

    /// Writes the window to the temporary file.
    fn spill(&mut self) -> Result<()> {
        let window = self.sorted_window();
        let runs = match &mut self.runs {
            Some(runs) => runs,
            none => none.insert(Runs::create(&self.work)?),
        };
        runs.append(&window)
    }
}

impl Stage for ShuffleStage {
    fn push(&mut self, converted: ConvertedRecord, _next: &mut NextStage<'_>) -> Result<()> {
        if self.window.len() >= WINDOW_RECORDS || self.bytes >= WINDOW_BYTES {
            self.spill()?;
        }
        self.bytes += converted.canonical_bytes;
        self.window.push((xxh3_64_with_seed(converted.key(), self.seed), converted));
        Ok(())
    }

    fn finish(&mut self, next: &mut NextStage<'_>) -> Result<Finished> {
        if self.merged.is_none() {
            if self.runs.is_none() {
                self.sorted_window().into_iter().try_for_each(|(_, converted)| next(converted))?;
                return Ok(Finished::Yes);
            }
            self.spill()?;
        }
        let merged = match (&mut self.merged, self.runs.take()) {
            (none, Some(runs)) => none.insert(runs.merge()?),
            (Some(merged), None) => merged,
            (None, None) => return Ok(Finished::Yes),
        };
        let mut passed = 0;
        while passed < WINDOW_BYTES {
            let Some(converted) = merged.next()? else { return Ok(Finished::Yes) };
            passed += converted.canonical_bytes;
            next(converted)?;
        }
        Ok(Finished::NotYet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Record, Value};

    fn shuffled(records: impl Iterator<Item = ConvertedRecord>) -> Vec<ConvertedRecord> {
        let dir = tempfile::tempdir().unwrap();
        let mut stage = ShuffleStage::new(7, dir.path());
        let mut out = Vec::new();
        records.for_each(|record| stage.push(record, &mut |_| panic!("too early")).unwrap());
        let mut next = |converted| {
            out.push(converted);
            Ok(())
        };
        while stage.finish(&mut next).unwrap() == Finished::NotYet {}
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the file is unlinked");
        out
    }

    /// A record whose length is its ordinal. Records with the same remainder have the same key.
    fn record(ordinal: u64, keys: u64, bytes: usize) -> ConvertedRecord {
        let values = vec![
            Value::Text((ordinal % keys).to_string().into()),
            Value::Bytes(vec![ordinal as u8; bytes].into()),
        ];
        ConvertedRecord::new((ordinal % 3) as u16, Record { values }, ordinal)
    }

    #[test]
    fn windows_do_not_change_the_order() {
        let (records, keys) = (2_000, 1_500);
        let small: Vec<u64> =
            shuffled((0..records).map(|i| record(i, keys, 1))).iter().map(|r| r.length).collect();
        // About 100 MB: three full windows and a smaller one.
        let large = shuffled((0..records).map(|i| record(i, keys, 50_000)));
        assert_eq!(large.iter().map(|r| r.length).collect::<Vec<_>>(), small);
        for found in &large {
            let expected = record(found.length, keys, 50_000);
            assert_eq!((&found.record, found.split), (&expected.record, expected.split));
            assert_eq!((found.crc32c, found.canonical_bytes), (expected.crc32c, expected.canonical_bytes));
        }
        // Records with the same key keep their order.
        let place = |length| small.iter().position(|&l| l == length).unwrap();
        assert!((0..records - keys).all(|ordinal| place(ordinal) < place(ordinal + keys)));
    }

    #[test]
    fn many_small_records_are_shuffled_as_a_whole() {
        let records = 3 * WINDOW_RECORDS as u64 + 5;
        let order: Vec<u64> =
            shuffled((0..records).map(|i| record(i, u64::MAX, 0))).iter().map(|r| r.length).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..records));
        // The mean of any tenth is near the mean of all.
        let mean = |part: &[u64]| part.iter().sum::<u64>() as f64 / part.len() as f64 / records as f64;
        assert!(order.chunks(records as usize / 10).take(10).all(|part| (mean(part) - 0.5).abs() < 0.02));
    }
}
