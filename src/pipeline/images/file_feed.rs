//! The feed of a unit of image files.

use std::ops::Range;

use super::convert::DuplicateFiles;
use super::divide::divide;
use super::job::ImagesJob;
use super::task::{BYTES_HELD_PER_BYTE, FilesTask, ImageTask, TASK_BYTES};
use crate::error::Result;
use crate::pipeline::job::Feed;
use crate::source::file_list::Iter;

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
