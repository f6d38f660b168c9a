//! Images in Parquet and Arrow files. Each file is a unit, which its feed reads a few rows at a time.

use std::sync::Arc;

use super::job::{ImageConversion, ImagesJob};
use super::task::{BYTES_HELD_PER_BYTE, ImageTask, TASK_BYTES, TableTask, TaskRows};
use crate::error::Result;
use crate::pipeline::job::Feed;
use crate::sample::{Reject, RejectCode};
use crate::source::broken::Broken;
use crate::source::image_table::{FoundRows, ImageBatch, ImageRows, ImageTable, TableFile};
use crate::source::source_file::SourceFile;

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
            Ok(table.table(images, recipe.keep_fields.as_deref())?)
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
        while self.pending.as_ref().is_none_or(ImageBatch::is_empty) {
            let Some(rows) = &mut self.rows else { return Ok(None) };
            match rows.read()? {
                None => return Ok(None),
                Some(FoundRows::Rows(batch)) => self.pending = Some(batch),
                Some(FoundRows::Broken { row, reject }) => {
                    return Ok(self.task(TaskRows::Broken { row: Some(row), reject }, 0));
                }
            }
        }
        let Some(batch) = &mut self.pending else { return Ok(None) };
        let each = batch.memory_bytes() / batch.len().max(1) as u64;
        let count = (TASK_BYTES / each.max(1)).max(1);
        let taken = batch.take(usize::try_from(count).unwrap_or(usize::MAX));
        let rows = taken.len() as u64;
        Ok(self.task(TaskRows::Rows(taken), each * rows))
    }
}
