//! Shards of a sample, which are discarded.

use crate::error::Result;
use crate::format::ShardWriter;
use crate::writer::outcome::ConvertedRecord;
use crate::writer::stage::{Finished, Stages};

/// Writer of a shard that is discarded.
pub(super) struct SampleWriter {
    stages: Stages,
    writer: Box<dyn ShardWriter>,
    written: Written,
}

/// Records after the stages, and their shard.
#[derive(Debug, Clone, Default)]
pub(super) struct Written {
    rows: u64,
    /// Bytes before encoding.
    pub(super) bytes: u64,
    /// Bytes of the shard, without those that it has even without records.
    pub(super) encoded: u64,
    /// Length of the shortest row of each split that has rows.
    shortest: Vec<Option<u64>>,
}

impl Written {
    /// Returns the number of rows of `full` tokens. In each split, the row with the most free space counts by its
    /// tokens, because in the run it takes further documents.
    pub(super) fn full_rows(&self, full: u64) -> f64 {
        let free = |&length: &u64| 1.0 - (length as f64 / full as f64).min(1.0);
        self.rows as f64 - self.shortest.iter().flatten().map(free).sum::<f64>()
    }

    fn add(&mut self, row: &ConvertedRecord) {
        self.rows += 1;
        self.bytes += row.canonical_bytes;
        if let Some(shortest) = self.shortest.get_mut(usize::from(row.split)) {
            *shortest = Some(shortest.map_or(row.length, |length| length.min(row.length)));
        }
    }
}

impl SampleWriter {
    pub(super) fn new(stages: Stages, writer: Box<dyn ShardWriter>, splits: usize) -> Self {
        Self { stages, writer, written: Written { shortest: vec![None; splits], ..Written::default() } }
    }

    pub(super) fn push(&mut self, converted: ConvertedRecord) -> Result<()> {
        let Self { stages, writer, written } = self;
        stages.push(converted, &mut |row| write(writer.as_mut(), written, row))
    }

    /// Finishes the shard. `empty_shard` is the size of one without records.
    pub(super) fn finish(self, empty_shard: u64) -> Result<Written> {
        let Self { mut stages, mut writer, mut written } = self;
        while stages.finish(&mut |row| write(writer.as_mut(), &mut written, row))? == Finished::NotYet {}
        written.encoded = writer.finish()?.position().saturating_sub(empty_shard);
        Ok(written)
    }
}

fn write(writer: &mut dyn ShardWriter, written: &mut Written, row: ConvertedRecord) -> Result<()> {
    written.add(&row);
    writer.push(&row.record).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emptiest_row_of_each_split_counts_by_its_tokens() {
        let written = Written { rows: 10, shortest: vec![Some(25), None, Some(100)], ..Written::default() };
        assert_eq!(written.full_rows(100), 9.25);
        assert_eq!(Written::default().full_rows(100), 0.0);
    }
}
