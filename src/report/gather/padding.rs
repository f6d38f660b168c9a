//! Padding curves: the padding of batches as a function of their size.

use crate::error::Result;
use crate::index::LengthRun;
use crate::reader::Split;
use crate::reader::batch::{BatchSize, LengthsInMemory, PackOptions, PackPlan, padding};
use crate::sampling;

/// Maximum number of sampled records.
const SAMPLE_RECORDS: u64 = 1 << 15;
/// Batch sizes in records.
const BATCH_SIZES: [u64; 8] = [1, 4, 8, 16, 32, 64, 128, 256];
/// Batch sizes in tokens, padding included.
const BUDGETS: [u64; 8] = [1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072];
/// Minimum number of batches per epoch for a batch size to be plotted.
const MIN_BATCHES: u64 = 4;
/// Shortest and longest rows of packed batches, in tokens.
const ROW_TOKENS: std::ops::RangeInclusive<u64> = 64..=131_072;

/// Padding curves: shares of padding from 0 to 1.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curves {
    /// Batch size in records, then the padding of random, bucketed and packed batches.
    pub by_records: Vec<(u64, [f64; 3])>,
    /// The same by token budget.
    pub by_tokens: Vec<(u64, [f64; 3])>,
    /// Tokens per packed row in `by_records`.
    pub row_tokens: u64,
    /// Number of sampled records; `None` if all were used.
    pub sampled: Option<u64>,
}

impl Curves {
    /// Names of the curves.
    pub const NAMES: [&'static str; 3] = ["random", "bucketed", "packed"];
}

/// Computes the curves of `split` with the loader's own batch plans.
pub(super) fn gather(split: &Split) -> Result<Curves> {
    let lengths = sample(split)?;
    let sampled = (lengths.len() as u64) < split.len();
    Ok(Curves { sampled: sampled.then_some(lengths.len() as u64), ..curves_of(&lengths)? })
}

/// Computes the curves of ascending lengths.
fn curves_of(lengths: &[u64]) -> Result<Curves> {
    let longest = lengths.last().copied().unwrap_or(0);
    // Nearest rank, as in the length index.
    let p99_rank = lengths.len().saturating_mul(99).div_ceil(100).saturating_sub(1);
    let p99 = lengths.get(p99_rank).copied().unwrap_or(0);
    let row_tokens = p99.max(1).next_power_of_two().clamp(*ROW_TOKENS.start(), *ROW_TOKENS.end());
    let mut curves = Curves { row_tokens, ..Curves::default() };
    let packed_rows = packed(lengths, row_tokens)?;
    // With only a few batches per epoch, the last one distorts the padding.
    let records = lengths.len() as u64;
    for size in BATCH_SIZES.into_iter().filter(|size| *size == 1 || *size * MIN_BATCHES <= records) {
        let found = padding(records, runs(lengths), BatchSize::BatchSize(size))?;
        curves.by_records.push((size, [found.random, found.bucketed, packed_rows]));
    }
    let tokens = lengths.iter().fold(0u64, |sum, length| sum.saturating_add(*length));
    // With a budget below the length of most records, batches have one record each.
    let least = p99.clamp(1, *BUDGETS.last().unwrap_or(&1)).min(longest);
    for budget in BUDGETS.into_iter().filter(|budget| *budget >= least && *budget * MIN_BATCHES <= tokens) {
        let found = padding(records, runs(lengths), BatchSize::MaxTokens(budget))?;
        curves.by_tokens.push((budget, [found.random, found.bucketed, packed(lengths, budget)?]));
    }
    Ok(curves)
}

/// Returns the lengths at evenly spaced ranks, ascending.
fn sample(split: &Split) -> Result<Vec<u64>> {
    let mut ranks = sampling::sample(split.len(), SAMPLE_RECORDS).into_iter().peekable();
    let mut lengths = Vec::new();
    for run in split.histogram()? {
        let run = run?;
        let end = run.first_rank.saturating_add(run.count);
        while ranks.next_if(|rank| *rank < end).is_some() {
            lengths.push(run.length);
        }
    }
    Ok(lengths)
}

/// Groups equal lengths into runs.
fn runs(lengths: &[u64]) -> impl Iterator<Item = Result<LengthRun>> {
    let mut first_rank = 0;
    lengths.chunk_by(|a, b| a == b).map(move |same| {
        let (length, count) = (same.first().copied().unwrap_or(0), same.len() as u64);
        let run = LengthRun { length, count, first_rank };
        first_rank += count;
        Ok(run)
    })
}

/// Returns the share of token positions left empty when documents are packed by best fit into rows of `row_tokens`.
fn packed(lengths: &[u64], row_tokens: u64) -> Result<f64> {
    let tokens: u64 = lengths.iter().fold(0, |sum, length| sum.saturating_add(*length));
    if tokens == 0 {
        return Ok(0.0);
    }
    let plan =
        PackPlan::new("", LengthsInMemory::new(lengths.to_vec()), PackOptions::new(row_tokens, 1), 0, 1)?;
    let (mut rows, mut filled) = (0u64, 0u64);
    for step in plan.steps(&plan.start(0))? {
        let (step, _) = step?;
        rows += step.rows.len() as u64;
        filled = filled.saturating_add(step.tokens());
    }
    let places = rows.saturating_mul(row_tokens);
    Ok(if places == 0 { 0.0 } else { 1.0 - filled as f64 / places as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_that_fill_their_rows_have_no_padding() {
        assert_eq!(packed(&[64; 100], 64).unwrap(), 0.0);
        assert!((packed(&[40; 100], 64).unwrap() - 0.375).abs() < 1e-9);
        assert_eq!(packed(&[], 64).unwrap(), 0.0);
        assert_eq!(packed(&[0, 0], 64).unwrap(), 0.0);
    }

    #[test]
    fn packed_rows_hold_the_99th_percentile_by_nearest_rank() {
        // The 99th percentile of ten lengths is the longest one.
        let few: Vec<u64> = (1..10).chain([50_000]).collect();
        assert_eq!(curves_of(&few).unwrap().row_tokens, 65_536);
        let many: Vec<u64> = [10; 99].into_iter().chain([50_000]).collect();
        assert_eq!(curves_of(&many).unwrap().row_tokens, 64);
        // Budgets below the 99th percentile are left out: here, below 2,000 tokens.
        let some: Vec<u64> = [1000; 9].into_iter().chain([2000]).collect();
        assert_eq!(curves_of(&some).unwrap().by_tokens.iter().map(|p| p.0).collect::<Vec<_>>(), [2048]);
        assert_eq!(curves_of(&[]).unwrap().row_tokens, 64);
    }

    #[test]
    fn equal_lengths_form_a_run() {
        let found: Vec<LengthRun> = runs(&[1, 1, 3]).map(Result::unwrap).collect();
        let run = |length, count, first_rank| LengthRun { length, count, first_rank };
        assert_eq!(found, [run(1, 2, 0), run(3, 1, 2)]);
    }
}
