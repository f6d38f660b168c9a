//! Prediction of a run, from a sample that is converted in memory.
//!
//! The sample depends only on names: files are taken in the order of the hash of their origin. So it is the same in
//! every run, and a larger sample contains every smaller one. Containers (tar and Parquet files) are read from their
//! start, so the first items of a few containers are taken, chosen by the same order. Single files and containers are
//! estimated separately, by number and by bytes, and the estimates are summed.

use std::collections::BinaryHeap;
use std::ops::Range;
use std::time::Instant;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::convert::{ImageConversion, feed};
use super::job::ImagesJob;
use super::task::{FilesTask, ImageTask};
use crate::error::Result;
use crate::options::RunOptions;
use crate::pipeline::estimate::Estimate;
use crate::pipeline::predict::{Prediction, SampleRun, SampleTask, Stratum, check_sample, shards_of};
use crate::pipeline::stop::Stop;
use crate::pipeline::workers::Workers;
use crate::source::source_file::SourceFile;

/// Decorrelates the order of the sample from other uses of hashed origins.
const SAMPLE_SALT: u64 = 0x5341_4d50_4c45_3031;
/// Maximum number of containers in a sample.
const SAMPLED_CONTAINERS: usize = 8;

impl ImagesJob {
    /// See [`Job::predict`](crate::pipeline::Job::predict).
    pub(super) fn prediction(&self, sample: u64, run: &RunOptions, stop: &Stop) -> Result<Prediction> {
        check_sample(sample)?;
        let workers = Workers::start(run.threads)?;
        let conversion = ImageConversion::new(self, run)?;
        let containers = self.files.iter().filter(|file| self.is_container(file));
        let (containers, container_bytes) =
            containers.fold((0, 0), |(count, bytes), file| (count + 1, bytes + file.bytes));
        let (files, file_bytes) =
            (self.files.len() - containers, self.files.bytes().saturating_sub(container_bytes) as f64);
        let container_bytes = container_bytes as f64;
        let share = if containers == 0 { 1.0 } else { file_bytes / (file_bytes + container_bytes) };
        let sampled_files = (sample as f64 * share).ceil() as usize;
        let mut sampled = SampleRun::new(
            &conversion,
            &workers,
            self.options.output.format,
            &self.schema,
            self.splits.len(),
        )?;
        let mut taken = self.first_by_hash(sampled_files, |file| !self.is_container(file));
        taken.sort_unstable();
        let samples = taken.into_iter().map(|first| {
            let task = FilesTask { first, files: vec![self.file(first)?], ..FilesTask::default() };
            Ok(SampleTask { size: 1.0, seconds: 0.0, tasks: vec![ImageTask::Files(task)] })
        });
        let files = Stratum { size: files as f64, seen: sampled.convert(samples, stop)? };
        let chosen = self.first_by_hash(SAMPLED_CONTAINERS, |file| self.is_container(file));
        let each = (sample as usize).saturating_sub(sampled_files).div_ceil(chosen.len().max(1));
        let mut containers = Stratum { size: container_bytes, seen: Vec::new() };
        for ordinal in chosen {
            containers.seen.extend(sampled.convert(self.head_of_container(ordinal, each)?, stop)?);
        }
        sampled.prediction(&[&files, &containers], true, |bytes, records_per_byte| {
            shards(self, &files, &containers, bytes, records_per_byte)
        })
    }

    /// Returns the ordinals of the first `count` files for which `is_wanted` returns true, in the order of the hash of
    /// their origins.
    fn first_by_hash(&self, count: usize, is_wanted: impl Fn(&SourceFile) -> bool) -> Vec<usize> {
        // Max-heap: the largest hash is on top.
        let mut first = BinaryHeap::new();
        for (ordinal, file) in self.files.iter().enumerate().filter(|(_, file)| is_wanted(file)) {
            first.push((xxh3_64_with_seed(file.origin.as_bytes(), SAMPLE_SALT), ordinal));
            if first.len() > count {
                first.pop();
            }
        }
        first.into_sorted_vec().into_iter().map(|(_, ordinal)| ordinal).collect()
    }

    /// Returns tasks with approximately the first `items` items of a container, each with the bytes it represents and
    /// the seconds spent reading it.
    fn head_of_container(
        &self,
        ordinal: usize,
        items: usize,
    ) -> Result<impl Iterator<Item = Result<SampleTask<ImageTask>>> + Send> {
        let mut feed = feed(self, ordinal..ordinal + 1)?;
        let mut remaining = items;
        Ok(std::iter::from_fn(move || {
            if remaining == 0 {
                return None;
            }
            let started = Instant::now();
            let task = match feed.next() {
                Ok(next) => next?.0,
                Err(error) => return Some(Err(error)),
            };
            let seconds = started.elapsed().as_secs_f64();
            let (items, bytes) = match &task {
                ImageTask::Tar(tar) => (tar.found.len(), tar.source_bytes),
                ImageTask::Table(table) => (table.len(), table.source_bytes),
                ImageTask::Files(_) => return None,
            };
            remaining = remaining.saturating_sub(items);
            Some(Ok(SampleTask { size: bytes as f64, seconds, tasks: vec![task] }))
        }))
    }
}

/// Estimates the number of shards, which are cut by unit and split. `bytes` determines the spread.
fn shards(
    job: &ImagesJob,
    files: &Stratum,
    containers: &Stratum,
    bytes: Estimate,
    records_per_byte: f64,
) -> Estimate {
    let of_unit = |unit: &Range<usize>| -> Vec<f64> {
        if let Some(first) = job.files.get(unit.start).filter(|first| job.is_container(first)) {
            let size = first.bytes as f64;
            return (0..job.splits.len()).map(|split| containers.mean_bytes(size, Some(split))).collect();
        }
        let mut count = vec![0u64; job.splits.len()];
        job.files.range(unit.clone()).for_each(|file| count[usize::from(job.split_of(&file))] += 1);
        count.iter().map(|&n| files.mean_bytes(n as f64, None)).collect()
    };
    shards_of(job.units.iter().flat_map(of_unit).collect(), bytes, &job.options.output, records_per_byte)
}

#[cfg(test)]
mod tests;
