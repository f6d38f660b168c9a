//! Tasks of a conversion of images, and the feeds that create them: files in groups, tar files as streams, Parquet and Arrow
//! files a few rows at a time.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::job::{ImageConversion, ImagesJob};
use crate::error::Result;
use crate::pipeline::job::Feed;
use crate::sample::{Reject, RejectCode};
use crate::source::io::broken::Broken;
use crate::source::io::opened::OpenedFile;
use crate::source::items::image_table::{ImageBatch, ImageRows, ImageTable, TableFile};
use crate::source::items::webdataset::{NextSample, Samples};
use crate::source::list::file_list::Iter;
use crate::source::list::source_file::SourceFile;
use crate::source::table::NextRows;

/// Source bytes per task, unless a single file, sample or row has more.
pub(super) const TASK_BYTES: u64 = 1 << 20;
/// Bytes held per source byte: the byte itself, and about as much again for the records.
pub(super) const BYTES_HELD_PER_BYTE: u64 = 2;

/// A task of a conversion of images.
pub enum ImageTask {
    Files(FilesTask),
    Tar(TarTask),
    Table(TableTask),
}

/// Ordinals of the files that are left out as duplicates, each with the ordinal of the file that is kept.
pub(super) type DuplicateFiles = BTreeMap<usize, usize>;

/// A task with whole files.
#[derive(Default)]
pub struct FilesTask {
    /// Ordinal of the first file.
    pub(super) first: usize,
    pub(super) files: Vec<SourceFile>,
    /// One per file, or empty: opened files in object storage, whose bytes are downloaded while other tasks are
    /// converted.
    pub(super) opened: Vec<Option<OpenedFile>>,
    /// The duplicates among the files, each with the file that is kept.
    pub(super) duplicates: DuplicateFiles,
}

/// A task with adjacent samples of a tar file.
pub struct TarTask {
    pub(super) file: Arc<SourceFile>,
    /// Samples, and rejected or skipped parts, each with its start offset in the decompressed data.
    pub(super) found: Vec<(u64, NextSample)>,
    /// Bytes of the file attributed to the task.
    pub(super) source_bytes: u64,
    /// Start of the last compressed member that contributed bytes to the samples, if it differs from the one before.
    pub(super) member: Option<u64>,
    /// Whether that member is damaged, which is known only after its samples were read.
    pub(super) damaged: bool,
}

/// A task with adjacent rows of a Parquet or Arrow file.
pub struct TableTask {
    pub(super) file: Arc<SourceFile>,
    pub(super) found: TaskRows,
}

/// Rows, or the reject of a part of the file.
pub(super) enum TaskRows {
    Rows(ImageBatch),
    Broken { row: Option<u64>, reject: Reject },
}

impl TarTask {
    /// Returns the number of items: samples, and parts that are rejected.
    pub(super) fn items(&self) -> u64 {
        self.found.iter().filter(|(_, found)| !matches!(found, NextSample::Skipped)).count() as u64
    }
}

impl TableTask {
    /// Returns the bytes of the file attributed to the task.
    pub(super) fn source_bytes(&self) -> u64 {
        match &self.found {
            TaskRows::Rows(batch) => batch.source_bytes,
            TaskRows::Broken { .. } => 0,
        }
    }

    /// Returns the number of items.
    pub(super) fn len(&self) -> usize {
        match &self.found {
            TaskRows::Rows(batch) => batch.rows.len(),
            TaskRows::Broken { .. } => 1,
        }
    }
}

/// Divides the listing into ranges of at most `max_files` files and about `max_bytes` bytes. The files of an item stay together. Files for which `alone`
/// returns true have their own range.
pub(super) fn divide(
    files: impl Iterator<Item = impl Borrow<SourceFile>>,
    max_files: usize,
    max_bytes: u64,
    alone: impl Fn(&SourceFile) -> bool,
) -> Vec<Range<usize>> {
    let mut units = Vec::new();
    let (mut start, mut end, mut bytes, mut was_alone) = (0, 0, 0, false);
    for file in files {
        let file = file.borrow();
        // The files of an item stay together.
        let may_end = file.of_field.is_none();
        let is_alone = may_end && alone(file);
        let is_full = is_alone || was_alone || end - start == max_files || bytes + file.bytes > max_bytes;
        if end > start && is_full && may_end {
            units.push(start..end);
            (start, bytes) = (end, 0);
        }
        (end, was_alone) = (end + 1, is_alone);
        bytes += file.bytes;
    }
    if start < end {
        units.push(start..end);
    }
    units
}

/// Maximum number of files per task.
const TASK_FILES: usize = 8;

/// Feed of a unit of files, in groups.
pub(super) struct FileFeed<'a> {
    job: &'a ImagesJob,
    /// Ordinal of the next file, which is the first of the next task.
    next: usize,
    files: Iter<'a>,
    tasks: std::vec::IntoIter<PlannedTask>,
    duplicates: Option<&'a DuplicateFiles>,
}

impl<'a> FileFeed<'a> {
    pub(super) fn new(
        job: &'a ImagesJob,
        files: Range<usize>,
        duplicates: Option<&'a DuplicateFiles>,
    ) -> Self {
        let tasks = divide(job.files.range(files.clone()), TASK_FILES, TASK_BYTES, |_| false);
        let mut sizes = job.files.range(files.clone()).map(|file| file.bytes);
        let tasks: Vec<_> = tasks
            .into_iter()
            .map(|task| PlannedTask {
                held: sizes.by_ref().take(task.len()).sum::<u64>() * BYTES_HELD_PER_BYTE,
                files: task.len(),
            })
            .collect();
        Self { job, next: files.start, files: job.files.range(files), tasks: tasks.into_iter(), duplicates }
    }
}

/// A task that is not yet created.
struct PlannedTask {
    /// Bytes that the task holds.
    held: u64,
    /// Number of files.
    files: usize,
}

impl Feed<ImageTask> for FileFeed<'_> {
    fn next_bytes(&self) -> u64 {
        self.tasks.as_slice().first().map_or(0, |task| task.held)
    }

    fn next(&mut self) -> Result<Option<(ImageTask, u64)>> {
        Ok(self.tasks.next().map(|task| {
            let files: Vec<_> = self.files.by_ref().take(task.files).collect();
            let first = self.next;
            self.next += files.len();
            let duplicates = self.duplicates.into_iter().flat_map(|found| found.range(first..self.next));
            let duplicates = duplicates.map(|(&file, &kept)| (file, kept)).collect();
            let opened = self.job.open_all_ahead(first, &files);
            (ImageTask::Files(FilesTask { first, files, opened, duplicates }), task.held)
        }))
    }
}

/// Maximum number of samples per task.
const TASK_SAMPLES: usize = 8;

/// Feed of the samples of a tar file.
pub(super) struct TarFeed {
    file: Arc<SourceFile>,
    samples: Samples,
    /// Bytes of the tar file that are already in tasks.
    fed: u64,
}

impl TarFeed {
    pub(super) fn open(job: &ImagesJob, file: SourceFile) -> Result<Self> {
        let samples = Samples::open(&job.planned(&file))?;
        Ok(Self { file: Arc::new(file), samples, fed: 0 })
    }
}

impl Feed<ImageTask> for TarFeed {
    fn next_bytes(&self) -> u64 {
        TASK_BYTES * BYTES_HELD_PER_BYTE
    }

    fn next(&mut self) -> Result<Option<(ImageTask, u64)>> {
        let mut found = Vec::new();
        let mut bytes = 0;
        while found.len() < TASK_SAMPLES && bytes < TASK_BYTES {
            let Some(next) = self.samples.read()? else { break };
            if let (_, NextSample::Sample(sample)) = &next {
                bytes += sample.members.iter().map(|(_, b)| b.len() as u64).sum::<u64>();
            }
            found.push(next);
        }
        let read = self.samples.raw_bytes().max(self.fed);
        let source_bytes = read - std::mem::replace(&mut self.fed, read);
        let (member, damaged) = (self.samples.take_member_start(), self.samples.ended_corrupt());
        let tar = TarTask { file: Arc::clone(&self.file), found, source_bytes, member, damaged };
        Ok((!tar.found.is_empty()).then_some((ImageTask::Tar(tar), bytes * BYTES_HELD_PER_BYTE)))
    }
}

/// Feed of the rows of a file.
pub(super) struct TableFeed {
    file: Arc<SourceFile>,
    rows: Option<ImageRows>,
    /// Rows that are not yet in a task.
    pending: Option<ImageBatch>,
    /// The reason why the whole file is rejected.
    broken: Option<Reject>,
}

impl TableFeed {
    pub(super) fn open(job: &ImagesJob, file: SourceFile) -> Result<Self> {
        let ImageConversion { table_images, recipe, .. } = &job.conversion;
        let opened = TableFile::open(job.planned(&file)).and_then(|table| {
            let Some(images) = table_images else { return Ok(None) };
            Ok(table.table(images, recipe.label_field.as_deref(), recipe.keep_fields.as_deref())?)
        });
        let (table, broken) = match opened {
            Ok(Some(table)) => (Some(table), None),
            Ok(None) => (None, Some(Reject::new(RejectCode::MissingField, "the file has no image column"))),
            Err(Broken::Damaged(reject)) => (None, Some(reject)),
            Err(Broken::Failed(error)) => return Err(error),
        };
        let rows = table.map(ImageTable::rows).transpose()?;
        Ok(Self { file: Arc::new(file), rows, pending: None, broken })
    }

    /// Creates a task. Returns it with the bytes that it holds.
    fn task(&self, found: TaskRows, bytes: u64) -> Option<(ImageTask, u64)> {
        let task = TableTask { file: Arc::clone(&self.file), found };
        Some((ImageTask::Table(task), bytes * BYTES_HELD_PER_BYTE))
    }
}

impl Feed<ImageTask> for TableFeed {
    fn next_bytes(&self) -> u64 {
        TASK_BYTES * BYTES_HELD_PER_BYTE
    }

    fn next(&mut self) -> Result<Option<(ImageTask, u64)>> {
        if let Some(reject) = self.broken.take() {
            return Ok(self.task(TaskRows::Broken { row: None, reject }, 0));
        }
        while self.pending.as_ref().is_none_or(|batch| batch.rows.is_empty()) {
            let Some(rows) = &mut self.rows else { return Ok(None) };
            match rows.read()? {
                None => return Ok(None),
                Some(NextRows::Rows(batch)) => self.pending = Some(batch),
                Some(NextRows::Broken { row, reject }) => {
                    return Ok(self.task(TaskRows::Broken { row: Some(row), reject }, 0));
                }
            }
        }
        let Some(batch) = &mut self.pending else { return Ok(None) };
        let each = batch.rows.allocated_bytes() / batch.rows.len().max(1) as u64;
        let count = (TASK_BYTES / each.max(1)).max(1);
        let taken = batch.take(usize::try_from(count).unwrap_or(usize::MAX));
        let rows = taken.rows.len() as u64;
        Ok(self.task(TaskRows::Rows(taken), each * rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_cover_the_listing_and_respect_both_limits() {
        let files = [5, 1, 1, 1, 9, 1].map(|bytes| SourceFile::for_test("x", "x", bytes));
        assert_eq!(divide(files.iter(), 3, 6, |_| false), [0..2, 2..4, 4..5, 5..6]);
        assert_eq!(divide(files.iter(), 2, 100, |_| false), [0..2, 2..4, 4..6]);
        assert_eq!(divide(files.iter(), 9, 100, |f| f.bytes > 4), [0..1, 1..4, 4..5, 5..6]);
        assert!(divide(files[..0].iter(), 2, 100, |_| false).is_empty());
    }
}
