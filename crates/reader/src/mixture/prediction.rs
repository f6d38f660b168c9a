//! What an epoch of a mixture holds, computed from the lengths of the records.

use dsconvert_dataset::error::Result;
use dsconvert_dataset::storage::interrupt;

use super::plan::MixturePlan;
use crate::batch::{BatchRows, SourceTotals};

/// Number of steps after which an interruption is noticed.
const CHECK_STEPS: u64 = 1024;

/// What the first epoch of a [`Mixture`](super::Mixture) holds, over all ranks: see
/// [`Loader::predict`](crate::loader::Loader::predict).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct MixturePrediction {
    /// Number of global steps.
    pub steps: u64,
    /// Number of micro-batches.
    pub batches: u64,
    /// What each source contributes.
    pub sources: Vec<SourcePrediction>,
}

/// What the first epoch of a [`Mixture`](super::Mixture) holds of one source.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SourcePrediction {
    /// Its share, and the passes over it, at the end of the epoch.
    pub totals: SourceTotals,
    /// The amounts in the epoch.
    pub delivered: Delivered,
}

/// Amounts of rows and tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Delivered {
    /// Number of rows that hold a record or, when packed, tokens.
    pub rows: u64,
    /// Sum of the lengths (images: pixels) after truncation.
    pub tokens: u64,
    /// Sum of the widths of the rows.
    pub padded_tokens: u64,
}

impl Delivered {
    fn add(&mut self, rows: u64, tokens: u64, padded_tokens: u64) {
        self.rows = self.rows.saturating_add(rows);
        self.tokens = self.tokens.saturating_add(tokens);
        self.padded_tokens = self.padded_tokens.saturating_add(padded_tokens);
    }

    /// Returns the share of padding.
    pub fn padding(&self) -> f64 {
        let padding = self.padded_tokens.saturating_sub(self.tokens);
        padding as f64 / self.padded_tokens.max(1) as f64
    }
}

impl MixturePrediction {
    /// Returns the sum over all sources.
    pub fn delivered(&self) -> Delivered {
        let mut sum = Delivered::default();
        for source in &self.sources {
            let Delivered { rows, tokens, padded_tokens } = source.delivered;
            sum.add(rows, tokens, padded_tokens);
        }
        sum
    }
}

impl MixturePlan {
    /// Goes through epoch 0. If not `pads`, rows are laid out without padding.
    pub(crate) fn predict(&self, pads: bool) -> Result<MixturePrediction> {
        let mut at = self.start_of(None, 0)?;
        let mut delivered = vec![Delivered::default(); at.sources.len()];
        let mut batches = 0u64;
        while !self.is_over(&at) {
            if at.plan.step.is_multiple_of(CHECK_STEPS) {
                interrupt::check()?;
            }
            let of_step = self.advance(&mut at)?;
            batches += of_step.len() as u64;
            of_step.iter().for_each(|batch| self.count(batch, pads, &mut delivered));
        }
        let sources = self.totals(&at).into_iter().zip(delivered);
        let sources = sources.map(|(totals, delivered)| SourcePrediction { totals, delivered }).collect();
        Ok(MixturePrediction { steps: at.plan.step, batches, sources })
    }

    /// Adds the rows of a micro-batch to what is delivered of their sources.
    fn count(&self, batch: &BatchRows, pads: bool, delivered: &mut [Delivered]) {
        let mut add = |record: u64, rows: u64, tokens: u64, padded: u64| {
            if let Some(of_source) = delivered.get_mut(self.source_of(record)) {
                of_source.add(rows, tokens, if pads { padded } else { tokens });
            }
        };
        match batch {
            BatchRows::Records { batch, .. } => {
                for (&record, &length) in batch.records.iter().zip(&batch.lengths) {
                    add(record, 1, length, batch.width);
                }
                // Only micro-batches of a single source have filler rows.
                if let Some(&record) = batch.records.first() {
                    add(record, 0, 0, batch.filler_rows.saturating_mul(batch.width));
                }
            }
            BatchRows::Packed { rows, .. } => {
                for row in rows {
                    if let Some(piece) = row.pieces.first() {
                        add(piece.document, 1, row.tokens(), self.batching.seq_len());
                    }
                }
            }
        }
    }
}
