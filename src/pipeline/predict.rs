//! Predictions of runs, from samples that are converted in memory.
//!
//! Each kind of conversion chooses the tasks of the sample and groups them into strata: files whose records are counted
//! in the same way. Each stratum is estimated separately, and the estimates are summed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::conversion::{Conversion, Converting};
use super::estimate::{Estimate, MIN_SAMPLE, Population};
use super::outcome::{ConvertedRecord, Outcome, Outcomes};
use super::stage::{Finished, Stages};
use super::stop::Stop;
use super::workers::Workers;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{self, Format, ShardWriter};
use crate::numbers::plural;
use crate::options::OutputOptions;
use crate::schema::Schema;
use crate::storage::NewFile;

/// Predicted result of a run, with 95% confidence intervals.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Number of items in the sample.
    pub sampled: u64,
    /// Number of items that would be found.
    pub found: Estimate,
    /// Number of records.
    pub records: Estimate,
    /// Number of items that would be rejected.
    pub rejected: Estimate,
    /// Number of rejects in the sample by reason code.
    pub reject_codes: BTreeMap<&'static str, u64>,
    /// Number of tokens in the records, for text.
    pub tokens: Option<Estimate>,
    /// Number of items that the filters would exclude.
    pub filtered: Estimate,
    /// Bytes of all shards.
    pub bytes: Estimate,
    /// Number of shards.
    pub shards: Estimate,
    /// Seconds of converting and encoding on the threads of the run, excluding waits for the disk.
    pub seconds: Estimate,
}

/// Refuses a sample that is too small for a meaningful spread.
pub(super) fn check_sample(sample: u64) -> Result<()> {
    if sample < MIN_SAMPLE {
        return Err(Error::usage(format!("a sample of {} is too small", plural(sample, "item")))
            .help(format!("use at least {MIN_SAMPLE}; 200 to 2,000 is typical")));
    }
    Ok(())
}

/// Tasks that are observed together.
pub(super) struct SampleTask<T> {
    /// Size as in [`Observation`].
    pub(super) size: f64,
    /// Time spent reading the input of the tasks.
    pub(super) seconds: f64,
    pub(super) tasks: Vec<T>,
}

/// Result of one task of the sample.
#[derive(Debug, Clone, Default)]
pub(super) struct Observation {
    /// Share of the stratum, in its unit: 1 for a file, or source bytes.
    pub(super) size: f64,
    seconds: f64,
    pub(super) found: u64,
    records: u64,
    rejected: u64,
    filtered: u64,
    /// Sum of the lengths of the records.
    length: u64,
    /// Bytes before encoding, by split.
    bytes: Vec<u64>,
}

impl Observation {
    fn all_bytes(&self) -> f64 {
        self.bytes.iter().sum::<u64>() as f64
    }
}

/// A group of files that are sampled in the same way.
#[derive(Debug, Default)]
pub(super) struct Stratum {
    /// Total size, in the unit of the observations.
    pub(super) size: f64,
    pub(super) seen: Vec<Observation>,
}

impl Stratum {
    fn population(&self) -> Population {
        Population { size: self.size, sampled: self.seen.iter().map(|o| o.size).sum() }
    }

    fn total(&self, quantity: impl Fn(&Observation) -> f64 + Clone) -> Estimate {
        self.population().total(self.seen.iter().map(|o| (o.size, quantity(o))))
    }

    fn count(&self, quantity: impl Fn(&Observation) -> u64) -> Estimate {
        let found = self.seen.iter().map(|o| o.found).sum();
        let items = self.total(|o| o.found as f64).value;
        self.population().count(items, self.seen.iter().map(quantity).sum(), found)
    }

    /// Returns the expected bytes before encoding for `size` of this stratum, in `split` or in all splits.
    pub(super) fn mean_bytes(&self, size: f64, split: Option<usize>) -> f64 {
        let seen: f64 = self.seen.iter().map(|o| o.size).sum();
        let bytes: f64 =
            self.seen.iter().map(|o| split.map_or(o.all_bytes(), |split| o.bytes[split] as f64)).sum();
        if seen == 0.0 { 0.0 } else { size * bytes / seen }
    }
}

/// Converter of a sample. Also sums up the values that are not estimated by stratum.
pub(super) struct SampleRun<'a, C> {
    conversion: &'a C,
    workers: &'a Workers,
    splits: usize,
    stages: Stages,
    /// Writer of all records of the sample, in order.
    writer: Box<dyn ShardWriter>,
    /// Number of records after the stages.
    written: u64,
    /// Size of a shard without records, in bytes.
    empty_shard: u64,
    write_seconds: f64,
    reject_codes: BTreeMap<&'static str, u64>,
}

/// Outcomes that wait for earlier ones.
#[derive(Default)]
struct ReorderBuffer {
    waiting: BTreeMap<usize, (Outcomes, Observation)>,
    seen: Vec<Observation>,
    failure: Option<Error>,
}

impl<'a, C: Conversion> SampleRun<'a, C> {
    pub(super) fn new(
        conversion: &'a C,
        workers: &'a Workers,
        format: Format,
        schema: &Arc<Schema>,
        splits: usize,
    ) -> Result<Self> {
        let writer = || format::writer(format, Arc::clone(schema), NewFile::nowhere());
        Ok(Self {
            conversion,
            workers,
            splits,
            stages: conversion.stages(&std::env::temp_dir()),
            empty_shard: writer()?.finish()?.position(),
            writer: writer()?,
            written: 0,
            write_seconds: 0.0,
            reject_codes: BTreeMap::new(),
        })
    }

    /// Converts the tasks of a sample and returns their observations, in order.
    pub(super) fn convert(
        &mut self,
        samples: impl Iterator<Item = Result<SampleTask<C::Task>>> + Send,
        stop: &Stop,
    ) -> Result<Vec<Observation>> {
        let (conversion, workers) = (self.conversion, self.workers);
        let samples = Mutex::new(samples.enumerate());
        let done = Mutex::new((self, ReorderBuffer::default()));
        workers.on_all("converting the sample", stop, || {
            let mut scratch = conversion.scratch();
            loop {
                let next = locked(&samples).next();
                let Some((number, sample)) = next else { return Ok(()) };
                let converted = sample.and_then(|sample| convert(conversion, sample, &mut scratch));
                let (sampled, order) = &mut *locked(&done);
                if let Err(error) = converted.and_then(|one| sampled.in_order(order, number, one)) {
                    order.failure.get_or_insert(error);
                }
                if order.failure.is_some() || stop.is_set() {
                    return Ok(());
                }
            }
        })?;
        let (_, order) = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        order.failure.map_or(Ok(()), Err)?;
        stop.check()?;
        Ok(order.seen)
    }

    fn in_order(
        &mut self,
        order: &mut ReorderBuffer,
        number: usize,
        one: (Outcomes, Observation),
    ) -> Result<()> {
        order.waiting.insert(number, one);
        while let Some((outcomes, observation)) = order.waiting.remove(&order.seen.len()) {
            order.seen.push(self.observe(outcomes, observation)?);
        }
        Ok(())
    }

    fn observe(&mut self, outcomes: Outcomes, mut observation: Observation) -> Result<Observation> {
        observation.bytes = vec![0; self.splits];
        let started = Instant::now();
        for outcome in outcomes.list {
            observation.found += 1;
            match outcome {
                Outcome::Converted(converted) => {
                    observation.found -= u64::from(converted.continues);
                    observation.records += 1;
                    observation.length += converted.length;
                    observation.bytes[usize::from(converted.split)] += converted.canonical_bytes;
                    let (writer, written) = (&mut self.writer, &mut self.written);
                    self.stages.push(converted, &mut |converted| {
                        *written += 1;
                        writer.push(&converted.record).map(drop)
                    })?;
                }
                Outcome::Rejected { reject, .. } => {
                    observation.rejected += 1;
                    *self.reject_codes.entry(reject.code.name()).or_default() += 1;
                }
                Outcome::Filtered { .. } => observation.filtered += 1,
                Outcome::Duplicate { .. } => {}
            }
        }
        self.write_seconds += started.elapsed().as_secs_f64();
        Ok(observation)
    }

    /// Extrapolates the sample to the whole. `is_counted` states whether the number of items is known without reading
    /// them. `shards` computes the number of shards, given the total bytes before encoding and the records per such
    /// byte.
    pub(super) fn prediction(
        mut self,
        strata: &[&Stratum],
        is_counted: bool,
        shards: impl FnOnce(Estimate, f64) -> Estimate,
    ) -> Result<Prediction> {
        let started = Instant::now();
        let (writer, written) = (&mut self.writer, &mut self.written);
        let mut write = |converted: ConvertedRecord| {
            *written += 1;
            writer.push(&converted.record).map(drop)
        };
        while self.stages.finish(&mut write)? == Finished::NotYet {}
        let encoded = self.writer.finish()?.position() - self.empty_shard;
        self.write_seconds += started.elapsed().as_secs_f64();
        let seen = || strata.iter().flat_map(|stratum| &stratum.seen);
        let sum = |of: fn(&Observation) -> u64| seen().map(of).sum::<u64>();
        let sampled_bytes: f64 = seen().map(Observation::all_bytes).sum();
        let per_byte = |quantity: f64| if sampled_bytes == 0.0 { 0.0 } else { quantity / sampled_bytes };
        let all = |of: &dyn Fn(&Stratum) -> Estimate| {
            strata.iter().map(|stratum| of(stratum)).fold(Estimate::default(), Estimate::plus)
        };
        let bytes = all(&|s| s.total(Observation::all_bytes));
        let converted = sum(|o| o.records);
        // A share has an interval even if all sampled items became records.
        let records = match is_counted {
            true => all(&|s| s.count(|o| o.records)),
            false => all(&|s| s.total(|o| o.records as f64)),
        };
        // `--pack` produces fewer rows than there are documents.
        let rows_of_record = if converted == 0 { 1.0 } else { self.written as f64 / converted as f64 };
        let shards = shards(bytes, per_byte(self.written as f64));
        let converting = all(&|s| s.total(|o| o.seconds));
        let writing = bytes.times(per_byte(self.write_seconds));
        Ok(Prediction {
            sampled: sum(|o| o.found),
            found: all(&|s| s.total(|o| o.found as f64)),
            records: records.times(rows_of_record),
            rejected: all(&|s| s.count(|o| o.rejected)),
            reject_codes: self.reject_codes,
            tokens: None,
            filtered: all(&|s| s.count(|o| o.filtered)),
            bytes: bytes.times(per_byte(encoded as f64)).plus(shards.times(self.empty_shard as f64)),
            shards,
            seconds: converting.plus(writing).times(1.0 / self.workers.count() as f64),
        })
    }
}

/// Estimates the number of shards, given the bytes of each split of each unit, which are rounded up separately. `bytes`
/// determines the spread.
pub(super) fn shards_of(
    bytes_of_splits: Vec<f64>,
    bytes: Estimate,
    output: &OutputOptions,
    records_per_byte: f64,
) -> Estimate {
    let shard_bytes = output.shard_bytes as f64;
    let mean_record = if records_per_byte > 0.0 { 1.0 / records_per_byte } else { 0.0 };
    // A shard closes before the record that would not fit. On average, half a record remains free in all but the last
    // shard; longer records have shards of their own.
    let free = mean_record / 2.0;
    let used = (shard_bytes - free).max(mean_record);
    let cut = |bytes: f64| {
        if bytes <= 0.0 {
            return 0.0;
        }
        let by_records = output.shard_records.map_or(0.0, |n| bytes * records_per_byte / n as f64);
        ((bytes - free) / used).max(by_records).ceil().max(1.0)
    };
    let with = |factor: f64| bytes_of_splits.iter().map(|bytes| cut(factor * bytes)).sum();
    if bytes.value == 0.0 {
        return Estimate::default();
    }
    Estimate { value: with(1.0), low: with(bytes.low / bytes.value), high: with(bytes.high / bytes.value) }
}

/// Estimates the sum of the lengths of all records.
pub(super) fn total_length(strata: &[&Stratum]) -> Estimate {
    let lengths = strata.iter().map(|stratum| stratum.total(|o| o.length as f64));
    lengths.fold(Estimate::default(), Estimate::plus)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn convert<C: Conversion>(
    conversion: &C,
    sample: SampleTask<C::Task>,
    scratch: &mut C::Scratch,
) -> Result<(Outcomes, Observation)> {
    let mut outcomes = Outcomes::default();
    let started = Instant::now();
    for task in sample.tasks {
        if conversion.convert(task, scratch, &mut outcomes)? == Converting::RedoUnit {
            let message = "the fast and the reference engine disagreed while the sample was converted";
            return Err(Error::new(ErrorKind::NotCommitted, message).help("use `engine reference`"));
        }
    }
    let seconds = sample.seconds + started.elapsed().as_secs_f64();
    Ok((outcomes, Observation { size: sample.size, seconds, ..Observation::default() }))
}

#[cfg(test)]
pub(super) mod testing {
    //! Helpers for tests that compare predictions with runs.

    use std::path::Path;

    use super::{Estimate, Prediction, Stop};
    use crate::error::Result;
    use crate::options::{Existing, RunOptions};
    use crate::pipeline::{Job, Outcome, Progress};

    pub(in crate::pipeline) fn run_options(out: &Path, threads: usize) -> RunOptions {
        RunOptions {
            out: out.to_owned(),
            scratch: None,
            threads,
            memory_bytes: 1 << 28,
            existing: Existing::Refuse,
            max_rejects: "100%".parse().unwrap(),
        }
    }

    /// Returns the prediction of `predict` and the outcome of the run. Checks that the prediction does not depend on the
    /// number of threads and writes nothing.
    pub(in crate::pipeline) fn compare<J: Job>(
        job: &J,
        predict: impl Fn(&J, &RunOptions, &Stop) -> Result<Prediction>,
    ) -> (Prediction, Outcome) {
        let out = tempfile::tempdir().unwrap();
        let predict = |threads| {
            let mut prediction = predict(job, &run_options(out.path(), threads), &Stop::default()).unwrap();
            assert!(prediction.seconds.value > 0.0);
            prediction.seconds = Estimate::default();
            prediction
        };
        let prediction = predict(1);
        assert_eq!(prediction, predict(3), "threads do not matter");
        assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0, "nothing is written");
        let outcome = job.run(&run_options(out.path(), 2), &Progress::default(), &Stop::default()).unwrap();
        (prediction, outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cuts records as a unit does, and returns the number of shards.
    fn cut(records: &[u64], output: &OutputOptions) -> u64 {
        let (mut shards, mut bytes) = (0, u64::MAX);
        for record in records {
            if bytes.saturating_add(*record) > output.shard_bytes {
                (shards, bytes) = (shards + 1, 0);
            }
            bytes += record;
        }
        shards
    }

    #[test]
    fn shards_are_closed_before_the_record_that_does_not_fit() {
        let output = OutputOptions { shard_bytes: 1000, ..OutputOptions::default() };
        let predicted = |records: &[u64]| {
            let bytes = records.iter().sum::<u64>() as f64;
            let total = Estimate { value: bytes, low: bytes, high: bytes };
            shards_of(vec![bytes], total, &output, records.len() as f64 / bytes).value
        };
        for longest in [10, 100, 400, 800] {
            // A linear congruential generator.
            let mut state = 1u64;
            let records: Vec<u64> = (0..20_000 / longest * 10)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 33) % longest + 1
                })
                .collect();
            let (shards, about) = (cut(&records, &output) as f64, predicted(&records));
            let plain = (records.iter().sum::<u64>() as f64 / 1000.0).ceil();
            let (error, plain) = ((about - shards).abs(), (plain - shards).abs());
            // Large records leave more than half a record free, because a large one is less likely to fit.
            let is_close = error <= 0.05 * shards || error < 0.5 * plain;
            assert!(is_close, "{longest}: {about}, not {shards}");
        }
        // A unit that fits in a shard has one, and records that are longer than a shard have shards of their own.
        assert_eq!([&[1000][..], &[400, 600], &[1], &[5000; 3]].map(predicted), [1.0, 1.0, 1.0, 3.0]);
        assert_eq!(shards_of(vec![0.0], Estimate::default(), &output, 0.0).value, 0.0);
    }
}
