//! What a table is read as.

use arrow_array::RecordBatch;

use crate::sample::Reject;

/// Neighbouring rows of a table.
#[derive(Debug)]
pub struct RowBatch {
    first: u64,
    batch: RecordBatch,
}

impl RowBatch {
    pub(super) fn new(first: u64, batch: RecordBatch) -> Self {
        Self { first, batch }
    }

    /// The columns.
    pub fn batch(&self) -> &RecordBatch {
        &self.batch
    }

    /// Ordinal of the first row in the file, counted from 0.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Ordinal of the row after the last.
    pub fn end(&self) -> u64 {
        self.first.saturating_add(self.len() as u64)
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.batch.num_rows()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the columns hold in memory, also for rows that were taken out.
    pub fn memory_bytes(&self) -> u64 {
        self.batch.get_array_memory_size() as u64
    }

    /// Takes the first `count` rows out, or all there are.
    pub fn take_first(&mut self, count: usize) -> Self {
        let count = count.min(self.len());
        let taken = Self { first: self.first, batch: self.batch.slice(0, count) };
        self.first = taken.end();
        self.batch = self.batch.slice(count, self.len() - count);
        taken
    }
}

/// What comes next in a table.
#[derive(Debug)]
pub enum NextRows {
    /// Some rows.
    Rows(RowBatch),
    /// Rows from `row` on cannot be read; others may follow.
    Broken {
        /// Ordinal of the first row that cannot be read.
        row: u64,
        /// What is wrong.
        reject: Reject,
    },
}
