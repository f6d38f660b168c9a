//! The steps of an epoch: which records each micro-batch holds.

use dsconvert_dataset::packing::Row;

use super::options::{BatchOptions, BatchSize, Last};
use super::pack::PackOptions;
use super::plan::MicroBatch;

/// How records are grouped into batches.
#[derive(Debug, Clone, PartialEq)]
pub enum Batching {
    /// One record per row.
    Records(BatchOptions),
    /// Documents packed into rows of one length; text only.
    Packed(PackOptions),
}

impl Batching {
    /// Returns the length of packed rows; 0 if documents are not packed.
    pub(crate) fn seq_len(&self) -> u64 {
        match self {
            Batching::Records(_) => 0,
            Batching::Packed(packed) => packed.seq_len,
        }
    }

    /// Returns what happens to the records at the end of an epoch that do not fill a step.
    pub(crate) fn last(&self) -> Last {
        match self {
            Batching::Records(batches) => batches.last,
            Batching::Packed(packed) => packed.last,
        }
    }

    /// Returns whether the records of a batch follow each other without padding.
    pub(crate) fn is_flat(&self) -> bool {
        matches!(self, Batching::Records(batches) if matches!(batches.size, BatchSize::MaxTokensUnpadded(_)))
    }
}

impl From<BatchOptions> for Batching {
    fn from(options: BatchOptions) -> Self {
        Batching::Records(options)
    }
}

impl From<PackOptions> for Batching {
    fn from(options: PackOptions) -> Self {
        Batching::Packed(options)
    }
}

/// Records of one micro-batch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum BatchRows {
    Records {
        batch: MicroBatch,
        /// The epoch of each record, if they differ.
        epochs: Vec<u64>,
    },
    Packed {
        rows: Vec<Row>,
        filler_rows: u64,
    },
}

/// The share of one source in the steps since the weights changed.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SourceTotals {
    /// Name of the source.
    pub name: String,
    /// The requested share.
    pub requested: f64,
    /// The share up to this step.
    pub realized: f64,
    /// Number of passes over the source since the start of training. The last one counts by its share of micro-batches or
    /// records, or of tokens where documents are packed.
    pub epochs: f64,
}
