//! Finds the records of a step: step → bucket → positions → ranks → records.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use dsconvert_dataset::error::{Error, ErrorKind, Result};

use super::super::bucket::Bucket;
use super::super::lengths::Lengths;
use super::super::options::{BucketBy, Last, MAX_WINDOW_RECORDS, Shuffle};
use super::super::order::{Epoch, Order};
use super::super::permute::Purpose;
use super::super::shape;
use super::super::state::Position;
use super::{BatchPlan, Counts};

/// The bucket that holds a step, and the step's position in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct BucketStep<'a> {
    pub(super) bucket_index: usize,
    pub(super) bucket: &'a Bucket,
    /// Step in the bucket.
    pub(super) step: u64,
}

impl<L: Lengths> BatchPlan<L> {
    /// Returns the bucket that holds a step, and the step's position in it.
    pub(super) fn bucket_step(&self, at: Position) -> Result<BucketStep<'_>> {
        let step = if at.step < self.full_steps(at.epoch) {
            self.order_of_steps(at.epoch).at(at.step)
        } else {
            // The short step stays last, in the epoch and in its bucket.
            at.step
        };
        let found = self.bucket_with(at.epoch, step).filter(|_| at.step < self.steps());
        found.ok_or_else(|| self.no_such_step(at))
    }

    /// Returns the bucket with number `step` of all its steps. Several buckets start at one number if some have no steps: the
    /// last one holds it.
    fn bucket_with(&self, epoch: u64, step: u64) -> Option<BucketStep<'_>> {
        let buckets = self.buckets(epoch);
        let bucket_index = buckets.partition_point(|b| b.first_step <= step).checked_sub(1)?;
        let bucket = buckets.get(bucket_index)?;
        Some(BucketStep { bucket_index, bucket, step: step - bucket.first_step })
    }

    /// Returns the bucket of a micro-batch in a plan by shape, the positions that it takes in the order of the bucket, and its
    /// number of filler rows. Positions past the end wrap around to the start.
    pub(super) fn place_by_shape(
        &self,
        at: Position,
        index: u64,
    ) -> Result<(BucketStep<'_>, Range<u64>, u64)> {
        let all = self.full_steps(at.epoch);
        if at.step >= self.steps() || all == 0 {
            return Err(self.no_such_step(at));
        }
        let number = at.step * self.micro_batches + index;
        let found = self.micro_batch_of_bucket(at.epoch, number % all)?;
        let (positions, filler_rows) =
            shape::positions(found.bucket, found.step, self.options.last, number >= all);
        Ok((found, positions, filler_rows))
    }

    /// Returns the bucket of a micro-batch in a plan by shape, and its number in the bucket, as the step. `number` is its
    /// position in the epoch.
    fn micro_batch_of_bucket(&self, epoch: u64, number: u64) -> Result<BucketStep<'_>> {
        let found = self.bucket_with(epoch, self.order_of_steps(epoch).at(number));
        found.ok_or_else(|| Error::internal("no bucket has the micro-batch"))
    }

    /// Counts the records of an epoch of a plan by shape.
    pub(super) fn counts_by_shape(&self, epoch: u64) -> Counts {
        let all = self.full_steps(epoch);
        let mut counts =
            Counts { records: self.lengths.records(), oversize: self.oversize, ..Counts::default() };
        let planned: u64 = self.buckets(epoch).iter().map(|bucket| bucket.records).sum();
        let mut add = |held: u64, missing: u64| match self.options.last {
            Last::Short => {}
            Last::Drop => counts.dropped += held,
            Last::Pad => counts.filler_rows += missing,
            Last::Wrap => counts.repeated += missing,
        };
        for bucket in self.buckets(epoch).iter().filter(|bucket| bucket.tail > 0) {
            add(bucket.tail, bucket.per_batch - bucket.tail);
        }
        // The micro-batches that do not fill a step, or that the last step lacks. There are none in an empty epoch.
        let slots = self.steps() * self.micro_batches;
        for number in slots.min(all)..slots.max(all) {
            let Ok(found) = self.micro_batch_of_bucket(epoch, number % all) else { break };
            add(found.bucket.per_batch, found.bucket.per_batch);
        }
        counts.delivered = planned - counts.dropped + counts.repeated;
        counts
    }

    fn no_such_step(&self, at: Position) -> Error {
        let what = format!("there is no step {} in an epoch of {} steps", at.step, self.steps());
        Error::new(ErrorKind::OutOfRange, what)
    }

    /// Returns the positions that micro-batch `index` takes in the order of the bucket, and its number of filler rows.
    /// Positions past the end wrap around to the start.
    pub(super) fn positions(&self, at: BucketStep<'_>, index: u64) -> (Range<u64>, u64) {
        let BucketStep { bucket, step, .. } = at;
        let &Bucket { per_batch, tail, .. } = bucket;
        if let Some(ends) = &bucket.graded {
            let end =
                |index: u64| usize::try_from(index).ok().and_then(|i| ends.get(i)).copied().unwrap_or(0);
            return (index.checked_sub(1).map_or(0, end)..end(index), 0);
        }
        let first = step * per_batch * self.micro_batches;
        if step < bucket.steps || self.options.last == Last::Wrap {
            let start = first + index * per_batch;
            return (start..start + per_batch, 0);
        }
        // As evenly as possible; the first micro-batches get one more.
        let (each, more) = (tail / self.micro_batches, tail % self.micro_batches);
        let start = first + index * each + index.min(more);
        let count = each + u64::from(index < more);
        let filler = if self.options.last == Last::Pad { per_batch - count } else { 0 };
        (start..start + count, filler)
    }

    /// Returns the item at a position of the bucket.
    pub(super) fn item(&self, epoch: u64, bucket: &Bucket, order: &Order, position: u64) -> Result<Item> {
        let plain = |position| self.plain_item(bucket, order.at(position));
        let Some(window) = self.window_records(bucket) else { return plain(position) };
        let start = position / window * window;
        let end = start.saturating_add(window).min(bucket.records);
        let items = match self.windows.get(&(epoch, start..end)) {
            Some(items) => items,
            None => {
                let mut items = (start..end).map(plain).collect::<Result<Vec<Item>>>()?;
                // So that neighbors have similar lengths.
                items.sort_unstable_by_key(|item| (Reverse(item.length), item.record));
                let items: Arc<[Item]> = items.into();
                self.windows.keep((epoch, start..end), Arc::clone(&items));
                items
            }
        };
        let item = usize::try_from(position - start).ok().and_then(|i| items.get(i)).copied();
        item.ok_or_else(|| Error::new(ErrorKind::OutOfRange, "a position outside its window"))
    }

    /// Returns the number of records of an epoch that are drawn one by one, without buckets.
    pub(crate) fn single_records(&self) -> u64 {
        self.buckets(0).first().map_or(0, |bucket| bucket.records)
    }

    /// Returns the record at `position` of an epoch in which records are drawn one by one, and its length after truncation.
    pub(crate) fn single_record(&self, epoch: u64, position: u64) -> Result<(u64, u64)> {
        let bucket = self.buckets(epoch).first().filter(|bucket| position < bucket.records);
        let missing = || Error::new(ErrorKind::OutOfRange, format!("an epoch has no record {position}"));
        let bucket = bucket.ok_or_else(missing)?;
        let item = self.item(epoch, bucket, &self.order_of_records(epoch, 0), position)?;
        Ok((item.record, item.length))
    }

    fn plain_item(&self, bucket: &Bucket, number: u64) -> Result<Item> {
        let record = self.record_of(bucket, number)?;
        let length = self.options.used(self.ranked().length_of(record)?);
        if length < bucket.shortest || length > bucket.longest {
            let what = format!(
                "the record has length {length} in the record index, but {} to {} in the length index",
                bucket.shortest, bucket.longest
            );
            return Err(Error::corrupt(what)
                .at_row(record)
                .help("an index was altered; `dsconvert inspect --verify` names it"));
        }
        Ok(Item { record, length })
    }

    /// Returns whether the numbers of an order are record ordinals. Otherwise they are ranks, which exclude records
    /// over the budget. A full shuffle uses ranks, as it does not depend on the stored order.
    fn in_record_order(&self) -> bool {
        !matches!(self.options.bucket, BucketBy::Length(_) | BucketBy::Shape)
            && self.options.shuffle != Shuffle::Full
    }

    fn record_of(&self, bucket: &Bucket, number: u64) -> Result<u64> {
        if let Some(order) = &self.by_shape {
            let found = order.record_at(bucket.start + number);
            return found.ok_or_else(|| Error::internal("no record has this position"));
        }
        if self.in_record_order() { Ok(number) } else { self.ranked().record_at(bucket.start + number) }
    }

    /// Returns the order of the records of a bucket.
    pub(super) fn order_of_records(&self, epoch: u64, bucket: usize) -> Order {
        let cutting = self.cutting(epoch);
        let records = match cutting.and_then(|cutting| cutting.buckets.get(bucket)) {
            // Graded micro-batches are cut from the ranks in order.
            Some(Bucket { graded: Some(_), .. }) | None => return Order::natural(),
            Some(bucket) => bucket.records,
        };
        let order = Order::of_records(self.options.shuffle, self.epoch(epoch), records, bucket as u64);
        match cutting.and_then(|cutting| cutting.longest_items.get(bucket)) {
            Some(&longest) => order.with(0, longest),
            None => order,
        }
    }

    fn full_steps(&self, epoch: u64) -> u64 {
        self.cutting(epoch).map_or(0, |cutting| cutting.full_steps)
    }

    fn order_of_steps(&self, epoch: u64) -> Order {
        let pinned = self.cutting(epoch).map_or(&[][..], |cutting| &cutting.pinned);
        let (epoch, n) = (self.epoch(epoch), self.full_steps(epoch));
        let order = match (&self.options.bucket, self.options.shuffle) {
            (_, Shuffle::None) => Order::natural(),
            (BucketBy::Length(_) | BucketBy::Shape, _) => Order::random(epoch, n, Purpose::Steps, 0),
            (BucketBy::Windows { steps }, _) => Order::of_steps_in_windows(epoch, n, *steps),
            // The records are already shuffled.
            (BucketBy::None, _) => Order::natural(),
        };
        (0..).zip(pinned).fold(order, |order, (position, &step)| order.with(position, step))
    }

    fn epoch(&self, epoch: u64) -> Epoch {
        Epoch { seed: self.start.seed, epoch }
    }

    /// Returns the number of records of a sorted window, or `None` without windows.
    fn window_records(&self, bucket: &Bucket) -> Option<u64> {
        match self.options.bucket {
            BucketBy::Windows { steps } => Some(steps.saturating_mul(bucket.per_batch * self.micro_batches)),
            _ => None,
        }
    }

    /// Checks that a window can be sorted in memory.
    pub(super) fn check_windows(&self) -> Result<()> {
        for bucket in self.cuttings.iter().flat_map(|cutting| &cutting.buckets) {
            let window = self.window_records(bucket).unwrap_or(0).min(bucket.records);
            if window > MAX_WINDOW_RECORDS {
                let what = format!("a window of {window} records exceeds the limit of {MAX_WINDOW_RECORDS}");
                return Err(Error::usage(what).help("lower window_steps"));
            }
        }
        Ok(())
    }

    /// Returns the number of the longest record in the orders of its bucket.
    pub(super) fn longest_item(&self, bucket: &Bucket) -> Result<u64> {
        let last = bucket.records.saturating_sub(1);
        if self.in_record_order() { self.ranked().record_at(bucket.start + last) } else { Ok(last) }
    }
}

/// A record and its length, after truncation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) record: u64,
    pub(super) length: u64,
}
