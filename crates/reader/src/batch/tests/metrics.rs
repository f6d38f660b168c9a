//! Measures the quality of the batches of an epoch.

use super::*;

/// Metrics of one epoch.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Metrics {
    /// Number of micro-batches that hold a record.
    pub(crate) micro_batches: u64,
    /// Number of records, including repetitions.
    pub(crate) records: u64,
    /// Sum of lengths.
    pub(crate) tokens: u64,
    /// Sum of rows × width.
    pub(crate) padded_tokens: u64,
    /// Fraction of `padded_tokens` that is padding.
    pub(crate) padding: f64,
    /// Fraction of the budget that is used: padded tokens, or tokens if the budget is unpadded, ÷ (budget ×
    /// micro-batches). 0 without a budget.
    pub(crate) fill: f64,
    /// Fraction of the time that ranks wait for each other, if time is proportional to padded tokens: the sum of
    /// (largest − mean) ÷ the sum of the largest, over the micro-batches that ranks process at the same time.
    pub(crate) skew: f64,
    /// Pearson correlation of the mean lengths of adjacent steps: near 1 for a curriculum or a sawtooth, near 0 for a
    /// good shuffle. 0 for fewer than three steps.
    pub(crate) length_correlation: f64,
}

impl Metrics {
    /// Measures `epoch` of `plan` for `world_size` ranks. Looks up every record once.
    pub(crate) fn of<L: Lengths>(plan: &BatchPlan<L>, epoch: u64, world_size: u64) -> Result<Self, Error> {
        let mut sums = Self::default();
        let (mut waited, mut worked) = (0.0, 0.0);
        let mut means = Vec::new();
        for step in 0..plan.steps() {
            let at = Position { epoch, step };
            let batches = (0..plan.micro_batches())
                .map(|index| plan.micro_batch(at, index))
                .collect::<Result<Vec<MicroBatch>, Error>>()?;
            for batch in &batches {
                sums.add(batch);
            }
            for turn in batches.chunks(world_size.max(1) as usize) {
                let sizes = || turn.iter().map(|b| b.padded_tokens() as f64);
                let (largest, sum) = (sizes().fold(0.0, f64::max), sizes().sum::<f64>());
                waited += largest - sum / turn.len() as f64;
                worked += largest;
            }
            let records: usize = batches.iter().map(|b| b.records.len()).sum();
            let tokens = batches.iter().map(MicroBatch::tokens).fold(0, u64::saturating_add);
            means.push(ratio(tokens as f64, records as f64));
        }
        let used = match plan.options().size {
            BatchSize::MaxTokensUnpadded(_) => sums.tokens,
            _ => sums.padded_tokens,
        };
        let budget = match plan.options().size {
            BatchSize::BatchSize(_) => 0,
            BatchSize::MaxTokens(max) | BatchSize::MaxTokensUnpadded(max) => max,
        };
        Ok(Self {
            padding: 1.0 - ratio(sums.tokens as f64, sums.padded_tokens as f64),
            fill: ratio(used as f64, budget as f64 * sums.micro_batches as f64),
            skew: ratio(waited, worked),
            length_correlation: neighbor_correlation(&means),
            ..sums
        })
    }

    fn add(&mut self, batch: &MicroBatch) {
        self.micro_batches += u64::from(!batch.records.is_empty());
        self.records += batch.records.len() as u64;
        self.tokens = self.tokens.saturating_add(batch.tokens());
        self.padded_tokens = self.padded_tokens.saturating_add(batch.padded_tokens());
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Returns the correlation of each number with the next.
fn neighbor_correlation(numbers: &[f64]) -> f64 {
    if numbers.len() < 3 {
        return 0.0;
    }
    let pairs = || numbers.iter().zip(numbers.iter().skip(1));
    let n = (numbers.len() - 1) as f64;
    let (a, b) = (pairs().map(|p| p.0).sum::<f64>() / n, pairs().map(|p| p.1).sum::<f64>() / n);
    let covariance: f64 = pairs().map(|(x, y)| (x - a) * (y - b)).sum();
    let variances =
        pairs().map(|p| (p.0 - a).powi(2)).sum::<f64>() * pairs().map(|p| (p.1 - b).powi(2)).sum::<f64>();
    ratio(covariance, variances.sqrt())
}

#[test]
fn neighbors_correlate() {
    assert!((neighbor_correlation(&[1.0, 2.0, 3.0, 4.0]) - 1.0).abs() < 1e-9);
    assert!((neighbor_correlation(&[1.0, 2.0, 1.0, 2.0, 1.0]) + 1.0).abs() < 1e-9);
    assert_eq!(neighbor_correlation(&[3.0, 3.0, 3.0]), 0.0);
    assert_eq!(neighbor_correlation(&[1.0, 2.0]), 0.0);
}
