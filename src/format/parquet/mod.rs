//! Writing Parquet shards.
//!
//! Pages are small, because a random read decodes one page of each column; row groups are bounded in bytes, because a
//! writer holds one in memory. Nothing that the bytes depend on is left to a default of the library.

mod guard;
mod reader;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use ::parquet::arrow::arrow_writer::ArrowWriterOptions;
use ::parquet::basic::{Compression, ZstdLevel};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use ::parquet::schema::types::ColumnPath;

use super::arrow_schema::{IMAGE_BYTES, METADATA_KEY, metadata};
use super::columns::Columns;
use super::{Placed, ShardWriter, check};
use crate::error::{Error, Result};
use crate::sample::Record;
use crate::schema::{FieldType, KEY, ORIGIN, Schema};
use crate::storage::NewFile;

pub(super) use reader::{MAGIC, Reader, infer_schema};

/// Most rows of a row group.
const GROUP_ROWS: usize = 16_384;
/// Most canonical bytes of a row group that has more than one row.
const GROUP_BYTES: u64 = 16 << 20;
/// Rows and canonical bytes handed to the encoder together.
const CHUNK_ROWS: usize = 1024;
/// See [`CHUNK_ROWS`].
const CHUNK_BYTES: u64 = 4 << 20;
/// Encoded bytes after which a page ends: what a random read decompresses.
const PAGE_BYTES: usize = 32 << 10;
/// Most rows of a page.
const PAGE_ROWS: usize = 1024;
/// Values encoded between two looks at the size of the page.
const WRITE_BATCH: usize = 256;
/// Level of zstd for everything but images.
const ZSTD_LEVEL: i32 = 1;

/// Writes one Parquet shard.
pub(super) struct Writer {
    schema: Arc<Schema>,
    columns: Columns,
    writer: ArrowWriter<NewFile>,
    path: PathBuf,
    group: u32,
    /// Rows and canonical bytes of the current row group, whether still in `columns` or not.
    rows: usize,
    bytes: u64,
}

impl Writer {
    pub(super) fn new(schema: Arc<Schema>, file: NewFile) -> Result<Self> {
        let columns = Columns::new(&schema)?;
        let path = file.path().to_owned();
        // The Arrow schema would be a second copy of the metadata; Parquet's own types say everything.
        let options =
            ArrowWriterOptions::new().with_properties(properties(&schema)?).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(file, columns.arrow().clone(), options)
            .map_err(|e| Error::usage("parquet cannot hold this schema").caused_by(e))?;
        Ok(Self { schema, columns, writer, path, group: 0, rows: 0, bytes: 0 })
    }

    /// Hands what was gathered to the encoder.
    fn encode(&mut self) -> Result<()> {
        if self.columns.rows() == 0 {
            return Ok(());
        }
        let batch = self.columns.take()?;
        self.writer.write(&batch).map_err(|e| failed(&self.path, e))
    }

    fn end_group(&mut self) -> Result<()> {
        self.encode()?;
        self.writer.flush().map_err(|e| failed(&self.path, e))?;
        self.group += 1;
        self.rows = 0;
        self.bytes = 0;
        Ok(())
    }
}

impl ShardWriter for Writer {
    fn push(&mut self, record: &Record) -> Result<Placed> {
        let bytes = check::record(&self.schema, record)?;
        if self.rows == GROUP_ROWS || (self.rows > 0 && self.bytes + bytes > GROUP_BYTES) {
            self.end_group()?;
        } else if self.columns.rows() == CHUNK_ROWS || self.columns.bytes() + bytes > CHUNK_BYTES {
            self.encode()?;
        }
        let placed = Placed::in_group(self.group, self.rows as u32, bytes);
        self.columns.push(record, bytes)?;
        self.rows += 1;
        self.bytes += bytes;
        Ok(placed)
    }

    fn finish(mut self: Box<Self>) -> Result<NewFile> {
        self.encode()?;
        let path = self.path;
        self.writer.into_inner().map_err(|e| failed(&path, e))
    }
}

/// Everything that decides the bytes, but the records.
fn properties(schema: &Schema) -> Result<WriterProperties> {
    let zstd = ZstdLevel::try_new(ZSTD_LEVEL).map_err(|e| Error::usage("no such zstd level").caused_by(e))?;
    let metadata = KeyValue::new(METADATA_KEY.to_owned(), metadata(schema)?);
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_key_value_metadata(Some(vec![metadata]))
        .set_coerce_types(true)
        .set_compression(Compression::ZSTD(zstd))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_dictionary_enabled(true)
        .set_max_row_group_row_count(None)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_dictionary_page_size_limit(PAGE_BYTES)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(WRITE_BATCH);
    for field in &schema.fields {
        let leaf = match field.ty {
            FieldType::Image => vec![field.name.clone(), IMAGE_BYTES.to_owned()],
            FieldType::IdsU16 | FieldType::IdsU32 => {
                vec![field.name.clone(), "list".to_owned(), "element".to_owned()]
            }
            _ => vec![field.name.clone()],
        };
        let leaf = ColumnPath::new(leaf);
        // Values that never repeat gain nothing from a dictionary, and those nobody compares nothing from statistics.
        let payload =
            matches!(field.ty, FieldType::Image | FieldType::Binary) || field.ty.id_width().is_some();
        if payload {
            properties = properties.set_column_statistics_enabled(leaf.clone(), EnabledStatistics::None);
        }
        if payload || field.name == KEY || field.name == ORIGIN {
            properties = properties.set_column_dictionary_enabled(leaf.clone(), false);
        }
        if field.ty == FieldType::Image {
            properties = properties.set_column_compression(leaf, Compression::UNCOMPRESSED);
        }
    }
    Ok(properties.build())
}

/// The library hides the cause of a failed write in a box; a full disk must stay visible.
fn failed(path: &Path, e: ParquetError) -> Error {
    match e {
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(io) => Error::io("write", path, *io),
            Err(other) => {
                Error::usage("the records cannot be written as parquet").at_path(path).caused_by(other)
            }
        },
        other => Error::usage("the records cannot be written as parquet").at_path(path).caused_by(other),
    }
}
