//! Writing tables with one record batch in memory and one open file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array, UInt64Array};
use arrow_ipc::writer::FileWriter;
use arrow_schema::SchemaRef;

use super::{Geometry, Spec, Width};
use crate::error::{Error, ErrorKind, Result};
use crate::index::ipc::write_error;
use crate::index::{INDEX_DIR, IndexFile, check_split_name};
use crate::storage::{NewFile, create_dir};

/// Writes a table row by row. The last file is committed only in [`TableWriter::finish`].
pub(in crate::index) struct TableWriter {
    dataset: PathBuf,
    split: String,
    spec: Spec,
    geometry: Geometry,
    schema: SchemaRef,
    batch: Vec<ColumnBuffer>,
    batch_rows: u64,
    file: Option<FileWriter<NewFile>>,
    /// Rows of the open file, including those in the current batch.
    file_rows: u64,
    done: Vec<IndexFile>,
}

/// Buffered values of a column.
enum ColumnBuffer {
    U32(Vec<u32>),
    U64(Vec<u64>),
}

impl TableWriter {
    /// Creates the table of `split` in the dataset directory `dataset`.
    pub(in crate::index) fn create(
        dataset: &Path,
        split: &str,
        spec: Spec,
        geometry: Geometry,
    ) -> Result<Self> {
        check_split_name(split)?;
        create_dir(&dataset.join(INDEX_DIR))?;
        let numbers = |width| match width {
            Width::U32 => ColumnBuffer::U32(Vec::new()),
            Width::U64 => ColumnBuffer::U64(Vec::new()),
        };
        Ok(Self {
            dataset: dataset.to_owned(),
            split: split.to_owned(),
            geometry,
            schema: spec.schema(),
            batch: spec.columns.iter().map(|c| numbers(c.width)).collect(),
            spec,
            batch_rows: 0,
            file: None,
            file_rows: 0,
            done: Vec::new(),
        })
    }

    /// Appends a row with one value per column; surplus values are ignored.
    pub(in crate::index) fn push(&mut self, row: &[u64]) -> Result<()> {
        if self.file_rows == self.geometry.file_rows(&self.spec) {
            self.close_file()?;
        } else if self.batch_rows == self.geometry.batch_rows {
            self.write_batch()?;
        }
        for ((numbers, &value), column) in self.batch.iter_mut().zip(row).zip(self.spec.columns.iter()) {
            match numbers {
                ColumnBuffer::U64(values) => values.push(value),
                ColumnBuffer::U32(values) => values.push(u32::try_from(value).map_err(|_| {
                    Error::usage(format!("{value} does not fit the 32-bit column {:?}", column.name))
                })?),
            }
        }
        self.batch_rows += 1;
        self.file_rows += 1;
        Ok(())
    }

    /// Writes the remaining rows and returns all files. An empty table has one file without record batches.
    pub(in crate::index) fn finish(mut self) -> Result<Vec<IndexFile>> {
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
        let take = |numbers: &mut ColumnBuffer| -> ArrayRef {
            match numbers {
                ColumnBuffer::U32(values) => Arc::new(UInt32Array::from(std::mem::take(values))),
                ColumnBuffer::U64(values) => Arc::new(UInt64Array::from(std::mem::take(values))),
            }
        };
        let columns = self.batch.iter_mut().map(take).collect();
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
