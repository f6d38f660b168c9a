//! Divides the records, ranked by length, into buckets in one pass over the histogram.
//!
//! A bucket is a range of *ranks*, not of lengths. It ends after whole steps, and the records after them go to the next
//! bucket, whose rows are longer. Only the last bucket can therefore have records that do not fill a step, and an epoch
//! has one short step instead of one per bucket.
//!
//! Where lengths are so sparse that the records of one step span too many of them, the step is a *graded* bucket of its
//! own: each of its micro-batches is cut from the ranks separately and fills the budget, so the processes still do not
//! wait for each other. `docs/reference/batching.md` specifies the algorithm.

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::index::LengthRun;
use xxhash_rust::xxh3::Xxh3;

use super::lengths::{Lengths, Runs};
use super::options::{BatchOptions, BatchSize, Boundaries, BucketBy, Last, MAX_MAX_WASTE, Oversize};
use super::permute::{Purpose, key};

/// A range of ranks with similar lengths, whose records share batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// First rank.
    pub start: u64,
    /// Number of records.
    pub records: u64,
    /// Shortest length, after truncation.
    pub shortest: u64,
    /// Longest length, after truncation.
    pub longest: u64,
    /// Number of records of each micro-batch.
    pub per_batch: u64,
    /// Number of full steps (by shape: micro-batches) in the preceding buckets.
    pub first_step: u64,
    /// Number of full steps. By shape: number of micro-batches, including the short one.
    pub steps: u64,
    /// Number of records that do not fill a step: 0 in all buckets except the last. By shape: number of records that do not
    /// fill a micro-batch.
    pub tail: u64,
    /// Maximum padded tokens of a micro-batch.
    pub largest_batch: u64,
    /// For a graded bucket, which has one step: the end of each micro-batch, relative to `start`. Micro-batches are cut
    /// from the ranks in order, each as large as the budget allows.
    pub graded: Option<Box<[u64]>>,
}

/// The buckets of a cutting, and what the pass over the histogram found.
#[derive(Debug)]
pub(super) struct Buckets {
    pub(super) buckets: Vec<Bucket>,
    /// Number of distinct lengths.
    pub(super) runs: u64,
    /// Number of records over the budget, whatever the `oversize` policy.
    pub(super) oversize: u64,
    /// XXH3-128 of the histogram, in hexadecimal: two datasets with the same lengths have the same plan.
    pub(super) digest: String,
}

/// Builds the buckets of `lengths` for steps of `micro_batches` micro-batches.
pub(super) fn build<L: Lengths>(
    lengths: &L,
    options: &BatchOptions,
    micro_batches: u64,
    variation: Variation,
) -> Result<Buckets> {
    let mut builder = Builder {
        options,
        micro_batches,
        cutter: match &options.bucket {
            BucketBy::Length(boundaries) => Cutter::new(boundaries, variation),
            BucketBy::None | BucketBy::Windows { .. } | BucketBy::Shape => Cutter::Never,
        },
        tail: Prefix::default(),
        tail_runs: CheckedRuns::new(lengths)?,
        head: Prefix::default(),
        longest: 0,
        rest: None,
        buckets: Vec::new(),
    };
    let mut runs = CheckedRuns::new(lengths)?;
    let mut digest = Xxh3::new();
    let (mut distinct, mut oversize) = (0, 0);
    // Batches with a fixed number of records keep their size.
    if let Some(budget_share) = variation.first_step_share().filter(|_| options.cap().is_some()) {
        builder.grade(budget_share)?;
    }
    while let Some(run) = runs.next()? {
        distinct += 1;
        digest.update(&run.length.to_le_bytes());
        digest.update(&run.count.to_le_bytes());
        if options.cap().is_some_and(|cap| run.length > cap) {
            oversize += run.count;
            match options.oversize {
                Oversize::Error => return Err(too_long(lengths, options, run)),
                Oversize::Drop => continue,
                Oversize::Alone | Oversize::Truncate => {}
            }
        }
        builder.push(run)?;
    }
    let buckets = builder.finish()?;
    Ok(Buckets { buckets, runs: distinct, oversize, digest: format!("{:032x}", digest.digest128()) })
}

/// Returns an error that states how many records exceed the budget, from those of `first` on, and which is the longest.
pub(super) fn too_long<L: Lengths>(lengths: &L, options: &BatchOptions, first: LengthRun) -> Error {
    let cap = options.cap().unwrap_or_default();
    let name = match options.size {
        BatchSize::MaxTokensUnpadded(_) => "max_tokens_unpadded",
        _ if options.bucket == BucketBy::Shape => "max_pixels",
        _ => "max_tokens",
    };
    let (all, longer) = (lengths.records(), lengths.records().saturating_sub(first.first_rank));
    let longest = lengths.record_at(all.saturating_sub(1)).and_then(|at| Ok((at, lengths.length_of(at)?)));
    let Ok((record, length)) = longest else {
        return Error::usage(format!(
            "{longer} of {all} records are longer than the {cap} that `{name}` allows"
        ));
    };
    let key = lengths.key_of(record).map(|key| format!(" with the key {key:?}")).unwrap_or_default();
    let what = format!(
        "{longer} of {all} records are longer than the {cap} that `{name}` allows; the longest{key} has {length}"
    );
    let mut remedies = Vec::new();
    let policies = options.applicable_policies(lengths.can_be_cut());
    if !policies.is_empty() {
        remedies.push(format!("set `oversize` to {}", policies.join(" or ")));
    }
    remedies.push(format!("raise `{name}` to {} or more", options.width(length)));
    if lengths.can_be_cut() {
        remedies.push("pack documents with `seq_len`".to_owned());
    }
    Error::usage(what).at_row(record).help(remedies.join(", or "))
}

struct Builder<'a> {
    options: &'a BatchOptions,
    micro_batches: u64,
    cutter: Cutter<'a>,
    /// Sums over the records before the open bucket, and the runs after them.
    tail: Prefix,
    tail_runs: CheckedRuns<'a>,
    /// Sums over the records so far.
    head: Prefix,
    /// Longest length so far.
    longest: u64,
    /// First rank and shortest length of the last bucket, once it is known that nothing follows it.
    rest: Option<(u64, u64)>,
    buckets: Vec<Bucket>,
}

impl Builder<'_> {
    fn push(&mut self, run: LengthRun) -> Result<()> {
        let length = self.options.used(run.length);
        let mut with = self.head.clone();
        with.add(self.options, length, run.count);
        let cut = self.cutter.cuts_before(self.options, length, &self.tail, &with);
        if self.open_records() == 0 {
            self.cutter.closed();
        } else if cut && self.rest.is_none() {
            let steps = self.full_steps();
            if steps > 0 {
                self.take(steps * self.per_step(), steps, 0)?;
                self.cutter.closed();
            } else if self.options.cap().is_some() {
                self.grade(1.0)?;
                self.cutter.closed();
            }
            // With a fixed number of records per batch, records that do not fill a step stay in the open bucket.
        }
        self.head = with;
        self.longest = length;
        Ok(())
    }

    /// Returns the number of records of one step of the open bucket.
    fn per_step(&self) -> u64 {
        self.options.per_batch(self.longest) * self.micro_batches
    }

    fn open_records(&self) -> u64 {
        // A graded bucket may end after the last record that was pushed.
        self.head.records.saturating_sub(self.tail.records)
    }

    fn full_steps(&self) -> u64 {
        self.open_records() / self.per_step()
    }

    /// Adds a bucket of the next `records` records.
    fn take(&mut self, records: u64, steps: u64, tail: u64) -> Result<()> {
        let start = self.tail.records;
        let (shortest, longest) = self.advance(records)?;
        self.add(start, records, (shortest, longest), steps, tail);
        Ok(())
    }

    fn add(&mut self, start: u64, records: u64, (shortest, longest): (u64, u64), steps: u64, tail: u64) {
        let per_batch = self.options.per_batch(self.longest);
        let largest_batch = self.options.padded(per_batch, longest);
        let first_step = self.first_step();
        let graded = None;
        self.buckets.push(Bucket {
            start,
            records,
            shortest,
            longest,
            per_batch,
            first_step,
            steps,
            tail,
            largest_batch,
            graded,
        });
    }

    fn first_step(&self) -> u64 {
        self.buckets.last().map_or(0, |b| b.first_step + b.steps)
    }

    /// Adds a graded step, whose micro-batches are cut separately and use `budget_share` of the budget. If there are
    /// not enough records, all remaining ones become the last bucket.
    fn grade(&mut self, budget_share: f64) -> Result<()> {
        let options = self.options;
        let most = |length| ((options.per_batch(length) as f64 * budget_share) as u64).max(1);
        let start = self.tail.records;
        let mut ends = Vec::new();
        let (mut shortest, mut longest) = (None, 0);
        let (mut per_batch, mut largest_batch) = (0, 0);
        for _ in 0..self.micro_batches {
            let mut count = 0;
            while let Some(run) = self.peek()? {
                let length = self.options.used(run.length);
                let taken = most(length).saturating_sub(count).min(run.count);
                if taken == 0 {
                    break;
                }
                self.consume(length, taken);
                count += taken;
                shortest.get_or_insert(length);
                longest = length;
            }
            if count == 0 {
                self.rest = Some((start, shortest.unwrap_or(0)));
                return Ok(());
            }
            per_batch = per_batch.max(count);
            largest_batch = largest_batch.max(self.options.padded(count, longest));
            ends.push(self.tail.records - start);
        }
        self.buckets.push(Bucket {
            start,
            records: self.tail.records - start,
            shortest: shortest.unwrap_or(0),
            longest,
            per_batch,
            first_step: self.first_step(),
            steps: 1,
            tail: 0,
            largest_batch,
            graded: Some(ends.into()),
        });
        Ok(())
    }

    /// Returns the rest of the run at the start of the open bucket, or `None` after the last record that is used.
    fn peek(&mut self) -> Result<Option<LengthRun>> {
        let dropped = |run: &LengthRun| {
            self.options.oversize == Oversize::Drop && self.options.cap().is_some_and(|cap| run.length > cap)
        };
        Ok(self.tail_runs.peek()?.filter(|run| !dropped(run)))
    }

    /// Moves the start of the open bucket by `count` records of `length`.
    fn consume(&mut self, length: u64, count: u64) {
        self.tail.add(self.options, length, count);
        self.tail_runs.take(count);
    }

    /// Moves the start of the open bucket by `records` records. Returns the lengths of the first and last of them.
    fn advance(&mut self, records: u64) -> Result<(u64, u64)> {
        let mut left = records;
        let (mut shortest, mut longest) = (None, 0);
        while left > 0 {
            let Some(run) = self.peek()? else {
                return Err(Error::corrupt("the histogram counts fewer records than a bucket needs"));
            };
            let taken = run.count.min(left);
            let length = self.options.used(run.length);
            self.consume(length, taken);
            left -= taken;
            shortest.get_or_insert(length);
            longest = length;
        }
        Ok((shortest.unwrap_or(0), longest))
    }

    /// Adds the last bucket from the remaining records.
    fn finish(mut self) -> Result<Vec<Bucket>> {
        let per_step = self.per_step();
        if let Some((start, shortest)) = self.rest {
            let records = self.head.records - start;
            self.add(start, records, (shortest, self.longest), records / per_step, records % per_step);
        } else {
            let records = self.open_records();
            if records > 0 {
                self.take(records, records / per_step, records % per_step)?;
            }
        }
        if self.options.last == Last::Drop {
            self.widen_last();
        }
        Ok(self.buckets)
    }

    /// Merges the last bucket with those before it until it has a full step. With `drop`, a last bucket without a full
    /// step would otherwise be dropped in every epoch.
    fn widen_last(&mut self) {
        while let [.., before, last] = self.buckets.as_mut_slice()
            && last.steps == 0
        {
            let per_step = last.per_batch * self.micro_batches;
            let records = before.records + last.records;
            *before = Bucket {
                records,
                longest: last.longest,
                per_batch: last.per_batch,
                steps: records / per_step,
                tail: records % per_step,
                largest_batch: last.largest_batch,
                graded: None,
                ..before.clone()
            };
            self.buckets.pop();
        }
    }
}

/// The runs of a histogram, checked to ascend without gaps and to cover all records.
pub(super) struct CheckedRuns<'a> {
    runs: Runs<'a>,
    records: u64,
    counted: u64,
    last_length: Option<u64>,
    /// The unconsumed part of the peeked run.
    open: Option<LengthRun>,
}

impl<'a> CheckedRuns<'a> {
    pub(super) fn new<L: Lengths>(lengths: &'a L) -> Result<Self> {
        let (runs, records) = (lengths.runs()?, lengths.records());
        Ok(Self { runs, records, counted: 0, last_length: None, open: None })
    }

    /// Returns the next run, or `None` when all records are counted.
    pub(super) fn next(&mut self) -> Result<Option<LengthRun>> {
        let Some(run) = self.runs.next().transpose()? else {
            if self.counted != self.records {
                let what = format!("the histogram counts {} of {} records", self.counted, self.records);
                return Err(Error::corrupt(what));
            }
            return Ok(None);
        };
        let counted = self.counted.checked_add(run.count).filter(|&counted| counted <= self.records);
        let ascends = self.last_length.is_none_or(|last| last < run.length);
        let (true, true, Some(counted)) = (ascends, run.count > 0 && run.first_rank == self.counted, counted)
        else {
            return Err(Error::corrupt(format!("the run of length {} is out of place", run.length)));
        };
        self.counted = counted;
        self.last_length = Some(run.length);
        Ok(Some(run))
    }

    /// Returns the rest of the current run.
    fn peek(&mut self) -> Result<Option<LengthRun>> {
        if self.open.is_none_or(|run| run.count == 0) {
            self.open = self.next()?;
        }
        Ok(self.open)
    }

    /// Consumes `count` records of the current run.
    fn take(&mut self, count: u64) {
        if let Some(run) = &mut self.open {
            run.count = run.count.saturating_sub(count);
        }
    }
}

/// The number of a cutting, which determines its parameters. 0 is the plain cutting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Variation(pub(super) u64);

impl Variation {
    pub(super) const PLAIN: Self = Self(0);

    /// Returns the fraction of the budget that the first step uses, or `None` for all of it.
    pub(super) fn first_step_share(self) -> Option<f64> {
        (self.0 > 0).then(|| self.unit(0))
    }

    /// Returns the factor of `max_waste` for the bucket with this number: from 0.7 to 1.3.
    pub(super) fn waste_factor(self, bucket: u64) -> f64 {
        if self.0 == 0 { 1.0 } else { 0.7 + 0.6 * self.unit(bucket + 1) }
    }

    /// Returns a number between 0 and 1. The numbers of consecutive variations are spread evenly.
    fn unit(self, dimension: u64) -> f64 {
        // A golden-ratio sequence, which is evenly spread, from a start that depends on the dimension.
        let start = key(0, Purpose::Cuttings, 0, dimension);
        let mixed = start.wrapping_add(self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }
}

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
