//! Arrow shards: uncompressed Arrow IPC files, which readers can map and access in place.

mod batch;
mod reader;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_ipc::MetadataVersion;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::ArrowError;

use super::columns::ColumnBuilders;
use super::{Placed, ShardWriter, check};
use crate::error::{Error, Result};
use crate::sample::Record;
use crate::schema::Schema;
use crate::storage::NewFile;

pub(super) use reader::{Reader, infer_schema};

/// Maximum rows per record batch.
const BATCH_ROWS: usize = 1024;
/// Maximum canonical bytes of a record batch with more than one row, far below the 2 GiB limit of 32-bit offsets.
const BATCH_BYTES: u64 = 8 << 20;
/// Alignment of every buffer in the file: a cache line, and the width of an AVX-512 register.
const ALIGNMENT: usize = 64;

/// Writes one Arrow shard.
pub(super) struct Writer {
    schema: Arc<Schema>,
    columns: ColumnBuilders,
    writer: FileWriter<NewFile>,
    path: PathBuf,
    batch: u32,
}

impl Writer {
    pub(super) fn new(schema: Arc<Schema>, file: NewFile) -> Result<Self> {
        let columns = ColumnBuilders::new(&schema)?;
        let path = file.path().to_owned();
        let writer = IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5)
            .and_then(|options| FileWriter::try_new_with_options(file, columns.arrow(), options))
            .map_err(|e| failed(&path, e))?;
        Ok(Self { schema, columns, writer, path, batch: 0 })
    }

    fn end_batch(&mut self) -> Result<()> {
        if self.columns.rows() > 0 {
            let batch = self.columns.take()?;
            self.writer.write(&batch).map_err(|e| failed(&self.path, e))?;
            self.batch += 1;
        }
        Ok(())
    }
}

impl ShardWriter for Writer {
    fn push(&mut self, record: &Record) -> Result<Placed> {
        let bytes = check::record(&self.schema, record)?;
        if self.columns.rows() == BATCH_ROWS || self.columns.bytes() + bytes > BATCH_BYTES {
            self.end_batch()?;
        }
        let placed = Placed::in_group(self.batch, self.columns.rows() as u32, bytes);
        self.columns.push(record, bytes)?;
        // The next record has at least one byte, so it would end this batch anyway. Ending the batch now avoids holding a
        // large record until then.
        if self.columns.bytes() >= BATCH_BYTES {
            self.end_batch()?;
        }
        Ok(placed)
    }

    fn finish(mut self: Box<Self>) -> Result<NewFile> {
        self.end_batch()?;
        let path = self.path;
        self.writer.into_inner().map_err(|e| failed(&path, e))
    }
}

/// Converts an error of the Arrow writer. The library wraps I/O errors; unwrapping them keeps a full disk detectable.
fn failed(path: &Path, e: ArrowError) -> Error {
    match e {
        ArrowError::IoError(_, cause) => Error::io("write", path, cause),
        // The values were checked, so an encoding failure is a bug.
        other => Error::internal("the records cannot be written as arrow").at_path(path).caused_by(other),
    }
}
