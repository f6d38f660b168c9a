//! Batches of rows of a table.

use std::collections::BTreeMap;

use arrow_array::{Array, RecordBatch};

use crate::sample::Reject;

/// Consecutive rows of a table.
#[derive(Debug)]
pub struct RowBatch {
    first: u64,
    batch: RecordBatch,
}

impl RowBatch {
    pub(super) fn new(first: u64, batch: RecordBatch) -> Self {
        Self { first, batch }
    }

    /// Returns the columns.
    pub fn batch(&self) -> &RecordBatch {
        &self.batch
    }

    /// Returns the ordinal of the first row in the file, counted from 0.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Returns the ordinal of the row after the last.
    pub fn end(&self) -> u64 {
        self.first.saturating_add(self.len() as u64)
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.batch.num_rows()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size of the columns in memory in bytes, including rows that were taken out.
    pub fn memory_bytes(&self) -> u64 {
        self.batch.get_array_memory_size() as u64
    }

    /// Returns the size of the memory that the columns keep allocated, in bytes. Columns that share memory, as in an Arrow
    /// file, count once.
    pub fn allocated_bytes(&self) -> u64 {
        let mut sizes = BTreeMap::new();
        let mut pending: Vec<_> = self.batch.columns().iter().map(Array::to_data).collect();
        while let Some(data) = pending.pop() {
            let nulls = data.nulls().map(|nulls| nulls.buffer());
            for buffer in data.buffers().iter().chain(nulls) {
                sizes.insert(buffer.data_ptr().addr(), buffer.capacity());
            }
            pending.extend(data.child_data().iter().cloned());
        }
        sizes.into_values().fold(0, |sum, bytes| sum.saturating_add(bytes as u64))
    }

    /// Removes and returns the first `count` rows, or all if there are fewer.
    pub fn take_first(&mut self, count: usize) -> Self {
        let count = count.min(self.len());
        let taken = Self { first: self.first, batch: self.batch.slice(0, count) };
        self.first = taken.end();
        self.batch = self.batch.slice(count, self.len() - count);
        taken
    }
}

/// The next part of a table.
#[derive(Debug)]
pub enum NextRows<R = RowBatch> {
    /// Some rows.
    Rows(R),
    /// Rows from `row` on cannot be read; readable rows may follow.
    Broken {
        /// Ordinal of the first row that cannot be read.
        row: u64,
        /// The defect.
        reject: Reject,
    },
}
