//! Shards of concatenated records, shared by MessagePack and protobuf.
//!
//! Such a shard has no header or footer. The position of a record is the byte offset of its frame, so one read of
//! exactly the frame's bytes fetches the record.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;

use super::{Placed, Scan, ShardReader, ShardWriter, check};
use crate::error::{Error, Result};
use crate::sample::{Record, Value};
use crate::schema::Schema;
use crate::storage::{Blob, NewFile};

/// Read size of a scan, doubled for longer frames. If the shard is mapped, a read returns a view.
const WINDOW_BYTES: u64 = 1 << 20;
/// Capacity above which the frame buffer is shrunk, so one huge record does not hold memory.
const KEPT_FRAME_BYTES: usize = 16 << 20;

/// Encoding of one record as a frame.
pub(super) trait FrameCodec: Send + Sync + Sized {
    /// Creates a codec for records of `schema`.
    fn new(schema: Arc<Schema>) -> Result<Self>;

    /// Appends the frame of `record` to `frame`; `record` must fit the schema.
    fn encode(&self, record: &Record, frame: &mut Vec<u8>) -> Result<()>;

    /// Decodes the frame at the start of `bytes` and returns the record and the size of the frame.
    fn decode(&self, bytes: &Bytes) -> Result<(Record, usize), Fault>;

    /// Whether values can be borrowed with [`FrameCodec::lend`].
    const LENDS: bool = false;

    /// Appends the borrowed values of the record to `values` and returns the size of its frame. `None` if they cannot
    /// be borrowed; [`FrameCodec::decode`] then returns the record or the fault.
    fn lend<'a>(&self, bytes: &'a [u8], values: &mut Vec<Value<&'a [u8]>>) -> Option<usize> {
        let _ = (bytes, values);
        None
    }
}

/// Reason why bytes are not a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The bytes end before the frame does.
    Short,
    /// The bytes violate the format or the schema.
    Bad {
        /// Offset within the given bytes.
        at: usize,
        /// Description in one sentence.
        why: String,
    },
}

impl Fault {
    pub(super) fn bad(at: usize, why: impl Into<String>) -> Self {
        Fault::Bad { at, why: why.into() }
    }

    /// Converts the fault into an error for the frame at `offset` in `blob`.
    pub(super) fn into_error(self, blob: &Blob, offset: u64) -> Error {
        match self {
            Fault::Short => Error::corrupt("the record is truncated").at_offset(offset),
            Fault::Bad { at, why } => Error::corrupt(why).at_offset(offset + at as u64),
        }
        .at_path(blob.path())
    }
}

/// Writes a shard of frames.
pub(super) struct FrameWriter<C> {
    schema: Arc<Schema>,
    codec: C,
    file: NewFile,
    frame: Vec<u8>,
}

impl<C: FrameCodec> FrameWriter<C> {
    pub(super) fn new(schema: Arc<Schema>, file: NewFile) -> Result<Self> {
        Ok(Self { codec: C::new(schema.clone())?, schema, file, frame: Vec::new() })
    }
}

impl<C: FrameCodec> ShardWriter for FrameWriter<C> {
    fn push(&mut self, record: &Record) -> Result<Placed> {
        check::record(&self.schema, record)?;
        self.frame.clear();
        self.codec.encode(record, &mut self.frame)?;
        let placed = Placed { position: self.file.position(), bytes: self.frame.len() as u64 };
        if let Err(e) = self.file.write_all(&self.frame) {
            return Err(Error::io("write", self.file.path(), e));
        }
        // Shrinking only in the next call would hold this frame and the next record in memory at the same time.
        self.frame.clear();
        self.frame.shrink_to(KEPT_FRAME_BYTES);
        Ok(placed)
    }

    fn finish(self: Box<Self>) -> Result<NewFile> {
        Ok(self.file)
    }
}

/// Reads a shard of frames.
pub(super) struct FrameReader<C> {
    codec: C,
    blob: Blob,
}

impl<C: FrameCodec> FrameReader<C> {
    pub(super) fn new(schema: Arc<Schema>, blob: Blob) -> Result<Self> {
        Ok(Self { codec: C::new(schema)?, blob })
    }
}

impl<C: FrameCodec> ShardReader for FrameReader<C> {
    fn get(&self, at: Placed) -> Result<Record> {
        let bytes = self.blob.read(at.position, at.bytes)?;
        let fail = |fault: Fault| fault.into_error(&self.blob, at.position);
        match self.codec.decode(&bytes).map_err(fail)? {
            (record, size) if size == bytes.len() => Ok(record),
            (_, size) => Err(fail(Fault::bad(size, "unexpected bytes after the record"))),
        }
    }

    fn can_lend(&self) -> bool {
        C::LENDS && self.blob.as_slice().is_some()
    }

    fn lend<'a>(&'a self, at: &[Placed], values: &mut Vec<Value<&'a [u8]>>) -> bool {
        at.iter().all(|at| {
            let bytes = self.blob.lend(at.position, at.bytes);
            bytes.is_some_and(|bytes| self.codec.lend(bytes, values) == Some(bytes.len()))
        })
    }

    fn scan(&self) -> Result<Scan<'_>> {
        Ok(Box::new(frames(&self.blob, |bytes| self.codec.decode(bytes))))
    }
}

/// Iterates over all frames of `blob` in order, decoded by `decode`, with their positions. Ends after the first error.
pub(super) fn frames<T>(
    blob: &Blob,
    mut decode: impl FnMut(&Bytes) -> Result<(T, usize), Fault>,
) -> impl Iterator<Item = Result<(Placed, T)>> {
    let mut window = Bytes::new();
    let mut offset = 0;
    let mut failed = false;
    std::iter::from_fn(move || {
        if failed || offset >= blob.len() {
            return None;
        }
        let next = next_frame(blob, offset, &mut window, &mut decode);
        match &next {
            Ok((placed, _)) => offset += placed.bytes,
            Err(_) => failed = true,
        }
        Some(next)
    })
}

/// Decodes the frame at `offset`. `window` holds the bytes from `offset` on that remain from the last read.
fn next_frame<T>(
    blob: &Blob,
    offset: u64,
    window: &mut Bytes,
    decode: &mut impl FnMut(&Bytes) -> Result<(T, usize), Fault>,
) -> Result<(Placed, T)> {
    let rest = blob.len() - offset;
    let mut wanted = WINDOW_BYTES;
    loop {
        let held = window.len() as u64;
        let decoded = if window.is_empty() { Err(Fault::Short) } else { decode(window) };
        match decoded {
            Ok((value, size)) if size > 0 && size <= window.len() => {
                *window = window.slice(size..);
                return Ok((Placed { position: offset, bytes: size as u64 }, value));
            }
            Err(Fault::Short) if held < rest => {
                *window = blob.read(offset, wanted.min(rest))?;
                wanted = wanted.saturating_mul(2);
            }
            Ok(_) => return Err(Fault::bad(0, "the record is empty").into_error(blob, offset)),
            Err(fault) => return Err(fault.into_error(blob, offset)),
        }
    }
}
