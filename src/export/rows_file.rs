//! A Parquet file of rows that are built as Arrow columns: what trainers read that have a layout of their own.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterVersion};

use super::entry;
use super::output::StagedFiles;
use crate::error::{Error, Result};
use crate::format::watched::{WatchedFile, WriteFailure};
use crate::manifest::FileEntry;
use crate::reader::Record;
use crate::sample::Ids;

/// Rows of a row group, as in files that Megatron-Bridge writes.
const GROUP_ROWS: usize = 500;

/// A file that is being written.
pub(super) struct RowsFile {
    name: String,
    writer: ArrowWriter<WatchedFile>,
    failure: WriteFailure,
}

impl RowsFile {
    pub(super) fn create(name: String, schema: &SchemaRef, staged: &StagedFiles) -> Result<Self> {
        let zstd = ZstdLevel::try_new(1).map_err(|e| Error::internal("no such zstd level").caused_by(e))?;
        let properties = WriterProperties::builder()
            .set_writer_version(WriterVersion::PARQUET_1_0)
            .set_compression(Compression::ZSTD(zstd))
            .set_created_by("dsconvert".to_owned())
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .build();
        let (file, failure) =
            WatchedFile::new(staged.create(&name)?, "the rows cannot be written as parquet");
        let writer = ArrowWriter::try_new(file, Arc::clone(schema), Some(properties));
        let writer = writer.map_err(|e| failure.explain(e))?;
        Ok(Self { name, writer, failure })
    }

    pub(super) fn append(&mut self, rows: &RecordBatch) -> Result<()> {
        self.writer.write(rows).map_err(|e| self.failure.explain(e))
    }

    pub(super) fn close(self) -> Result<Vec<FileEntry>> {
        let Self { name, writer, failure } = self;
        let inner = writer.into_inner().map_err(|e| failure.explain(e))?;
        Ok(vec![entry(name, inner.into_file().commit()?)])
    }
}

/// Returns a column of lists.
pub(super) fn list(name: &str, items: DataType) -> Field {
    Field::new(name, DataType::List(Arc::new(Field::new("item", items, true))), true)
}

/// Returns a token id in the type that trainers read.
pub(super) fn signed(id: u32) -> Result<i32> {
    i32::try_from(id).map_err(|_| Error::corrupt(format!("the token id {id} exceeds 31 bits")))
}

/// Returns the token ids of a record and, if it has masks, which of them are trained.
pub(super) fn ids_and_masks(record: &Record) -> Result<(&Ids, Option<&[u8]>)> {
    let ids = record.input_ids().ok_or_else(|| Error::corrupt("the record has no token ids"))?;
    let masks = record.assistant_masks().map(|masks| masks.as_ref());
    match masks.is_some_and(|masks: &[u8]| masks.len() != ids.len()) {
        true => Err(Error::corrupt("the record does not have one mark per token")),
        false => Ok((ids, masks)),
    }
}
