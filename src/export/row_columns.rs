//! Columns for trainers, as Parquet files of a folder for `datasets`. An exporter of other columns only says which they are and how
//! records fill them.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use serde_json::{Value, json};

use super::hf::{default_parts, file_name, write_card};
use super::hub_card::Features;
use super::output::StagedFiles;
use super::rows_file::RowsFile;
use super::{Columns, ExportSplit, Exporter, Part};
use crate::error::{Error, Result};
use crate::manifest::FileEntry;
use crate::reader::Record;

/// The columns of the rows that records become.
pub(super) trait RowColumns: Sync {
    /// What the rows are, for the card of the folder.
    const CONTENT: &str;

    /// Returns the names and types in Arrow.
    fn schema(&self) -> &SchemaRef;

    /// Returns the word of the option that selects them.
    fn columns(&self) -> Columns;

    /// Returns what the user should know before anything is written.
    fn warnings(&self) -> &[String];

    /// Returns the columns of `records` of `split`.
    fn arrays(&self, split: &ExportSplit, records: &[Record]) -> Result<Vec<ArrayRef>>;

    /// Returns the columns as `datasets` describes them.
    fn features(&self) -> Features;
}

impl<C: RowColumns> Exporter for C {
    type Block = RecordBatch;
    type Files = RowsFile;

    fn warnings(&self) -> Vec<String> {
        RowColumns::warnings(self).to_vec()
    }

    fn default_parts(&self, split: &ExportSplit) -> u64 {
        default_parts(split)
    }

    fn described(&self) -> Value {
        json!({ "columns": self.columns().to_string() })
    }

    fn encode(&self, split: &ExportSplit, records: Range<u64>) -> Result<RecordBatch> {
        let records = split.source.get_many(&records.collect::<Vec<_>>())?;
        RecordBatch::try_new(Arc::clone(self.schema()), self.arrays(split, &records)?)
            .map_err(|e| Error::internal("the rows do not fit their schema").caused_by(e))
    }

    fn create(&self, part: &Part<'_>, staged: &StagedFiles) -> Result<RowsFile> {
        RowsFile::create(file_name(part), self.schema(), staged)
    }

    fn append(&self, file: &mut RowsFile, block: RecordBatch) -> Result<()> {
        file.append(&block)
    }

    fn close(&self, file: RowsFile, _: &StagedFiles) -> Result<Vec<FileEntry>> {
        file.close()
    }

    fn finish(&self, parts: &[(&Part<'_>, &[FileEntry])], staged: &StagedFiles) -> Result<Vec<FileEntry>> {
        write_card(&self.features(), C::CONTENT, parts, staged)
    }
}
