//! The plan: which records each micro-batch of each step holds.

use std::ops::Range;

use super::bucket::{self, Bucket, Buckets};
use super::layout::Layout;
use super::lengths::Lengths;
use super::micro::{Counts, MicroBatch, StepTotals};
use super::options::{
    BatchOptions, BatchSize, BucketBy, Last, MAX_MICRO_BATCHES, MAX_WINDOW_RECORDS, Oversize, Shuffle,
    in_range,
};
use super::order::{Epoch, Order};
use super::state::{PlanState, Position};
use super::window::{Item, WindowCache};
use crate::error::{Error, ErrorKind, Result};

/// A pure function of (lengths, options, seed, epoch, step) that says which records each micro-batch holds.
///
/// Nothing in it changes; threads may share it. It takes memory for the buckets, not for the records.
///
/// ```
/// use dsconvert::reader::batch::{BatchOptions, BatchPlan, BatchSize, Layout, LengthsInMemory, Position};
///
/// let lengths = LengthsInMemory::new((0..1000).map(|i| 20 + i % 300).collect());
/// let options = BatchOptions::new(BatchSize::MaxTokens(4096));
/// let (seed, micro_batches) = (42, 4);
/// let plan = BatchPlan::new("fingerprint of the dataset", lengths, options, seed, micro_batches)?;
///
/// // Two ranks: each does two of the four micro-batches of a step.
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
/// // Any number of ranks goes on where the two were.
/// let saved = plan.state(Position { epoch: 0, step: 3 })?;
/// assert_eq!(plan.resume(&saved)?, Position { epoch: 0, step: 3 });
/// # Ok::<(), dsconvert::error::Error>(())
/// ```
#[derive(Debug)]
pub struct BatchPlan<L> {
    lengths: L,
    options: BatchOptions,
    micro_batches: u64,
    buckets: Vec<Bucket>,
    oversize: u64,
    /// The state at the start.
    start: PlanState,
    /// Full steps of an epoch.
    full_steps: u64,
    /// With `longest_first`: the steps that come first.
    pinned: Vec<u64>,
    /// With `longest_first`: what stands first in each bucket (as [`BatchPlan::record_of`] counts).
    longest_items: Vec<u64>,
    windows: WindowCache,
}

/// Where a step finds its records.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    index: usize,
    bucket: &'a Bucket,
    /// Step in the bucket.
    step: u64,
}

impl<L: Lengths> BatchPlan<L> {
    /// A plan for the records of `lengths`. `dataset` is a fingerprint of dataset and split; `micro_batches` is the
    /// number of micro-batches of a global step, over all ranks: fixed once training has started.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] when the options are wrong or a record exceeds the budget and may not;
    /// [`ErrorKind::Corrupt`] when the lengths contradict themselves.
    pub fn new(
        dataset: &str,
        lengths: L,
        options: BatchOptions,
        seed: u64,
        micro_batches: u64,
    ) -> Result<Self> {
        options.check()?;
        in_range("the number of micro-batches per step", micro_batches, MAX_MICRO_BATCHES)?;
        let Buckets { buckets, oversize, digest } = bucket::build(&lengths, &options, micro_batches)?;
        let start = PlanState {
            dataset: dataset.to_owned(),
            lengths: digest,
            options: options.fingerprint()?,
            seed,
            micro_batches,
            epoch: 0,
            step: 0,
        };
        let full_steps = buckets.last().map_or(0, |b| b.first_step + b.steps);
        let mut plan = Self {
            lengths,
            options,
            micro_batches,
            buckets,
            oversize,
            start,
            full_steps,
            pinned: Vec::new(),
            longest_items: Vec::new(),
            windows: WindowCache::default(),
        };
        plan.check_windows()?;
        if plan.options.longest_first {
            plan.pinned = plan.worst_steps();
            plan.longest_items =
                plan.buckets.iter().map(|b| plan.longest_item(b)).collect::<Result<Vec<u64>>>()?;
        }
        Ok(plan)
    }

    /// Number of global steps of an epoch.
    pub fn steps(&self) -> u64 {
        self.full_steps + u64::from(self.has_last_step())
    }

    /// Number of micro-batches of a global step.
    pub fn micro_batches(&self) -> u64 {
        self.micro_batches
    }

    /// The options.
    pub fn options(&self) -> &BatchOptions {
        &self.options
    }

    /// The buckets, shortest records first.
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// What an epoch does with the records. The same in every epoch.
    pub fn counts(&self) -> Counts {
        let planned = self.buckets.iter().map(|b| b.records).sum::<u64>();
        let tail = self.buckets.last().map_or(0, |b| b.tail);
        let missing = match self.buckets.last() {
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

    /// The micro-batch `index` of a step.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`] when the epoch has no such step or the step no such micro-batch;
    /// [`ErrorKind::Corrupt`] when the length index and the record index disagree.
    pub fn micro_batch(&self, at: Position, index: u64) -> Result<MicroBatch> {
        if index >= self.micro_batches {
            let what = format!("a step has {} micro-batches, not {index}", self.micro_batches);
            return Err(Error::new(ErrorKind::OutOfRange, what));
        }
        let place = self.place(at)?;
        let (positions, filler_rows) = self.positions(place, index);
        let (mut records, mut lengths) = (Vec::new(), Vec::new());
        let order = self.order_of_records(at.epoch, place.index);
        for position in positions {
            let item = self.item(at.epoch, place, &order, position % place.bucket.records)?;
            records.push(item.record);
            lengths.push(item.length);
        }
        let width = self.options.width(lengths.iter().copied().max().unwrap_or(0));
        Ok(MicroBatch { step: at.step, index, bucket: place.index, records, lengths, filler_rows, width })
    }

    /// What the micro-batches of a step hold together. Every rank computes it for itself.
    ///
    /// # Errors
    ///
    /// As [`BatchPlan::micro_batch`].
    pub fn totals(&self, at: Position) -> Result<StepTotals> {
        let mut totals = StepTotals::default();
        for index in 0..self.micro_batches {
            let batch = self.micro_batch(at, index)?;
            totals.records += batch.records.len() as u64;
            totals.tokens += batch.tokens();
            totals.padded_tokens = totals.padded_tokens.saturating_add(batch.padded_tokens());
        }
        Ok(totals)
    }

    /// The micro-batches of one rank from `from` to the end of the epoch. An item that is an error is the last.
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

    /// The state when the steps of the epoch before `at` are done.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`] when the epoch has not so many steps.
    pub fn state(&self, at: Position) -> Result<PlanState> {
        self.check_position(at)?;
        Ok(PlanState { epoch: at.epoch, step: at.step, ..self.start.clone() })
    }

    /// Where a saved state goes on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] when it is a state of another dataset, seed, number of micro-batches or of other options;
    /// [`ErrorKind::OutOfRange`] when its step does not exist.
    pub fn resume(&self, saved: &PlanState) -> Result<Position> {
        self.start.check_same_run(saved)?;
        let at = Position { epoch: saved.epoch, step: saved.step };
        self.check_position(at)?;
        Ok(at)
    }

    /// One past the last step is a position: the epoch is done.
    fn check_position(&self, at: Position) -> Result<()> {
        if at.step <= self.steps() {
            return Ok(());
        }
        let what = format!("an epoch has {} steps, not {}", self.steps(), at.step);
        Err(Error::new(ErrorKind::OutOfRange, what))
    }

    /// Whether the records that are left over make a step.
    fn has_last_step(&self) -> bool {
        self.options.last != Last::Drop && self.buckets.last().is_some_and(|b| b.tail > 0)
    }

    fn place(&self, at: Position) -> Result<Place<'_>> {
        let step = if at.step < self.full_steps {
            self.order_of_steps(at.epoch).at(at.step)
        } else {
            // The step that is not full comes last, also in its bucket.
            at.step
        };
        let behind = self.buckets.partition_point(|b| b.first_step <= step);
        let found = behind.checked_sub(1).and_then(|index| Some((index, self.buckets.get(index)?)));
        match found {
            Some((index, bucket)) if at.step < self.steps() => {
                Ok(Place { index, bucket, step: step - bucket.first_step })
            }
            _ => {
                let what = format!("an epoch has {} steps, not {}", self.steps(), at.step);
                Err(Error::new(ErrorKind::OutOfRange, what))
            }
        }
    }

    /// Positions in the order of the bucket that micro-batch `index` takes, and how many rows it fills up. Positions
    /// past the end begin at the start again.
    fn positions(&self, place: Place<'_>, index: u64) -> (Range<u64>, u64) {
        let &Bucket { per_batch, tail, .. } = place.bucket;
        if let Some(ends) = &place.bucket.graded {
            let end =
                |index: u64| usize::try_from(index).ok().and_then(|i| ends.get(i)).copied().unwrap_or(0);
            return (index.checked_sub(1).map_or(0, end)..end(index), 0);
        }
        let first = place.step * per_batch * self.micro_batches;
        if place.step < place.bucket.steps || self.options.last == Last::Wrap {
            let start = first + index * per_batch;
            return (start..start + per_batch, 0);
        }
        // As even as can be; the first ones get one more.
        let (each, more) = (tail / self.micro_batches, tail % self.micro_batches);
        let start = first + index * each + index.min(more);
        let count = each + u64::from(index < more);
        let filler = if self.options.last == Last::Pad { per_batch - count } else { 0 };
        (start..start + count, filler)
    }

    fn item(&self, epoch: u64, place: Place<'_>, order: &Order, position: u64) -> Result<Item> {
        let plain = |position| self.plain_item(place.bucket, order.at(position));
        let Some(window) = self.window_records(place.bucket) else { return plain(position) };
        let start = position / window * window;
        let end = start.saturating_add(window).min(place.bucket.records);
        let items = self.windows.sorted(epoch, start..end, plain)?;
        let item = usize::try_from(position - start).ok().and_then(|i| items.get(i)).copied();
        item.ok_or_else(|| Error::new(ErrorKind::OutOfRange, "a position outside its window"))
    }

    fn plain_item(&self, bucket: &Bucket, number: u64) -> Result<Item> {
        let record = self.record_of(bucket, number)?;
        let length = self.options.used(self.lengths.length_of(record)?);
        if length < bucket.shortest || length > bucket.longest {
            let what = format!(
                "the record index gives it length {length}, the length index {} to {}",
                bucket.shortest, bucket.longest
            );
            return Err(Error::corrupt(what)
                .at_row(record)
                .help("an index was altered; `dsconvert inspect --verify` tells which"));
        }
        Ok(Item { record, length })
    }

    /// Whether the numbers of an order are record ordinals. Otherwise they are ranks, which leave out what is over the
    /// budget; it makes no difference to a full shuffle.
    fn in_record_order(&self) -> bool {
        !matches!(self.options.bucket, BucketBy::Length(_)) && self.options.shuffle != Shuffle::Full
    }

    fn record_of(&self, bucket: &Bucket, number: u64) -> Result<u64> {
        if self.in_record_order() { Ok(number) } else { self.lengths.record_at(bucket.start + number) }
    }

    fn order_of_records(&self, epoch: u64, bucket: usize) -> Order {
        let records = match self.buckets.get(bucket) {
            // The micro-batches are cut from the ranks as they are.
            Some(Bucket { graded: Some(_), .. }) | None => return Order::natural(),
            Some(bucket) => bucket.records,
        };
        let order = Order::of_records(self.options.shuffle, self.epoch(epoch), records, bucket as u64);
        match self.longest_items.get(bucket) {
            Some(&longest) => order.with(0, longest),
            None => order,
        }
    }

    fn order_of_steps(&self, epoch: u64) -> Order {
        let (epoch, n) = (self.epoch(epoch), self.full_steps);
        let order = match (&self.options.bucket, self.options.shuffle) {
            (_, Shuffle::None) => Order::natural(),
            (BucketBy::Length(_), _) => Order::of_steps(epoch, n),
            (BucketBy::Windows { steps }, _) => Order::of_steps_in_windows(epoch, n, *steps),
            // The records are shuffled already.
            (BucketBy::None, _) => Order::natural(),
        };
        (0..).zip(&self.pinned).fold(order, |order, (position, &step)| order.with(position, step))
    }

    fn epoch(&self, epoch: u64) -> Epoch {
        Epoch { seed: self.start.seed, epoch }
    }

    /// Records of a sorted window; `None` when there are no windows.
    fn window_records(&self, bucket: &Bucket) -> Option<u64> {
        match self.options.bucket {
            BucketBy::Windows { steps } => Some(steps.saturating_mul(bucket.per_batch * self.micro_batches)),
            _ => None,
        }
    }

    fn check_windows(&self) -> Result<()> {
        for bucket in &self.buckets {
            let window = self.window_records(bucket).unwrap_or(0).min(bucket.records);
            if window > MAX_WINDOW_RECORDS {
                let what = format!("a window of {window} records is more than {MAX_WINDOW_RECORDS}");
                return Err(Error::usage(what).help("sort fewer steps together"));
            }
        }
        Ok(())
    }

    /// The steps that hold the largest micro-batch and the longest record. Their buckets bring the longest to the
    /// front, so it is the first step of a bucket.
    fn worst_steps(&self) -> Vec<u64> {
        let full = || self.buckets.iter().filter(|b| b.steps > 0);
        let size = |b: &&Bucket| (b.largest_batch, b.longest);
        let mut steps = Vec::new();
        for bucket in full().max_by_key(size).into_iter().chain(full().next_back()) {
            if !steps.contains(&bucket.first_step) {
                steps.push(bucket.first_step);
            }
        }
        steps
    }

    /// The number of the longest record in the orders of its bucket.
    fn longest_item(&self, bucket: &Bucket) -> Result<u64> {
        let last = bucket.records.saturating_sub(1);
        if self.in_record_order() { self.lengths.record_at(bucket.start + last) } else { Ok(last) }
    }

    /// Most tokens a micro-batch may hold, padded or not as its budget says; `None` without a budget or when records
    /// that exceed it are alone.
    pub fn budget(&self) -> Option<u64> {
        match (self.options.size, self.options.oversize) {
            (BatchSize::BatchSize(_), _) | (_, Oversize::Alone) => None,
            (BatchSize::MaxTokens(max) | BatchSize::MaxTokensUnpadded(max), _) => Some(max),
        }
    }
}
