//! In-place reader of Arrow IPC files with flat columns.
//!
//! Only the flatbuffers (footer and message headers) are parsed by the Arrow library, whose verifier keeps their
//! offsets inside their bytes. Columns are returned as checked byte ranges of the file. No array is built, nothing is
//! copied, and no number from the file reaches a function that could panic on it.

use std::ops::Range;

use arrow_ipc::{MetadataVersion, root_as_message_with_opts};
use arrow_schema::ArrowError;
use bytes::Bytes;

use crate::arrow_footer::{ArrowFooter, BatchLocation, flatbuffer_limits};
use crate::error::{Error, Result};
use crate::storage::Blob;

/// Continuation marker and size (i32) before the flatbuffer of a message.
const MESSAGE_PREFIX_BYTES: usize = 8;

/// An Arrow IPC file whose footer has been read and checked.
#[derive(Debug)]
pub(super) struct IpcFile {
    pub(super) blob: Blob,
    /// Its schema is authoritative.
    pub(super) footer: ArrowFooter,
}

/// A record batch of flat columns without nulls.
#[derive(Debug)]
pub(super) struct IpcBatch {
    /// Number of rows in every column.
    pub(super) rows: u64,
    /// Byte ranges of the buffers in the file, in format order. Each column has a validity buffer (unused), offsets if
    /// it has variable width, and values.
    pub(super) buffers: Vec<Range<u64>>,
}

impl IpcFile {
    /// Opens `blob` and reads its footer.
    pub(super) fn open(blob: Blob) -> Result<Self> {
        let footer = ArrowFooter::read(&blob)?;
        let corrupt = |what: &str| Error::corrupt(what).at_path(blob.path());
        if footer.has_dictionaries {
            return Err(corrupt("the file has dictionaries, which dsconvert never writes"));
        }
        let end = |b: &BatchLocation| b.offset.checked_add(b.header_bytes)?.checked_add(b.body_bytes);
        if !footer.batches.iter().all(|batch| end(batch).is_some_and(|end| end <= footer.start)) {
            return Err(corrupt("a record batch lies outside the file"));
        }
        Ok(Self { blob, footer })
    }

    /// Reads the header of record batch `index` and checks it: the batch must be uncompressed, have `columns` columns
    /// without nulls, and keep all buffers inside its body.
    pub(super) fn batch(&self, index: usize, columns: usize) -> Result<IpcBatch> {
        let block = *self.footer.batches.get(index).ok_or_else(|| {
            Error::corrupt(format!("record batch {index} is missing")).at_path(self.blob.path())
        })?;
        let header = self.blob.read(block.offset, block.header_bytes)?;
        parse_batch(&header, block, self.footer.version, columns).map_err(|what| {
            Error::corrupt(format!("record batch {index}: {what}"))
                .at_path(self.blob.path())
                .at_offset(block.offset)
        })
    }

    /// Returns the bytes in `range`, like [`Blob::read`].
    pub(super) fn bytes(&self, range: Range<u64>) -> Result<Bytes> {
        self.blob.read(range.start, range.end.saturating_sub(range.start))
    }
}

fn parse_batch(
    header: &[u8],
    block: BatchLocation,
    version: MetadataVersion,
    columns: usize,
) -> Result<IpcBatch, String> {
    let flatbuffer = header
        .strip_prefix(&[0xff; 4])
        .and_then(|rest| rest.get(MESSAGE_PREFIX_BYTES - 4..))
        .ok_or("its header has no prefix")?;
    let message = root_as_message_with_opts(&flatbuffer_limits(flatbuffer), flatbuffer)
        .map_err(|e| format!("its header cannot be read: {e}"))?;
    if message.version() != version {
        return Err("its format version differs from that of the file".to_owned());
    }
    let batch = message.header_as_record_batch().ok_or("the message is not a record batch")?;
    if batch.compression().is_some() {
        return Err("it is compressed, which dsconvert never writes".to_owned());
    }
    let rows = u64::try_from(batch.length()).map_err(|_| "its number of rows is negative")?;
    let nodes = batch.nodes().ok_or("it has no columns")?;
    if nodes.len() != columns || nodes.iter().any(|n| n.length() != batch.length() || n.null_count() != 0) {
        return Err(format!("it does not have {columns} columns of {rows} rows without nulls"));
    }
    let body = block.offset + block.header_bytes; // checked when the file was opened
    let buffer = |b: &arrow_ipc::Buffer| {
        let start = u64::try_from(b.offset()).ok()?;
        let end = start.checked_add(u64::try_from(b.length()).ok()?)?;
        (end <= block.body_bytes).then(|| body + start..body + end)
    };
    let buffers = batch
        .buffers()
        .iter()
        .flatten()
        .map(buffer)
        .collect::<Option<Vec<_>>>()
        .ok_or("a buffer lies outside the body")?;
    Ok(IpcBatch { rows, buffers })
}

/// Returns the error for a failed write of an Arrow file at `path`. Disk errors keep their kind.
pub(super) fn write_error(path: &std::path::Path, error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, io) => Error::io("write", path, io),
        other => Error::internal("cannot encode the index").at_path(path).caused_by(other),
    }
}
