//! The records of a mixture, in the order in which they are drawn.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::index::LengthRun;
use dsconvert_dataset::schema::Schema;
use dsconvert_dataset::storage::interrupt;
use xxhash_rust::xxh3::Xxh3;

use super::{Mix, Mixture};
use crate::batch::{BatchOptions, BatchRows, BatchSize, ImageShape, Lengths, Runs, look_up, runs_of};
use crate::record::ReadIds;
use crate::source::RecordProperties;
use crate::{Record, RecordSource};

/// Maximum number of records that are read together.
const BLOCK_RECORDS: u64 = 1024;
/// Stored bytes of a token or pixel, about.
const BYTES_OF_LENGTH: u64 = 2;
/// Number of records after which an interruption is noticed.
const CHECK_RECORDS: u64 = 1 << 16;

/// The records of one epoch of a [`Mixture`], in the order in which they are drawn, for readers of all records such as
/// exports: see [`Mixture::records`].
///
/// It needs 8 bytes of memory for each record of the epoch.
#[derive(Debug, Clone)]
pub struct MixtureRecords {
    /// The records of all sources, one source after another.
    records: Arc<dyn RecordSource>,
    schema: Arc<Schema>,
    /// The ordinals there, as they are drawn.
    order: Arc<[u64]>,
    runs: Arc<[LengthRun]>,
    fingerprint: String,
    /// The ordinals here, by length.
    ranks: OnceLock<Arc<[u64]>>,
}

impl Mixture {
    /// Returns the records of epoch 0, one by one: those of a [`Loader`](crate::loader::Loader) with `batch_size` 1, one
    /// micro-batch per step, and `seed`. A step of the mixture is one record.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) when the mixture draws micro-batches ([`Mix::Batch`]), or a
    /// source has nothing to count; `Corrupt` when the indexes were altered.
    pub fn records(&self, seed: u64) -> Result<MixtureRecords> {
        if self.options().mix == Some(Mix::Batch) {
            return Err(
                Error::usage("`mix batch` does not apply: records are drawn one by one").help("leave it out")
            );
        }
        let one = BatchOptions::new(BatchSize::BatchSize(1));
        let plan = self.plan(&one.into(), seed, 1)?;
        let mut at = plan.start_of(None, 0)?;
        let (mut order, mut counts, mut hash) = (Vec::new(), BTreeMap::new(), Xxh3::new());
        while let Some(step) = plan.advance(&mut at)? {
            if at.plan.step.is_multiple_of(CHECK_RECORDS) {
                interrupt::check()?;
            }
            for batch in step {
                let BatchRows::Records { batch, .. } = batch else { continue };
                for (&record, &length) in batch.records.iter().zip(&batch.lengths) {
                    order.push(record);
                    hash.update(&record.to_le_bytes());
                    *counts.entry(length).or_insert(0u64) += 1;
                }
            }
        }
        Ok(MixtureRecords {
            records: Arc::new(self.records.clone()),
            schema: Arc::new(self.schema().clone()),
            order: order.into(),
            runs: runs_of(counts).collect(),
            fingerprint: format!("{}/{:032x}", self.fingerprint(), hash.digest128()),
            ranks: OnceLock::new(),
        })
    }
}

impl MixtureRecords {
    /// Returns the number of records that each source contributes.
    pub fn counts(&self) -> Vec<u64> {
        let ends = self.records.properties().part_ends;
        let mut counts = vec![0; ends.len()];
        for record in &*self.order {
            if let Some(count) = counts.get_mut(ends.partition_point(|end| end <= record)) {
                *count += 1;
            }
        }
        counts
    }

    /// Returns the ordinals in the sources.
    fn drawn(&self, records: &[u64]) -> Result<Vec<u64>> {
        records.iter().map(|&record| self.drawn_at(record)).collect()
    }

    fn drawn_at(&self, record: u64) -> Result<u64> {
        look_up(&self.order, record)
    }
}

impl RecordSource for MixtureRecords {
    fn name(&self) -> &str {
        self.records.name()
    }

    fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn lengths(&self) -> &dyn Lengths {
        self
    }

    fn get_many(&self, records: &[u64]) -> Result<Vec<Record>> {
        let found = self.records.get_many(&self.drawn(records)?)?;
        let here = |(record, &ordinal): (Record, &u64)| {
            Record::new(Arc::clone(&self.schema), ordinal, record.into_inner().values)
        };
        Ok(found.into_iter().zip(records).map(here).collect())
    }

    fn lend_ids(&self, records: &[u64], field_index: usize, read: &mut ReadIds<'_>) -> Result<()> {
        self.records.lend_ids(&self.drawn(records)?, field_index, read)
    }

    /// The records are anywhere in their sources, so their sizes are estimated from their lengths.
    fn block_end(&self, start: u64, most_bytes: u64) -> Result<u64> {
        let (mut end, mut bytes) = (start, 0u64);
        let last = self.records().min(start.saturating_add(BLOCK_RECORDS));
        while end < last && bytes < most_bytes {
            bytes = bytes.saturating_add(self.length_of(end)?.saturating_mul(BYTES_OF_LENGTH));
            end += 1;
        }
        Ok(end)
    }

    fn inner(&self) -> Option<&dyn RecordSource> {
        Some(&*self.records)
    }

    /// The records of a source are not one after another.
    fn properties(&self) -> RecordProperties {
        RecordProperties { part_ends: Vec::new(), ..self.records.properties() }
    }

    fn reopened(&self) -> Arc<dyn RecordSource> {
        Arc::new(Self { records: self.records.reopened(), ..self.clone() })
    }

    fn at_record(&self, error: Error, record: u64) -> Error {
        match self.drawn_at(record) {
            Ok(drawn) => self.records.at_record(error, drawn),
            Err(_) => error.at_row(record),
        }
    }
}

impl Lengths for MixtureRecords {
    fn records(&self) -> u64 {
        self.order.len() as u64
    }

    fn record_at(&self, rank: u64) -> Result<u64> {
        let ranks = match self.ranks.get() {
            Some(ranks) => ranks,
            None => {
                let mut by_length = Vec::with_capacity(self.order.len());
                for record in 0..self.records() {
                    by_length.push((self.length_of(record)?, record));
                }
                by_length.sort_unstable();
                self.ranks.get_or_init(|| by_length.into_iter().map(|(_, record)| record).collect())
            }
        };
        look_up(ranks, rank)
    }

    fn length_of(&self, record: u64) -> Result<u64> {
        self.records.lengths().length_of(self.drawn_at(record)?)
    }

    fn lengths_of(&self, records: &[u64], out: &mut Vec<u64>) -> Result<()> {
        self.records.lengths().lengths_of(&self.drawn(records)?, out)
    }

    fn trained_of(&self, record: u64) -> Result<u64> {
        self.records.lengths().trained_of(self.drawn_at(record)?)
    }

    fn shape_of(&self, record: u64) -> Result<Option<ImageShape>> {
        self.records.lengths().shape_of(self.drawn_at(record)?)
    }

    fn column_of(&self, record: u64, name: &str) -> Result<Option<u64>> {
        self.records.lengths().column_of(self.drawn_at(record)?, name)
    }

    fn key_of(&self, record: u64) -> Option<String> {
        self.records.lengths().key_of(self.drawn_at(record).ok()?)
    }

    fn can_be_cut(&self) -> bool {
        self.schema.holds_token_ids()
    }

    fn runs(&self) -> Result<Runs<'_>> {
        Ok(Box::new(self.runs.iter().copied().map(Ok)))
    }
}
