//! Tasks of a conversion of images.

use std::sync::Arc;

use super::convert::DuplicateFiles;
use crate::sample::Reject;
use crate::source::image_table::ImageBatch;
use crate::source::opened::OpenedFile;
use crate::source::source_file::SourceFile;
use crate::source::webdataset::NextSample;

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
            TaskRows::Rows(batch) => batch.source_bytes(),
            TaskRows::Broken { .. } => 0,
        }
    }

    /// Returns the number of items.
    pub(super) fn len(&self) -> usize {
        match &self.found {
            TaskRows::Rows(batch) => batch.len(),
            TaskRows::Broken { .. } => 1,
        }
    }
}
