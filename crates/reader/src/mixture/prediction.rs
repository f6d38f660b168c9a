//! What an epoch of a mixture holds, computed from the lengths of the records.

use dsconvert_dataset::error::Result;
use dsconvert_dataset::storage::interrupt;

use crate::batch::{BatchRows, SourceTotals, StepPlan};

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
    fn add(&mut self, other: Self) {
        self.rows = self.rows.saturating_add(other.rows);
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.padded_tokens = self.padded_tokens.saturating_add(other.padded_tokens);
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
            sum.add(source.delivered);
        }
        sum
    }
}

/// Goes through epoch 0 of a plan with `micro_batches` per step. `ends` has one past the last record of each source. If not
/// `pads`, rows are laid out without padding; packed rows have `seq_len` tokens. `None` if the plan does not mix sources.
pub(crate) fn predict(
    plan: &dyn StepPlan,
    micro_batches: u64,
    ends: &[u64],
    pads: bool,
    seq_len: u64,
) -> Result<Option<MixturePrediction>> {
    let mut at = plan.start(None, 0)?;
    if plan.shares(&at).is_empty() {
        return Ok(None);
    }
    let mut delivered = vec![Delivered::default(); ends.len()];
    let (mut steps, mut batches) = (0u64, 0u64);
    while let Some(step) = plan.step(&mut at)? {
        if steps.is_multiple_of(CHECK_STEPS) {
            interrupt::check()?;
        }
        steps += 1;
        batches += micro_batches;
        for index in 0..micro_batches {
            let batch = plan.micro_batch(&step, index)?;
            count(&batch, pads, seq_len, |record, amounts| {
                if let Some(of_source) = delivered.get_mut(ends.partition_point(|&end| end <= record)) {
                    of_source.add(amounts);
                }
            });
        }
    }
    let sources = plan.shares(&at).into_iter().zip(delivered);
    let sources = sources.map(|(totals, delivered)| SourcePrediction { totals, delivered }).collect();
    Ok(Some(MixturePrediction { steps, batches, sources }))
}

/// Calls `add` with a record of each row of a micro-batch and the amounts of the row.
fn count(batch: &BatchRows, pads: bool, seq_len: u64, mut add: impl FnMut(u64, Delivered)) {
    let mut add = |record, rows, tokens, padded| {
        add(record, Delivered { rows, tokens, padded_tokens: if pads { padded } else { tokens } });
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
                    add(piece.document, 1, row.tokens(), seq_len);
                }
            }
        }
    }
}
