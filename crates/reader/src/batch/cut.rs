//! Rules for where a bucket ends.

use super::options::{BatchOptions, BatchSize, Boundaries, MAX_MAX_WASTE};
use super::variation::Variation;

/// Fractional bits of a record's share of the budget.
const SHARE_BITS: u32 = 20;

/// Sums over the records before a rank.
#[derive(Debug, Clone, Default)]
pub(super) struct Prefix {
    pub(super) records: u64,
    /// Sum of the widths: lengths rounded up to the padding multiple.
    widths: u128,
    /// Sum of the records' shares of the budget, each in a batch of records of its own length, in units of 2⁻²⁰ tokens.
    shares: u128,
}

impl Prefix {
    /// Adds `count` records of `length`.
    pub(super) fn add(&mut self, options: &BatchOptions, length: u64, count: u64) {
        // Neither overflows: there are fewer than 2⁶⁴ records, of less than 2⁶⁴ each.
        self.records += count;
        self.widths += u128::from(options.width(length)) * u128::from(count);
        self.shares += share(options, length) * u128::from(count);
    }
}

/// Returns the share of the budget per record, in a micro-batch whose longest record has `length`. 0 without a budget.
fn share(options: &BatchOptions, length: u64) -> u128 {
    match options.size {
        BatchSize::BatchSize(_) => 0,
        BatchSize::MaxTokens(max) | BatchSize::MaxTokensUnpadded(max) => {
            (u128::from(max) << SHARE_BITS) / u128::from(options.per_batch(length))
        }
    }
}

/// Decides before which length the open bucket should end.
#[derive(Debug)]
pub(super) enum Cutter<'a> {
    /// Nowhere: there is one bucket.
    Never,
    /// As late as `max_waste` allows.
    Waste { max: f64, variation: Variation, bucket: u64 },
    /// At given or geometric boundaries.
    At { boundaries: BoundaryCursor<'a>, crossed: bool },
}

/// The boundaries that no length has crossed yet, in ascending order.
#[derive(Debug)]
pub(super) enum BoundaryCursor<'a> {
    Geometric { next: u64, ratio: f64 },
    Given(&'a [u64]),
}

impl BoundaryCursor<'_> {
    /// Returns whether `length` crosses a boundary that no earlier length crossed.
    fn crosses(&mut self, length: u64) -> bool {
        let mut crosses = false;
        match self {
            BoundaryCursor::Geometric { next, ratio } => {
                while *next <= length && *next < u64::MAX {
                    crosses = true;
                    // The cast saturates.
                    *next = ((*next as f64 * *ratio).ceil() as u64).max(*next + 1);
                }
            }
            BoundaryCursor::Given(boundaries) => {
                let crossed = boundaries.partition_point(|&b| b <= length);
                crosses = crossed > 0;
                *boundaries = boundaries.get(crossed..).unwrap_or_default();
            }
        }
        crosses
    }
}

impl<'a> Cutter<'a> {
    pub(super) fn new(boundaries: &'a Boundaries, variation: Variation) -> Self {
        let boundaries = match boundaries {
            Boundaries::Auto { max_waste } => return Cutter::Waste { max: *max_waste, variation, bucket: 0 },
            Boundaries::Geometric { first, ratio } => {
                // All boundaries move down by up to one bucket. The cast saturates.
                let shift = variation.first_step_share().unwrap_or(0.0);
                let next = (*first as f64 / (1.0 + shift * (ratio - 1.0))) as u64;
                BoundaryCursor::Geometric { next: next.max(1), ratio: *ratio }
            }
            Boundaries::Given(boundaries) => BoundaryCursor::Given(boundaries),
        };
        Cutter::At { boundaries, crossed: false }
    }

    /// Returns whether the bucket that starts after `tail` should end before the records of `length`. Including them,
    /// it would extend to `with`.
    pub(super) fn cuts_before(
        &mut self,
        options: &BatchOptions,
        length: u64,
        tail: &Prefix,
        with: &Prefix,
    ) -> bool {
        match self {
            Cutter::Never => false,
            Cutter::At { boundaries, crossed } => {
                *crossed |= boundaries.crosses(length);
                *crossed
            }
            Cutter::Waste { max, variation, bucket } => {
                // The variation may not exceed the limit of the option.
                let max = (*max * variation.waste_factor(*bucket)).min(MAX_MAX_WASTE);
                let records = u128::from(with.records.saturating_sub(tail.records));
                let exceeds = |each: u128, used: u128| {
                    let all = each * records;
                    all.saturating_sub(used) as f64 > max * all as f64
                };
                // A batch of one has no padding, however wide its bucket.
                let pads = options.per_batch(length) > 1
                    && exceeds(options.width(length).into(), with.widths.saturating_sub(tail.widths));
                pads || exceeds(share(options, length), with.shares.saturating_sub(tail.shares))
            }
        }
    }

    /// Notes that the open bucket has ended.
    pub(super) fn closed(&mut self) {
        match self {
            Cutter::Never => {}
            Cutter::Waste { bucket, .. } => *bucket += 1,
            Cutter::At { crossed, .. } => *crossed = false,
        }
    }
}
