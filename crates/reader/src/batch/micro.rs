//! What a plan says of a micro-batch, a step and an epoch.

/// Records of one micro-batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MicroBatch {
    /// Global step in the epoch.
    pub step: u64,
    /// Place in the step.
    pub index: u64,
    /// Bucket, counted from the shortest.
    pub bucket: usize,
    /// Ordinals of the records, one per row.
    pub records: Vec<u64>,
    /// Lengths of the records as far as they are used: with [`Oversize::Truncate`](super::Oversize::Truncate), less than what is stored.
    pub lengths: Vec<u64>,
    /// Rows behind these that hold no record.
    pub filler_rows: u64,
    /// Length to which each row is padded.
    pub width: u64,
}

impl MicroBatch {
    /// All rows.
    pub fn rows(&self) -> u64 {
        self.records.len() as u64 + self.filler_rows
    }

    /// Sum of the lengths.
    pub fn tokens(&self) -> u64 {
        self.lengths.iter().sum()
    }

    /// Rows × width.
    pub fn padded_tokens(&self) -> u64 {
        self.rows().saturating_mul(self.width)
    }
}

/// What the micro-batches of one step hold together, for example to normalise a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepTotals {
    /// Records, with repetition.
    pub records: u64,
    /// Sum of their lengths.
    pub tokens: u64,
    /// Sum of rows × width.
    pub padded_tokens: u64,
}

/// What an epoch does with the records: `records = delivered − repeated + dropped + oversize dropped`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Records of the split.
    pub records: u64,
    /// Rows of an epoch that hold a record.
    pub delivered: u64,
    /// Rows of the last step that hold a record a second time ([`Last::Wrap`](super::Last::Wrap)).
    pub repeated: u64,
    /// Rows of the last step that hold none ([`Last::Pad`](super::Last::Pad)).
    pub filler_rows: u64,
    /// Records that fill no step and are left out ([`Last::Drop`](super::Last::Drop)).
    pub dropped: u64,
    /// Records over the budget, whatever happens to them.
    pub oversize: u64,
}
