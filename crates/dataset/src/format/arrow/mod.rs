//! Writing Arrow shards: an Arrow IPC file, uncompressed, so that a reader can map it and look values up in place.

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

/// Most rows of a record batch.
const BATCH_ROWS: usize = 1024;
/// Most canonical bytes of a record batch that has more than one row: far from the 2 GiB that 32-bit offsets reach.
const BATCH_BYTES: u64 = 8 << 20;
/// Every buffer begins at a multiple of this many bytes in the file: a cache line, and what AVX-512 wants.
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
        Ok(placed)
    }

    fn finish(mut self: Box<Self>) -> Result<NewFile> {
        self.end_batch()?;
        let path = self.path;
        self.writer.into_inner().map_err(|e| failed(&path, e))
    }
}

/// The library wraps the cause of a failed write; a full disk must stay visible.
fn failed(path: &Path, e: ArrowError) -> Error {
    match e {
        ArrowError::IoError(_, cause) => Error::io("write", path, cause),
        // The values were checked: what cannot be encoded is a bug.
        other => Error::internal("the records cannot be written as arrow").at_path(path).caused_by(other),
    }
}
