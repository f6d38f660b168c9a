//! Reads the rows of an Arrow IPC file or stream, one record batch at a time.
//!
//! The footer of a file says where its messages are. A file without a footer is read as the stream that it normally
//! contains, so that the rows before its end are kept. The messages are parsed here, because the library allocates
//! whatever a header claims.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::{read_dictionary, read_record_batch};
use arrow_ipc::{
    Endianness, Message, MessageHeader, RecordBatch as BatchHeader, root_as_footer_with_opts, root_as_message,
};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use bytes::Bytes;

use super::rows::{NextRows, RowBatch};
use crate::error::{Error, Result};
use crate::format::flatbuffer_limits;
use crate::panics::caught;
use crate::sample::{Reject, RejectCode};
use crate::source::io::broken::Broken;
use crate::source::io::opened::FileBytes;
use crate::source::io::stream::Stream;

/// First bytes of a file, padded to 8 bytes.
const FILE_MAGIC: &[u8; 8] = b"ARROW1\0\0";
/// Maximum number of 8-byte words of padding after the magic bytes.
const MAX_PADDING_WORDS: usize = 64;
/// Last bytes of a file, after the size of its footer.
const END_MAGIC: &[u8] = b"ARROW1";
/// First bytes of a file of Feather version 1.
const FEATHER_MAGIC: &[u8; 4] = b"FEA1";
const FEATHER_HELP: &str = "Feather version 1 is not supported: convert the file with `pyarrow.feather.read_table` and `write_feather`, which \
                            writes version 2";
/// Maximum size of a footer, in bytes: enough for more than two million record batches.
const MAX_FOOTER_BYTES: u32 = 64 << 20;
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
    messages: Messages,
    schema: SchemaRef,
    /// Ordinals of the decoded columns; `None`: all.
    selected: Option<Vec<usize>>,
    dictionaries: HashMap<i64, ArrayRef>,
    /// Ordinal of the next row.
    row: u64,
    ended: bool,
}

/// The messages of a file or stream.
enum Messages {
    /// One after the other. `is_file`: the end of the file is missing or damaged.
    Stream { stream: Stream, is_file: bool },
    /// As listed in the footer of a file, without the schema.
    Listed { file: FileBytes, blocks: std::vec::IntoIter<MessageBlock>, read: u64 },
}

/// Location of a message in a file: its header, directly followed by its body.
struct MessageBlock {
    offset: u64,
    header_bytes: u64,
    body_bytes: u64,
    is_dictionary: bool,
}

/// The footer of a file.
struct Footer {
    schema: Schema,
    blocks: Vec<MessageBlock>,
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
    /// Opens a file or stream, and reads its schema.
    ///
    /// # Errors
    ///
    /// Returns damage if the schema cannot be read.
    pub fn open(mut stream: Stream) -> Result<Self, Broken> {
        let head = stream.peek(FILE_MAGIC.len())?;
        if head.starts_with(FEATHER_MAGIC) {
            return Err(Broken::damaged(RejectCode::Unsupported, FEATHER_HELP));
        }
        let is_file = head.starts_with(&FILE_MAGIC[..END_MAGIC.len()]);
        if let Some(file) = stream.plain_file().filter(|_| is_file)
            && let Some(batches) = Self::listed(FileBytes::File(file))?
        {
            return Ok(batches);
        }
        Self::streamed(stream)
    }

    /// Opens a file or stream whose content is `bytes`.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn in_memory(bytes: Bytes) -> Result<Self, Broken> {
        let listed = match bytes.starts_with(&FILE_MAGIC[..END_MAGIC.len()]) {
            true => Self::listed(FileBytes::Memory(bytes.clone()))?,
            false => None,
        };
        listed.map_or_else(|| Self::open(Stream::of_bytes(bytes)?), Ok)
    }

    fn new(messages: Messages, schema: Schema) -> Self {
        let (schema, dictionaries) = (Arc::new(schema), HashMap::new());
        Self { messages, schema, selected: None, dictionaries, row: 0, ended: false }
    }

    /// Opens a file by its footer; `None` if there is no sound footer.
    fn listed(file: FileBytes) -> Result<Option<Self>, Broken> {
        let Some(Footer { schema, blocks }) = Footer::read(&file)? else { return Ok(None) };
        // Otherwise, a small file could claim any number of rows.
        let sizes = blocks.iter().map(|block| block.header_bytes.saturating_add(block.body_bytes));
        if sizes.fold(0, u64::saturating_add) > file.len() {
            return Err(damaged(RejectCode::Corrupt, "the record batches in the footer overlap"));
        }
        let messages = Messages::Listed { file, blocks: blocks.into_iter(), read: 0 };
        Ok(Some(Self::new(messages, schema)))
    }

    fn streamed(stream: Stream) -> Result<Self, Broken> {
        let mut batches = Self::new(Messages::Stream { stream, is_file: false }, Schema::empty());
        let mut head = [0; 8];
        batches.exact(&mut head)?;
        let starts_file = head == *FILE_MAGIC;
        if let Messages::Stream { is_file, .. } = &mut batches.messages {
            *is_file = starts_file;
        }
        // Writers pad the magic bytes.
        for _ in 0..MAX_PADDING_WORDS {
            if head == *FILE_MAGIC || (starts_file && head == [0; 8]) {
                batches.exact(&mut head)?;
            }
        }
        match batches.message(Some(head)) {
            Ok(ArrowMessage::Schema(schema)) => batches.schema = Arc::new(schema),
            Ok(_) => return Err(damaged(RejectCode::Corrupt, "it does not start with a schema")),
            Err(Broken::Damaged(reject)) if starts_file => {
                let message = format!(
                    "{}; an Arrow file whose content is not a stream needs its footer, and is not read from archives or \
                     standard input",
                    reject.message
                );
                return Err(Broken::Damaged(Reject { message, ..reject }));
            }
            Err(broken) => return Err(broken),
        }
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
        match &self.messages {
            Messages::Stream { stream, .. } => stream.raw_bytes(),
            Messages::Listed { read, .. } => *read,
        }
    }

    /// As [`Stream::check_unchanged`].
    ///
    /// # Errors
    ///
    /// Returns an error if the file has changed since it was planned.
    pub fn check_unchanged(&self) -> Result<()> {
        match &self.messages {
            Messages::Stream { stream, .. } => stream.check_unchanged(),
            Messages::Listed { file, .. } => file.check_unchanged(),
        }
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
                    if let Err(broken) = self.check_rest() {
                        return Ok(Some(NextRows::Broken { row: self.row, reject: broken.damage()? }));
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
                Err(broken) => {
                    let reject = broken.damage()?;
                    self.ended = true;
                    return Ok(Some(NextRows::Broken { row: self.row, reject }));
                }
            }
        }
        Ok(None)
    }

    /// Reads a compressed file or a member of an archive to its end, where the checksum is.
    fn check_rest(&mut self) -> Result<(), Broken> {
        if let Messages::Stream { stream, .. } = &mut self.messages
            && stream.is_compressed()
        {
            let mut scratch = vec![0; SKIP_BYTES as usize];
            while stream.fill(&mut scratch)? > 0 {}
        }
        Ok(())
    }

    /// Reads a message, whose first 8 bytes may already be in `prefix`.
    fn message(&mut self, prefix: Option<[u8; 8]>) -> Result<ArrowMessage, Broken> {
        if let Messages::Listed { file, blocks, read } = &mut self.messages {
            let Some(block) = blocks.next() else {
                *read = file.len();
                return Ok(ArrowMessage::End);
            };
            *read = block
                .offset
                .saturating_add(block.header_bytes)
                .saturating_add(block.body_bytes)
                .min(file.len());
            let file = file.clone();
            let bytes = block.read_header(&file)?;
            let header = root_as_header(&bytes)?;
            let expected =
                if block.is_dictionary { MessageHeader::DictionaryBatch } else { MessageHeader::RecordBatch };
            if header.header_type() != expected {
                return Err(damaged(RejectCode::Corrupt, "the footer names a message of another type"));
            }
            self.check_dictionary(&header)?;
            if block.body_bytes > MAX_BATCH_BYTES {
                return too_large_message(&header, block.body_bytes);
            }
            let body = block.read_body(&file)?;
            return self.checked(&header, body);
        }
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
        let message = root_as_header(&header)?;
        let body_bytes = u64::try_from(message.bodyLength())
            .map_err(|_| damaged(RejectCode::Corrupt, "a body has a negative size"))?;
        if body_bytes > MAX_BATCH_BYTES {
            self.skip(body_bytes)?;
            return too_large_message(&message, body_bytes);
        }
        // The buffer grows with the bytes that are present, at most to the claimed size.
        let mut body = Vec::new();
        while (body.len() as u64) < body_bytes {
            let have = body.len();
            body.reserve_exact((body_bytes - have as u64).min(SKIP_BYTES.max(have as u64)) as usize);
            body.resize(have + (body_bytes - have as u64).min(SKIP_BYTES) as usize, 0);
            self.exact(&mut body[have..])?;
        }
        self.checked(&message, body)
    }

    /// Checks what a message claims, and decodes it.
    fn checked(&mut self, message: &Message<'_>, body: Vec<u8>) -> Result<ArrowMessage, Broken> {
        check_claims(message, &body).map_err(Broken::Damaged)?;
        let decoded = self.decode(message, &Buffer::from_vec(body))?;
        if let ArrowMessage::Dictionary = decoded {
            let bytes = self.dictionaries.values().map(|d| d.get_array_memory_size() as u64);
            let bytes = bytes.fold(0, u64::saturating_add);
            if bytes > MAX_BATCH_BYTES {
                let message = format!("its dictionaries have more than the limit of {MAX_BATCH_BYTES} bytes");
                return Err(damaged(RejectCode::TooLarge, &message));
            }
        }
        Ok(decoded)
    }

    /// Refuses to replace a dictionary: all record batches of a file have the same.
    fn check_dictionary(&self, message: &Message<'_>) -> Result<(), Broken> {
        match message.header_as_dictionary_batch() {
            Some(dictionary) if !dictionary.isDelta() && self.dictionaries.contains_key(&dictionary.id()) => {
                Err(damaged(
                    RejectCode::Unsupported,
                    "it has two dictionaries for one column, which is allowed only in streams",
                ))
            }
            _ => Ok(()),
        }
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
        let Messages::Stream { stream, is_file } = &mut self.messages else { return Ok(None) };
        match stream.fill(&mut start)? {
            4 => {}
            // A stream may simply end; a file has a footer.
            0 if !*is_file => return Ok(None),
            _ => return Err(damaged(RejectCode::Truncated, "it ends between two messages")),
        }
        if start == CONTINUATION {
            self.exact(&mut start)?;
        }
        Ok(Some(HeaderStart { length: start, bytes: Vec::new() }))
    }

    fn exact(&mut self, buffer: &mut [u8]) -> Result<(), Broken> {
        if let Messages::Stream { stream, .. } = &mut self.messages
            && stream.fill(buffer)? == buffer.len()
        {
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
        if message.header_as_schema().is_some_and(|schema| schema.endianness() != Endianness::Little) {
            return Err(damaged(
                RejectCode::Unsupported,
                "its numbers are big-endian, which is not supported",
            ));
        }
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

impl Footer {
    /// Reads the footer of a file; `None` if there is none, or it is damaged.
    fn read(file: &FileBytes) -> Result<Option<Self>, Broken> {
        let mut tail = [0; 4 + END_MAGIC.len()];
        let Some(end) = file.len().checked_sub(tail.len() as u64) else { return Ok(None) };
        read(file, &mut tail, end)?;
        let Some((size, END_MAGIC)) = tail.split_first_chunk::<4>() else { return Ok(None) };
        let size = u32::from_le_bytes(*size);
        let Some(start) = end.checked_sub(size.into()).filter(|_| size <= MAX_FOOTER_BYTES) else {
            return Ok(None);
        };
        let mut bytes = vec![0; size as usize];
        read(file, &mut bytes, start)?;
        Ok(Self::parse(&bytes))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let footer = root_as_footer_with_opts(&flatbuffer_limits(bytes), bytes).ok()?;
        let found = footer.schema().filter(|schema| schema.endianness() == Endianness::Little)?;
        let schema = caught(|| try_fb_to_schema(found)).ok()?.ok()?;
        let dictionaries = footer.dictionaries().into_iter().flatten().map(|block| (block, true));
        let batches = footer.recordBatches().into_iter().flatten().map(|block| (block, false));
        let blocks = dictionaries.chain(batches).map(|(block, is_dictionary)| {
            Some(MessageBlock {
                offset: u64::try_from(block.offset()).ok()?,
                header_bytes: u64::try_from(block.metaDataLength()).ok()?,
                body_bytes: u64::try_from(block.bodyLength()).ok()?,
                is_dictionary,
            })
        });
        Some(Self { schema, blocks: blocks.collect::<Option<_>>()? })
    }
}

impl MessageBlock {
    /// Reads the header, without its size.
    fn read_header(&self, file: &FileBytes) -> Result<Vec<u8>, Broken> {
        let impossible = || damaged(RejectCode::Corrupt, "a header has an impossible size");
        let length = usize::try_from(self.header_bytes).ok().filter(|&bytes| bytes <= MAX_HEADER_BYTES);
        let mut bytes = vec![0; length.ok_or_else(impossible)?];
        read(file, &mut bytes, self.offset)?;
        // Old files have no continuation mark.
        let start = if bytes.starts_with(&CONTINUATION) { CONTINUATION.len() } else { 0 };
        let (size, rest) = bytes.get(start..).and_then(<[u8]>::split_first_chunk).ok_or_else(impossible)?;
        let size = u32::from_le_bytes(*size) as usize;
        if size > rest.len() {
            return Err(impossible());
        }
        bytes.drain(..start + 4);
        bytes.truncate(size);
        Ok(bytes)
    }

    /// Reads the body, whose size was checked.
    fn read_body(&self, file: &FileBytes) -> Result<Vec<u8>, Broken> {
        let start = self.offset.saturating_add(self.header_bytes);
        if start.saturating_add(self.body_bytes) > file.len() {
            return Err(damaged(RejectCode::Truncated, "a record batch extends beyond the end of the file"));
        }
        let mut body = vec![0; self.body_bytes as usize];
        read(file, &mut body, start)?;
        Ok(body)
    }
}

/// Fills `buffer` with the bytes at `offset`.
fn read(file: &FileBytes, buffer: &mut [u8], offset: u64) -> Result<(), Broken> {
    let end = offset.saturating_add(buffer.len() as u64);
    match (file.read_exact_at(buffer, offset), file) {
        (Ok(()), _) => Ok(()),
        (Err(e), FileBytes::File(file)) if end <= file.bytes() => {
            Err(Broken::Failed(Error::io("read", file.path(), e).at_offset(offset)))
        }
        _ => Err(damaged(RejectCode::Truncated, "the footer names bytes beyond the end of the file")),
    }
}

fn root_as_header(bytes: &[u8]) -> Result<Message<'_>, Broken> {
    root_as_message(bytes).map_err(|e| damaged(RejectCode::Corrupt, &format!("a header is damaged ({e})")))
}

fn too_large_message(message: &Message<'_>, body_bytes: u64) -> Result<ArrowMessage, Broken> {
    match message.header_as_record_batch() {
        Some(batch) => {
            Ok(ArrowMessage::TooLarge(u64::try_from(batch.length()).unwrap_or(0), too_large(body_bytes)))
        }
        None => Err(Broken::Damaged(too_large(body_bytes))),
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
    Broken::damaged(code, format!("the Arrow data is damaged: {what}"))
}
