//! Pieces of work.

use std::sync::Arc;

use crate::sample::Reject;
use crate::source::image_table::ImageBatch;
use crate::source::opened::OpenedFile;
use crate::source::source_file::SourceFile;
use crate::source::webdataset::NextSample;

/// A piece of work.
pub(in crate::pipeline) enum Task {
    /// Files.
    Files(FilesTask),
    /// Samples of a tar file.
    Tar(TarTask),
    /// Rows of a Parquet file.
    Table(TableTask),
}

/// Files to be converted.
#[derive(Default)]
pub(in crate::pipeline) struct FilesTask {
    /// Ordinal of the first file.
    pub(super) first: usize,
    pub(super) files: Vec<SourceFile>,
    /// One per file, or none: files in object storage, whose bytes are on their way while other tasks are converted.
    pub(super) opened: Vec<Option<OpenedFile>>,
}

/// Neighbouring samples of a tar file.
pub(in crate::pipeline) struct TarTask {
    pub(super) file: Arc<SourceFile>,
    /// Samples and what is in their place, each with the offset in the decompressed data at which it starts.
    pub(super) found: Vec<(u64, NextSample)>,
    /// Bytes of the file that the task stands for.
    pub(super) source_bytes: u64,
    /// Start of the last member of the compressed data that the samples have bytes of, when it is another one than before.
    pub(super) member: Option<u64>,
    /// Whether that member is damaged, which shows after the samples.
    pub(super) damaged: bool,
}

/// Neighbouring rows of a Parquet file.
pub(in crate::pipeline) struct TableTask {
    pub(super) file: Arc<SourceFile>,
    pub(super) found: TableRows,
    /// The share of the bytes of the file.
    pub(super) source_bytes: u64,
}

/// Rows, or a place where there are none.
pub(super) enum TableRows {
    Rows(ImageBatch),
    Broken { row: Option<u64>, reject: Reject },
}

impl TableTask {
    /// Number of items.
    pub(super) fn len(&self) -> usize {
        match &self.found {
            TableRows::Rows(batch) => batch.len(),
            TableRows::Broken { .. } => 1,
        }
    }
}
