//! Padding curves: the padding of batches as a function of their size.

use crate::error::Result;
use crate::reader::batch::{BatchSize, Lengths, SIMULATED_RECORDS, packed_padding, padding};

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
    /// Number of records in the simulation of random batches with a budget; `None` if these are all.
    pub simulated: Option<u64>,
}

impl Curves {
    /// Names of the curves.
    pub const NAMES: [&'static str; 3] = ["random", "bucketed", "packed"];
}

/// Computes the curves for the loader's own batch plans, from the counts of all lengths.
pub(super) fn gather(lengths: &impl Lengths) -> Result<Curves> {
    let records = lengths.records();
    // Nearest rank, as in the length index.
    let p99_rank = (u128::from(records) * 99).div_ceil(100).saturating_sub(1);
    let (mut p99, mut longest, mut tokens) = (0, 0, 0u64);
    for run in lengths.runs()? {
        let run = run?;
        if u128::from(run.first_rank) <= p99_rank {
            p99 = run.length;
        }
        longest = run.length;
        tokens = tokens.saturating_add(run.length.saturating_mul(run.count));
    }
    let row_tokens = p99.max(1).next_power_of_two().clamp(*ROW_TOKENS.start(), *ROW_TOKENS.end());
    let simulated = (records > SIMULATED_RECORDS).then_some(SIMULATED_RECORDS);
    let mut curves = Curves { row_tokens, simulated, ..Curves::default() };
    let packed_rows = packed_padding(lengths, row_tokens)?;
    // With only a few batches per epoch, the last one distorts the padding.
    for size in BATCH_SIZES.into_iter().filter(|size| *size == 1 || *size * MIN_BATCHES <= records) {
        let found = padding(lengths, BatchSize::BatchSize(size))?;
        curves.by_records.push((size, [found.random, found.bucketed, packed_rows]));
    }
    // With a budget below the length of most records, batches have one record each.
    let least = p99.clamp(1, *BUDGETS.last().unwrap_or(&1)).min(longest);
    for budget in BUDGETS.into_iter().filter(|budget| *budget >= least && *budget * MIN_BATCHES <= tokens) {
        let found = padding(lengths, BatchSize::MaxTokens(budget))?;
        curves.by_tokens.push((budget, [found.random, found.bucketed, packed_padding(lengths, budget)?]));
    }
    Ok(curves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::batch::LengthsInMemory;

    fn curves_of(lengths: &[u64]) -> Result<Curves> {
        gather(&LengthsInMemory::new(lengths.to_vec()))
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
}
