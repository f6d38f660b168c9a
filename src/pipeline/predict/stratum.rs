//! Groups of files that are sampled in the same way, and estimates of their totals.
//!
//! Strata are sampled at different rates, so every ratio of the sample (rows per token, encoded bytes per byte) belongs
//! to one stratum.

use super::sample_writer::Written;
use crate::pipeline::estimate::{Estimate, Population};

/// Expected records of one split of a unit.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::pipeline) struct UnitPart {
    /// Bytes before encoding.
    pub(super) bytes: f64,
    /// Number of records, or of packed rows.
    pub(super) rows: f64,
}

/// Number of groups of observations that are encoded separately. Their differences show the spread of ratios that only
/// a whole shard has.
pub(super) const GROUPS: usize = 10;

/// Number of times that an item is longer than the part of the source in which it starts, to count as a long one.
const LONG: f64 = 4.0;

/// Unit in which a stratum is counted and sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pipeline) enum StratumUnit {
    /// Files that are one item each, whatever their content.
    Items,
    /// Files that are one item or, depending on their content, none.
    Files,
    /// Bytes of files with any number of items.
    Bytes,
}

/// Size of a stratum, or of a part of it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(in crate::pipeline) struct SampleSize {
    /// What the amounts of the items are in proportion to (their tokens, their bytes, the time they take): files, or source
    /// bytes.
    pub(in crate::pipeline) amount: f64,
    /// What their number is in proportion to: files, or the bytes where items start. A long line starts in one range of
    /// bytes, and all of it belongs to that range.
    pub(in crate::pipeline) places: f64,
}

impl SampleSize {
    /// Returns the size of files, or of bytes that hold whole items.
    pub(in crate::pipeline) fn of(size: f64) -> Self {
        Self { amount: size, places: size }
    }

    pub(in crate::pipeline) fn plus(self, other: Self) -> Self {
        Self { amount: self.amount + other.amount, places: self.places + other.places }
    }
}

/// Result of one task of the sample.
#[derive(Debug, Clone, Default)]
pub(super) struct Observation {
    /// Share of the stratum.
    pub(super) size: SampleSize,
    pub(super) seconds: f64,
    pub(super) found: u64,
    pub(super) rejected: u64,
    pub(super) filtered: u64,
    /// Records before the stages, by split.
    pub(super) splits: Vec<SplitAmounts>,
}

/// Amounts of the records of one split.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SplitAmounts {
    pub(super) records: u64,
    /// Sum of their lengths.
    pub(super) length: u64,
    /// Bytes before encoding.
    pub(super) bytes: u64,
}

impl Observation {
    pub(super) fn sum(&self, of: impl Fn(&SplitAmounts) -> u64) -> u64 {
        self.splits.iter().map(of).sum()
    }
}

/// A group of observations that were encoded together.
#[derive(Debug)]
pub(super) struct Group {
    /// Sum of the amounts of the observations.
    pub(super) amount: f64,
    pub(super) written: Written,
}

/// Shards that the sample was divided into.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ShardSum {
    count: f64,
    encoded: f64,
}

impl ShardSum {
    pub(super) fn add(&mut self, written: &Written) {
        self.count += 1.0;
        self.encoded += written.encoded as f64;
    }
}

/// A sampled stratum.
#[derive(Debug)]
pub(in crate::pipeline) struct Stratum {
    pub(super) unit: StratumUnit,
    /// Total size.
    pub(super) size: SampleSize,
    pub(super) seen: Vec<Observation>,
    /// Shard of all records of the sample.
    pub(super) written: Written,
    /// Shards of parts of the sample.
    pub(super) groups: Vec<Group>,
    /// Shards of one observation each, unless records are packed.
    pub(super) alone: ShardSum,
    /// Shards of the first and the second halves of the observations, if these have several records.
    pub(super) halves: Vec<Written>,
    /// Time of writing `written`.
    pub(super) write_seconds: f64,
    /// Number of tokens that fill a row, if records are packed.
    pub(super) full_row: Option<u64>,
}

impl Stratum {
    /// Returns the sum of `quantity` over the sample.
    pub(super) fn sum(&self, quantity: impl Fn(&Observation) -> u64) -> u64 {
        self.seen.iter().map(quantity).sum()
    }

    fn sampled(&self) -> SampleSize {
        self.seen.iter().map(|o| o.size).fold(SampleSize::default(), SampleSize::plus)
    }

    /// Returns whether the sample is the whole stratum.
    pub(super) fn is_complete(&self) -> bool {
        self.sampled().places >= self.size.places
    }

    /// The stratum as it is counted.
    fn places(&self) -> Population {
        Population { size: self.size.places, sampled: self.sampled().places }
    }

    /// The stratum as amounts are added up. A sample that has a very long item has most of the amount, but not of the
    /// others, whose ratios it shows.
    fn amounts(&self) -> Population {
        let (sampled, size) = (self.sampled(), self.size);
        let of_places = if size.places > 0.0 { size.amount * sampled.places / size.places } else { 0.0 };
        Population { size: size.amount, sampled: sampled.amount.min(of_places) }
    }

    /// Estimates a sum that is in proportion to the amount of the stratum.
    fn total(&self, quantity: impl Fn(&Observation) -> f64 + Clone) -> Estimate {
        let total = self.amounts().total(self.seen.iter().map(|o| (o.size.amount, quantity(o))));
        let more = self.unseen() / 2.0 * total.value;
        let total = Estimate::around(total.value, total.spread().hypot(more));
        // The ratio of a very long item says little about the others. So it counts as itself, too, and theirs is the ratio
        // of the others of the sample.
        let is_long = |o: &&Observation| o.size.amount > LONG * o.size.places;
        if self.unit != StratumUnit::Bytes || !self.seen.iter().any(|o| is_long(&o)) {
            return total;
        }
        let long = self.seen.iter().filter(is_long);
        let (amount, known) =
            long.fold((0.0, 0.0), |(sum, known), o| (sum + o.size.amount, known + quantity(o)));
        let all = self.amounts();
        let left = (1.0 - amount / all.size).max(0.0);
        let others = Population { size: all.size * left, sampled: all.sampled * left };
        let others =
            others.total(self.seen.iter().filter(|o| !is_long(o)).map(|o| (o.size.amount, quantity(o))));
        total.or_wider(Estimate::around(known + others.value, others.spread()))
    }

    /// Returns the share of the amount that is in items which start elsewhere than in the sample, because they are longer
    /// than its parts. Nothing is known of their ratios, so a total may differ by half of it.
    fn unseen(&self) -> f64 {
        let sampled = self.sampled();
        let is_known = self.unit != StratumUnit::Bytes || self.is_complete() || sampled.places <= 0.0;
        if is_known { 0.0 } else { (1.0 - sampled.amount / sampled.places).max(0.0) }
    }

    /// Estimates a number that is in proportion to the places of the stratum, where items are in any number at a place.
    fn number(&self, quantity: impl Fn(&Observation) -> u64 + Clone) -> Estimate {
        let population = self.places();
        let total = population.total(self.seen.iter().map(|o| (o.size.places, quantity(o) as f64)));
        // Where most parts of the sample are empty, as in the middle of a long item, their number has a skewed
        // distribution: how many are not is a share.
        let (occupied, parts) = (self.sum(|o| u64::from(quantity(o) > 0)), self.seen.len() as u64);
        if occupied == 0 || occupied == parts {
            return total;
        }
        let share = population.share(occupied, parts);
        total.or_wider(share.times(total.value / share.value))
    }

    /// Estimates the spread of a total that is known only for whole shards. Small shards have another mean than a large
    /// one, but show the spread.
    fn written_spread(&self, quantity: impl Fn(&Written) -> f64 + Clone) -> f64 {
        let groups = self.groups.iter().map(|group| (group.amount, quantity(&group.written)));
        self.amounts().total(groups).spread()
    }

    pub(super) fn found(&self) -> Estimate {
        match self.unit {
            StratumUnit::Items => Estimate::exactly(self.size.places),
            StratumUnit::Files => self.count(|o| o.found),
            StratumUnit::Bytes => self.number(|o| o.found),
        }
    }

    pub(super) fn records(&self) -> Estimate {
        let records = |o: &Observation| o.sum(|split| split.records);
        let is_share = self.sum(records) <= self.sum(|o| o.found);
        match is_share {
            true => self.count(records),
            // Items that are divided into several records.
            false => self.total(|o| records(o) as f64),
        }
    }

    /// Estimates a number of files or items that have a property. A share has an interval even if all sampled items, or
    /// none, have it.
    pub(super) fn count(&self, quantity: impl Fn(&Observation) -> u64 + Clone) -> Estimate {
        let (seen, population) = (self.sum(quantity.clone()), self.places());
        match self.unit {
            StratumUnit::Items | StratumUnit::Files => {
                population.share(seen, self.seen.len() as u64).times(self.size.places)
            }
            StratumUnit::Bytes => {
                let share = population.share(seen, self.sum(|o| o.found));
                // Adjacent items are similar, so the spread between tasks may be larger than between independent items.
                self.number(quantity).or_wider(share.times(self.found().value))
            }
        }
    }

    /// Estimates the sum of the lengths of the records.
    pub(super) fn length(&self) -> Estimate {
        self.total(|o| o.sum(|split| split.length) as f64)
    }

    /// Estimates the bytes of the records before encoding.
    pub(super) fn bytes(&self) -> Estimate {
        self.total(|o| o.sum(|split| split.bytes) as f64)
    }

    /// Estimates the encoded bytes of the records, without what each shard needs [once](Self::once).
    pub(super) fn encoded(&self) -> Estimate {
        let (all, sampled) = (self.written.encoded as f64, self.sampled().amount);
        if sampled == 0.0 {
            return Estimate::default();
        }
        let (in_large, once) = self.in_large_shards();
        let factor = self.size.amount / sampled;
        // The corrections are estimates, too: the size may differ by half of them.
        let correction = ((all - in_large - once) * factor + once * (factor - 1.0)) / 2.0;
        let spread = self.written_spread(|written| written.encoded as f64).hypot(correction);
        Estimate::around(in_large * factor, spread.hypot(self.unseen() / 2.0 * in_large * factor))
    }

    /// Estimates the bytes that the records of the sample take in large shards, and those that a large shard needs once.
    ///
    /// In a large shard, a record takes less space than in the shard of the sample, which therefore shows too much. The
    /// same records in several shards show how much:
    /// * Each shard needs some bytes once, whatever its size: dictionaries, the start of the compression. All shards of
    ///   the groups need them once more than the shard of the sample, for each group but the first.
    /// * A record is compressed better next to its neighbor in the source. The shards of the halves have twice as many
    ///   gaps between observations.
    fn in_large_shards(&self) -> (f64, f64) {
        let all = self.written.encoded as f64;
        let more = |encoded: f64| (encoded - all).clamp(0.0, all);
        let groups = self.groups.iter().map(|group| group.written.encoded as f64);
        let once = more(groups.sum()) / f64::max(self.groups.len() as f64 - 1.0, 1.0);
        let of_halves = more(self.halves.iter().map(|half| half.encoded as f64).sum());
        let gaps = (of_halves - once).max(0.0) * (1.0 - self.sampled().amount / self.size.amount).max(0.0);
        (all - once - gaps, once)
    }

    /// Estimates the bytes that a shard of `records` records needs once, besides those that it has even without records.
    /// A small shard needs other bytes than a large one: between the sizes of the shards of the sample, they depend on the
    /// logarithm of the size.
    pub(super) fn once(&self, records: f64) -> f64 {
        let (in_large, once) = self.in_large_shards();
        let seen = self.sum(|o| o.sum(|split| split.records)) as f64;
        if self.alone.count < 2.0 || seen == 0.0 {
            return once;
        }
        let of_alone = (self.alone.encoded - in_large).max(0.0) / self.alone.count;
        let (small, large) = (seen / self.alone.count, seen / self.groups.len() as f64);
        let share = if large > small { (records / small).ln() / (large / small).ln() } else { 1.0 };
        let share = share.clamp(0.0, 1.0);
        of_alone * (1.0 - share) + once * share
    }

    /// Estimates the number of packed rows of `full` tokens. The last row need not be full.
    pub(super) fn rows(&self, full: u64) -> Estimate {
        let (all, sampled) = (self.written.full_rows(full), self.sampled().amount);
        let rows = if sampled == 0.0 { 0.0 } else { all * self.size.amount / sampled };
        let spread = self.written_spread(|written| written.full_rows(full));
        Estimate::around(rows, spread.hypot(self.unseen() / 2.0 * rows))
    }

    /// Estimates the time of converting and writing, on one thread.
    pub(super) fn seconds(&self) -> Estimate {
        let bytes = self.sum(|o| o.sum(|split| split.bytes)) as f64;
        let per_byte = if bytes == 0.0 { 0.0 } else { self.write_seconds / bytes };
        self.total(|o| o.seconds).plus(self.bytes().times(per_byte))
    }

    /// Returns what the number of records is in proportion to: packed rows have a number of tokens.
    pub(super) fn record_size(&self, size: SampleSize) -> f64 {
        if self.full_row.is_some() { size.amount } else { size.places }
    }

    /// Returns the expected records, by split: their bytes per amount, and their number per [`Self::record_size`].
    pub(in crate::pipeline) fn rates(&self) -> Vec<UnitPart> {
        let all = |of: fn(&SplitAmounts) -> u64| self.sum(|o| o.sum(of)) as f64;
        let per = |quantity: f64, whole: f64| if whole == 0.0 { 0.0 } else { quantity / whole };
        // Packing changes the bytes, too.
        let bytes_written = per(self.written.bytes as f64, all(|s| s.bytes));
        let rows_per_token = self.full_row.map(|full| per(self.written.full_rows(full), all(|s| s.length)));
        let splits = self.seen.first().map_or(0, |o| o.splits.len());
        let sampled = self.sampled();
        let of_split = |split: usize| {
            let sum = |of: fn(&SplitAmounts) -> u64| self.sum(|o| of(&o.splits[split])) as f64;
            let rows = rows_per_token.map_or_else(|| sum(|s| s.records), |rows| sum(|s| s.length) * rows);
            UnitPart {
                bytes: per(sum(|s| s.bytes) * bytes_written, sampled.amount),
                rows: per(rows, self.record_size(sampled)),
            }
        };
        (0..splits).map(of_split).collect()
    }
}

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    use super::*;

    /// Number of files of the simulated sources, and of their sample.
    const FILES: u64 = 3_000;
    const SAMPLED: u64 = 100;

    fn draw(i: u64, seed: u64, below: u64) -> u64 {
        xxh3_64_with_seed(&i.to_le_bytes(), seed) % below
    }

    /// Returns what becomes of a file: three in a hundred are not images, and four are rejected or filtered.
    fn file(i: u64) -> Observation {
        let mut file = Observation { size: SampleSize::of(1.0), found: 1, ..Observation::default() };
        file.splits = vec![SplitAmounts::default()];
        match draw(i, 1, 100) {
            0..3 => file.found = 0,
            3..6 => file.rejected = 1,
            6 => file.filtered = 1,
            _ => file.splits[0].records = 1,
        }
        file
    }

    /// Returns items of a container: all of them damaged in one of 20 tasks.
    fn task(i: u64) -> Observation {
        let found = 5 + draw(i, 2, 7);
        let is_damaged = draw(i, 3, 20) == 0;
        let records = if is_damaged { 0 } else { found };
        Observation {
            size: SampleSize::of(900.0 + draw(i, 4, 2_000) as f64),
            found,
            rejected: found - records,
            splits: vec![SplitAmounts { records, ..SplitAmounts::default() }],
            ..Observation::default()
        }
    }

    fn stratum(unit: StratumUnit, size: SampleSize, seen: Vec<Observation>) -> Stratum {
        let (written, groups, halves) = (Written::default(), Vec::new(), Vec::new());
        let alone = ShardSum::default();
        Stratum { unit, size, seen, written, groups, alone, halves, write_seconds: 0.0, full_row: None }
    }

    /// Returns how many of 200 samples have an interval that contains the truth, by quantity.
    fn covered(unit: StratumUnit, of: fn(u64) -> Observation) -> [usize; 4] {
        let whole = stratum(unit, SampleSize::default(), (0..FILES).map(of).collect());
        let totals = |s: &Stratum| [s.found(), s.records(), s.count(|o| o.rejected), s.count(|o| o.filtered)];
        let records = |o: &Observation| o.sum(|split| split.records);
        let truth = [
            whole.sum(|o| o.found),
            whole.sum(records),
            whole.sum(|o| o.rejected),
            whole.sum(|o| o.filtered),
        ];
        let mut covered = [0; 4];
        for round in 0..200 {
            let mut order: Vec<u64> = (0..FILES).collect();
            order.sort_by_key(|&i| draw(i, 100 + round, u64::MAX));
            let seen = order[..SAMPLED as usize].iter().map(|&i| of(i)).collect();
            let estimates = totals(&stratum(unit, whole.sampled(), seen));
            for (covered, (estimate, truth)) in covered.iter_mut().zip(estimates.into_iter().zip(truth)) {
                assert!(unit == StratumUnit::Bytes || estimate.high <= FILES as f64, "{estimate:?}");
                let range = estimate.low - 1e-6..=estimate.high + 1e-6;
                *covered += usize::from(range.contains(&(truth as f64)));
            }
        }
        covered
    }

    #[test]
    fn intervals_of_counts_contain_the_truth_in_most_samples() {
        for (unit, of) in
            [(StratumUnit::Files, file as fn(u64) -> Observation), (StratumUnit::Bytes, task as fn(u64) -> _)]
        {
            let covered = covered(unit, of);
            assert!(covered.iter().all(|&n| n >= 176), "{unit:?}: {covered:?} of 200");
        }
    }

    /// Returns the ranges of a file in which a long line follows many short ones, so that few have any item.
    fn range(i: u64) -> Observation {
        let found = if draw(i, 5, 14) == 0 { 160 } else { 0 };
        let size = SampleSize { amount: 100.0 * found as f64, places: 16_384.0 };
        let splits = vec![SplitAmounts { records: found, ..SplitAmounts::default() }];
        Observation { size, found, splits, ..Observation::default() }
    }

    #[test]
    fn intervals_of_rare_dense_parts_contain_the_truth_in_most_samples() {
        let covered = covered(StratumUnit::Bytes, range);
        assert!(covered.iter().all(|&n| n >= 176), "{covered:?} of 200");
    }

    #[test]
    fn files_that_are_items_by_name_are_counted_exactly() {
        let items = stratum(StratumUnit::Items, SampleSize::of(500.0), vec![file(7); 20]);
        assert_eq!(items.found(), Estimate::exactly(500.0));
        assert!(items.records().low < 500.0, "{:?}", items.records());
    }
}
