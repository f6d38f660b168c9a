//! Cuttings: different ways to divide the ranks into buckets. Each epoch uses the next one.
//!
//! With one cutting, the records of a bucket that holds a single batch would share that batch in every epoch. Each
//! cutting therefore shortens the first step and moves bucket ends a little, in its own way and at the same padding.
//! All cuttings of a plan have the same number of steps, so every epoch is equally long.

use dsconvert_dataset::error::Result;

use super::bucket::{self, Bucket, Buckets, Variation};
use super::lengths::Lengths;
use super::options::{BatchOptions, BucketBy, Last, Shuffle};

/// Maximum number of cuttings of a plan.
const CUTTINGS: usize = 8;

/// Maximum number of cuttings that are tried.
const TRIES: u64 = 64;

/// Number of cuttings of equal length that suffices to choose from.
const ENOUGH: usize = 16;

/// Maximum number of histogram runs and of graded micro-batches that all tries together may examine. Datasets that
/// reach this limit have many batches in each bucket.
const TRY_WORK: u64 = 1 << 22;

/// One way to divide the ranks into buckets.
#[derive(Debug)]
pub(super) struct Cutting {
    pub(super) buckets: Vec<Bucket>,
    /// Number of full steps of an epoch. By shape: number of micro-batches.
    pub(super) full_steps: u64,
    /// With `longest_first`: the steps that come first.
    pub(super) pinned: Vec<u64>,
    /// With `longest_first`: the item that comes first in each bucket (as numbered by `BatchPlan::record_of`).
    pub(super) longest_items: Vec<u64>,
}

impl Cutting {
    fn new(buckets: Vec<Bucket>) -> Self {
        let full_steps = buckets.last().map_or(0, |b| b.first_step + b.steps);
        Self { buckets, full_steps, pinned: Vec::new(), longest_items: Vec::new() }
    }

    /// Returns the number of steps of an epoch whose buckets count micro-batches.
    pub(super) fn steps_of_micro_batches(&self, last: Last, micro_batches: u64) -> u64 {
        match last {
            Last::Drop => self.full_steps / micro_batches,
            Last::Short | Last::Pad | Last::Wrap => self.full_steps.div_ceil(micro_batches),
        }
    }

    /// Returns the number of steps of an epoch.
    pub(super) fn steps(&self, last: Last) -> u64 {
        let has_last = last != Last::Drop && self.buckets.last().is_some_and(|b| b.tail > 0);
        self.full_steps + u64::from(has_last)
    }
}

/// The cuttings of a plan, in the order in which epochs use them, and facts about the histogram.
#[derive(Debug)]
pub(super) struct Cuttings {
    pub(super) all: Vec<Cutting>,
    pub(super) oversize: u64,
    pub(super) digest: String,
}

impl Cuttings {
    /// Returns the only cutting, of these buckets.
    pub(super) fn single(found: Buckets) -> Self {
        let Buckets { buckets, runs: _, oversize, digest } = found;
        Self { all: vec![Cutting::new(buckets)], oversize, digest }
    }

    pub(super) fn new<L: Lengths>(lengths: &L, options: &BatchOptions, micro_batches: u64) -> Result<Self> {
        let Buckets { buckets, runs, oversize, digest } =
            bucket::build(lengths, options, micro_batches, Variation::PLAIN)?;
        let is_cut = matches!(options.bucket, BucketBy::Length(_)) && options.shuffle != Shuffle::None;
        let graded: usize = buckets.iter().filter_map(|b| b.graded.as_ref()).map(|ends| ends.len()).sum();
        let tries = if is_cut { (TRY_WORK / (runs + graded as u64).max(1)).min(TRIES) } else { 1 };
        let mut tried = vec![Cutting::new(buckets)];
        for variation in 1..tries {
            let found = bucket::build(lengths, options, micro_batches, Variation(variation))?;
            tried.push(Cutting::new(found.buckets));
        }
        Ok(Self { all: ring(equally_long(tried, options.last)), oversize, digest })
    }
}

/// Keeps the cuttings with one number of steps: the smallest number that enough of them have, or else the most common.
fn equally_long(mut tried: Vec<Cutting>, last: Last) -> Vec<Cutting> {
    let steps: Vec<u64> = tried.iter().map(|cutting| cutting.steps(last)).collect();
    let how_many = |number: u64| steps.iter().filter(|&&s| s == number).count();
    let enough = steps.iter().copied().filter(|&s| how_many(s) >= ENOUGH).min();
    let common = steps.iter().copied().max_by_key(|&s| (how_many(s), std::cmp::Reverse(s)));
    let chosen = enough.or(common);
    tried.retain(|cutting| Some(cutting.steps(last)) == chosen);
    tried
}

/// Arranges up to [`CUTTINGS`] of them in a ring whose neighbors share few batches. The last is a neighbor of the
/// first.
fn ring(found: Vec<Cutting>) -> Vec<Cutting> {
    let fixed: Vec<Vec<(u64, u64)>> = found.iter().map(|cutting| fixed_batches(&cutting.buckets)).collect();
    let shared: Vec<Vec<usize>> =
        fixed.iter().map(|a| fixed.iter().map(|b| shared(a, b)).collect::<Vec<usize>>()).collect();
    let shared = |i: usize, j: usize| shared.get(i).and_then(|row| row.get(j)).copied().unwrap_or(0);
    let rings = (0..found.len()).map(|first| greedy_ring(first, found.len(), shared));
    // Among equals, the first.
    let best = rings.min_by_key(|(_, cost)| *cost).map(|(ring, _)| ring).unwrap_or_default();
    let mut found: Vec<Option<Cutting>> = found.into_iter().map(Some).collect();
    best.into_iter().filter_map(|i| found.get_mut(i)?.take()).collect()
}

/// Builds a ring that starts with `first`. The next cutting is always the one that shares the fewest batches with its
/// predecessor (and, if it is the last, with `first`). Also returns the number of batches that neighbors share in
/// total.
fn greedy_ring(first: usize, count: usize, shared: impl Fn(usize, usize) -> usize) -> (Vec<usize>, usize) {
    let (mut ring, mut at, mut total) = (vec![first], first, 0);
    while ring.len() < CUTTINGS.min(count) {
        let closes = ring.len() + 1 == CUTTINGS.min(count);
        let cost = |i: usize| shared(at, i) + if closes { shared(i, first) } else { 0 };
        let left = (0..count).filter(|i| !ring.contains(i));
        let Some(next) = left.min_by_key(|&i| cost(i)) else { break };
        total += cost(next);
        ring.push(next);
        at = next;
    }
    (ring, total)
}

/// Returns the batches of several records that hold the same records for every seed, as ascending ranges of ranks.
fn fixed_batches(buckets: &[Bucket]) -> Vec<(u64, u64)> {
    let mut batches = Vec::new();
    for bucket in buckets {
        match &bucket.graded {
            Some(ends) => {
                let starts = std::iter::once(0).chain(ends.iter().copied());
                batches
                    .extend(starts.zip(ends).map(|(start, end)| (bucket.start + start, bucket.start + end)));
            }
            None if bucket.records <= bucket.per_batch => {
                batches.push((bucket.start, bucket.start + bucket.records))
            }
            None => {}
        }
    }
    batches.retain(|(start, end)| end - start > 1);
    batches
}

/// Counts the ranges that two ascending lists have in common.
fn shared(a: &[(u64, u64)], b: &[(u64, u64)]) -> usize {
    let mut b = b.iter().peekable();
    let mut count = 0;
    for range in a {
        while b.next_if(|other| *other < range).is_some() {}
        count += usize::from(b.next_if(|other| *other == range).is_some());
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variations_are_spread() {
        assert_eq!((Variation::PLAIN.first_step_share(), Variation::PLAIN.waste_factor(3)), (None, 1.0));
        let mut shares: Vec<f64> = (1..TRIES).filter_map(|v| Variation(v).first_step_share()).collect();
        shares.sort_by(f64::total_cmp);
        assert!(shares.windows(2).all(|pair| pair[1] - pair[0] < 2.5 / TRIES as f64), "{shares:?}");
        assert!((1..TRIES).all(|v| (0..50).all(|b| (0.7..1.3).contains(&Variation(v).waste_factor(b)))));
    }

    #[test]
    fn shared_ranges_are_counted() {
        assert_eq!(shared(&[(0, 3), (3, 5), (9, 12)], &[(0, 2), (3, 5), (5, 9), (9, 12)]), 2);
        assert_eq!(shared(&[], &[(0, 2)]), 0);
    }
}
