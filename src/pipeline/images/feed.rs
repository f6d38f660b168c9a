//! The tasks of a unit of files.

use std::ops::Range;

use super::convert::Task;
use super::divide::divide;
use crate::error::Result;
use crate::pipeline::conversion::Feed;
use crate::source::walk::SourceFile;

/// Files of one task.
const TASK_FILES: usize = 8;
/// Source bytes of one task, unless one file alone has more.
const TASK_BYTES: u64 = 1 << 20;

/// Groups of files.
pub(super) struct FileFeed<'a> {
    files: &'a [SourceFile],
    /// Where `files` starts in the listing.
    start: usize,
    tasks: std::vec::IntoIter<Range<usize>>,
}

impl<'a> FileFeed<'a> {
    pub(super) fn new(files: &'a [SourceFile], start: usize) -> Self {
        let tasks = divide(files, TASK_FILES, TASK_BYTES, |_| false).into_iter();
        Self { files, start, tasks }
    }

    /// Bytes that the task holds: its files, and about as much again for the records.
    fn bytes(&self, task: &Range<usize>) -> u64 {
        self.files[task.clone()].iter().map(|f| f.bytes).sum::<u64>() * 2
    }
}

impl Feed<Task> for FileFeed<'_> {
    fn next_bytes(&self) -> u64 {
        self.tasks.as_slice().first().map_or(0, |task| self.bytes(task))
    }

    fn next(&mut self) -> Result<Option<(Task, u64)>> {
        Ok(self.tasks.next().map(|task| {
            let bytes = self.bytes(&task);
            (Task::Files(self.start + task.start..self.start + task.end), bytes)
        }))
    }
}
