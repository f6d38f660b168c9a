//! Parquet shards and their writer.
//!
//! Pages are small because a random read decodes one page of each column. Row groups are limited in bytes because a
//! writer holds one in memory. Every setting that affects the bytes is set explicitly instead of relying on library
//! defaults.

mod cache;
mod guard;
mod lists;
mod payload;
mod reader;

use std::sync::Arc;

use ::parquet::arrow::ArrowSchemaConverter;
use ::parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use ::parquet::basic::{Compression, Encoding, ZstdLevel};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::ColumnPath;
use arrow_array::{ArrayRef, BinaryArray, RecordBatch, StringArray, StructArray};
use arrow_schema::FieldRef;

use super::arrow_schema::{
    ARRAY_DATA, ARRAY_SHAPE, IMAGE_BYTES, METADATA_KEY, Offsets, image_fields, metadata, to_arrow,
};
use super::columns::ColumnBuilders;
use super::watched::{WatchedFile, WriteFailure};
use super::{Placed, ShardWriter, check};
use crate::error::{Error, Result};
use crate::sample::{Record, Value};
use crate::schema::{ArrayLayout, ArrayType, DType, FieldType, KEY, ListItems, ORIGIN, Schema};
use crate::storage::NewFile;
use payload::Payload;

pub(super) use reader::{Reader, infer_schema};

/// Maximum rows per row group.
const GROUP_ROWS: usize = 16_384;
/// Maximum canonical bytes of a row group with more than one row.
const GROUP_BYTES: u64 = 16 << 20;
/// Maximum rows passed to the encoder at once.
const CHUNK_ROWS: usize = 1024;
/// Maximum canonical bytes passed to the encoder at once.
const CHUNK_BYTES: u64 = 4 << 20;
/// Encoded size at which a page ends. A random read decompresses a whole page.
const PAGE_BYTES: usize = 32 << 10;
/// Maximum rows per page.
const PAGE_ROWS: usize = 1024;
/// Maximum bytes of a page that holds a single array: Parquet stores the size of a page in 31 bits.
const MAX_PAGE_BYTES: usize = 2_000_000_000;
/// Values encoded between two checks of the page size.
const WRITE_BATCH: usize = 256;
/// zstd level for all columns except images.
const ZSTD_LEVEL: i32 = 1;

/// Writes one Parquet shard.
pub(super) struct Writer {
    schema: Arc<Schema>,
    file: SerializedFileWriter<WatchedFile>,
    failure: WriteFailure,
    leaves: Vec<Leaf>,
    /// Columns encoded by the `parquet` crate.
    columns: ColumnBuilders,
    factory: ArrowRowGroupWriterFactory,
    /// Encoders of the current row group, one per leaf. `None` until part of the row group is encoded.
    encoders: Option<Vec<ArrowColumnWriter>>,
    group: u32,
    /// Rows of the current row group, including those still in `columns`; `bytes` is their canonical size.
    rows: usize,
    bytes: u64,
}

/// A Parquet leaf column, by how it is encoded.
enum Leaf {
    /// Values of the field at this schema index, encoded by [`Payload`].
    Payload(usize, Box<Payload>),
    /// File name of the preceding image, always null, encoded by the `parquet` crate.
    ImagePath(FieldRef),
    /// One of the [`ColumnBuilders`], encoded by the `parquet` crate.
    Column(FieldRef),
}

impl Writer {
    pub(super) fn new(schema: Arc<Schema>, file: NewFile) -> Result<Self> {
        let unfit = |e| Error::usage("parquet cannot represent this schema").caused_by(e);
        let arrow = to_arrow(&schema)?;
        let properties = Arc::new(properties(&schema)?);
        let converter = ArrowSchemaConverter::new().with_coerce_types(properties.coerce_types());
        let descriptor = converter.convert(&arrow).map_err(unfit)?;
        let mut leaves = Vec::with_capacity(descriptor.num_columns());
        for (leaf, column) in descriptor.columns().iter().enumerate() {
            let index = descriptor.get_column_root_idx(leaf);
            let (ty, field) = (schema.fields[index].ty, &arrow.fields()[index]);
            leaves.push(match leaves.last() {
                Some(Leaf::Payload(image, _)) if *image == index => Leaf::ImagePath(field.clone()),
                _ if !Payload::holds(ty) => Leaf::Column(field.clone()),
                _ => {
                    let compression = properties.compression(column.path());
                    Leaf::Payload(index, Box::new(Payload::new(ty, column.clone(), compression)?))
                }
            });
        }
        let columns = ColumnBuilders::new(&schema, |field| !Payload::holds(field.ty))?;
        let (file, failure) = WatchedFile::new(file, "the records cannot be written as parquet");
        let file = SerializedFileWriter::new(file, descriptor.root_schema_ptr(), properties)
            .map_err(|e| failure.explain(e))?;
        let factory = ArrowRowGroupWriterFactory::new(&file, arrow);
        let (encoders, group, rows, bytes) = (None, 0, 0, 0);
        Ok(Self { schema, file, failure, leaves, columns, factory, encoders, group, rows, bytes })
    }

    /// Encodes the buffered rows.
    fn encode(&mut self) -> Result<()> {
        if self.columns.rows == 0 {
            return Ok(());
        }
        let rows = self.columns.take()?;
        self.try_encode(&rows).map_err(|e| self.failure.explain(e))
    }

    fn try_encode(&mut self, rows: &RecordBatch) -> Result<(), ParquetError> {
        let encoders = match &mut self.encoders {
            Some(encoders) => encoders,
            none => none.insert(self.factory.create_column_writers(self.group as usize)?),
        };
        let mut columns = rows.columns().iter();
        let mut present = None;
        let mut leaves = Vec::new().into_iter();
        for (leaf, encoder) in self.leaves.iter_mut().zip(encoders) {
            let encoded = match leaf {
                Leaf::Payload(_, payload) => {
                    present = payload.present();
                    payload.encode()?;
                    None
                }
                Leaf::ImagePath(field) => {
                    let bytes = Arc::new(BinaryArray::new_null(rows.num_rows()));
                    let path = Arc::new(StringArray::new_null(rows.num_rows()));
                    let image = StructArray::try_new(image_fields(), vec![bytes, path], present.take())?;
                    compute_leaves(field, &(Arc::new(image) as ArrayRef))?.pop()
                }
                Leaf::Column(field) => {
                    // A column of arrays may have two leaves.
                    if leaves.as_slice().is_empty()
                        && let Some(column) = columns.next()
                    {
                        leaves = compute_leaves(field, column)?.into_iter();
                    }
                    leaves.next()
                }
            };
            encoded.iter().try_for_each(|leaf| encoder.write(leaf))?;
        }
        Ok(())
    }

    fn end_group(&mut self) -> Result<()> {
        self.encode()?;
        self.try_end_group().map_err(|e| self.failure.explain(e))?;
        self.group += 1;
        self.rows = 0;
        self.bytes = 0;
        Ok(())
    }

    fn try_end_group(&mut self) -> Result<(), ParquetError> {
        let Some(encoders) = self.encoders.take() else { return Ok(()) };
        let mut group = self.file.next_row_group()?;
        for (leaf, encoder) in self.leaves.iter_mut().zip(encoders) {
            match leaf {
                Leaf::Payload(_, payload) => payload.finish(&mut group)?,
                _ => encoder.close()?.append_to_row_group(&mut group)?,
            }
        }
        group.close()?;
        Ok(())
    }
}

impl ShardWriter for Writer {
    fn push(&mut self, record: &Record) -> Result<Placed> {
        let bytes = check::record(&self.schema, record)?;
        check_pages(&self.schema, record)?;
        if self.rows == GROUP_ROWS || (self.rows > 0 && self.bytes + bytes > GROUP_BYTES) {
            self.end_group()?;
        } else if self.columns.rows == CHUNK_ROWS || self.columns.bytes + bytes > CHUNK_BYTES {
            self.encode()?;
        }
        let placed = Placed::in_group(self.group, self.rows as u32, bytes);
        self.columns.push(record, bytes)?;
        for leaf in &mut self.leaves {
            if let Leaf::Payload(index, payload) = leaf {
                payload.push(record.values.get(*index).unwrap_or(&Value::Null))?;
            }
        }
        self.rows += 1;
        self.bytes += bytes;
        // The next record would trigger this anyway. Doing it now avoids holding a large record until then.
        if self.bytes >= GROUP_BYTES {
            self.end_group()?;
        } else if self.columns.bytes >= CHUNK_BYTES {
            self.encode()?;
        }
        Ok(placed)
    }

    fn finish(mut self: Box<Self>) -> Result<NewFile> {
        self.end_group()?;
        let failure = self.failure;
        self.file.into_inner().map(WatchedFile::into_file).map_err(|e| failure.explain(e))
    }
}

/// Returns the path of the items of the list column `list`.
fn element_of(list: &[String]) -> Vec<String> {
    [list, &["list".to_owned(), "element".to_owned()]].concat()
}

/// Returns the paths of the leaves of a column of arrays.
fn array_leaves(name: &str, array: ArrayType) -> impl Iterator<Item = Vec<String>> {
    let nested = |path: Vec<String>, levels: usize| (0..levels).fold(path, |path, _| element_of(&path));
    let name = name.to_owned();
    let (data, shape) = match array.layout() {
        ArrayLayout::Fixed(sizes) => (nested(vec![name], sizes.len()), None),
        ArrayLayout::Rows(sizes) => (nested(vec![name], sizes.len() + 1), None),
        ArrayLayout::Shaped(_) => {
            let child = |child: &str| nested(vec![name.clone(), child.to_owned()], 1);
            (child(ARRAY_DATA), Some(child(ARRAY_SHAPE)))
        }
    };
    std::iter::once(data).chain(shape)
}

/// Checks that the pages of an array stay below 2 GiB. Parquet stores integers below 32 bits in 32 bits, and up to a byte of
/// levels for each number.
fn check_pages(schema: &Schema, record: &Record) -> Result<()> {
    for (field, value) in schema.fields.iter().zip(&record.values) {
        let (FieldType::Array(ty), Value::Array(array)) = (field.ty, value) else { continue };
        let width = ty.dtype().bytes();
        let stored = if ty.dtype() == DType::Float16 { width } else { width.max(4) };
        let bytes = array.as_bytes().len() / width * (stored + 1);
        if bytes > MAX_PAGE_BYTES {
            return Err(Error::usage(format!(
                "the array in field {:?} takes {bytes} bytes in parquet, but the limit is {MAX_PAGE_BYTES}",
                field.name
            ))
            .help("choose the format arrow, or smaller arrays"));
        }
    }
    Ok(())
}

/// Returns every setting that affects the bytes of a shard, apart from the records.
fn properties(schema: &Schema) -> Result<WriterProperties> {
    let zstd =
        ZstdLevel::try_new(ZSTD_LEVEL).map_err(|e| Error::internal("no such zstd level").caused_by(e))?;
    let metadata = KeyValue::new(METADATA_KEY.to_owned(), metadata(schema, Offsets::Default)?);
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
        if let FieldType::Array(array) = field.ty {
            for leaf in array_leaves(&field.name, array).map(ColumnPath::new) {
                properties = properties
                    .set_column_statistics_enabled(leaf.clone(), EnabledStatistics::None)
                    .set_column_dictionary_enabled(leaf, false);
            }
            continue;
        }
        let leaf = match field.ty {
            FieldType::Image | FieldType::Mask => vec![field.name.clone(), IMAGE_BYTES.to_owned()],
            FieldType::Texts => element_of(std::slice::from_ref(&field.name)),
            FieldType::Images => {
                [element_of(std::slice::from_ref(&field.name)), vec![IMAGE_BYTES.to_owned()]].concat()
            }
            ty => match ty.list_items() {
                Some(ListItems { columns: Some(_), .. }) => {
                    element_of(&element_of(std::slice::from_ref(&field.name)))
                }
                Some(_) => element_of(std::slice::from_ref(&field.name)),
                None => vec![field.name.clone()],
            },
        };
        let leaf = ColumnPath::new(leaf);
        // Values that never repeat gain nothing from a dictionary, and values that are never compared gain nothing from
        // statistics.
        let payload = Payload::holds(field.ty);
        if payload || field.ty.is_per_box() || field.ty == FieldType::Images {
            properties = properties.set_column_statistics_enabled(leaf.clone(), EnabledStatistics::None);
        }
        // The size of a page limits the number of items of its lists only without a dictionary.
        let is_pair = field.ty == FieldType::Int32Pair;
        let is_texts = matches!(field.ty, FieldType::Texts | FieldType::Images);
        if payload
            || is_pair
            || is_texts
            || field.ty.is_per_box()
            || field.name == KEY
            || field.name == ORIGIN
        {
            properties = properties.set_column_dictionary_enabled(leaf.clone(), false);
        }
        // The upper bytes of ids are nearly all equal, and those of flags all zero. Storing them together makes zstd three
        // times as fast.
        if field.ty.is_token_list() || is_pair {
            properties = properties.set_column_encoding(leaf.clone(), Encoding::BYTE_STREAM_SPLIT);
        }
        if field.ty.is_image_file() || field.ty == FieldType::Images {
            properties = properties.set_column_compression(leaf, Compression::UNCOMPRESSED);
        }
    }
    Ok(properties.build())
}
