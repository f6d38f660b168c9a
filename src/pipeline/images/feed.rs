//! The tasks of a unit of files.

use std::ops::Range;

use super::convert::Task;
use super::divide::divide;
use super::job::ImagesJob;
use crate::error::Result;
use crate::pipeline::conversion::Feed;
use crate::source::opened::OpenedFile;

/// Files of one task.
const TASK_FILES: usize = 8;
/// Source bytes of one task, unless one file alone has more.
const TASK_BYTES: u64 = 1 << 20;

/// Files to be converted, by ordinal.
#[derive(Default)]
pub(in crate::pipeline) struct FilesTask {
    pub(super) files: Range<usize>,
    /// One per file, or none: files in object storage, whose bytes are on their way while other tasks are converted.
    pub(super) opened: Vec<Option<OpenedFile>>,
}

/// Groups of files.
pub(super) struct FileFeed<'a> {
    job: &'a ImagesJob,
    tasks: std::vec::IntoIter<Range<usize>>,
}

impl<'a> FileFeed<'a> {
    pub(super) fn new(job: &'a ImagesJob, files: Range<usize>) -> Self {
        let start = files.start;
        let tasks = divide(&job.files[files], TASK_FILES, TASK_BYTES, |_| false);
        let tasks: Vec<_> = tasks.into_iter().map(|task| start + task.start..start + task.end).collect();
        Self { job, tasks: tasks.into_iter() }
    }

    /// Bytes that the task holds: its files, and about as much again for the records.
    fn bytes(&self, task: &Range<usize>) -> u64 {
        self.job.files[task.clone()].iter().map(|f| f.bytes).sum::<u64>() * 2
    }
}

impl Feed<Task> for FileFeed<'_> {
    fn next_bytes(&self) -> u64 {
        self.tasks.as_slice().first().map_or(0, |task| self.bytes(task))
    }

    fn next(&mut self) -> Result<Option<(Task, u64)>> {
        Ok(self.tasks.next().map(|task| {
            let bytes = self.bytes(&task);
            (Task::Files(FilesTask { opened: self.job.open_ahead(task.clone()), files: task }), bytes)
        }))
    }
}
