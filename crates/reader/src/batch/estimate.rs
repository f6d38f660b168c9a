//! Estimates the padding of batches from the histogram of the lengths alone.

use dsconvert_dataset::error::Result;
use dsconvert_dataset::index::LengthRun;
use xxhash_rust::xxh3::xxh3_64;

use super::lengths::LengthsInMemory;
use super::metrics::Metrics;
use super::options::{BatchOptions, BatchSize, Boundaries, BucketBy, Oversize};
use super::plan::BatchPlan;

/// Maximum number of records in a sample, evenly spaced in order of length.
const SAMPLE_RECORDS: u64 = 1 << 16;

/// Fractions of the padded tokens that are padding, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Padding {
    /// If any records may share a batch.
    pub random: f64,
    /// If only records of similar length share a batch.
    pub bucketed: f64,
}

/// Estimates the padding of an epoch of batches of `size` over `records` records, whose lengths are `runs`, ascending.
/// Above 65,536 records, an evenly spaced sample of 65,536 is used. A record that exceeds a budget is a batch of its
/// own.
///
/// # Errors
///
/// The first error of `runs`; [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) for an invalid size.
pub fn padding(
    records: u64,
    runs: impl IntoIterator<Item = Result<LengthRun>>,
    size: BatchSize,
) -> Result<Padding> {
    let lengths = sample(records, runs)?;
    if lengths.is_empty() {
        return Ok(Padding::default());
    }
    let share = |bucket| {
        // Only a budget can be exceeded.
        let oversize = if bucket == BucketBy::None { Oversize::Error } else { Oversize::Alone };
        let options = BatchOptions { bucket, oversize, ..BatchOptions::new(size) };
        let plan = BatchPlan::new("", LengthsInMemory::new(lengths.clone()), options, 0, 1)?;
        Ok(Metrics::of(&plan, 0, 1)?.padding)
    };
    let bucketed = share(BucketBy::Length(Boundaries::AUTO))?;
    let random = match size {
        // A plan without buckets sizes every batch for the longest record. Loaders that fill a budget greedily are the
        // fairer comparison.
        BatchSize::MaxTokens(budget) => greedy_padding(&lengths, budget),
        _ => share(BucketBy::None)?,
    };
    Ok(Padding { random, bucketed })
}

/// Returns the padding of batches to which records are added in random order until one more would exceed the budget.
fn greedy_padding(lengths: &[u64], budget: u64) -> f64 {
    let mut order: Vec<(u64, u64)> =
        (0u64..).zip(lengths).map(|(i, &length)| (xxh3_64(&i.to_le_bytes()), length)).collect();
    order.sort_unstable();
    let (mut tokens, mut padded) = (0u64, 0u64);
    let (mut records, mut width) = (0u64, 0u64);
    for (_, length) in order {
        if records > 0 && width.max(length).saturating_mul(records + 1) > budget {
            padded = padded.saturating_add(width.saturating_mul(records));
            (records, width) = (0, 0);
        }
        records += 1;
        width = width.max(length);
        tokens = tokens.saturating_add(length);
    }
    padded = padded.saturating_add(width.saturating_mul(records));
    if padded == 0 { 0.0 } else { 1.0 - tokens as f64 / padded as f64 }
}

/// Returns the lengths at evenly spaced ranks.
fn sample(records: u64, runs: impl IntoIterator<Item = Result<LengthRun>>) -> Result<Vec<u64>> {
    let wanted = records.min(SAMPLE_RECORDS);
    // The middle of each of `wanted` equal parts.
    let rank = |i: u64| {
        let twice = (2 * u128::from(i) + 1) * u128::from(records) / u128::from(wanted.max(1));
        u64::try_from(twice / 2).unwrap_or(u64::MAX)
    };
    let mut lengths = Vec::new();
    for run in runs {
        let run = run?;
        let end = run.first_rank.saturating_add(run.count);
        while (lengths.len() as u64) < wanted && rank(lengths.len() as u64) < end {
            lengths.push(run.length);
        }
    }
    Ok(lengths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Lengths;

    fn padding_of(lengths: Vec<u64>, size: BatchSize) -> Padding {
        let records = lengths.len() as u64;
        padding(records, LengthsInMemory::new(lengths).runs().unwrap(), size).unwrap()
    }

    #[test]
    fn equal_lengths_need_no_padding_and_uneven_ones_buckets() {
        for size in [BatchSize::BatchSize(32), BatchSize::MaxTokens(4096)] {
            assert_eq!(padding_of(vec![7; 1000], size), Padding::default());
            let uneven = padding_of((0..20_000).map(|i| 1 + i * i % 1009).collect(), size);
            assert!(uneven.random > 0.3 && uneven.bucketed < 0.1, "{uneven:?}");
        }
        assert_eq!(padding_of(vec![], BatchSize::BatchSize(32)), Padding::default());
        assert!(padding_of(vec![5000, 1, 1], BatchSize::MaxTokens(100)).bucketed < 0.5);
    }

    #[test]
    fn a_sample_has_the_shape_of_the_whole() {
        let runs = || (0..1000).map(|i| Ok(LengthRun { length: i, count: 1 << 30, first_rank: i << 30 }));
        let lengths = sample(1000 << 30, runs()).unwrap();
        assert_eq!(lengths.len() as u64, SAMPLE_RECORDS);
        assert!((0..1000).all(|i| (65..=66).contains(&lengths.iter().filter(|&&l| l == i).count())));
        assert_eq!(
            sample(3, (0..3).map(|i| Ok(LengthRun { length: i, count: 1, first_rank: i }))).unwrap(),
            [0, 1, 2]
        );
    }
}
