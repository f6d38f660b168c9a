//! Prediction of a run, from a sample that is converted in memory.
//!
//! The sample depends only on names and the seed: files are taken in the order of the hash of their origin. So it is the
//! same in every run, and a larger sample contains every smaller one. Of tar files without compression, parts anywhere
//! in them are taken, in hash order, too. Other containers (compressed tar, Parquet and Arrow files) are read from their
//! start, so the first items of a few containers are taken, chosen by the order of the files; a container that ends is
//! replaced by the next one. Files that are images by name, other files, tar files and other containers are strata.

use std::collections::{BinaryHeap, VecDeque};
use std::time::Instant;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::conversion::{ImageConversion, ImagesJob};
use super::feed::ImageTask;
use super::sources::files::FilesTask;
use crate::error::{Error, Result};
use crate::pipeline::job::Feed;
use crate::pipeline::predict::{
    Predicted, Prediction, SampleRun, SampleSize, SampleTask, Stratum, StratumRun, StratumUnit, UnitPart,
    unit_parts,
};
use crate::source::list::source_file::SourceFile;
use crate::writer::stop::Stop;

/// Decorrelates the order of the sample from other uses of hashed origins.
const SAMPLE_SALT: u64 = 0x5341_4d50_4c45_3031;
/// Bytes of a part of a tar file. A part has few samples, so that the parts of a sample are spread.
const PART_BYTES: u64 = 64 << 10;
/// Number of containers that are sampled at the same time.
const OPEN_CONTAINERS: usize = 8;

/// Strata of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileStratum {
    /// Files that are images by name, or named by a list or a table.
    Images,
    /// Files whose content says whether they are images.
    Others,
    /// Containers that can be read in part.
    Parts,
    /// Containers that are read from their start.
    Containers,
}

impl FileStratum {
    const ALL: [Self; 4] = [Self::Images, Self::Others, Self::Parts, Self::Containers];

    fn unit(self) -> StratumUnit {
        match self {
            Self::Images => StratumUnit::Items,
            Self::Others => StratumUnit::Files,
            Self::Parts | Self::Containers => StratumUnit::Bytes,
        }
    }
}

/// Size of a stratum.
#[derive(Debug, Clone, Copy, Default)]
struct FileCount {
    files: usize,
    bytes: u64,
}

impl Predicted for ImageConversion {
    fn predict(job: &ImagesJob, items: u64, sample: SampleRun<'_, Self>, stop: &Stop) -> Result<Prediction> {
        job.prediction(items, sample, stop)
    }
}

impl ImagesJob {
    /// See [`Predicted::predict`].
    fn prediction(
        &self,
        items: u64,
        mut sampled: SampleRun<'_, ImageConversion>,
        stop: &Stop,
    ) -> Result<Prediction> {
        let counts = self.counts();
        let wanted = wanted(items, counts);
        let mut strata = Vec::new();
        for (stratum, (count, wanted)) in FileStratum::ALL.into_iter().zip(counts.into_iter().zip(wanted)) {
            let unit = stratum.unit();
            let size = if unit == StratumUnit::Bytes { count.bytes as f64 } else { count.files as f64 };
            let mut sample = sampled.stratum(unit, SampleSize::of(size))?;
            match stratum {
                FileStratum::Parts => self.sample_tars(&mut sample, wanted, stop)?,
                FileStratum::Containers => self.sample_containers(&mut sample, wanted, stop)?,
                _ => self.sample_files(&mut sample, stratum, wanted, stop)?,
            }
            strata.push(sample.finish()?);
        }
        let strata: Vec<&Stratum> = strata.iter().collect();
        Ok(sampled.prediction(&strata, &self.unit_parts(&strata)))
    }

    /// Converts the first `count` files of a stratum.
    fn sample_files(
        &self,
        sample: &mut StratumRun<'_, '_, ImageConversion>,
        stratum: FileStratum,
        count: u64,
        stop: &Stop,
    ) -> Result<()> {
        let mut taken = self.first_by_hash(count as usize, stratum);
        taken.sort_unstable();
        let files = taken.into_iter().map(|first| {
            let task = FilesTask { first, files: self.item(first), ..FilesTask::default() };
            Ok(SampleTask { size: SampleSize::of(1.0), seconds: 0.0, tasks: vec![ImageTask::Files(task)] })
        });
        sample.convert(files, stop).map(drop)
    }

    /// Converts at least `count` items of tar files, or all of them.
    fn sample_tars(
        &self,
        sample: &mut StratumRun<'_, '_, ImageConversion>,
        count: u64,
        stop: &Stop,
    ) -> Result<()> {
        let is_tar =
            |(ordinal, file): &(usize, SourceFile)| self.stratum_of(*ordinal, file) == FileStratum::Parts;
        let mut parts = 0;
        let tars = self.items().filter(is_tar).map(|(ordinal, file)| {
            parts += file.bytes.div_ceil(PART_BYTES);
            (ordinal, parts)
        });
        let tars: Vec<(usize, u64)> = tars.collect();
        sample.convert_chunks(
            parts,
            (count, 0.0),
            |part| self.tar_part(&tars, part).map(|task| vec![task]),
            stop,
        )
    }

    /// Returns a task with the samples of a part. `tars` are the tar files, each with the number of parts up to its end.
    fn tar_part(&self, tars: &[(usize, u64)], part: u64) -> Result<SampleTask<ImageTask>> {
        let started = Instant::now();
        let at = tars.partition_point(|(_, end)| *end <= part);
        let file = self.file(tars[at].0)?;
        let start = (part - at.checked_sub(1).map_or(0, |before| tars[before].1)) * PART_BYTES;
        let end = (start + PART_BYTES).min(file.bytes);
        let kind = self.conversion.containers.kind();
        let kind = kind.ok_or_else(|| Error::internal("a file is read as a container"))?;
        let task = kind.part(self.container(file), start..end)?;
        let source_bytes = task.source_bytes();
        let (size, seconds) = (SampleSize::of(source_bytes as f64), started.elapsed().as_secs_f64());
        Ok(SampleTask { size, seconds, tasks: vec![ImageTask::Container(task)] })
    }

    /// Converts at least `count` items of containers, or all of them.
    fn sample_containers(
        &self,
        sample: &mut StratumRun<'_, '_, ImageConversion>,
        count: u64,
        stop: &Stop,
    ) -> Result<()> {
        let mut found = 0;
        if count > 0 {
            let mut heads = ContainerHeads::new(self);
            while found < count && !heads.is_exhausted() {
                found += sample.convert(heads.next_items(count - found), stop)?;
            }
        }
        Ok(())
    }

    /// Returns the stratum of the file with this ordinal.
    fn stratum_of(&self, ordinal: usize, file: &SourceFile) -> FileStratum {
        let sources = &self.header.sources;
        let has_parts =
            || self.conversion.containers.kind().is_some_and(|kind| kind.has_parts(file, sources));
        match self.is_container(file) {
            true if has_parts() => FileStratum::Parts,
            true => FileStratum::Containers,
            false if self.is_item(file, self.conversion.detail(ordinal)) => FileStratum::Images,
            false => FileStratum::Others,
        }
    }

    /// Returns the sizes of the strata.
    fn counts(&self) -> [FileCount; 4] {
        let mut counts = [FileCount::default(); 4];
        for (ordinal, file) in self.items() {
            let count = &mut counts[self.stratum_of(ordinal, &file) as usize];
            count.files += 1;
            count.bytes = count.bytes.saturating_add(file.bytes);
        }
        counts
    }

    /// Returns the ordinals of the first `count` files of a stratum, in the order of the hash of their origins.
    fn first_by_hash(&self, count: usize, stratum: FileStratum) -> Vec<usize> {
        if count == 0 {
            return Vec::new();
        }
        // Max-heap: the largest hash is on top.
        let mut first = BinaryHeap::new();
        let seed = SAMPLE_SALT ^ self.header.output.seed;
        for (ordinal, file) in
            self.items().filter(|(ordinal, file)| self.stratum_of(*ordinal, file) == stratum)
        {
            first.push((xxh3_64_with_seed(file.origin.as_bytes(), seed), ordinal));
            if first.len() > count {
                first.pop();
            }
        }
        first.into_sorted_vec().into_iter().map(|(_, ordinal)| ordinal).collect()
    }

    /// Returns the expected records of all splits of all units.
    fn unit_parts(&self, strata: &[&Stratum]) -> Vec<UnitPart> {
        let piece = |(ordinal, file): (usize, SourceFile)| {
            let stratum = self.stratum_of(ordinal, &file);
            let is_container = stratum.unit() == StratumUnit::Bytes;
            // A split by hash divides the items of a container.
            let is_divided = is_container && self.header.output.split.is_some();
            let split = (!is_divided).then(|| self.split_of_file(&file));
            let size = if is_container { file.bytes as f64 } else { 1.0 };
            (stratum as usize, SampleSize::of(size), split)
        };
        unit_parts(&self.units, self.header.splits.len(), strata, |unit| {
            let files = unit.clone().zip(self.files.range(unit));
            files.filter(|(_, file)| file.of_field.is_none()).map(piece)
        })
    }
}

/// Divides a sample among the strata: by bytes between tar files, other containers and other files, and by number among
/// these.
fn wanted(sample: u64, [images, others, tars, containers]: [FileCount; 4]) -> [u64; 4] {
    let (files, file_bytes) = (images.files + others.files, images.bytes.saturating_add(others.bytes) as f64);
    let all_bytes = file_bytes + tars.bytes as f64 + containers.bytes as f64;
    let share = |bytes: f64| if all_bytes == 0.0 { 1.0 } else { bytes / all_bytes };
    let single = match tars.files + containers.files {
        0 => sample as f64,
        _ => (sample as f64 * share(file_bytes)).ceil(),
    };
    // Every stratum has at least one file in the sample.
    let of = |stratum: FileCount| match stratum.files {
        0 => 0,
        n => (single * n as f64 / files as f64).ceil().max(1.0) as u64,
    };
    let contained = |containers: FileCount| match containers.files {
        0 => 0,
        _ => (sample as f64 * share(containers.bytes as f64)).floor().max(1.0) as u64,
    };
    [of(images), of(others), contained(tars), contained(containers)]
}

/// The first items of containers. Takes tasks from a few containers in turn, and replaces each that ends.
struct ContainerHeads<'a> {
    job: &'a ImagesJob,
    /// Ordinals of the containers that are not yet open.
    closed: std::vec::IntoIter<usize>,
    open: VecDeque<Box<dyn Feed<ImageTask> + 'a>>,
}

impl<'a> ContainerHeads<'a> {
    fn new(job: &'a ImagesJob) -> Self {
        let closed = job.first_by_hash(usize::MAX, FileStratum::Containers).into_iter();
        Self { job, closed, open: VecDeque::new() }
    }

    fn is_exhausted(&self) -> bool {
        self.closed.len() == 0 && self.open.is_empty()
    }

    /// Returns tasks with approximately the next `items` items.
    fn next_items(&mut self, items: u64) -> impl Iterator<Item = Result<SampleTask<ImageTask>>> + Send {
        let mut remaining = items;
        std::iter::from_fn(move || {
            if remaining == 0 {
                return None;
            }
            let task = self.next_task().transpose()?;
            Some(task.map(|(task, items)| {
                remaining = remaining.saturating_sub(items);
                task
            }))
        })
    }

    /// Returns the next task, with the bytes it represents, the seconds spent reading it, and its number of items.
    fn next_task(&mut self) -> Result<Option<(SampleTask<ImageTask>, u64)>> {
        loop {
            let started = Instant::now();
            while self.open.len() < OPEN_CONTAINERS
                && let Some(ordinal) = self.closed.next()
            {
                self.open.push_back(self.job.feed(ordinal..ordinal + 1, None)?);
            }
            let Some(mut container) = self.open.pop_front() else { return Ok(None) };
            let Some((task, _)) = container.next()? else { continue };
            self.open.push_back(container);
            let (items, bytes) = match &task {
                ImageTask::Container(task) => (task.items(), task.source_bytes()),
                ImageTask::Files(_) => return Err(Error::internal("a container is read as a file")),
            };
            let seconds = started.elapsed().as_secs_f64();
            let size = SampleSize::of(bytes as f64);
            return Ok(Some((SampleTask { size, seconds, tasks: vec![task] }, items)));
        }
    }
}

#[cfg(test)]
mod tests;
