//! Reads the rows of a Parquet file, one row group at a time.
//!
//! Row groups are independent: a damaged row group is one rejected item, and the next row group is still read.

use std::collections::BTreeSet;
use std::io::{BufReader, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use ::parquet::arrow::ProjectionMask;
use ::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use ::parquet::basic::{Compression, Type as PhysicalType};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use ::parquet::file::reader::{ChunkReader, Length};
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use bytes::Bytes;

use super::rows::{NextRows, RowBatch};
use crate::error::{Error, Result};
use crate::format::{PARQUET_MAGIC, parquet_footer};
use crate::panics::caught;
use crate::sample::{Reject, RejectCode};
use crate::source::io::broken::Broken;
use crate::source::io::opened::FileBytes;
use crate::source::io::planned::PlannedFile;
use crate::source::table::pages::{self, BadPages, check_column, max_rows};

/// Maximum number of rows decoded together.
const BATCH_ROWS: u64 = 1024;
/// Target size of the rows decoded together in bytes, estimated from the footer.
const BATCH_BYTES: u64 = 4 << 20;
/// Size of the read buffer for data of unknown length, in bytes.
const HEADER_BYTES: usize = 4 << 10;
/// Bytes of an object that are kept between the check of its pages and their decoding.
const HELD_BYTES: u64 = 64 << 20;
/// Bytes after the footer: its size, and the magic bytes.
const FOOTER_TAIL_BYTES: usize = 8;
/// Maximum number of levels of a column, far more than any program reads.
const MAX_SCHEMA_DEPTH: usize = 64;
/// Minimum of the page size limit, in bytes: writers produce pages of this size for small documents.
const MIN_PAGE_LIMIT: u64 = 64 << 20;

/// An open Parquet file with its footer.
#[derive(Clone)]
pub struct ParquetFile {
    input: ParquetInput,
    metadata: ArrowReaderMetadata,
    schema: SchemaRef,
}

impl ParquetFile {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// A footer that cannot be read is returned as damage.
    pub fn open(planned: &PlannedFile) -> Result<Self, Broken> {
        let file = Arc::new(planned.open()?);
        file.hold(HELD_BYTES);
        Self::of(FileBytes::File(file)).map_err(|broken| match broken {
            Broken::Failed(error) if error.place().path.is_none() => error.at_path(&planned.path).into(),
            broken => broken,
        })
    }

    /// Opens the file whose content is `bytes`.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn in_memory(bytes: Bytes) -> Result<Self, Broken> {
        Self::of(FileBytes::Memory(bytes))
    }

    fn of(stored: FileBytes) -> Result<Self, Broken> {
        let bytes = stored.len();
        let input = ParquetInput { stored, bytes, failure: Arc::default(), flags: Arc::default() };
        if !input.has_sound_footer()? {
            return Err(damaged(RejectCode::Corrupt, "its footer is malformed or nested too deeply"));
        }
        let load = |options| input.decode(|| ArrowReaderMetadata::load(&input, options));
        // Ignores an Arrow schema in the footer, which could request any type.
        let found = load(ArrowReaderOptions::new().with_skip_arrow_metadata(true))?;
        let schema = Arc::new(requested(&found));
        let options = ArrowReaderOptions::new().with_schema(Arc::clone(&schema));
        check_codecs(found.metadata())?;
        let metadata =
            input.decode(|| ArrowReaderMetadata::try_new(Arc::clone(found.metadata()), options))?;
        Ok(Self { input, metadata, schema })
    }

    /// Returns the footer.
    pub fn footer(&self) -> &ParquetMetaData {
        self.metadata.metadata()
    }

    /// Returns the schema of the columns.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns the value of `key` in the key-value metadata of the footer.
    pub fn metadata_value(&self, key: &str) -> Option<&str> {
        let pairs = self.metadata.metadata().file_metadata().key_value_metadata()?;
        pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
    }

    /// Returns the number of row groups.
    pub fn group_count(&self) -> usize {
        self.metadata.metadata().num_row_groups()
    }

    /// Returns the number of rows that the footer claims.
    pub fn row_count(&self) -> u64 {
        let groups = self.metadata.metadata().row_groups().iter();
        groups.fold(0, |sum, group| sum.saturating_add(size(group.num_rows())))
    }

    /// Returns the number of rows of each row group, and the decoded bytes that its columns with the ordinals `roots`
    /// claim.
    pub fn groups(&self, roots: &[usize]) -> Vec<(u64, u64)> {
        let groups = self.metadata.metadata().row_groups().iter();
        groups
            .map(|group| {
                let sizes = self.leaves(group, roots).map(|c| size(c.uncompressed_size()));
                let bytes = sizes.fold(0, u64::saturating_add);
                (size(group.num_rows()), bytes)
            })
            .collect()
    }

    /// Returns the columns of `group` that belong to the fields `roots` of the schema.
    fn leaves<'a>(
        &'a self,
        group: &'a RowGroupMetaData,
        roots: &'a [usize],
    ) -> impl Iterator<Item = &'a ColumnChunkMetaData> {
        let schema = self.metadata.metadata().file_metadata().schema_descr();
        let wanted =
            move |(at, _): &(usize, _)| roots.binary_search(&schema.get_column_root_idx(*at)).is_ok();
        group.columns().iter().enumerate().filter(wanted).map(|(_, column)| column)
    }
}

/// Refuses a file with a codec that this build lacks: rows that it cannot read are not damaged.
fn check_codecs(footer: &ParquetMetaData) -> Result<()> {
    let mut columns = footer.row_groups().iter().flat_map(RowGroupMetaData::columns);
    match columns.any(|column| matches!(column.compression(), Compression::BROTLI(_))) {
        true if !cfg!(feature = "brotli") => {
            Err(Error::missing_feature("a Parquet file compressed with brotli", "brotli"))
        }
        _ => Ok(()),
    }
}

/// Converts a number of the footer, which is never negative in an intact file.
fn size(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Returns the schema that the library has to read columns as.
fn requested(found: &ArrowReaderMetadata) -> Schema {
    let mut leaves = found.parquet_schema().columns().iter().map(|column| column.physical_type());
    let field = |field: &FieldRef| {
        let field = with_microseconds(field, &mut leaves);
        match field.data_type() {
            // Views share the bytes of pages, so values repeated through a dictionary need no more memory.
            DataType::Utf8 | DataType::LargeUtf8 => {
                Arc::new(Field::clone(&field).with_data_type(DataType::Utf8View))
            }
            DataType::Binary | DataType::LargeBinary => {
                Arc::new(Field::clone(&field).with_data_type(DataType::BinaryView))
            }
            _ => field,
        }
    };
    Schema::new(found.schema().fields().iter().map(field).collect::<Fields>())
}

/// Returns `field` with timestamps of the old type INT96 in microseconds. Spark and Hive write it, often with the year
/// 9999, and by default, the library reads it as nanoseconds, which end in the year 2262 and wrap. `leaves` are the types
/// of the columns from the first one of `field` on.
fn with_microseconds(field: &FieldRef, leaves: &mut impl Iterator<Item = PhysicalType>) -> FieldRef {
    let ty = match field.data_type() {
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(|field| with_microseconds(field, leaves)).collect())
        }
        DataType::List(item) => DataType::List(with_microseconds(item, leaves)),
        DataType::Map(entries, sorted) => DataType::Map(with_microseconds(entries, leaves), *sorted),
        other => match leaves.next() {
            Some(PhysicalType::INT96) => DataType::Timestamp(TimeUnit::Microsecond, None),
            _ => other.clone(),
        },
    };
    Arc::new(Field::clone(field).with_data_type(ty))
}

/// Reader of a range of row groups.
pub struct Groups {
    file: ParquetFile,
    roots: Vec<usize>,
    pending: Range<usize>,
    /// First row of the next group.
    next_row: u64,
    max_page_bytes: u64,
    /// The option that sets the limit of a value, for messages.
    value_limit: Option<&'static str>,
    /// The only leaf that is read of each column, by name, if the column has it.
    only_leaf: Option<&'static str>,
    open: Option<OpenRowGroup>,
}

/// The row group that is being read.
struct OpenRowGroup {
    reader: ParquetRecordBatchReader,
    row: u64,
    end: u64,
}

impl Groups {
    /// Creates a reader of the columns with the ordinals `roots`, which must ascend, in the row groups `groups`. No
    /// page may be larger than two values of `max_value_bytes`.
    pub fn new(file: ParquetFile, roots: Vec<usize>, groups: Range<usize>, max_value_bytes: u64) -> Self {
        let before = file.metadata.metadata().row_groups().iter().take(groups.start);
        let next_row = before.fold(0u64, |sum, g| sum.saturating_add(size(g.num_rows())));
        Self {
            roots,
            pending: groups,
            next_row,
            max_page_bytes: max_value_bytes.saturating_mul(2).max(MIN_PAGE_LIMIT),
            value_limit: None,
            only_leaf: None,
            open: None,
            file,
        }
    }

    /// Names the option that sets `max_value_bytes`, for the message about a page that is too large.
    #[must_use]
    pub fn limited_by(self, option: &'static str) -> Self {
        Self { value_limit: Some(option), ..self }
    }

    /// Reads only the leaf called `only_leaf`, if there is one, of each column that has it.
    #[must_use]
    pub fn only_leaf(self, only_leaf: Option<&'static str>) -> Self {
        Self { only_leaf, ..self }
    }

    /// Returns the ordinals of the leaves that are read.
    fn leaves(&self) -> Vec<usize> {
        let schema = self.file.metadata.metadata().file_metadata().schema_descr();
        let of_root = |root: usize| {
            let all = (0..schema.num_columns()).filter(move |at| schema.get_column_root_idx(*at) == root);
            let is_only = |at: &usize| self.only_leaf.is_some_and(|name| schema.column(*at).name() == name);
            match all.clone().find(is_only) {
                Some(only) => vec![only],
                None => all.collect(),
            }
        };
        self.roots.iter().flat_map(|root| of_root(*root)).collect()
    }

    /// Checks, after the last row, that the file has not changed since it was planned.
    ///
    /// # Errors
    ///
    /// As `OpenedFile::check_unchanged`.
    pub fn check_unchanged(&self) -> Result<()> {
        self.file.input.stored.check_unchanged()
    }

    /// Returns the next rows; `None` at the end.
    ///
    /// # Errors
    ///
    /// Returns operating-system errors, never damage to the file.
    pub fn read(&mut self) -> Result<Option<NextRows>> {
        loop {
            if let Some(mut open) = self.open.take() {
                let next = self
                    .file
                    .input
                    .decode(|| open.reader.next().transpose().map_err(|e| ParquetError::External(e.into())));
                match next {
                    Ok(Some(batch)) => {
                        let first = open.row;
                        open.row = first.saturating_add(batch.num_rows() as u64);
                        self.open = Some(open);
                        return Ok(Some(NextRows::Rows(RowBatch::new(first, batch))));
                    }
                    Ok(None) if open.row == open.end => {}
                    Ok(None) => {
                        let reject = Reject::new(
                            RejectCode::Truncated,
                            "the row group has fewer rows than the footer claims",
                        );
                        return Ok(Some(NextRows::Broken { row: open.row, reject }));
                    }
                    Err(broken) => {
                        return Ok(Some(NextRows::Broken { row: open.row, reject: broken.damage()? }));
                    }
                }
            }
            let Some(group) = self.pending.next() else { return Ok(None) };
            let row = self.next_row;
            match self.open_group(group) {
                Ok(open) => self.open = Some(open),
                Err(broken) => return Ok(Some(NextRows::Broken { row, reject: broken.damage()? })),
            }
        }
    }

    fn open_group(&mut self, ordinal: usize) -> Result<OpenRowGroup, Broken> {
        let metadata = self.file.metadata.metadata();
        let Some(group) = metadata.row_groups().get(ordinal) else {
            return Err(damaged(RejectCode::Corrupt, "a row group is missing"));
        };
        let (row, rows) = (self.next_row, size(group.num_rows()));
        self.next_row = row.saturating_add(rows);
        let (mut stored, mut decoded) = (0u64, 0u64);
        let leaves = self.leaves();
        for column in leaves.iter().filter_map(|&leaf| group.columns().get(leaf)) {
            let (start, length) = self.file.input.decode(|| Ok(column.byte_range()))?;
            if let FileBytes::File(file) = &self.file.input.stored {
                file.will_read(start..start.saturating_add(length))?;
            }
            self.check_pages(column, rows)?;
            stored = stored.saturating_add(size(column.compressed_size()));
            decoded = decoded.saturating_add(size(column.uncompressed_size()));
        }
        if rows > max_rows(stored) {
            return Err(damaged(
                RejectCode::TooLarge,
                "the row group claims more rows than its bytes can hold",
            ));
        }
        let batch_rows = (BATCH_BYTES.saturating_mul(rows) / decoded.max(1)).clamp(1, BATCH_ROWS);
        let schema = metadata.file_metadata().schema_descr();
        let mask = ProjectionMask::leaves(schema, leaves);
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(
            self.file.input.clone(),
            self.file.metadata.clone(),
        );
        let builder = builder.with_projection(mask).with_row_groups(vec![ordinal]);
        let reader = self.file.input.decode(|| builder.with_batch_size(batch_rows as usize).build())?;
        Ok(OpenRowGroup { reader, row, end: self.next_row })
    }

    /// Checks the sizes that the pages of a column claim.
    fn check_pages(&self, column: &ColumnChunkMetaData, rows: u64) -> Result<(), Broken> {
        let (input, max_bytes) = (&self.file.input, self.max_page_bytes);
        let by = self.file.footer().file_metadata().created_by().unwrap_or_default();
        let is_old = has_wrong_flags(by) && column.compression() != Compression::UNCOMPRESSED;
        let mark = |flag| {
            if is_old {
                input.flags.lock().unwrap_or_else(PoisonError::into_inner).insert(flag);
            }
        };
        match input.decode(|| check_column(input, column, rows, max_bytes, mark))? {
            None => Ok(()),
            Some(BadPages::Corrupt(what)) => Err(damaged(RejectCode::Corrupt, what)),
            Some(BadPages::Truncated) => {
                Err(damaged(RejectCode::Truncated, "a column extends beyond the end of the file"))
            }
            Some(BadPages::TooLarge(bytes)) => {
                let limit = match self.value_limit {
                    Some(option) => format!("{max_bytes} that `{option}` allows"),
                    None => format!("limit of {max_bytes}"),
                };
                let message = format!("a page has {bytes} bytes, more than the {limit}");
                Err(damaged(RejectCode::TooLarge, &message))
            }
        }
    }
}

/// Returns whether the program `created_by` wrote compressed pages of version 2 as if they were not compressed. Arrow
/// did so before version 3, when it called itself "parquet-cpp version 1.5.1-SNAPSHOT".
fn has_wrong_flags(created_by: &str) -> bool {
    let version =
        created_by.strip_prefix("parquet-cpp version ").and_then(|version| version.split('.').next());
    matches!(version, Some("0" | "1"))
}

fn damaged(code: RejectCode, what: &str) -> Broken {
    Broken::damaged(code, format!("the Parquet file is damaged or too large: {what}"))
}

/// A file in the form in which the Parquet library reads it.
#[derive(Clone)]
struct ParquetInput {
    stored: FileBytes,
    bytes: u64,
    /// The operating-system error, which the library turns into text.
    failure: Arc<Mutex<Option<Error>>>,
    /// Positions of the flags `is_compressed` of pages that are compressed although their flags are false.
    flags: Arc<Mutex<BTreeSet<u64>>>,
}

impl ParquetInput {
    /// Calls the library, which panics on some damage. After a panic, the objects involved are not used again.
    fn decode<T>(&self, decode: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, Broken> {
        let result = caught(decode);
        if let Some(error) = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(Broken::Failed(error));
        }
        match result {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(damaged(RejectCode::Corrupt, &error.to_string())),
            Err(_) => Err(damaged(RejectCode::Corrupt, "the decoder failed")),
        }
    }

    /// Returns whether the library can parse the footer without exhausting stack or memory. For files that do not end
    /// like a Parquet file, it reports the error.
    fn has_sound_footer(&self) -> Result<bool, Broken> {
        self.decode(|| {
            let Some(end) = self.bytes.checked_sub(FOOTER_TAIL_BYTES as u64) else { return Ok(true) };
            let tail = self.get_bytes(end, FOOTER_TAIL_BYTES)?;
            let Some((size, magic)) = tail.split_first_chunk::<4>() else { return Ok(true) };
            let size = u32::from_le_bytes(*size);
            let Some(start) = end.checked_sub(size.into()).filter(|_| magic == PARQUET_MAGIC) else {
                return Ok(true);
            };
            Ok(parquet_footer::is_sound(&self.get_bytes(start, size as usize)?, MAX_SCHEMA_DEPTH))
        })
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.stored.read_exact_at(buffer, offset).map_err(|e| {
            let kind = e.kind();
            if let FileBytes::File(file) = &self.stored {
                let failure = Error::io("read", file.path(), e).at_offset(offset);
                *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
            }
            std::io::Error::from(kind)
        })?;
        for flag in self.flags.lock().unwrap_or_else(PoisonError::into_inner).range(offset..) {
            match buffer.get_mut((flag - offset) as usize) {
                Some(byte) => *byte = pages::as_compressed(*byte),
                None => break,
            }
        }
        Ok(())
    }
}

impl Length for ParquetInput {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for ParquetInput {
    type T = BufReader<TailReader>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(BufReader::with_capacity(HEADER_BYTES, TailReader { input: self.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.bytes) {
            return Err(ParquetError::EOF("a range extends beyond the end of the file".to_owned()));
        }
        if let FileBytes::Memory(bytes) = &self.stored
            && self.flags.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
        {
            return Ok(bytes.slice(start as usize..start as usize + length));
        }
        let mut bytes = vec![0; length];
        self.read(&mut bytes, start)?;
        Ok(Bytes::from(bytes))
    }
}

/// Reader of a file from an offset to its end.
struct TailReader {
    input: ParquetInput,
    at: u64,
}

impl Read for TailReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.input.bytes.saturating_sub(self.at).min(buffer.len() as u64) as usize;
        self.input.read(&mut buffer[..length], self.at)?;
        self.at += length as u64;
        Ok(length)
    }
}
