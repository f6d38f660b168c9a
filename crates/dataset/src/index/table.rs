//! Tables of unsigned numbers in Arrow IPC files, shared by the record index, the permutation and the histogram.
//!
//! Columns have a fixed width and no nulls. All record batches of a file except the last have the same number of rows,
//! and so do all files of a table except the last. A row is therefore located with two divisions and read in place.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arrow_array::{ArrayRef, RecordBatch, UInt32Array, UInt64Array};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::ipc::{IpcFile, write_error};
use super::{INDEX_DIR, IndexFile, Segment, check_split_name};
use crate::error::{Error, ErrorKind, Result, chain_until_error};
use crate::schema::{LENGTH, LengthUnit};
use crate::storage::{Blob, NewFile, create_dir};

/// Schema metadata key that identifies the sidecar file: `<table>/<version>`.
pub(super) const METADATA_KEY: &str = "dsconvert.index";
/// Field metadata key for the unit of a length.
pub(super) const UNIT_KEY: &str = "unit";
/// Version of all sidecar files.
pub(super) const VERSION: u32 = 1;
/// Rows per record batch.
pub(super) const BATCH_ROWS: u64 = 1 << 16;
/// Rows per file of a segmented table.
pub(super) const SEGMENT_ROWS: u64 = 1 << 24;

/// Column of unsigned numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableColumn {
    pub(super) name: Cow<'static, str>,
    pub(super) width: Width,
}

/// Size of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    U32,
    U64,
}

impl Width {
    fn bytes(self) -> u64 {
        match self {
            Width::U32 => 4,
            Width::U64 => 8,
        }
    }
}

/// Creates a column of 32-bit numbers.
pub(super) const fn u32_column(name: &'static str) -> TableColumn {
    TableColumn { name: Cow::Borrowed(name), width: Width::U32 }
}

/// Creates a column of 64-bit numbers.
pub(super) const fn u64_column(name: &'static str) -> TableColumn {
    TableColumn { name: Cow::Borrowed(name), width: Width::U64 }
}

/// Name and columns of a table.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    /// Name of the table, used in its file names and metadata.
    pub(super) table: &'static str,
    pub(super) columns: Cow<'static, [TableColumn]>,
    /// Unit of the column `length`, if the table has it.
    pub(super) unit: Option<LengthUnit>,
    /// Whether the table is split into numbered files.
    pub(super) segmented: bool,
}

impl Spec {
    pub(super) fn schema(&self) -> SchemaRef {
        let field = |column: &TableColumn| {
            let ty = match column.width {
                Width::U32 => DataType::UInt32,
                Width::U64 => DataType::UInt64,
            };
            let field = Field::new(&*column.name, ty, false);
            match self.unit {
                Some(unit) if column.name == LENGTH => {
                    field.with_metadata(one(UNIT_KEY, unit.name().to_owned()))
                }
                _ => field,
            }
        };
        let fields: Vec<Field> = self.columns.iter().map(field).collect();
        Arc::new(Schema::new_with_metadata(fields, metadata(self.table)))
    }
}

/// Sizes of record batches and files. Only tests use values other than [`Geometry::STANDARD`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    pub(super) batch_rows: u64,
    pub(super) segment_rows: u64,
}

impl Geometry {
    pub(super) const STANDARD: Geometry = Geometry { batch_rows: BATCH_ROWS, segment_rows: SEGMENT_ROWS };

    /// Returns the rows per file of the table.
    fn file_rows(&self, spec: &Spec) -> u64 {
        if spec.segmented { self.segment_rows } else { u64::MAX }
    }
}

/// Returns the schema metadata of a table. It has a single key, because several would be written in hash map order.
pub(super) fn metadata(table: &str) -> HashMap<String, String> {
    one(METADATA_KEY, format!("{table}/{VERSION}"))
}

/// Checks that the file schema `found` equals `expected`. Reports other tables and newer versions as separate errors.
pub(super) fn check_schema(found: &Schema, expected: &Schema, table: &str) -> Result<()> {
    let label = found.metadata.get(METADATA_KEY).map_or("", String::as_str);
    match label.split_once('/') {
        Some((name, version)) if name == table => {
            if version.parse().is_ok_and(|v: u32| v > VERSION) {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("the index has version {version}; this build reads versions up to {VERSION}"),
                )
                .help("install the dsconvert that wrote the dataset, or a newer one"));
            }
        }
        _ => return Err(Error::corrupt(format!("expected the index {table:?}, found {label:?}"))),
    }
    if found != expected {
        return Err(Error::corrupt(format!("unexpected columns in the index {table:?}")));
    }
    Ok(())
}

fn one(key: &str, value: String) -> HashMap<String, String> {
    HashMap::from([(key.to_owned(), value)])
}

/// Writes a table row by row. The last file is committed only in [`TableWriter::finish`].
pub(super) struct TableWriter {
    dataset: PathBuf,
    split: String,
    spec: Spec,
    geometry: Geometry,
    schema: SchemaRef,
    /// Buffered values of each column.
    batch: Vec<Vec<u64>>,
    batch_rows: u64,
    file: Option<FileWriter<NewFile>>,
    /// Rows of the open file, including those in the current batch.
    file_rows: u64,
    done: Vec<IndexFile>,
}

impl TableWriter {
    /// Creates the table of `split` in the dataset directory `dataset`.
    pub(super) fn create(dataset: &Path, split: &str, spec: Spec, geometry: Geometry) -> Result<Self> {
        check_split_name(split)?;
        create_dir(&dataset.join(INDEX_DIR))?;
        Ok(Self {
            dataset: dataset.to_owned(),
            split: split.to_owned(),
            geometry,
            schema: spec.schema(),
            batch: vec![Vec::new(); spec.columns.len()],
            spec,
            batch_rows: 0,
            file: None,
            file_rows: 0,
            done: Vec::new(),
        })
    }

    /// Appends a row with one value per column; surplus values are ignored.
    pub(super) fn push(&mut self, row: &[u64]) -> Result<()> {
        if self.file_rows == self.geometry.file_rows(&self.spec) {
            self.close_file()?;
        } else if self.batch_rows == self.geometry.batch_rows {
            self.write_batch()?;
        }
        for ((values, &value), column) in self.batch.iter_mut().zip(row).zip(self.spec.columns.iter()) {
            if column.width == Width::U32 && u32::try_from(value).is_err() {
                let what = format!("{value} does not fit the 32-bit column {:?}", column.name);
                return Err(Error::usage(what));
            }
            values.push(value);
        }
        self.batch_rows += 1;
        self.file_rows += 1;
        Ok(())
    }

    /// Writes the remaining rows and returns all files. An empty table has one file without record batches.
    pub(super) fn finish(mut self) -> Result<Vec<IndexFile>> {
        if self.file_rows > 0 || self.done.is_empty() {
            self.close_file()?;
        }
        Ok(self.done)
    }

    /// Returns the path of the next file relative to the dataset.
    fn path(&self) -> String {
        let Self { split, spec: Spec { table, segmented, .. }, .. } = self;
        match segmented {
            true => format!("{INDEX_DIR}/{split}.{table}-{:04}.arrow", self.done.len()),
            false => format!("{INDEX_DIR}/{split}.{table}.arrow"),
        }
    }

    fn file(&mut self) -> Result<&mut FileWriter<NewFile>> {
        let path = self.dataset.join(self.path());
        match &mut self.file {
            Some(file) => Ok(file),
            none => {
                let file = FileWriter::try_new(NewFile::create_shared(&path)?, &self.schema);
                Ok(none.insert(file.map_err(|e| write_error(&path, e))?))
            }
        }
    }

    fn write_batch(&mut self) -> Result<()> {
        let take = |(values, column): (&mut Vec<u64>, &TableColumn)| -> ArrayRef {
            let values = std::mem::take(values);
            match column.width {
                // The range was checked, so the cast is lossless.
                Width::U32 => {
                    Arc::new(UInt32Array::from_iter_values(values.into_iter().map(|value| value as u32)))
                }
                Width::U64 => Arc::new(UInt64Array::from(values)),
            }
        };
        let columns = self.batch.iter_mut().zip(self.spec.columns.iter()).map(take).collect();
        self.batch_rows = 0;
        let path = self.dataset.join(self.path());
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .map_err(|e| Error::new(ErrorKind::Usage, "the row does not fit the table").caused_by(e))?;
        self.file()?.write(&batch).map_err(|e| write_error(&path, e))
    }

    fn close_file(&mut self) -> Result<()> {
        if self.batch_rows > 0 {
            self.write_batch()?;
        }
        self.file()?;
        let path = self.path();
        if let Some(file) = self.file.take() {
            let file = file.into_inner().map_err(|e| write_error(&self.dataset.join(&path), e))?;
            let written = file.commit()?;
            self.done.push(IndexFile {
                path,
                records: self.file_rows,
                bytes: written.bytes,
                sha256: written.sha256,
            });
        }
        self.file_rows = 0;
        Ok(())
    }
}

/// A table opened for random access. Memory: one footer per file and a few bytes for each record batch accessed.
#[derive(Debug)]
pub(super) struct IndexTable {
    spec: Spec,
    geometry: Geometry,
    files: Vec<TableFile>,
    /// Number of rows.
    pub(super) rows: u64,
}

#[derive(Debug)]
struct TableFile {
    ipc: IpcFile,
    rows: u64,
    /// Offsets of the column values in the file, for each record batch. Read on first access to the batch.
    batches: Vec<OnceLock<Box<[u64]>>>,
}

/// Location of a row.
struct RowLocation<'a> {
    ipc: &'a IpcFile,
    columns: &'a [u64],
    row: u64,
    /// Rows from this one to the end of the record batch, at least 1.
    rest: u64,
}

impl IndexTable {
    /// Opens the files of a table, given in order.
    pub(super) fn open(segments: Vec<Segment>, spec: Spec, geometry: Geometry) -> Result<Self> {
        let expected = spec.schema();
        let file_rows = geometry.file_rows(&spec);
        let last = segments.len().checked_sub(1).ok_or_else(|| {
            Error::corrupt(format!("the manifest lists no files for the index {:?}", spec.table))
        })?;
        let mut files = Vec::with_capacity(segments.len());
        let mut rows = 0u64;
        for (i, Segment { blob, records }) in segments.into_iter().enumerate() {
            let path = blob.path().to_owned();
            let shape_fits = if i < last { records == file_rows } else { records <= file_rows };
            if !shape_fits || (records == 0 && last > 0) {
                let what = format!("the manifest lists an impossible number of rows: {records}");
                return Err(Error::corrupt(what).at_path(path));
            }
            rows = rows.checked_add(records).ok_or_else(|| Error::corrupt("too many rows").at_path(&path))?;
            let ipc = IpcFile::open(blob)?;
            check_schema(&ipc.footer.schema, &expected, spec.table).map_err(|e| e.at_path(&path))?;
            let batches = ipc.footer.batches.len();
            if batches as u64 != records.div_ceil(geometry.batch_rows) {
                let what =
                    format!("{batches} record batches do not match the {records} rows in the manifest");
                return Err(Error::corrupt(what).at_path(path));
            }
            let batches = std::iter::repeat_with(OnceLock::new).take(batches).collect();
            files.push(TableFile { ipc, rows: records, batches });
        }
        Ok(Self { spec, geometry, files, rows })
    }

    /// Returns the files in order.
    pub(super) fn blobs(&self) -> impl Iterator<Item = &Blob> {
        self.files.iter().map(|file| &file.ipc.blob)
    }

    /// Returns the value of one column, which must exist in the spec.
    pub(super) fn value(&self, row: u64, column: usize) -> Result<u64> {
        self.number(&self.locate(row)?, column)
    }

    /// Returns the first `N` values of a row; columns that the table lacks are 0.
    pub(super) fn row<const N: usize>(&self, row: u64) -> Result<[u64; N]> {
        let location = self.locate(row)?;
        let mut values = [0; N];
        for (column, value) in values.iter_mut().enumerate().take(self.spec.columns.len()) {
            *value = self.number(&location, column)?;
        }
        Ok(values)
    }

    /// Iterates over the values of `columns` for `rows` in order, up to the first error; columns that the table lacks
    /// are 0.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`] if there are fewer rows.
    pub(super) fn iter<const N: usize>(
        &self,
        rows: Range<u64>,
        columns: [usize; N],
    ) -> Result<impl Iterator<Item = Result<[u64; N]>>> {
        if rows.start > rows.end || rows.end > self.rows {
            return Err(self.out_of_range(rows.end));
        }
        let mut rest = rows;
        let chunks = std::iter::from_fn(move || {
            let chunk = (!rest.is_empty()).then(|| self.chunk(&rest, columns))?;
            rest.start += chunk.as_ref().map_or(0, |rows| rows.len() as u64);
            Some(chunk)
        });
        Ok(chain_until_error(chunks))
    }

    /// Returns an error about this table, located at its first file.
    pub(super) fn corrupt(&self, what: String) -> Error {
        let error = Error::corrupt(what);
        match self.files.first() {
            Some(file) => error.at_path(file.ipc.blob.path()),
            None => error,
        }
    }

    fn out_of_range(&self, row: u64) -> Error {
        Error::new(ErrorKind::OutOfRange, format!("the number of rows is {}", self.rows)).at_row(row)
    }

    fn locate(&self, row: u64) -> Result<RowLocation<'_>> {
        let file_rows = self.geometry.file_rows(&self.spec);
        let (file, in_file) = (row / file_rows, row % file_rows);
        let (batch, in_batch) = (in_file / self.geometry.batch_rows, in_file % self.geometry.batch_rows);
        let file = usize::try_from(file)
            .ok()
            .and_then(|file| self.files.get(file))
            .filter(|file| in_file < file.rows)
            .ok_or_else(|| self.out_of_range(row))?;
        let rest = (self.geometry.batch_rows - in_batch).min(file.rows - in_file);
        let columns = self.columns(file, batch as usize)?; // fewer than the blocks in the footer
        Ok(RowLocation { ipc: &file.ipc, columns, row: in_batch, rest })
    }

    /// Returns the offsets of the columns of a record batch.
    fn columns<'a>(&self, file: &'a TableFile, batch: usize) -> Result<&'a [u64]> {
        let missing = || self.corrupt(format!("record batch {batch} is missing"));
        let slot = file.batches.get(batch).ok_or_else(missing)?;
        if let Some(columns) = slot.get() {
            return Ok(columns);
        }
        let columns = self.read_columns(file, batch)?;
        Ok(slot.get_or_init(|| columns))
    }

    fn read_columns(&self, file: &TableFile, index: usize) -> Result<Box<[u64]>> {
        let corrupt =
            |what: &str| Error::corrupt(format!("record batch {index} {what}")).at_path(file.ipc.blob.path());
        let batch = file.ipc.batch(index, self.spec.columns.len())?;
        let before = index as u64 * self.geometry.batch_rows;
        if batch.rows != (file.rows - before).min(self.geometry.batch_rows) {
            return Err(corrupt("has an unexpected number of rows"));
        }
        if batch.buffers.len() != 2 * self.spec.columns.len() {
            return Err(corrupt("lacks buffers"));
        }
        let values = batch.buffers.iter().skip(1).step_by(2);
        let offset = |(values, column): (&Range<u64>, &TableColumn)| {
            (values.end - values.start >= batch.rows * column.width.bytes()).then_some(values.start)
        };
        values
            .zip(self.spec.columns.iter())
            .map(offset)
            .collect::<Option<_>>()
            .ok_or_else(|| corrupt("is truncated"))
    }

    fn number(&self, location: &RowLocation<'_>, column: usize) -> Result<u64> {
        let (Some(start), Some(spec)) = (location.columns.get(column), self.spec.columns.get(column)) else {
            return Ok(0);
        };
        let offset = start + location.row * spec.width.bytes(); // inside the column, whose size `read_columns` checked
        Ok(match spec.width {
            Width::U32 => u64::from(u32::from_le_bytes(location.ipc.blob.array(offset)?)),
            Width::U64 => u64::from_le_bytes(location.ipc.blob.array(offset)?),
        })
    }

    /// Reads the rows from the start of `rows` (not empty) to the end of `rows` or of the record batch, whichever is
    /// first.
    fn chunk<const N: usize>(
        &self,
        rows: &Range<u64>,
        columns: [usize; N],
    ) -> Result<impl ExactSizeIterator<Item = Result<[u64; N]>> + use<N>> {
        let location = self.locate(rows.start)?;
        let len = location.rest.min(rows.end - rows.start);
        let mut values = [const { None }; N];
        for (slot, column) in values.iter_mut().zip(columns) {
            if let (Some(start), Some(spec)) = (location.columns.get(column), self.spec.columns.get(column)) {
                let start = start + location.row * spec.width.bytes();
                let bytes = location.ipc.bytes(start..start + len * spec.width.bytes())?;
                *slot = Some((spec.width, bytes));
            }
        }
        let value = move |column: usize, row: usize| match &values[column] {
            Some((Width::U32, bytes)) => {
                bytes.as_chunks().0.get(row).map_or(0, |b| u32::from_le_bytes(*b).into())
            }
            Some((Width::U64, bytes)) => bytes.as_chunks().0.get(row).map_or(0, |b| u64::from_le_bytes(*b)),
            None => 0,
        };
        Ok((0..len as usize).map(move |row| Ok(std::array::from_fn(|column| value(column, row)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Existing datasets depend on these constants, so this test never changes.
    #[test]
    fn constants_of_the_tables_never_change() {
        assert_eq!(METADATA_KEY, "dsconvert.index");
        assert_eq!(UNIT_KEY, "unit");
        assert_eq!(VERSION, 1);
        assert_eq!(BATCH_ROWS, 65_536);
        assert_eq!(SEGMENT_ROWS, 16_777_216);
        assert_eq!(metadata("records"), HashMap::from([("dsconvert.index".into(), "records/1".into())]));
    }

    #[test]
    fn newer_versions_and_other_tables_are_different_errors() {
        static COLUMNS: [TableColumn; 1] = [u64_column("x")];
        let spec = Spec { table: "a", columns: Cow::Borrowed(&COLUMNS), unit: None, segmented: false };
        let expected = spec.schema();
        let with = |label: &str| {
            let schema = Schema::clone(&expected).with_metadata(one(METADATA_KEY, label.to_owned()));
            check_schema(&schema, &expected, "a").map_err(|e| e.kind())
        };
        assert_eq!(with("a/1"), Ok(()));
        assert_eq!(with("a/2"), Err(ErrorKind::Unsupported));
        for other in ["b/1", "a/0", "a/x", "a", ""] {
            assert_eq!(with(other), Err(ErrorKind::Corrupt), "{other}");
        }
    }
}
