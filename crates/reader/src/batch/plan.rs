//! The batch plan: which records each micro-batch of each step holds, and totals of steps and epochs.

mod find;

use std::ops::Range;
use std::sync::Arc;

use dsconvert_dataset::error::{Error, ErrorKind, Result};

use self::find::{BucketStep, Item};
use super::bucket::Bucket;
use super::column_budget::shares;
use super::cuttings::{Cutting, Cuttings};
use super::layout::{Layout, check_micro_batches};
use super::lengths::{ImageShape, Lengths, LengthsInMemory};
use super::options::{ALGORITHM, BatchOptions, BatchSize, BucketBy, Last, json_digest};
use super::permute::{Purpose, key};
use super::shape::{self, ShapeOrder};
use super::state::{PlanState, Position, damaged_state};
use crate::recent::Recent;

/// A pure function of (lengths, options, seed, epoch, step) that computes which records each micro-batch holds.
///
/// Its results never change, and threads may share it. It needs memory for the buckets, not for the records.
///
/// ```
/// use dsconvert_reader::batch::{BatchOptions, BatchPlan, BatchSize, Layout, LengthsInMemory, Position};
///
/// let lengths = LengthsInMemory::new((0..1000).map(|i| 20 + i % 300).collect());
/// let options = BatchOptions::new(BatchSize::MaxTokens(4096));
/// let (seed, micro_batches) = (42, 4);
/// let plan = BatchPlan::new("fingerprint of the dataset", lengths, options, seed, micro_batches)?;
///
/// // Two ranks: each processes two of the four micro-batches of a step.
/// let mut seen = 0;
/// for rank in 0..2 {
///     for batch in plan.batches(Layout::new(rank, 2)?, Position::default())? {
///         let batch = batch?;
///         assert!(batch.padded_tokens() <= 4096);
///         seen += batch.records.len();
///     }
/// }
/// assert_eq!(seen, 1000);
///
/// // Any number of ranks can continue where the two stopped.
/// let saved = plan.state(Position { epoch: 0, step: 3 })?;
/// assert_eq!(plan.resume(&saved)?, Position { epoch: 0, step: 3 });
/// # Ok::<(), dsconvert_reader::error::Error>(())
/// ```
#[derive(Debug)]
pub struct BatchPlan<L> {
    lengths: L,
    /// With a second budget, the shares of the records instead of their lengths: their ranks form the buckets.
    shares: Option<LengthsInMemory>,
    options: BatchOptions,
    micro_batches: u64,
    /// Each epoch uses the next one; all have the same number of steps.
    cuttings: Vec<Cutting>,
    /// The order of the records, if they are divided into buckets by shape.
    by_shape: Option<ShapeOrder>,
    oversize: u64,
    /// The state at the start.
    start: PlanState,
    /// The last sorted window, by its epoch and positions.
    windows: Recent<(u64, Range<u64>), Arc<[Item]>>,
}

impl<L: Lengths> BatchPlan<L> {
    /// Creates a plan for the records of `lengths`. `dataset` is a fingerprint of dataset and split. `micro_batches` is
    /// the number of micro-batches of a global step, over all ranks; it is fixed once training has started.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] when an option is invalid or a record exceeds the budget and the policy forbids it;
    /// [`ErrorKind::Corrupt`] when the lengths are inconsistent.
    pub fn new(
        dataset: &str,
        lengths: L,
        options: BatchOptions,
        seed: u64,
        micro_batches: u64,
    ) -> Result<Self> {
        options.check()?;
        check_micro_batches(micro_batches)?;
        let shares = shares(&lengths, &options)?;
        let ranked = ranked(&lengths, shares.as_ref());
        let (found, by_shape) = match options.bucket {
            BucketBy::Shape => {
                let (buckets, order) = shape::build(&lengths, &options)?;
                (Cuttings::single(buckets), Some(order))
            }
            _ => (Cuttings::new(&ranked, &options, micro_batches)?, None),
        };
        let Cuttings { all: cuttings, oversize, digest } = found;
        let start = PlanState {
            version: ALGORITHM,
            dataset: dataset.to_owned(),
            lengths: digest,
            options: json_digest("the options", &(ALGORITHM, &options))?,
            seed,
            micro_batches,
            epoch: 0,
            step: 0,
        };
        let windows = Recent::new(1);
        let mut plan =
            Self { lengths, shares, options, micro_batches, cuttings, by_shape, oversize, start, windows };
        plan.check_windows()?;
        if plan.options.longest_first {
            let mut cuttings = std::mem::take(&mut plan.cuttings);
            for cutting in &mut cuttings {
                cutting.pinned = worst_steps(&cutting.buckets);
                // All records of one shape are equally long.
                if plan.by_shape.is_none() {
                    cutting.longest_items =
                        cutting.buckets.iter().map(|b| plan.longest_item(b)).collect::<Result<Vec<u64>>>()?;
                }
            }
            plan.cuttings = cuttings;
        }
        Ok(plan)
    }

    /// Returns the number of global steps of an epoch. It is the same in every epoch.
    pub fn steps(&self) -> u64 {
        match self.cuttings.first() {
            Some(cutting) if self.by_shape.is_some() => {
                cutting.steps_of_micro_batches(self.options.last, self.micro_batches)
            }
            Some(cutting) => cutting.steps(self.options.last),
            None => 0,
        }
    }

    /// Returns the cutting of `epoch`. Each epoch uses the one after that of the previous epoch; the seed determines
    /// the first.
    fn cutting(&self, epoch: u64) -> Option<&Cutting> {
        let count = self.cuttings.len().max(1) as u64;
        let first = key(self.start.seed, Purpose::Cuttings, 0, 0) % count;
        self.cuttings.get(((first + epoch % count) % count) as usize)
    }

    /// Returns the lengths, or shares, that rank the records.
    fn ranked(&self) -> &dyn Lengths {
        ranked(&self.lengths, self.shares.as_ref())
    }

    /// Returns the number of micro-batches of a global step.
    pub fn micro_batches(&self) -> u64 {
        self.micro_batches
    }

    /// Returns the options.
    pub fn options(&self) -> &BatchOptions {
        &self.options
    }

    /// Makes every epoch use the same cutting.
    #[cfg(test)]
    pub(super) fn keep_one_cutting(&mut self) {
        self.cuttings.truncate(1);
    }

    /// Returns the buckets of `epoch`, shortest records first.
    pub fn buckets(&self, epoch: u64) -> &[Bucket] {
        self.cutting(epoch).map_or(&[], |cutting| &cutting.buckets)
    }

    /// Returns how many records `epoch` delivers, repeats and drops. The number of records that do not fill a step
    /// varies slightly between epochs.
    pub fn counts(&self, epoch: u64) -> Counts {
        if self.by_shape.is_some() {
            return self.counts_by_shape(epoch);
        }
        let buckets = self.buckets(epoch);
        let planned = buckets.iter().map(|b| b.records).sum::<u64>();
        let tail = buckets.last().map_or(0, |b| b.tail);
        let missing = match buckets.last() {
            Some(b) if b.tail > 0 => b.per_batch * self.micro_batches - b.tail,
            _ => 0,
        };
        let when = |last, count| if self.options.last == last { count } else { 0 };
        let (dropped, repeated) = (when(Last::Drop, tail), when(Last::Wrap, missing));
        Counts {
            records: self.lengths.records(),
            delivered: planned - dropped + repeated,
            repeated,
            filler_rows: when(Last::Pad, missing),
            dropped,
            oversize: self.oversize,
        }
    }

    /// Returns micro-batch `index` of a step.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`] when the epoch has no such step or the step no such micro-batch;
    /// [`ErrorKind::Corrupt`] when the length index and the record index disagree.
    pub fn micro_batch(&self, at: Position, index: u64) -> Result<MicroBatch> {
        if index >= self.micro_batches {
            let what = format!("there is no micro-batch {index} in a step of {}", self.micro_batches);
            return Err(Error::new(ErrorKind::OutOfRange, what));
        }
        let (bucket_step, positions, filler_rows) = if self.by_shape.is_some() {
            self.place_by_shape(at, index)?
        } else {
            let bucket_step = self.bucket_step(at)?;
            let (positions, filler_rows) = self.positions(bucket_step, index);
            (bucket_step, positions, filler_rows)
        };
        let BucketStep { bucket_index, bucket, .. } = bucket_step;
        let (mut records, mut lengths) = (Vec::new(), Vec::new());
        let order = self.order_of_records(at.epoch, bucket_index);
        for position in positions {
            let item = self.item(at.epoch, bucket, &order, position % bucket.records)?;
            records.push(item.record);
            lengths.push(match self.shares {
                Some(_) => self.lengths.length_of(item.record)?,
                None => item.length,
            });
        }
        let width = self.options.width(lengths.iter().copied().max().unwrap_or(0));
        let shape = self.by_shape.as_ref().and_then(|order| order.of_bucket(bucket_index));
        let (step, bucket) = (at.step, bucket_index);
        Ok(MicroBatch { step, index, bucket, shape, records, lengths, filler_rows, width })
    }

    /// Returns the totals over the micro-batches of a step. Every rank computes them for itself.
    ///
    /// # Errors
    ///
    /// Same as [`BatchPlan::micro_batch`].
    pub fn totals(&self, at: Position) -> Result<StepTotals> {
        let mut totals = StepTotals::default();
        let is_padded = !matches!(self.options.size, BatchSize::MaxTokensUnpadded(_));
        for index in 0..self.micro_batches {
            let batch = self.micro_batch(at, index)?;
            totals.records += batch.records.len() as u64;
            totals.tokens = totals.tokens.saturating_add(batch.tokens());
            let padded = if is_padded { batch.padded_tokens() } else { batch.tokens() };
            totals.padded_tokens = totals.padded_tokens.saturating_add(padded);
            if let Some(budget) = &self.options.budget {
                let sum = totals.column.get_or_insert(0);
                for &record in &batch.records {
                    *sum = sum.saturating_add(budget.of(&self.lengths, record)?);
                }
            }
        }
        Ok(totals)
    }

    /// Returns the micro-batches of one rank from `from` to the end of the epoch. The iterator ends after the first
    /// error.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] when the ranks cannot share the micro-batches; [`ErrorKind::OutOfRange`] when the epoch has
    /// no such step.
    pub fn batches(
        &self,
        layout: Layout,
        from: Position,
    ) -> Result<impl Iterator<Item = Result<MicroBatch>> + '_> {
        self.check_position(from)?;
        let share = layout.share(self.micro_batches)?;
        let all = (from.step..self.steps())
            .flat_map(move |step| share.clone().map(move |index| (Position { step, ..from }, index)));
        let mut failed = false;
        Ok(all.map_while(move |(at, index)| {
            let batch = (!failed).then(|| self.micro_batch(at, index));
            failed |= batch.as_ref().is_some_and(Result::is_err);
            batch
        }))
    }

    /// Returns the state after the steps of the epoch before `at`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`] when the epoch has fewer steps.
    pub fn state(&self, at: Position) -> Result<PlanState> {
        self.check_position(at)?;
        Ok(PlanState { epoch: at.epoch, step: at.step, ..self.start.clone() })
    }

    /// Returns the position at which a saved state continues.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] when the state belongs to another dataset, seed, number of micro-batches or set of options,
    /// or its step does not exist.
    pub fn resume(&self, saved: &PlanState) -> Result<Position> {
        self.start.check_same_run(saved)?;
        let steps = self.steps();
        if saved.step > steps {
            return Err(damaged_state(format!(
                "the state has {} steps done, but an epoch has {steps}",
                saved.step
            )));
        }
        Ok(Position { epoch: saved.epoch, step: saved.step })
    }

    /// Checks that a position exists. The position after the last step exists: the end of the epoch.
    fn check_position(&self, at: Position) -> Result<()> {
        if at.step <= self.steps() {
            return Ok(());
        }
        let what = format!("step {} is past the end of an epoch of {} steps", at.step, self.steps());
        Err(Error::new(ErrorKind::OutOfRange, what))
    }
}

fn ranked<'a>(lengths: &'a dyn Lengths, shares: Option<&'a LengthsInMemory>) -> &'a dyn Lengths {
    match shares {
        Some(shares) => shares,
        None => lengths,
    }
}

/// Returns the steps with the largest micro-batch and the longest record. A bucket moves its longest record to the
/// front, so each of them is the first step of a bucket.
fn worst_steps(buckets: &[Bucket]) -> Vec<u64> {
    let full = || buckets.iter().filter(|b| b.steps > 0);
    let size = |b: &&Bucket| (b.largest_batch, b.longest);
    let mut steps = Vec::new();
    for bucket in full().max_by_key(size).into_iter().chain(full().next_back()) {
        if !steps.contains(&bucket.first_step) {
            steps.push(bucket.first_step);
        }
    }
    steps
}

/// Records of one micro-batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MicroBatch {
    /// Global step in the epoch.
    pub step: u64,
    /// Index in the step.
    pub index: u64,
    /// Index of the bucket, counted from the shortest.
    pub bucket: usize,
    /// The shape of the images, with buckets by shape.
    pub shape: Option<ImageShape>,
    /// Ordinals of the records, one per row.
    pub records: Vec<u64>,
    /// Used lengths of the records: with [`Oversize::Truncate`](super::Oversize::Truncate), they may be less than the
    /// stored lengths.
    pub lengths: Vec<u64>,
    /// Number of rows after these that hold no record.
    pub filler_rows: u64,
    /// Length to which each row is padded.
    pub width: u64,
}

impl MicroBatch {
    /// Returns the number of rows, including filler rows.
    pub fn rows(&self) -> u64 {
        self.records.len() as u64 + self.filler_rows
    }

    /// Returns the sum of the lengths, at most `u64::MAX`.
    pub fn tokens(&self) -> u64 {
        self.lengths.iter().fold(0, |sum, length| sum.saturating_add(*length))
    }

    /// Returns rows × width, at most `u64::MAX`.
    pub fn padded_tokens(&self) -> u64 {
        self.rows().saturating_mul(self.width)
    }
}

/// Totals over the micro-batches of one step, for example to normalize a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepTotals {
    /// Number of records, including repetitions.
    pub records: u64,
    /// Sum of their lengths, at most `u64::MAX`.
    pub tokens: u64,
    /// Sum of rows × width, or of the lengths with [`BatchSize::MaxTokensUnpadded`]; at most `u64::MAX`.
    pub padded_tokens: u64,
    /// Sum of what the records have of the column of the second budget, if there is one.
    pub column: Option<u64>,
}

/// Numbers of records that an epoch delivers, repeats and drops:
/// `records = delivered − repeated + dropped + oversize dropped`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Number of records of the split.
    pub records: u64,
    /// Number of rows of an epoch that hold a record.
    pub delivered: u64,
    /// Number of rows of the last step that repeat a record ([`Last::Wrap`](super::Last::Wrap)).
    pub repeated: u64,
    /// Number of rows of the last step that hold no record ([`Last::Pad`](super::Last::Pad)).
    pub filler_rows: u64,
    /// Number of records that do not fill a step and are left out ([`Last::Drop`](super::Last::Drop)).
    pub dropped: u64,
    /// Number of records over the budget, whatever the [`Oversize`](super::Oversize) policy.
    pub oversize: u64,
}
