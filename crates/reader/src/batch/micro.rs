//! The micro-batches of a plan, and totals of steps and epochs.

/// Records of one micro-batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MicroBatch {
    /// Global step in the epoch.
    pub step: u64,
    /// Index in the step.
    pub index: u64,
    /// Index of the bucket, counted from the shortest.
    pub bucket: usize,
    /// Ordinals of the records, one per row.
    pub records: Vec<u64>,
    /// Used lengths of the records: with [`Oversize::Truncate`](super::Oversize::Truncate), they may be less than the
    /// stored lengths.
    pub lengths: Vec<u64>,
    /// Number of rows after these that hold no record.
    pub filler_rows: u64,
    /// Length to which each row is padded.
    pub width: u64,
}

impl MicroBatch {
    /// Returns the number of rows, including filler rows.
    pub fn rows(&self) -> u64 {
        self.records.len() as u64 + self.filler_rows
    }

    /// Returns the sum of the lengths, at most `u64::MAX`.
    pub fn tokens(&self) -> u64 {
        self.lengths.iter().fold(0, |sum, length| sum.saturating_add(*length))
    }

    /// Returns rows × width, at most `u64::MAX`.
    pub fn padded_tokens(&self) -> u64 {
        self.rows().saturating_mul(self.width)
    }
}

/// Totals over the micro-batches of one step, for example to normalize a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepTotals {
    /// Number of records, including repetitions.
    pub records: u64,
    /// Sum of their lengths, at most `u64::MAX`.
    pub tokens: u64,
    /// Sum of rows × width, at most `u64::MAX`.
    pub padded_tokens: u64,
}

/// Numbers of records that an epoch delivers, repeats and drops:
/// `records = delivered − repeated + dropped + oversize dropped`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Number of records of the split.
    pub records: u64,
    /// Number of rows of an epoch that hold a record.
    pub delivered: u64,
    /// Number of rows of the last step that repeat a record ([`Last::Wrap`](super::Last::Wrap)).
    pub repeated: u64,
    /// Number of rows of the last step that hold no record ([`Last::Pad`](super::Last::Pad)).
    pub filler_rows: u64,
    /// Number of records that do not fill a step and are left out ([`Last::Drop`](super::Last::Drop)).
    pub dropped: u64,
    /// Number of records over the budget, whatever the [`Oversize`](super::Oversize) policy.
    pub oversize: u64,
}
