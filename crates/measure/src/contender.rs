//! A target that takes part in a benchmark.

use std::collections::BTreeMap;

use super::batch::BenchBatchSize;
use super::order::{BatchOrder, ItemSet, ReadOrder};
use super::target::BenchTarget;
use crate::error::{Error, Result};

/// A target, and what is read of it.
pub(super) struct Contender {
    pub(super) target: BenchTarget,
    pub(super) items: ItemSet,
    /// Lengths of all items of the target, if orders or batches need them.
    pub(super) lengths: Option<Vec<u64>>,
}

impl Contender {
    /// Creates the batches of the target in `order`.
    pub(super) fn order(&self, order: ReadOrder, size: BenchBatchSize, seed: u64) -> Result<BatchOrder> {
        let (lengths, streams) = (self.lengths.as_deref(), self.target.streams());
        BatchOrder::new(self.items.clone(), order, size, seed, lengths, streams.as_deref())
    }

    pub(super) fn path(&self) -> String {
        self.target.path().to_string_lossy().into_owned()
    }

    /// Returns the error for a target of which no item could be loaded.
    pub(super) fn nothing_loaded(&self, failed: &BTreeMap<u64, String>) -> Error {
        let why = match failed.iter().next() {
            Some((item, why)) => format!(": {}: {why}", self.target.name_of(*item)),
            None => String::new(),
        };
        let message = format!("no item could be loaded{why}");
        let is_dataset = self.target.kind().is_dataset();
        let error = if is_dataset { Error::corrupt(message) } else { Error::usage(message) };
        error.at_path(self.path())
    }
}
