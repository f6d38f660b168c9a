//! What a run would give, from a sample that is converted in memory.
//!
//! The sample depends on names alone: files are taken in the order of the hash of their origin, so it is the same in
//! every run, and a larger sample holds every smaller one. Tar files cannot be entered in the middle: of a few of them,
//! by the same order, the first samples are taken. The two kinds are estimated apart, files by their number and tar files
//! by their bytes, and added up.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::convert::{Images, Task};
use super::job::ImagesJob;
use crate::error::{Error, Result};
use crate::format::{self, ShardWriter};
use crate::options::RunOptions;
use crate::pipeline::conversion::Conversion;
use crate::pipeline::estimate::{Estimate, MIN_SAMPLE, Population};
use crate::pipeline::outcome::{Outcome, Outcomes};
use crate::pipeline::progress::Stop;
use crate::pipeline::workers::on_threads;
use crate::storage::NewFile;
use crate::transform::image::Scratch;

/// Sets the order of the sample apart from other uses of hashed origins.
const SAMPLE_SALT: u64 = 0x5341_4d50_4c45_3031;
/// Tar files that a sample looks into.
const SAMPLED_TARS: usize = 8;

/// What a run would give, with intervals of 95%.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Items of the sample.
    pub sampled: u64,
    /// Items that would be found.
    pub found: Estimate,
    /// Records.
    pub records: Estimate,
    /// Items that would be rejected.
    pub rejected: Estimate,
    /// Reasons in the sample, with their numbers.
    pub reject_codes: BTreeMap<&'static str, u64>,
    /// Items that the selection would leave out.
    pub filtered: Estimate,
    /// Bytes of all shards.
    pub bytes: Estimate,
    /// Shards.
    pub shards: Estimate,
    /// Seconds of converting and encoding on the threads of the run; waiting for the disk comes on top.
    pub seconds: Estimate,
}

/// What one task of the sample gave.
#[derive(Debug, Clone, Default)]
struct Observation {
    /// 1 for a file, source bytes for a part of a tar file.
    size: f64,
    seconds: f64,
    found: u64,
    records: u64,
    rejected: u64,
    filtered: u64,
    /// Bytes before encoding, by split.
    bytes: Vec<u64>,
}

impl Observation {
    fn all_bytes(&self) -> f64 {
        self.bytes.iter().sum::<u64>() as f64
    }
}

/// Files, or tar files.
#[derive(Debug, Default)]
struct Stratum {
    /// Number of the files, or bytes of the tar files.
    size: f64,
    seen: Vec<Observation>,
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

    /// Bytes before encoding that `size` of this stratum comes to, in `split` or in all of them.
    fn mean_bytes(&self, size: f64, split: Option<usize>) -> f64 {
        let seen: f64 = self.seen.iter().map(|o| o.size).sum();
        let bytes: f64 =
            self.seen.iter().map(|o| split.map_or(o.all_bytes(), |split| o.bytes[split] as f64)).sum();
        if seen == 0.0 { 0.0 } else { size * bytes / seen }
    }
}

impl ImagesJob {
    /// Converts about `sample` items in memory, and says what a run under `run` would give. Writes nothing. Duplicates
    /// are not looked for.
    ///
    /// # Errors
    ///
    /// A sample of fewer than [`MIN_SAMPLE`] items; sources that cannot be read.
    pub fn predict(&self, sample: u64, run: &RunOptions, stop: &Stop) -> Result<Prediction> {
        if sample < MIN_SAMPLE {
            return Err(Error::usage(format!("a sample of {sample} says nothing"))
                .help(format!("take at least {MIN_SAMPLE}; 200 to 2,000 are usual")));
        }
        let images = Images::new(self, run);
        let (files, tars): (Vec<usize>, Vec<usize>) =
            (0..self.files.len()).partition(|&i| !self.is_container(&self.files[i]));
        let bytes = |list: &[usize]| list.iter().map(|&i| self.files[i].bytes).sum::<u64>() as f64;
        let (file_bytes, tar_bytes) = (bytes(&files), bytes(&tars));
        let share = if tars.is_empty() { 1.0 } else { file_bytes / (file_bytes + tar_bytes) };
        let of_files = (sample as f64 * share).ceil() as usize;
        let mut sampled = Sampled::new(self, run.threads.max(1))?;
        let mut taken = self.first_by_hash(&files, of_files);
        taken.sort_unstable();
        let pieces =
            taken.into_iter().map(|i| Ok(Piece { size: 1.0, seconds: 0.0, task: Task::Files(i..i + 1) }));
        let files = Stratum { size: files.len() as f64, seen: sampled.convert(&images, pieces, stop)? };
        let chosen = self.first_by_hash(&tars, SAMPLED_TARS);
        let each = (sample as usize).saturating_sub(of_files).div_ceil(chosen.len().max(1));
        let mut tars = Stratum { size: tar_bytes, seen: Vec::new() };
        for ordinal in chosen {
            tars.seen.extend(sampled.convert(&images, self.head_of_tar(ordinal, each)?, stop)?);
        }
        sampled.prediction(&files, &tars)
    }

    /// The first `count` of `files` in the order of the hash of their origins.
    fn first_by_hash(&self, files: &[usize], count: usize) -> Vec<usize> {
        let rank = |&i: &usize| (xxh3_64_with_seed(self.files[i].origin.as_bytes(), SAMPLE_SALT), i);
        let mut files = files.to_vec();
        if count < files.len() {
            files.select_nth_unstable_by_key(count, rank);
            files.truncate(count);
        }
        files
    }

    /// Tasks with the first `items` items of a tar or Parquet file, about; each with the bytes it stands for and the seconds that
    /// reading it took.
    fn head_of_tar(
        &self,
        ordinal: usize,
        items: usize,
    ) -> Result<impl Iterator<Item = Result<Piece>> + Send> {
        let mut feed = self.feed(ordinal..ordinal + 1)?;
        let mut left = items;
        Ok(std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let started = Instant::now();
            let task = match feed.next() {
                Ok(next) => next?.0,
                Err(error) => return Some(Err(error)),
            };
            let seconds = started.elapsed().as_secs_f64();
            let (items, bytes) = match &task {
                Task::Tar(tar) => (tar.found.len(), tar.source_bytes),
                Task::Table(table) => (table.len(), table.source_bytes),
                Task::Files(_) => return None,
            };
            left = left.saturating_sub(items);
            Some(Ok(Piece { size: bytes as f64, seconds, task }))
        }))
    }
}

/// A task of the sample.
struct Piece {
    /// As in [`Observation`].
    size: f64,
    /// Spent on reading it.
    seconds: f64,
    task: Task,
}

/// Converts the sample and adds up what is not estimated by stratum.
struct Sampled<'a> {
    job: &'a ImagesJob,
    threads: usize,
    /// Takes all records of the sample, in order.
    writer: Box<dyn ShardWriter>,
    /// Bytes of a shard without records.
    empty_shard: u64,
    write_seconds: f64,
    reject_codes: BTreeMap<&'static str, u64>,
}

/// Outcomes that wait for earlier ones.
#[derive(Default)]
struct InOrder {
    waiting: BTreeMap<usize, (Outcomes, Observation)>,
    seen: Vec<Observation>,
    failure: Option<Error>,
}

impl<'a> Sampled<'a> {
    fn new(job: &'a ImagesJob, threads: usize) -> Result<Self> {
        let writer = || format::writer(job.options.output.format, job.schema.clone(), NewFile::nowhere());
        Ok(Self {
            job,
            threads,
            empty_shard: writer()?.finish()?.position(),
            writer: writer()?,
            write_seconds: 0.0,
            reject_codes: BTreeMap::new(),
        })
    }

    /// The outcomes of `pieces`, in order.
    fn convert(
        &mut self,
        images: &Images<'_>,
        pieces: impl Iterator<Item = Result<Piece>> + Send,
        stop: &Stop,
    ) -> Result<Vec<Observation>> {
        let threads = self.threads;
        let pieces = Mutex::new(pieces.enumerate());
        let done = Mutex::new((self, InOrder::default()));
        on_threads(threads, "converting the sample", stop, &|| {
            let mut scratch = images.scratch(&Arc::default());
            loop {
                let next = locked(&pieces).next();
                let Some((number, piece)) = next else { return Ok(()) };
                let converted = piece.and_then(|piece| convert(images, piece, &mut scratch));
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

    fn in_order(&mut self, order: &mut InOrder, number: usize, one: (Outcomes, Observation)) -> Result<()> {
        order.waiting.insert(number, one);
        while let Some((outcomes, observation)) = order.waiting.remove(&order.seen.len()) {
            order.seen.push(self.observe(outcomes, observation)?);
        }
        Ok(())
    }

    fn observe(&mut self, outcomes: Outcomes, mut observation: Observation) -> Result<Observation> {
        observation.bytes = vec![0; self.job.splits.len()];
        let started = Instant::now();
        for outcome in outcomes.list {
            observation.found += 1;
            match outcome {
                Outcome::Converted(converted) => {
                    self.writer.push(&converted.record)?;
                    observation.records += 1;
                    observation.bytes[usize::from(converted.split)] += converted.canonical_bytes;
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

    fn prediction(mut self, files: &Stratum, tars: &Stratum) -> Result<Prediction> {
        let started = Instant::now();
        let encoded = self.writer.finish()?.position() - self.empty_shard;
        self.write_seconds += started.elapsed().as_secs_f64();
        let seen = || files.seen.iter().chain(&tars.seen);
        let sampled_bytes: f64 = seen().map(Observation::all_bytes).sum();
        let per_byte = |quantity: f64| if sampled_bytes == 0.0 { 0.0 } else { quantity / sampled_bytes };
        let both = |of: &dyn Fn(&Stratum) -> Estimate| of(files).plus(of(tars));
        let bytes = both(&|s| s.total(Observation::all_bytes));
        let shards = shards(self.job, files, tars, bytes);
        let converting = both(&|s| s.total(|o| o.seconds));
        let writing = bytes.times(per_byte(self.write_seconds));
        Ok(Prediction {
            sampled: seen().map(|o| o.found).sum(),
            found: both(&|s| s.total(|o| o.found as f64)),
            records: both(&|s| s.count(|o| o.records)),
            rejected: both(&|s| s.count(|o| o.rejected)),
            reject_codes: self.reject_codes,
            filtered: both(&|s| s.count(|o| o.filtered)),
            bytes: bytes.times(per_byte(encoded as f64)).plus(shards.times(self.empty_shard as f64)),
            shards,
            seconds: converting.plus(writing).times(1.0 / self.threads as f64),
        })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn convert(images: &Images<'_>, piece: Piece, scratch: &mut Scratch) -> Result<(Outcomes, Observation)> {
    let mut outcomes = Outcomes::default();
    let started = Instant::now();
    images.convert(piece.task, scratch, &mut outcomes)?;
    let seconds = piece.seconds + started.elapsed().as_secs_f64();
    Ok((outcomes, Observation { size: piece.size, seconds, ..Observation::default() }))
}

/// Shards are cut by unit and split, so each of these is rounded up alone. `bytes` gives the spread.
fn shards(job: &ImagesJob, files: &Stratum, tars: &Stratum, bytes: Estimate) -> Estimate {
    let output = &job.options.output;
    let records_per_byte = {
        let seen = || files.seen.iter().chain(&tars.seen);
        let bytes: f64 = seen().map(Observation::all_bytes).sum();
        seen().map(|o| o.records).sum::<u64>() as f64 / bytes.max(1.0)
    };
    let with = |factor: f64| -> f64 {
        let cut = |bytes: f64| {
            let by_records = output.shard_records.map_or(0.0, |n| bytes * records_per_byte / n as f64);
            (bytes / output.shard_bytes as f64).max(by_records).ceil()
        };
        let unit = |unit: &Range<usize>| -> f64 {
            let files_of_unit = &job.files[unit.clone()];
            if job.is_container(&files_of_unit[0]) {
                let size = files_of_unit[0].bytes as f64;
                return (0..job.splits.len()).map(|s| cut(factor * tars.mean_bytes(size, Some(s)))).sum();
            }
            let mut count = vec![0u64; job.splits.len()];
            files_of_unit.iter().for_each(|file| count[usize::from(job.split_of(file))] += 1);
            count.iter().map(|&n| cut(factor * files.mean_bytes(n as f64, None))).sum()
        };
        job.units.iter().map(unit).sum()
    };
    if bytes.value == 0.0 {
        return Estimate::default();
    }
    Estimate { value: with(1.0), low: with(bytes.low / bytes.value), high: with(bytes.high / bytes.value) }
}

#[cfg(test)]
mod tests;
