//! Reads the rows of an Arrow IPC file or stream, one record batch at a time.
//!
//! A file contains a stream after its first 8 bytes, and both are read as streams: rows before damage are kept even if
//! the footer is missing. The messages are parsed here, because the library allocates whatever a header claims.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::{read_dictionary, read_record_batch};
use arrow_ipc::{Message, MessageHeader, RecordBatch as BatchHeader, root_as_message};
use arrow_schema::{ArrowError, Schema, SchemaRef};

use super::rows::{NextRows, RowBatch};
use crate::error::Result;
use crate::panics::caught;
use crate::sample::{Reject, RejectCode};
use crate::source::broken::Broken;
use crate::source::stream::Stream;

/// First bytes of a file, padded to 8 bytes.
const FILE_MAGIC: &[u8; 8] = b"ARROW1\0\0";
/// Maximum number of 8-byte words of padding after the magic bytes.
const MAX_PADDING_WORDS: usize = 64;
/// Continuation mark before the size of a header.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// Maximum size of a header, in bytes.
const MAX_HEADER_BYTES: usize = 16 << 20;
/// Maximum size of the body of a record batch in bytes, both stored and decompressed.
pub const MAX_BATCH_BYTES: u64 = 512 << 20;
/// Bytes of a body that are read or skipped at a time.
const SKIP_BYTES: u64 = 1 << 20;

/// Reader of the record batches of a file.
pub struct Batches {
    stream: Stream,
    schema: SchemaRef,
    /// Ordinals of the decoded columns; `None`: all.
    selected: Option<Vec<usize>>,
    dictionaries: HashMap<i64, ArrayRef>,
    is_file: bool,
    /// Ordinal of the next row.
    row: u64,
    ended: bool,
}

/// A decoded message.
enum ArrowMessage {
    Batch(RecordBatch),
    Schema(Schema),
    Dictionary,
    /// A record batch that is too large, with its number of rows.
    TooLarge(u64, Reject),
    End,
}

/// Start of a header.
struct HeaderStart {
    /// Size of the header, little-endian.
    length: [u8; 4],
    /// First bytes of the header, if already read.
    bytes: Vec<u8>,
}

impl Batches {
    /// Opens a stream and reads its schema.
    ///
    /// # Errors
    ///
    /// Returns damage if the schema cannot be read.
    pub fn open(stream: Stream) -> Result<Self, Broken> {
        let mut batches = Self {
            stream,
            schema: Arc::new(Schema::empty()),
            selected: None,
            dictionaries: HashMap::new(),
            is_file: false,
            row: 0,
            ended: false,
        };
        let mut head = [0; 8];
        batches.exact(&mut head)?;
        batches.is_file = head == *FILE_MAGIC;
        // Writers pad the magic bytes.
        for _ in 0..MAX_PADDING_WORDS {
            if head == *FILE_MAGIC || (batches.is_file && head == [0; 8]) {
                batches.exact(&mut head)?;
            }
        }
        let ArrowMessage::Schema(schema) = batches.message(Some(head))? else {
            return Err(damaged(RejectCode::Corrupt, "it does not start with a schema"));
        };
        batches.schema = Arc::new(schema);
        Ok(batches)
    }

    /// Returns the schema of the columns.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Restricts decoding to the columns with the ordinals `roots`, which must ascend.
    pub fn select(&mut self, roots: Vec<usize>) {
        self.selected = Some(roots);
    }

    /// Returns the number of bytes consumed from the file so far.
    pub fn raw_bytes(&self) -> u64 {
        self.stream.raw_bytes()
    }

    /// As [`Stream::check_unchanged`].
    ///
    /// # Errors
    ///
    /// Returns an error if the file has changed since it was planned.
    pub fn check_unchanged(&self) -> Result<()> {
        self.stream.check_unchanged()
    }

    /// Returns the next rows; `None` at the end.
    ///
    /// # Errors
    ///
    /// Returns operating-system errors, never damage to the file.
    pub fn read(&mut self) -> Result<Option<NextRows>> {
        while !self.ended {
            match self.message(None) {
                Ok(ArrowMessage::Dictionary | ArrowMessage::Schema(_)) => {}
                Ok(ArrowMessage::End) => {
                    self.ended = true;
                    match self.check_rest() {
                        Ok(()) => {}
                        Err(Broken::Damaged(reject)) => {
                            return Ok(Some(NextRows::Broken { row: self.row, reject }));
                        }
                        Err(Broken::Failed(error)) => return Err(error),
                    }
                }
                Ok(ArrowMessage::Batch(batch)) => {
                    let first = self.row;
                    self.row = first.saturating_add(batch.num_rows() as u64);
                    return Ok(Some(NextRows::Rows(RowBatch::new(first, batch))));
                }
                Ok(ArrowMessage::TooLarge(rows, reject)) => {
                    let row = self.row;
                    self.row = row.saturating_add(rows);
                    return Ok(Some(NextRows::Broken { row, reject }));
                }
                Err(Broken::Damaged(reject)) => {
                    self.ended = true;
                    return Ok(Some(NextRows::Broken { row: self.row, reject }));
                }
                Err(Broken::Failed(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Reads a compressed file or a member of an archive to its end, where the checksum is.
    fn check_rest(&mut self) -> Result<(), Broken> {
        if self.stream.is_compressed() {
            let mut scratch = vec![0; SKIP_BYTES as usize];
            while self.stream.fill(&mut scratch)? > 0 {}
        }
        Ok(())
    }

    /// Reads a message, whose first 8 bytes may already be in `prefix`.
    fn message(&mut self, prefix: Option<[u8; 8]>) -> Result<ArrowMessage, Broken> {
        let Some(HeaderStart { length, bytes: mut header }) = self.header_start(prefix)? else {
            return Ok(ArrowMessage::End);
        };
        let length = u32::from_le_bytes(length) as usize;
        if length == 0 {
            return Ok(ArrowMessage::End);
        }
        if length > MAX_HEADER_BYTES || length < header.len() {
            return Err(damaged(RejectCode::Corrupt, "a header has an impossible size"));
        }
        let have = header.len();
        header.resize(length, 0);
        self.exact(&mut header[have..])?;
        let message = root_as_message(&header)
            .map_err(|e| damaged(RejectCode::Corrupt, &format!("a header is damaged ({e})")))?;
        let body_bytes = u64::try_from(message.bodyLength())
            .map_err(|_| damaged(RejectCode::Corrupt, "a body has a negative size"))?;
        if body_bytes > MAX_BATCH_BYTES {
            let rows = message.header_as_record_batch().map_or(0, |b| u64::try_from(b.length()).unwrap_or(0));
            let is_batch = message.header_type() == MessageHeader::RecordBatch;
            self.skip(body_bytes)?;
            return match is_batch {
                true => Ok(ArrowMessage::TooLarge(rows, too_large(body_bytes))),
                false => Err(Broken::Damaged(too_large(body_bytes))),
            };
        }
        // The buffer grows with the bytes that are present, not with the claimed size.
        let mut body = Vec::new();
        while (body.len() as u64) < body_bytes {
            let have = body.len();
            body.resize(have + (body_bytes - have as u64).min(SKIP_BYTES) as usize, 0);
            self.exact(&mut body[have..])?;
        }
        check_claims(&message, &body).map_err(Broken::Damaged)?;
        self.decode(&message, &Buffer::from_vec(body))
    }

    /// Reads the start of the next header; `None` at the end.
    fn header_start(&mut self, prefix: Option<[u8; 8]>) -> Result<Option<HeaderStart>, Broken> {
        if let Some([a, b, c, d, rest @ ..]) = prefix {
            // Old streams have no continuation mark.
            let start = [a, b, c, d];
            return Ok(Some(if start == CONTINUATION {
                HeaderStart { length: rest, bytes: Vec::new() }
            } else {
                HeaderStart { length: start, bytes: rest.to_vec() }
            }));
        }
        let mut start = [0; 4];
        match self.stream.fill(&mut start)? {
            4 => {}
            // A stream may simply end; a file has a footer.
            0 if !self.is_file => return Ok(None),
            _ => return Err(damaged(RejectCode::Truncated, "it ends between two messages")),
        }
        if start == CONTINUATION {
            self.exact(&mut start)?;
        }
        Ok(Some(HeaderStart { length: start, bytes: Vec::new() }))
    }

    fn exact(&mut self, buffer: &mut [u8]) -> Result<(), Broken> {
        if self.stream.fill(buffer)? == buffer.len() {
            return Ok(());
        }
        Err(damaged(RejectCode::Truncated, "it ends in the middle of a message"))
    }

    fn skip(&mut self, bytes: u64) -> Result<(), Broken> {
        let mut scratch = vec![0; bytes.min(SKIP_BYTES) as usize];
        let mut left = bytes;
        while left > 0 {
            let length = left.min(SKIP_BYTES);
            self.exact(&mut scratch[..length as usize])?;
            left -= length;
        }
        Ok(())
    }

    /// Decodes a message with the library, which panics on some damage. Nothing is read after a panic.
    fn decode(&mut self, message: &Message<'_>, body: &Buffer) -> Result<ArrowMessage, Broken> {
        let (schema, selected, dictionaries) =
            (&self.schema, self.selected.as_deref(), &mut self.dictionaries);
        let decode = || -> Result<ArrowMessage, ArrowError> {
            let version = message.version();
            if let Some(batch) = message.header_as_record_batch() {
                let schema = Arc::clone(schema);
                return read_record_batch(body, batch, schema, dictionaries, selected, &version)
                    .map(ArrowMessage::Batch);
            }
            if let Some(dictionary) = message.header_as_dictionary_batch() {
                read_dictionary(body, dictionary, schema, dictionaries, &version)?;
                return Ok(ArrowMessage::Dictionary);
            }
            let schema = message.header_as_schema().ok_or_else(|| {
                ArrowError::IpcError(format!("a message of the type {:?}", message.header_type()))
            })?;
            try_fb_to_schema(schema).map(ArrowMessage::Schema)
        };
        match caught(decode) {
            Ok(Ok(next)) => Ok(next),
            Ok(Err(e)) => Err(damaged(RejectCode::Corrupt, &e.to_string())),
            Err(_) => Err(damaged(RejectCode::Corrupt, "the decoder failed")),
        }
    }
}

/// Returns a reject if the compressed buffers of a batch claim more than the limit.
fn check_claims(message: &Message<'_>, body: &[u8]) -> Result<(), Reject> {
    let dictionary = message.header_as_dictionary_batch();
    let Some(batch) = message.header_as_record_batch().or_else(|| dictionary.and_then(|d| d.data())) else {
        return Ok(());
    };
    if batch.compression().is_none() {
        return Ok(());
    }
    let claimed = claims(&batch, body).fold(0u64, u64::saturating_add);
    if claimed > MAX_BATCH_BYTES { Err(too_large(claimed)) } else { Ok(()) }
}

/// Returns the decompressed sizes that the buffers claim. Each buffer starts with its decompressed size.
fn claims<'a>(batch: &BatchHeader<'a>, body: &'a [u8]) -> impl Iterator<Item = u64> + 'a {
    let buffers = batch.buffers();
    buffers.into_iter().flatten().filter_map(move |buffer| {
        let at = usize::try_from(buffer.offset()).ok()?;
        let size = body.get(at..at.checked_add(8)?).filter(|_| buffer.length() > 8)?;
        // −1 marks a buffer that is not compressed.
        Some(u64::try_from(i64::from_le_bytes(size.try_into().ok()?)).unwrap_or(0))
    })
}

fn too_large(bytes: u64) -> Reject {
    let message = format!(
        "a record batch has {bytes} bytes, more than the limit of {MAX_BATCH_BYTES}: write smaller batches"
    );
    Reject::new(RejectCode::TooLarge, message)
}

fn damaged(code: RejectCode, what: &str) -> Broken {
    Broken::Damaged(Reject::new(code, format!("the Arrow data is damaged: {what}")))
}
