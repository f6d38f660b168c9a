//! Predictions of runs, from samples that are converted in memory.
//!
//! Each kind of conversion chooses the tasks of the sample and groups them into strata: files whose records are counted
//! in the same way. Each stratum is estimated separately, and the estimates are summed.

mod sample_writer;
mod stratum;
mod units;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(super) use self::stratum::{SampleSize, Stratum, StratumUnit, UnitPart};
pub(super) use self::units::unit_parts;

use self::sample_writer::SampleWriter;
use self::stratum::{GROUPS, Group, Observation, ShardSum, SplitAmounts};
use self::units::{packed_rows, shards};
use super::estimate::{Estimate, MIN_SAMPLE};
use super::job::{Conversion, Converting, Job};
use super::memory::Shares;
use super::progress::locked;
use crate::error::{Error, ErrorKind, Result};
use crate::format;
use crate::numbers::plural;
use crate::options::RunOptions;
use crate::schema::Schema;
use crate::storage::NewFile;
use crate::writer::outcome::{ItemOutcome, Outcomes};
use crate::writer::stop::Stop;
use crate::writer::workers::Workers;

/// Decorrelates the order of the sample from other uses of the hash.
const SAMPLE_SALT: u64 = 0x5341_4d50_4c45_3032;

/// Minimum number of chunks that are converted together. The size of the sample is checked after each wave.
const WAVE: usize = 10;

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

/// A kind of conversion that chooses the samples by which its runs are predicted.
pub trait Predicted: Conversion {
    /// Predicts a run from a sample of about `items` items, which `sample` converts.
    fn predict(job: &Job<Self>, items: u64, sample: SampleRun<'_, Self>, stop: &Stop) -> Result<Prediction>;
}

impl<C: Predicted> Job<C> {
    /// Predicts a run with `run`'s threads and memory from a sample of about `sample` items, converted in memory. Writes
    /// nothing, and does not search for duplicates.
    ///
    /// # Errors
    ///
    /// If the sample has fewer than [`MIN_SAMPLE`] items, if sources cannot be read, or for standard input, which can be
    /// read only once.
    pub fn predict(&self, sample: u64, run: &RunOptions, stop: &Stop) -> Result<Prediction> {
        if sample < MIN_SAMPLE {
            return Err(Error::usage(format!("a sample of {} is too small", plural(sample, "item")))
                .help(format!("use at least {MIN_SAMPLE}; 200 to 2,000 is typical")));
        }
        if self.header.reads_stdin() {
            return Err(Error::usage(
                "standard input can only be read once, so the run would not see a sample of it",
            )
            .help("write it to a file first"));
        }
        let workers = Workers::start(run.threads)?;
        C::predict(self, sample, SampleRun::new(self, &workers, Shares::of(run))?, stop)
    }
}

/// Returns all chunks below `count`, in the order of a hash.
fn chunks_in_order(count: u64, seed: u64) -> impl Iterator<Item = u64> {
    let (mut seen, mut draw) = (BTreeSet::new(), 0u64);
    std::iter::from_fn(move || {
        if seen.len() as u64 == count {
            return None;
        }
        loop {
            draw += 1;
            let chunk = xxh3_64_with_seed(&draw.to_le_bytes(), SAMPLE_SALT ^ seed) % count;
            if seen.insert(chunk) {
                return Some(chunk);
            }
        }
    })
}

/// Tasks that are observed together.
pub(super) struct SampleTask<T> {
    /// Share of the stratum.
    pub(super) size: SampleSize,
    /// Time spent reading the input of the tasks.
    pub(super) seconds: f64,
    pub(super) tasks: Vec<T>,
}

/// Converter of a sample, one stratum after another.
pub struct SampleRun<'a, C> {
    job: &'a Job<C>,
    workers: &'a Workers,
    memory: Shares,
    schema: Arc<Schema>,
    /// Number of tokens that fill a row, if records are packed.
    full_row: Option<u64>,
    /// Size of a shard without records, in bytes.
    empty_shard: u64,
    reject_codes: BTreeMap<&'static str, u64>,
}

impl<'a, C: Conversion> SampleRun<'a, C> {
    fn new(job: &'a Job<C>, workers: &'a Workers, memory: Shares) -> Result<Self> {
        let schema = Arc::new(job.header.schema.clone());
        let empty = format::writer(job.header.output.format, Arc::clone(&schema), NewFile::nowhere())?;
        let empty_shard = empty.finish()?.position();
        Ok(Self { job, workers, memory, schema, full_row: None, empty_shard, reject_codes: BTreeMap::new() })
    }

    /// Sets the number of tokens that fill a row, if records are packed.
    pub(super) fn packing(self, full_row: Option<u64>) -> Self {
        Self { full_row, ..self }
    }

    /// Starts the sample of a stratum of the given size.
    pub(super) fn stratum(&mut self, unit: StratumUnit, size: SampleSize) -> Result<StratumRun<'_, 'a, C>> {
        let writer = self.writer()?;
        let (seen, groups, alone) = (Vec::new(), Vec::new(), ShardSum::default());
        let halves = match unit {
            StratumUnit::Bytes => vec![self.writer()?, self.writer()?],
            StratumUnit::Items | StratumUnit::Files => Vec::new(),
        };
        Ok(StratumRun { run: self, unit, size, writer, groups, alone, halves, seen, write_seconds: 0.0 })
    }

    fn writer(&self) -> Result<SampleWriter> {
        let header = &self.job.header;
        let stages = C::stages(self.job, &std::env::temp_dir());
        let writer = format::writer(header.output.format, Arc::clone(&self.schema), NewFile::nowhere())?;
        Ok(SampleWriter::new(stages, writer, header.splits.len()))
    }

    /// Extrapolates the sample to the whole. `parts` are the expected records of all splits of all units.
    pub(super) fn prediction(self, strata: &[&Stratum], parts: &[UnitPart]) -> Prediction {
        let all = |of: &dyn Fn(&Stratum) -> Estimate| total(strata, of);
        let records = match self.full_row {
            None => all(&Stratum::records),
            Some(full) => {
                let mut rows = all(&|s| s.rows(full));
                let is_exact = strata.len() == 1 && strata.iter().all(|stratum| stratum.is_complete());
                if !is_exact {
                    // Among more documents, and those of other strata, the packing may find a better fit for each row.
                    rows.low = rows.low.min(total_length(strata).low / full as f64);
                }
                packed_rows(parts, rows)
            }
        };
        let shards = shards(parts, all(&Stratum::bytes), records, &self.job.header.output);
        let encoded = all(&Stratum::encoded);
        // A shard has records of one unit, most often of one stratum.
        let per_shard = records.value / shards.value.max(1.0);
        let once = strata.iter().map(|s| s.encoded().value * s.once(per_shard)).sum::<f64>();
        let once = if encoded.value > 0.0 { once / encoded.value } else { 0.0 };
        // This is an estimate, too: it may differ by half for all shards but one.
        let needed_once = Estimate::around(once * shards.value, once * (shards.value - 1.0).max(0.0) / 2.0);
        Prediction {
            sampled: strata.iter().map(|stratum| stratum.sum(|o| o.found)).sum(),
            found: all(&Stratum::found),
            records,
            rejected: all(&|s| s.count(|o| o.rejected)),
            reject_codes: self.reject_codes,
            tokens: None,
            filtered: all(&|s| s.count(|o| o.filtered)),
            bytes: encoded.plus(shards.times(self.empty_shard as f64)).plus(needed_once),
            shards,
            seconds: all(&Stratum::seconds).times(1.0 / self.workers.count() as f64),
        }
    }
}

/// Converter of the sample of one stratum.
pub(super) struct StratumRun<'r, 'a, C> {
    run: &'r mut SampleRun<'a, C>,
    unit: StratumUnit,
    size: SampleSize,
    /// Writer of all records, in order.
    writer: SampleWriter,
    /// Writers of the records of every [`GROUPS`]th observation, each with the amount of its observations.
    groups: Vec<(f64, SampleWriter)>,
    /// Shards of one observation each, unless records are packed.
    alone: ShardSum,
    /// Writers of the first and the second half of each observation, if observations have several records.
    halves: Vec<SampleWriter>,
    seen: Vec<Observation>,
    write_seconds: f64,
}

/// Outcomes that wait for earlier ones.
#[derive(Default)]
struct ReorderBuffer {
    waiting: BTreeMap<usize, (Outcomes, Observation)>,
    /// Number of outcomes that were passed on.
    passed: usize,
    failure: Option<Error>,
}

impl<C: Conversion> StratumRun<'_, '_, C> {
    /// Returns the amount of the sample so far.
    fn sampled(&self) -> f64 {
        self.seen.iter().map(|observation| observation.size.amount).sum()
    }

    /// Converts the tasks of a sample and returns the number of items found.
    pub(super) fn convert(
        &mut self,
        samples: impl Iterator<Item = Result<SampleTask<C::Task>>> + Send,
        stop: &Stop,
    ) -> Result<u64> {
        let before = self.seen.len();
        let (job, workers, memory) = (self.run.job, self.run.workers, self.run.memory.clone());
        let samples = Mutex::new(samples.enumerate());
        let done = Mutex::new((&mut *self, ReorderBuffer::default()));
        workers.on_all("converting the sample", stop, || {
            let mut scratch = C::scratch(job, &memory);
            loop {
                let next = locked(&samples).next();
                let Some((number, sample)) = next else { return Ok(()) };
                let converted = sample.and_then(|sample| convert(job, sample, &mut scratch));
                let (stratum, order) = &mut *locked(&done);
                if let Err(error) = converted.and_then(|one| stratum.in_order(order, number, one)) {
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
        Ok(self.seen[before..].iter().map(|observation| observation.found).sum())
    }

    /// Converts chunks of the stratum in the order of a hash until there are `items` items and `size` of the stratum, or all
    /// are converted. `tasks_of` returns the tasks of a chunk.
    pub(super) fn convert_chunks(
        &mut self,
        chunks: u64,
        (items, size): (u64, f64),
        tasks_of: impl Fn(u64) -> Result<Vec<SampleTask<C::Task>>> + Sync,
        stop: &Stop,
    ) -> Result<()> {
        let mut order = chunks_in_order(chunks, self.run.job.header.output.seed);
        let (mut found, mut taken) = (0, 0);
        let mut next = size / (self.size.amount / chunks.max(1) as f64).max(1.0);
        loop {
            let mut wave: Vec<u64> = order.by_ref().take((next.ceil() as usize).max(WAVE)).collect();
            if wave.is_empty() {
                return Ok(());
            }
            // As in the run, where adjacent keys are similar and therefore compress well.
            wave.sort_unstable();
            taken += wave.len();
            let tasks = wave.into_iter().flat_map(|chunk| match tasks_of(chunk) {
                Ok(tasks) => tasks.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            });
            found += self.convert(tasks, stop)?;
            let missing = |wanted: f64, have: f64| (wanted - have) * taken as f64 / have.max(1.0);
            let (of_items, of_size) = (missing(items as f64, found as f64), missing(size, self.sampled()));
            next = of_items.max(of_size).min(2.0 * taken as f64);
            if next <= 0.0 {
                return Ok(());
            }
        }
    }

    fn in_order(
        &mut self,
        order: &mut ReorderBuffer,
        number: usize,
        one: (Outcomes, Observation),
    ) -> Result<()> {
        order.waiting.insert(number, one);
        while let Some((outcomes, observation)) = order.waiting.remove(&order.passed) {
            order.passed += 1;
            self.observe(outcomes, observation)?;
        }
        Ok(())
    }

    fn observe(&mut self, outcomes: Outcomes, mut observation: Observation) -> Result<()> {
        observation.splits = vec![SplitAmounts::default(); self.run.job.header.splits.len()];
        let mut records = Vec::new();
        for outcome in outcomes.list {
            observation.found += 1;
            match outcome {
                ItemOutcome::Converted(converted) => {
                    observation.found -= u64::from(converted.continues);
                    let split = &mut observation.splits[usize::from(converted.split)];
                    split.records += 1;
                    split.length += converted.length;
                    split.bytes += converted.canonical_bytes;
                    records.push(converted);
                }
                ItemOutcome::Rejected { reject, .. } => {
                    observation.rejected += 1;
                    *self.run.reject_codes.entry(reject.code.name()).or_default() += 1;
                }
                ItemOutcome::Filtered { .. } => observation.filtered += 1,
                ItemOutcome::Duplicate { .. } => {}
            }
        }
        let number = self.seen.len() % GROUPS;
        if number == self.groups.len() {
            self.groups.push((0.0, self.run.writer()?));
        }
        let (amount, group) = &mut self.groups[number];
        *amount += observation.size.amount;
        records.iter().try_for_each(|record| group.push(record.clone()))?;
        if !records.is_empty() && self.run.full_row.is_none() {
            let mut alone = self.run.writer()?;
            records.iter().try_for_each(|record| alone.push(record.clone()))?;
            self.alone.add(&alone.finish(self.run.empty_shard)?);
        }
        let parts = records.chunks(records.len().div_ceil(2).max(1));
        for (half, part) in self.halves.iter_mut().zip(parts) {
            part.iter().try_for_each(|record| half.push(record.clone()))?;
        }
        let started = Instant::now();
        records.into_iter().try_for_each(|record| self.writer.push(record))?;
        self.write_seconds += started.elapsed().as_secs_f64();
        self.seen.push(observation);
        Ok(())
    }

    /// Finishes the sample of the stratum.
    pub(super) fn finish(self) -> Result<Stratum> {
        let Self { run, unit, size, writer, groups, alone, halves, seen, mut write_seconds } = self;
        let started = Instant::now();
        let written = writer.finish(run.empty_shard)?;
        write_seconds += started.elapsed().as_secs_f64();
        let group = |(amount, writer): (f64, SampleWriter)| {
            Ok(Group { amount, written: writer.finish(run.empty_shard)? })
        };
        let groups = groups.into_iter().map(group).collect::<Result<_>>()?;
        let halves = halves.into_iter().map(|half| half.finish(run.empty_shard));
        let halves = halves.collect::<Result<_>>()?;
        Ok(Stratum {
            unit,
            size,
            seen,
            written,
            groups,
            alone,
            halves,
            write_seconds,
            full_row: run.full_row,
        })
    }
}

/// Estimates the sum of the lengths of all records.
pub(super) fn total_length(strata: &[&Stratum]) -> Estimate {
    total(strata, &Stratum::length)
}

/// Returns the sum of a quantity of all strata.
fn total(strata: &[&Stratum], of: &dyn Fn(&Stratum) -> Estimate) -> Estimate {
    strata.iter().map(|stratum| of(stratum)).fold(Estimate::default(), Estimate::plus)
}

fn convert<C: Conversion>(
    job: &Job<C>,
    sample: SampleTask<C::Task>,
    scratch: &mut C::Scratch,
) -> Result<(Outcomes, Observation)> {
    let mut outcomes = Outcomes::default();
    let started = Instant::now();
    for task in sample.tasks {
        if C::convert(job, task, scratch, &mut outcomes)? == Converting::RedoUnit {
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

    use super::{Estimate, Job, Predicted, Prediction, Stop, chunks_in_order};
    use crate::options::{Existing, RunOptions};
    use crate::pipeline::{Progress, RunOutcome};

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

    /// Returns the prediction from `sample` items and the outcome of the run. Checks that the prediction does not depend on
    /// the number of threads and writes nothing.
    pub(in crate::pipeline) fn compare<C: Predicted>(job: &Job<C>, sample: u64) -> (Prediction, RunOutcome) {
        let out = tempfile::tempdir().unwrap();
        let predict = |threads| {
            let options = run_options(out.path(), threads);
            let mut prediction = job.predict(sample, &options, &Stop::default()).unwrap();
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

    #[test]
    fn every_chunk_comes_once() {
        for count in [0, 1, 7, 1000] {
            let mut chunks: Vec<u64> = chunks_in_order(count, 0).collect();
            assert!(count < 2 || !chunks.is_sorted());
            chunks.sort_unstable();
            assert!(chunks.into_iter().eq(0..count));
        }
    }
}
