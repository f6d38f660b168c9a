//! Information about a batch, for the Python class `BatchInfo`.

use dsconvert::reader::loader;

/// Information about a batch beyond its arrays.
#[derive(Debug, Clone)]
pub(crate) struct BatchInfo {
    pub(crate) epoch: u64,
    pub(crate) step: u64,
    micro_batch: u64,
    rows: usize,
    filler_rows: usize,
    tokens: u64,
    max_length: u64,
    /// Ordinals of its records.
    records: Vec<u64>,
    /// Ordinals of the records whose rows are blank.
    blank: Vec<u64>,
    /// Number of tokens that the loss is computed on.
    trained: Option<u64>,
}

/// The fields of a [`BatchInfo`], in the order of the Python class of this name.
pub(crate) type BatchInfoTuple = (u64, u64, u64, usize, usize, u64, u64, Vec<u64>, Vec<u64>, Option<u64>);

impl BatchInfo {
    pub(crate) fn of(batch: &loader::Batch) -> Self {
        let id = batch.id();
        Self {
            epoch: id.epoch,
            step: id.step,
            micro_batch: id.micro_batch,
            rows: batch.rows(),
            filler_rows: batch.filler_rows(),
            tokens: batch.tokens(),
            max_length: batch.max_len(),
            records: batch.records().to_vec(),
            blank: batch.blank_rows().iter().map(|row| row.record).collect(),
            trained: batch.trained(),
        }
    }

    /// Returns whether the batch belongs to the same step as `other`.
    pub(crate) fn is_same_step(&self, other: &Self) -> bool {
        (self.epoch, self.step) == (other.epoch, other.step)
    }

    pub(crate) fn into_tuple(self) -> BatchInfoTuple {
        let Self { epoch, step, micro_batch, rows, filler_rows, tokens, max_length, records, blank, trained } =
            self;
        (epoch, step, micro_batch, rows, filler_rows, tokens, max_length, records, blank, trained)
    }
}
