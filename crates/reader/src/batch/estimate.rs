//! Computes the padding of batches from the histogram of the lengths alone.
//!
//! Bucketed batches are those of a [`BatchPlan`](super::BatchPlan) with one micro-batch per step. The records of a
//! micro-batch are a random subset of its bucket, so the expected length of the longest one follows from the counts.

use std::collections::BTreeMap;

use dsconvert_dataset::error::Result;
use dsconvert_dataset::index::LengthRun;
use dsconvert_dataset::packing::best_fit_rows;

use super::bucket::{Bucket, CheckedRuns};
use super::cuttings::{Cutting, Cuttings};
use super::lengths::Lengths;
use super::options::{BatchOptions, BatchSize, Boundaries, BucketBy, Oversize};
use super::pack::{DEFAULT_PACK_ROWS, DEFAULT_PACK_WINDOW, MAX_DEFAULT_PACK_WINDOW};
use super::permute::{Permutation, Purpose, key};

/// Maximum number of records in the simulation of random batches with a budget: the first of a random order.
pub const SIMULATED_RECORDS: u64 = 1 << 18;

/// Fractions of the padded tokens that are padding, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Padding {
    /// If any records may share a batch.
    pub random: f64,
    /// If only records of similar length share a batch.
    pub bucketed: f64,
    /// The least and greatest expectation of a single epoch with buckets: epochs divide the lengths in different ways,
    /// which matters if they have few batches.
    pub bucketed_epochs: (f64, f64),
}

/// Computes the padding that is expected in an epoch of batches of `size`, from the counts of all lengths. A record that
/// exceeds a budget is a batch of its own. Random batches with a budget take records in order until one more would
/// exceed it; they are simulated with up to [`SIMULATED_RECORDS`] records.
///
/// # Errors
///
/// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) for an invalid size; `Corrupt` when the lengths are
/// inconsistent.
pub fn padding<L: Lengths>(lengths: &L, size: BatchSize) -> Result<Padding> {
    let counts = Counts::new(lengths)?;
    // The expectations over all epochs, and of the best and the worst one.
    let share = |bucket| {
        // Only a budget can be exceeded.
        let oversize = if bucket == BucketBy::None { Oversize::Error } else { Oversize::Alone };
        let options = BatchOptions { bucket, oversize, ..BatchOptions::new(size) };
        options.check()?;
        let cuttings = Cuttings::new(lengths, &options, 1)?.all;
        // Epochs use the cuttings in turn.
        let padded: Vec<f64> = cuttings.iter().map(|cutting| counts.padded(cutting, &options)).collect();
        let mean = padded.iter().sum::<f64>() / padded.len().max(1) as f64;
        let least = padded.iter().copied().fold(mean, f64::min);
        let most = padded.iter().copied().fold(mean, f64::max);
        Ok((counts.padding(mean), (counts.padding(least), counts.padding(most))))
    };
    let (bucketed, bucketed_epochs) = share(BucketBy::Length(Boundaries::AUTO))?;
    let random = match size {
        // A plan without buckets sizes every batch for the longest record. Loaders that fill a budget greedily are the
        // fairer comparison.
        BatchSize::MaxTokens(budget) => counts.greedy_padding(budget),
        _ => share(BucketBy::None)?.0,
    };
    Ok(Padding { random, bucketed, bucketed_epochs })
}

/// Computes the padding of documents that are packed by best fit into rows of `seq_len` tokens, in the default windows
/// of a [`PackPlan`](super::PackPlan).
///
/// # Errors
///
/// [`ErrorKind::Corrupt`](dsconvert_dataset::error::ErrorKind) when the lengths are inconsistent.
pub fn packed_padding<L: Lengths>(lengths: &L, seq_len: u64) -> Result<f64> {
    let counts = Counts::new(lengths)?;
    let seq_len = seq_len.max(1);
    let mut remainders = BTreeMap::new();
    for run in &counts.runs {
        *remainders.entry(run.length % seq_len).or_insert(0) += run.count;
    }
    // The longest first, and none of full rows.
    let remainders = remainders.into_iter().rev().filter(|(rest, _)| *rest > 0);
    let full: u64 = counts.runs.iter().map(|run| run.length / seq_len * run.count).sum();
    let rows = (full + best_fit_rows(remainders, seq_len)) as f64;
    // Every window but the last has one more row that is not full, on average by half.
    let (records, tokens) = (counts.records() as f64, counts.tokens);
    let windows = (records / DEFAULT_PACK_WINDOW as f64).min(tokens / (DEFAULT_PACK_ROWS * seq_len) as f64);
    let windows = windows.max(records / MAX_DEFAULT_PACK_WINDOW as f64);
    Ok(counts.padding((rows + (windows - 1.0).max(0.0) / 2.0) * seq_len as f64))
}

/// The counts of all lengths.
struct Counts {
    /// The shortest lengths first.
    runs: Vec<LengthRun>,
    /// Sum of the lengths.
    tokens: f64,
}

impl Counts {
    fn new<L: Lengths>(lengths: &L) -> Result<Self> {
        let mut checked = CheckedRuns::new(lengths)?;
        let mut runs = Vec::new();
        while let Some(run) = checked.next()? {
            runs.push(run);
        }
        let tokens = runs.iter().map(|run| run.length as f64 * run.count as f64).sum();
        Ok(Self { runs, tokens })
    }

    fn records(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.first_rank + run.count)
    }

    fn padding(&self, padded: f64) -> f64 {
        if padded > 0.0 { (1.0 - self.tokens / padded).max(0.0) } else { 0.0 }
    }

    /// Returns the length of the record at `rank`.
    fn length_at(&self, rank: u64) -> u64 {
        let at = self.runs.partition_point(|run| run.first_rank <= rank);
        at.checked_sub(1).and_then(|at| self.runs.get(at)).map_or(0, |run| run.length)
    }

    /// Returns the expected sum of rows × width of the batches of a cutting.
    fn padded(&self, cutting: &Cutting, options: &BatchOptions) -> f64 {
        cutting.buckets.iter().map(|bucket| self.padded_in(bucket, options)).sum()
    }

    fn padded_in(&self, bucket: &Bucket, options: &BatchOptions) -> f64 {
        if let Some(ends) = &bucket.graded {
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let width = |end: u64| options.width(self.length_at(bucket.start + end.saturating_sub(1)));
            return starts.zip(ends).map(|(start, &end)| ((end - start) * width(end)) as f64).sum();
        }
        let whole = bucket.steps as f64
            * bucket.per_batch as f64
            * self.expected_width(bucket, bucket.per_batch, options);
        whole + bucket.tail as f64 * self.expected_width(bucket, bucket.tail, options)
    }

    /// Returns the expected width of a batch of `rows` random records of a bucket.
    fn expected_width(&self, bucket: &Bucket, rows: u64, options: &BatchOptions) -> f64 {
        if rows == 0 {
            return 0.0;
        }
        let end = bucket.start + bucket.records;
        let ends_at = self.runs.partition_point(|run| run.first_rank < end);
        let mut expected = 0.0;
        // Probability that no record is longer than the run.
        let mut most = 1.0;
        for run in self.runs.iter().take(ends_at).rev() {
            let shorter = run.first_rank.saturating_sub(bucket.start).min(bucket.records);
            let below = all_among(shorter, bucket.records, rows);
            expected += (most - below) * options.width(run.length) as f64;
            most = below;
            // The rest changes less than rounding does.
            if run.first_rank <= bucket.start || most < 1e-12 {
                break;
            }
        }
        expected
    }

    /// Returns the padding of batches to which records are added in random order until one more would exceed the
    /// budget.
    fn greedy_padding(&self, budget: u64) -> f64 {
        let all = self.records();
        let order = Permutation::new(all, key(0, Purpose::Records, 0, 0));
        let (mut tokens, mut padded) = (0u64, 0u64);
        let (mut rows, mut width, mut sum) = (0u64, 0u64, 0u64);
        for position in 0..all.min(SIMULATED_RECORDS) {
            let length = self.length_at(order.at(position));
            if rows > 0 && width.max(length).saturating_mul(rows + 1) > budget {
                padded = padded.saturating_add(width.max(1).saturating_mul(rows));
                tokens = tokens.saturating_add(sum);
                (rows, width, sum) = (0, 0, 0);
            }
            rows += 1;
            width = width.max(length);
            sum = sum.saturating_add(length);
        }
        // The last batch of the simulation is the last one of the epoch only if all records are in it.
        if all <= SIMULATED_RECORDS || padded == 0 {
            padded = padded.saturating_add(width.max(1).saturating_mul(rows));
            tokens = tokens.saturating_add(sum);
        }
        if padded == 0 { 0.0 } else { 1.0 - tokens as f64 / padded as f64 }
    }
}

/// Returns the probability that `n` different records of `all` are among `some` of these: C(some, n) ÷ C(all, n).
fn all_among(some: u64, all: u64, n: u64) -> f64 {
    if some >= all {
        return 1.0;
    }
    if n > some {
        return 0.0;
    }
    (ln_falling(some, n) - ln_falling(all, n)).exp()
}

/// Returns the logarithm of x · (x − 1) · … · (x − n + 1), for `n` up to `x`.
fn ln_falling(x: u64, n: u64) -> f64 {
    // Factors up to 32 one by one, and the others by Stirling's series, whose large terms are subtracted beforehand.
    const SMALL: u64 = 32;
    let rest = x - n;
    let small: f64 = (rest + 1..=x.min(SMALL)).map(|factor| (factor as f64).ln()).sum();
    let rest = rest.max(SMALL);
    if x <= rest {
        return small;
    }
    let (x, rest, n) = (x as f64, rest as f64, (x - rest) as f64);
    let correction = |y: f64| 1.0 / (12.0 * y) - 1.0 / (360.0 * y.powi(3));
    small + n * x.ln() - (rest + 0.5) * (-n / x).ln_1p() - n + correction(x) - correction(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::tests::Metrics;
    use crate::batch::{BatchPlan, LengthsInMemory, PackOptions, PackPlan};
    use crate::split_mix;

    fn padding_of(lengths: Vec<u64>, size: BatchSize) -> Padding {
        padding(&LengthsInMemory::new(lengths), size).unwrap()
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
    fn falling_factorials_are_exact() {
        for x in [1, 5, 31, 32, 33, 60, 1000] {
            for n in [0, 1, 2, x / 2, x - 1, x].into_iter().filter(|n| *n <= x) {
                let exact: f64 = (x - n + 1..=x).map(|factor| (factor as f64).ln()).sum();
                assert!((ln_falling(x, n) - exact).abs() < 1e-9, "{x} {n}");
            }
        }
        // One of two records, and half of 2⁵⁰ records.
        assert!((all_among(1, 2, 1) - 0.5).abs() < 1e-12);
        assert!((all_among(1 << 49, 1 << 50, 4) - 0.0625).abs() < 1e-9);
        assert_eq!((all_among(3, 9, 4), all_among(9, 9, 9)), (0.0, 1.0));
    }

    /// Ten corpora with lengths of different distributions. The largest have more than 65,536 records.
    fn corpora() -> Vec<(&'static str, Vec<u64>)> {
        // The length of a record follows from a uniform and a normal random number.
        let mut random = 11;
        let mut lengths = |count: usize, of: fn(f64, f64) -> f64| -> Vec<u64> {
            let mut unit = || (split_mix::next(&mut random) as f64 + 0.5) / 2f64.powi(64);
            (0..count)
                .map(|_| {
                    let normal = (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
                    of(unit(), normal).clamp(1.0, 60_000.0) as u64
                })
                .collect()
        };
        vec![
            ("log-normal, 70,000", lengths(70_000, |_, z| 250.0 * (1.1 * z).exp())),
            ("log-normal, 9,000, short", lengths(9_000, |_, z| 20.0 * (0.8 * z).exp())),
            ("log-normal, 12,000", lengths(12_000, |_, z| 120.0 * (1.6 * z).exp())),
            ("heavy tail, 9,000", lengths(9_000, |u, _| 30.0 / (1.0 - u).powf(0.7))),
            ("uniform, 9,000", lengths(9_000, |u, _| 1.0 + 400.0 * u)),
            ("normal, 9,000", lengths(9_000, |_, z| 300.0 + 60.0 * z)),
            (
                "two kinds, 66,000",
                lengths(66_000, |u, z| if u < 0.9 { 30.0 + 5.0 * z } else { 900.0 + 90.0 * z }),
            ),
            ("few lengths, 9,000", lengths(9_000, |u, _| [16.0, 64.0, 65.0, 512.0][(4.0 * u) as usize])),
            ("exponential, 3,001", lengths(3_001, |u, _| -200.0 * (1.0 - u).ln())),
            ("uniform, 333", lengths(333, |u, _| 1.0 + 2_000.0 * u)),
        ]
    }

    /// The expected padding is that of the epochs of a plan, whatever the seed.
    #[test]
    fn the_padding_is_that_of_real_epochs() {
        for (name, lengths) in corpora() {
            let lengths = LengthsInMemory::new(lengths);
            for size in [8, 32, 256]
                .map(BatchSize::BatchSize)
                .into_iter()
                .chain([4_096, 16_384, 131_072].map(BatchSize::MaxTokens))
            {
                let expected = padding(&lengths, size).unwrap();
                let real = |bucket, oversize| {
                    let options = BatchOptions { bucket, oversize, ..BatchOptions::new(size) };
                    let plan = BatchPlan::new("", &lengths, options, 7, 1).unwrap();
                    // Few batches differ between epochs, which use the (up to eight) cuttings in turn.
                    let turns = 30_000 / lengths.records();
                    let turns = turns.clamp(1, 8);
                    let epochs = if plan.steps() < 3000 { 8 * turns } else { turns };
                    let found = (0..epochs).map(|epoch| Metrics::of(&plan, epoch, 1).unwrap());
                    let sums =
                        found.fold((0, 0), |(t, p), found| (t + found.tokens, p + found.padded_tokens));
                    1.0 - sums.0 as f64 / sums.1 as f64
                };
                let bucketed = real(BucketBy::Length(Boundaries::AUTO), Oversize::Alone);
                let shown = format!("{name}, {size:?}: {expected:?}, not {bucketed}");
                assert!((expected.bucketed - bucketed).abs() < 0.003, "{shown}");
                if size == BatchSize::BatchSize(32) {
                    let random = real(BucketBy::None, Oversize::Error);
                    assert!((expected.random - random).abs() < 0.01, "{name}: {expected:?}, not {random}");
                }
            }
        }
    }

    #[test]
    fn packed_rows_have_the_padding_of_the_plan() {
        for (name, lengths) in corpora() {
            let tokens: u64 = lengths.iter().sum();
            let lengths = LengthsInMemory::new(lengths);
            for seq_len in [512, 4_096] {
                let plan = PackPlan::new("", &lengths, PackOptions::new(seq_len, 1), 0, 1).unwrap();
                let real = 1.0 - tokens as f64 / (plan.rows(0).unwrap() * seq_len) as f64;
                let expected = packed_padding(&lengths, seq_len).unwrap();
                assert!((expected - real).abs() < 0.003, "{name}, {seq_len}: {expected}, not {real}");
            }
        }
        for (lengths, expected) in
            [(vec![64; 100], 0.0), (vec![40; 100], 0.375), (vec![], 0.0), (vec![0, 0], 0.0)]
        {
            let found = packed_padding(&LengthsInMemory::new(lengths), 64).unwrap();
            assert!((found - expected).abs() < 1e-9, "{found}");
        }
    }
}
