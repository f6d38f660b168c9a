//! Arrow shards: uncompressed Arrow IPC files, which readers can map and access in place.
//!
//! Decoding a whole record batch to get one record would validate all its offsets and strings and, without a memory
//! map, copy all its bytes. The reader accesses single rows instead. It reads the buffer locations from the batch
//! header, checks them once, and then touches only the bytes of the requested row. Every read goes through
//! [`Blob::read`], so no offset, however hostile, can reach memory outside the file.

mod batch;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arrow_ipc::MetadataVersion;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::ArrowError;

use super::arrow_schema::{METADATA_KEY, expect, from_arrow};
use super::columns::ColumnBuilders;
use super::{Placed, Scan, ShardReader, ShardWriter, check};
use crate::arrow_footer::{ArrowFooter, BatchLocation};
use crate::error::{Error, Result, chain_until_error};
use crate::sample::{Record, Value};
use crate::schema::Schema;
use crate::storage::{Blob, NewFile};
use batch::ArrowBatch;

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
        let columns = ColumnBuilders::new(&schema, |_| true)?;
        let path = file.path().to_owned();
        let writer = IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5)
            .and_then(|options| FileWriter::try_new_with_options(file, &columns.arrow, options))
            .map_err(|e| failed(&path, e))?;
        Ok(Self { schema, columns, writer, path, batch: 0 })
    }

    fn end_batch(&mut self) -> Result<()> {
        if self.columns.rows > 0 {
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
        if self.columns.rows == BATCH_ROWS || self.columns.bytes + bytes > BATCH_BYTES {
            self.end_batch()?;
        }
        let placed = Placed::in_group(self.batch, self.columns.rows as u32, bytes);
        self.columns.push(record, bytes)?;
        // The next record has at least one byte, so it would end this batch anyway. Ending the batch now avoids holding a
        // large record until then.
        if self.columns.bytes >= BATCH_BYTES {
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

/// Reads one Arrow shard.
pub(super) struct Reader {
    schema: Arc<Schema>,
    blob: Blob,
    blocks: Vec<BatchLocation>,
    /// Parsed on first use.
    batches: Vec<OnceLock<ArrowBatch>>,
}

impl Reader {
    pub(super) fn new(schema: Arc<Schema>, blob: Blob) -> Result<Self> {
        let footer = ArrowFooter::read(&blob)?;
        expect(&schema, &footer.schema).map_err(|e| e.at_path(blob.path()))?;
        let blocks = footer.batches;
        let batches = blocks.iter().map(|_| OnceLock::new()).collect();
        Ok(Self { schema, blob, blocks, batches })
    }

    /// Returns the batch `group` and its location.
    fn batch(&self, group: usize) -> Result<(&ArrowBatch, BatchLocation)> {
        let (Some(&block), Some(cell)) = (self.blocks.get(group), self.batches.get(group)) else {
            return Err(self.missing(format!("record batch {group}")));
        };
        if let Some(batch) = cell.get() {
            return Ok((batch, block));
        }
        let header = self.blob.read(block.offset, block.header_bytes)?;
        let batch = ArrowBatch::parse(&self.schema, &header, block.body_bytes)
            .map_err(|why| Error::corrupt(why).at_path(self.blob.path()).at_offset(block.offset))?;
        // Checks that the body lies within the file, so the file size limits the number of rows.
        self.body_offset(block)?;
        Ok((cell.get_or_init(|| batch), block))
    }

    fn body_offset(&self, block: BatchLocation) -> Result<u64> {
        let begin = block.offset.checked_add(block.header_bytes);
        let end = begin.and_then(|begin| begin.checked_add(block.body_bytes));
        begin.zip(end).filter(|&(_, end)| end <= self.blob.len()).map(|(begin, _)| begin).ok_or_else(|| {
            Error::corrupt("the record batch extends past the end of the file")
                .at_path(self.blob.path())
                .at_offset(block.offset)
        })
    }

    /// Returns the batch of a record, the offset of its body, and the row within the batch.
    fn row(&self, at: Placed) -> Result<(&ArrowBatch, u64, u64)> {
        let (batch, block) = self.batch(at.group() as usize)?;
        let row = u64::from(at.row());
        if row >= batch.rows {
            return Err(self.missing(format!("row {row} in record batch {}", at.group())));
        }
        Ok((batch, self.body_offset(block)?, row))
    }

    fn missing(&self, what: String) -> Error {
        Error::corrupt(format!("the shard has no {what}")).at_path(self.blob.path())
    }

    /// Iterates over all records of one batch. Without a memory map, reads the whole body at once.
    fn scan_batch(&self, group: usize) -> Result<impl Iterator<Item = Result<(Placed, Record)>> + '_> {
        let (batch, block) = self.batch(group)?;
        let base = self.body_offset(block)?;
        let body = Blob::from_bytes(self.blob.path(), self.blob.read(base, block.body_bytes)?);
        Ok((0..batch.rows).map(move |row| {
            let record = batch.record(&body, 0, row).map_err(|e| {
                let at = base + e.place().offset.unwrap_or_default();
                e.at_offset(at)
            })?;
            // At most 2³² batches and rows: a file with more would need offsets of 2⁶⁴ bytes or more.
            Ok((Placed::in_group(group as u32, row as u32, record.canonical_size()), record))
        }))
    }
}

impl ShardReader for Reader {
    fn get(&self, at: Placed) -> Result<Record> {
        let (batch, base, row) = self.row(at)?;
        batch.record(&self.blob, base, row)
    }

    fn can_lend(&self) -> bool {
        self.blob.as_slice().is_some()
    }

    fn lend<'a>(&'a self, at: &[Placed], values: &mut Vec<Value<&'a [u8]>>) -> bool {
        // The message is never shown: the caller only learns that the values cannot be borrowed.
        let read = |at, len| self.blob.lend(at, len).ok_or_else(|| Error::corrupt("not in memory"));
        at.iter().all(|&at| {
            let Ok((batch, base, row)) = self.row(at) else { return false };
            (0..self.schema.fields.len()).all(|field| {
                let value = batch.value(&self.blob, base, row, field, read);
                value.map(|value| values.push(value)).is_ok()
            })
        })
    }

    fn get_columns(&self, at: &[Placed], columns: &[usize]) -> Result<Vec<Record>> {
        let selected = |&at: &Placed| {
            let (batch, base, row) = self.row(at)?;
            let mut values = vec![Value::Null; self.schema.fields.len()];
            for &column in columns {
                let value = batch.value(&self.blob, base, row, column, |at, len| self.blob.read(at, len))?;
                if let Some(slot) = values.get_mut(column) {
                    *slot = value;
                }
            }
            Ok(Record { values })
        };
        at.iter().map(selected).collect()
    }

    fn scan(&self) -> Result<Scan<'_>> {
        let batches = (0..self.blocks.len()).map(|group| self.scan_batch(group));
        Ok(Box::new(chain_until_error(batches)))
    }
}

/// Infers the schema from the file.
pub(super) fn infer_schema(blob: &Blob) -> Result<Schema> {
    let arrow = ArrowFooter::read(blob)?.schema;
    from_arrow(&arrow, arrow.metadata().get(METADATA_KEY).map(String::as_str))
        .map_err(|e| e.at_path(blob.path()))
}
