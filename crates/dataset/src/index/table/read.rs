//! Random access to tables: locates a row with two divisions and reads its numbers in place.

use std::ops::Range;
use std::sync::OnceLock;

use super::{Geometry, Spec, Width, check_schema};
use crate::error::{Error, ErrorKind, Result, chain_until_error};
use crate::index::Segment;
use crate::index::ipc::IpcFile;
use crate::storage::Blob;

/// A table opened for random access. Memory: one footer per file and a few bytes for each record batch accessed.
#[derive(Debug)]
pub(in crate::index) struct IndexTable {
    spec: Spec,
    geometry: Geometry,
    files: Vec<TableFile>,
    rows: u64,
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
    pub(in crate::index) fn open(segments: Vec<Segment>, spec: Spec, geometry: Geometry) -> Result<Self> {
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
            check_schema(ipc.schema(), &expected, spec.table).map_err(|e| e.at_path(&path))?;
            let batches = ipc.batch_count();
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

    /// Returns the number of rows.
    pub(in crate::index) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the files in order.
    pub(in crate::index) fn blobs(&self) -> impl Iterator<Item = &Blob> {
        self.files.iter().map(|file| file.ipc.blob())
    }

    /// Returns the value of one column, which must exist in the spec.
    pub(in crate::index) fn value(&self, row: u64, column: usize) -> Result<u64> {
        self.number(&self.locate(row)?, column)
    }

    /// Returns the first `N` values of a row; columns that the table lacks are 0.
    pub(in crate::index) fn row<const N: usize>(&self, row: u64) -> Result<[u64; N]> {
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
    pub(in crate::index) fn iter<const N: usize>(
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
    pub(in crate::index) fn corrupt(&self, what: String) -> Error {
        let error = Error::corrupt(what);
        match self.files.first() {
            Some(file) => error.at_path(file.ipc.blob().path()),
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
        let corrupt = |what: &str| {
            Error::corrupt(format!("record batch {index} {what}")).at_path(file.ipc.blob().path())
        };
        let batch = file.ipc.batch(index, self.spec.columns.len())?;
        let before = index as u64 * self.geometry.batch_rows;
        if batch.rows != (file.rows - before).min(self.geometry.batch_rows) {
            return Err(corrupt("has an unexpected number of rows"));
        }
        if batch.buffers.len() != 2 * self.spec.columns.len() {
            return Err(corrupt("lacks buffers"));
        }
        let values = batch.buffers.iter().skip(1).step_by(2);
        let offset = |(values, column): (&Range<u64>, &super::TableColumn)| {
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
            Width::U32 => u64::from(u32::from_le_bytes(location.ipc.array(offset)?)),
            Width::U64 => u64::from_le_bytes(location.ipc.array(offset)?),
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
