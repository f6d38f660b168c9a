//! Summary statistics of the lengths in a split.

use serde::{Deserialize, Serialize};

use super::{LengthRun, MAX_LENGTH};
use crate::error::{Error, Result};
use crate::schema::LengthUnit;

/// Percentiles in the summary, in field order.
const PERCENTILES: [u64; 4] = [50, 90, 95, 99];

/// Exact summary of the lengths in a split. All numbers are 0 if there are no records.
///
/// Percentile `p` of `n` lengths is the length at rank `⌈p·n/100⌉` (counted from 1) of the sorted lengths, so it always
/// occurs in the data.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LengthSummary {
    /// Unit of the lengths.
    pub unit: LengthUnit,
    /// Minimum.
    pub min: u64,
    /// Maximum.
    pub max: u64,
    /// Sum over all records.
    pub total: u64,
    /// `total` divided by the number of records, both as binary64.
    pub mean: f64,
    /// 50th percentile.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
}

impl LengthSummary {
    /// Summarizes `records` lengths, given as the runs of their histogram in ascending order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) if the lengths add up to more than [`MAX_LENGTH`]; otherwise the
    /// first error of `runs`.
    pub fn from_runs(
        unit: LengthUnit,
        records: u64,
        runs: impl IntoIterator<Item = Result<LengthRun>>,
    ) -> Result<Self> {
        let mut summary = SummaryBuilder::new(records);
        for run in runs {
            summary.push(run?)?;
        }
        Ok(summary.finish(unit))
    }
}

/// Builds a [`LengthSummary`] incrementally from runs.
#[derive(Debug)]
pub(super) struct SummaryBuilder {
    records: u64,
    first: Option<u64>,
    last: u64,
    total: u64,
    percentiles: [u64; PERCENTILES.len()],
}

impl SummaryBuilder {
    /// Creates a builder; `records` is the total number of records in all runs to come.
    pub(super) fn new(records: u64) -> Self {
        Self { records, first: None, last: 0, total: 0, percentiles: [0; PERCENTILES.len()] }
    }

    pub(super) fn push(&mut self, run: LengthRun) -> Result<()> {
        let LengthRun { length, count, first_rank } = run;
        self.first.get_or_insert(length);
        self.last = length;
        self.total = length
            .checked_mul(count)
            .and_then(|sum| self.total.checked_add(sum))
            .filter(|&total| total <= MAX_LENGTH)
            .ok_or_else(|| {
                Error::usage(format!("the lengths of the split add up to more than {MAX_LENGTH}"))
            })?;
        for (value, percent) in self.percentiles.iter_mut().zip(PERCENTILES) {
            // Zero-based. Runs ascend, so exactly one covers the rank.
            let rank = (u128::from(percent) * u128::from(self.records)).div_ceil(100).saturating_sub(1);
            if (u128::from(first_rank)..u128::from(first_rank) + u128::from(count)).contains(&rank) {
                *value = length;
            }
        }
        Ok(())
    }

    pub(super) fn finish(self, unit: LengthUnit) -> LengthSummary {
        let [p50, p90, p95, p99] = self.percentiles;
        let mean = if self.records == 0 { 0.0 } else { self.total as f64 / self.records as f64 };
        LengthSummary {
            unit,
            min: self.first.unwrap_or(0),
            max: self.last,
            total: self.total,
            mean,
            p50,
            p90,
            p95,
            p99,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn summary(lengths: &[u64]) -> LengthSummary {
        let mut sorted = lengths.to_vec();
        sorted.sort_unstable();
        let mut first_rank = 0;
        let runs = sorted.chunk_by(|a, b| a == b).map(|run| {
            let run = LengthRun { length: run[0], count: run.len() as u64, first_rank };
            first_rank += run.count;
            Ok(run)
        });
        LengthSummary::from_runs(LengthUnit::Tokens, lengths.len() as u64, runs).unwrap()
    }

    #[test]
    fn a_known_summary() {
        let lengths: Vec<u64> = (1..=200).collect();
        let expected = LengthSummary {
            unit: LengthUnit::Tokens,
            min: 1,
            max: 200,
            total: 20_100,
            mean: 100.5,
            p50: 100,
            p90: 180,
            p95: 190,
            p99: 198,
        };
        assert_eq!(summary(&lengths), expected);
    }

    #[test]
    fn the_summary_of_no_lengths_is_zero() {
        let empty = summary(&[]);
        assert_eq!(
            (empty.min, empty.max, empty.total, empty.mean, empty.p50, empty.p99),
            (0, 0, 0, 0.0, 0, 0)
        );
    }

    #[test]
    fn a_sum_beyond_the_limit_is_rejected() {
        let run = |length, count, first_rank| Ok(LengthRun { length, count, first_rank });
        let add_up = |runs: Vec<_>| LengthSummary::from_runs(LengthUnit::Bytes, 2, runs);
        assert_eq!(add_up(vec![run(1, 1, 0), run(MAX_LENGTH - 1, 1, 1)]).unwrap().total, MAX_LENGTH);
        assert!(add_up(vec![run(1, 1, 0), run(MAX_LENGTH, 1, 1)]).is_err());
        assert!(add_up(vec![run(u64::MAX, 2, 0)]).is_err());
    }

    proptest! {
        #[test]
        fn percentiles_are_nearest_ranks_and_round_trip_through_json(lengths in prop::collection::vec(0u64..50, 1..300)) {
            let found = summary(&lengths);
            let mut sorted = lengths.clone();
            sorted.sort_unstable();
            let nearest = |p: usize| sorted[(p * sorted.len()).div_ceil(100) - 1];
            prop_assert_eq!(
                [found.p50, found.p90, found.p95, found.p99],
                [nearest(50), nearest(90), nearest(95), nearest(99)]
            );
            prop_assert_eq!((found.min, found.max), (sorted[0], sorted[sorted.len() - 1]));
            prop_assert_eq!(found.total, sorted.iter().sum::<u64>());
            let json = serde_json::to_string(&found).unwrap();
            prop_assert_eq!(serde_json::from_str::<LengthSummary>(&json).unwrap(), found);
        }
    }
}
