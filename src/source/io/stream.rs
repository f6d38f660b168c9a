//! The decompressed bytes of a file.
//!
//! Operating-system errors are distinguished from damage: an error fails the work unit, while damage is a defect of the
//! file.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::broken::Broken;
use super::compressed_members::{Bzip2Stream, JoinedMembers, MemberStarts, XZ_MEMORY_BYTES, XzMember};
use super::compression::Compression;
use super::encoding::{TextEncoding, Utf8Reader};
use super::inflate::GzipMember;
use super::json_array::ArrayLines;
use super::opened::{OpenedFile, RangeReader};
use super::planned::PlannedFile;
use super::retry::retried;
use super::zstd_frames::Frames;
use crate::error::{Error, Result};
use crate::sample::{Reject, RejectCode};
use crate::source::io::broken::DamagedInput;

/// Size of the read buffer, in bytes.
const BUFFER_BYTES: usize = 256 << 10;
/// The same for a part of a file, which is short.
const PART_BUFFER_BYTES: usize = 32 << 10;
/// Decompressed bytes allowed per stored byte, in addition to [`FREE_BYTES`].
const MAX_RATIO: u64 = 1000;
/// Decompressed bytes allowed for any file.
const FREE_BYTES: u64 = 64 << 20;

/// Buffered input that records how many bytes were consumed, and the error that ended it. Bytes that are only buffered
/// do not count.
struct CountingReader {
    input: BufReader<Box<dyn Read + Send>>,
    status: Arc<InputStatus>,
}

#[derive(Default)]
struct InputStatus {
    bytes: AtomicU64,
    failure: Mutex<Option<io::Error>>,
}

impl InputStatus {
    fn failed(&self, e: io::Error) -> io::Error {
        let copy = io::Error::from(e.kind());
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(e);
        copy
    }

    fn take(&self) -> Option<io::Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Read for CountingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = retried(|| self.input.read(buffer)).map_err(|e| self.status.failed(e))?;
        self.status.bytes.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

impl BufRead for CountingReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        retried(|| self.input.fill_buf().map(|_| ())).map_err(|e| self.status.failed(e))?;
        // This does not read again: the buffer is filled, or this is the end.
        Ok(self.input.buffer())
    }

    fn consume(&mut self, amount: usize) {
        self.input.consume(amount);
        self.status.bytes.fetch_add(amount as u64, Ordering::Relaxed);
    }
}

/// Reader of a file that it shares with the stream.
struct SharedFile(Arc<OpenedFile>);

impl Read for SharedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_next(buffer)
    }
}

/// A stream of decompressed bytes.
pub struct Stream {
    path: PathBuf,
    /// `None` for standard input.
    file: Option<Arc<OpenedFile>>,
    reader: Box<dyn Read + Send>,
    status: Arc<InputStatus>,
    members: MemberStarts,
    produced: u64,
    compressed: bool,
    /// Set if the content does not match the file name, or is damaged after the bytes returned so far.
    defect: Option<Reject>,
    /// Set if a JSON array is read as lines.
    array: Option<ArrayLines>,
    /// Bytes that [`Self::peek`] has read and [`Self::fill`] has not yet returned.
    ahead: VecDeque<u8>,
}

impl Stream {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened or has changed since it was planned. Damaged content is reported
    /// when it is read.
    pub fn open(planned: &PlannedFile, compression: Option<Compression>) -> Result<Self> {
        Self::of(planned.open()?, compression)
    }

    /// Creates a stream of an open file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    pub fn of(opened: OpenedFile, compression: Option<Compression>) -> Result<Self> {
        let file = Arc::new(opened);
        let input = Box::new(SharedFile(Arc::clone(&file)));
        Ok(Self {
            file: Some(Arc::clone(&file)),
            ..Self::over(file.path(), input, BUFFER_BYTES, compression, None)?
        })
    }

    /// Creates a stream of a file without compression from `start` on, which is its first position.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    pub(in crate::source) fn from(opened: OpenedFile, start: u64) -> Result<Self> {
        let file = Arc::new(opened);
        let input = RangeReader { opened: Arc::clone(&file), range: start..file.bytes().max(start) };
        let stream = Self::over(file.path(), Box::new(input), PART_BUFFER_BYTES, None, None)?;
        // Only the start of a file says whether its name is right.
        let defect = stream.defect.filter(|_| start == 0);
        Ok(Self { file: Some(file), produced: start, defect, ..stream })
    }

    /// Creates a stream of a part of `file`, which `input` reads, or whose `input` is damaged.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read. Damage is reported when the stream is read.
    pub(in crate::source) fn of_part(
        file: &Arc<OpenedFile>,
        input: Result<Box<dyn Read + Send>, Broken>,
        compression: Option<Compression>,
    ) -> Result<Self> {
        let (input, damage) = match input {
            Ok(input) => (input, None),
            Err(broken) => (Box::new(io::empty()) as Box<dyn Read + Send>, Some(broken.damage()?)),
        };
        let stream = Self::over(file.path(), input, BUFFER_BYTES, compression, None)?;
        if compression.is_none() {
            stream.members.add(0);
        }
        let defect = damage.or(stream.defect);
        Ok(Self { file: Some(Arc::clone(file)), compressed: true, defect, ..stream })
    }

    /// Checks, after the last byte, that the file has not changed since it was planned. Standard input always passes.
    ///
    /// # Errors
    ///
    /// As [`OpenedFile::check_unchanged`].
    pub fn check_unchanged(&self) -> Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.check_unchanged())
    }

    /// Creates a stream of bytes in memory.
    ///
    /// # Errors
    ///
    /// Never returns an error.
    pub fn of_bytes(bytes: Bytes) -> Result<Self> {
        Self::over(Path::new("-"), Box::new(Cursor::new(bytes)), BUFFER_BYTES, None, None)
    }

    /// Returns the file, if its bytes are those of the stream.
    pub(in crate::source) fn plain_file(&self) -> Option<Arc<OpenedFile>> {
        self.file.clone().filter(|_| !self.compressed)
    }

    /// Creates a stream of standard input. `format` is its format without compression, as in `input_format`.
    ///
    /// # Errors
    ///
    /// Returns an error if standard input cannot be read.
    pub fn stdin(format: &str, compression: Option<Compression>) -> Result<Self> {
        Self::over(Path::new("-"), Box::new(io::stdin()), BUFFER_BYTES, compression, Some(format))
    }

    /// Creates a stream of `input`. Without a file name, `format` is its format without compression.
    fn over(
        path: &Path,
        input: Box<dyn Read + Send>,
        buffer_bytes: usize,
        compression: Option<Compression>,
        format: Option<&str>,
    ) -> Result<Self> {
        let status = Arc::new(InputStatus::default());
        let fail = |e| Error::io("read", path, status.take().unwrap_or(e));
        let input = BufReader::with_capacity(buffer_bytes, input);
        let mut raw = CountingReader { input, status: Arc::clone(&status) };
        let defect = match raw.fill_buf() {
            Ok(head) => misnamed(head, compression, format),
            Err(e) => {
                let failure = status.take().unwrap_or(e);
                let damage = DamagedInput::of(&failure).cloned();
                Some(damage.ok_or_else(|| Error::io("read", path, failure))?)
            }
        };
        let members = MemberStarts::default();
        let reader: Box<dyn Read + Send> = match compression {
            None => Box::new(raw),
            Some(Compression::Gzip) => Box::new(JoinedMembers::<_, GzipMember<_>>::new(raw, members.clone())),
            Some(Compression::Zstd) => Box::new(Frames::new(raw, members.clone()).map_err(fail)?),
            Some(Compression::Bzip2) => {
                Box::new(JoinedMembers::<_, Bzip2Stream<_>>::new(raw, members.clone()))
            }
            Some(Compression::Xz) => Box::new(JoinedMembers::<_, XzMember<_>>::new(raw, members.clone())),
        };
        let path = path.to_owned();
        let compressed = compression.is_some();
        let ahead = VecDeque::new();
        let (produced, array) = (0, None);
        Ok(Self { path, file: None, reader, status, members, produced, compressed, defect, array, ahead })
    }

    /// Decodes text to UTF-8: by its byte order mark or, without one, from the encoding `given`.
    #[must_use]
    pub fn with_encoding(self, given: Option<TextEncoding>) -> Self {
        let reader = Box::new(Utf8Reader::new(self.reader, given, self.members.clone()));
        Self { reader, ..self }
    }

    /// Rewrites a file that is a JSON array as one line per element, with the same total number of bytes. Other files
    /// stay unchanged.
    #[must_use]
    pub fn with_array_lines(self) -> Self {
        Self { array: Some(ArrayLines::default()), ..self }
    }

    /// Returns the number of bytes consumed from the file so far, before decompression.
    pub fn raw_bytes(&self) -> u64 {
        self.status.bytes.load(Ordering::Relaxed)
    }

    /// Returns whether the file is compressed.
    pub fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// Returns the number of decompressed bytes returned so far.
    pub fn position(&self) -> u64 {
        self.produced - self.ahead.len() as u64
    }

    /// Returns where compressed members start in the decompressed bytes, for the members found since the last call.
    pub fn take_member_starts(&self) -> Vec<u64> {
        self.members.take()
    }

    /// Fills `buffer` with as many bytes as are left, and returns their number. After an error, nothing more can be
    /// read.
    ///
    /// # Errors
    ///
    /// Bytes before damage are returned first; the next call returns the damage.
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, Broken> {
        let ahead = self.ahead.len().min(buffer.len());
        self.ahead.read_exact(&mut buffer[..ahead]).map_err(|e| self.broken(&e))?;
        if ahead == buffer.len() && ahead > 0 {
            return Ok(ahead);
        }
        match self.read(&mut buffer[ahead..]) {
            Ok(read) => Ok(ahead + read),
            Err(Broken::Damaged(reject)) if ahead > 0 => {
                self.defect = Some(reject);
                Ok(ahead)
            }
            Err(broken) => Err(broken),
        }
    }

    /// Returns the next `count` bytes, or fewer at the end or before damage. [`Self::fill`] still returns them.
    ///
    /// # Errors
    ///
    /// Returns operating-system errors, never damage.
    pub fn peek(&mut self, count: usize) -> Result<&[u8]> {
        if let Some(more) = count.checked_sub(self.ahead.len()).filter(|&more| more > 0) {
            let mut bytes = vec![0; more];
            match self.read(&mut bytes) {
                Ok(read) => self.ahead.extend(&bytes[..read]),
                Err(broken) => self.defect = Some(broken.damage()?),
            }
        }
        let bytes = self.ahead.make_contiguous();
        Ok(&bytes[..count.min(bytes.len())])
    }

    /// As [`Self::fill`], but ignores the bytes that [`Self::peek`] has read.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Broken> {
        if let Some(reject) = self.defect.clone() {
            return Err(Broken::Damaged(reject));
        }
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => match self.broken(&e) {
                    Broken::Damaged(reject) if filled > 0 => {
                        self.defect = Some(reject);
                        break;
                    }
                    broken => return Err(broken),
                },
            }
        }
        if let Some(array) = &mut self.array {
            let (read, wanted) = (filled, buffer.len());
            filled = array.rewrite(&mut buffer[..read]);
            let damage = match (filled < read, read < wanted && array.is_open()) {
                (true, _) => Some((RejectCode::Corrupt, "there is data after the end of the JSON array")),
                (false, true) => Some((RejectCode::Truncated, "the JSON array is not closed")),
                (false, false) => None,
            };
            if let Some((code, why)) = damage {
                let reject = self.defect.get_or_insert_with(|| Reject::new(code, why)).clone();
                if filled == 0 {
                    return Err(Broken::Damaged(reject));
                }
            }
        }
        self.produced += filled as u64;
        let limit = self.raw_bytes().saturating_mul(MAX_RATIO).saturating_add(FREE_BYTES);
        if self.compressed && self.produced > limit {
            let message = format!("the file decompresses to more than {MAX_RATIO} times its size");
            return Err(Broken::damaged(RejectCode::TooLarge, message));
        }
        Ok(filled)
    }

    fn broken(&self, error: &io::Error) -> Broken {
        if let Some(failure) = self.status.take() {
            if let Some(damage) = DamagedInput::of(&failure) {
                return Broken::Damaged(damage.clone());
            }
            return Broken::Failed(Error::io("read", &self.path, failure));
        }
        Broken::Damaged(match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                Reject::new(RejectCode::Truncated, "the compressed data is cut off")
            }
            io::ErrorKind::Unsupported => Reject::new(RejectCode::Unsupported, error.to_string()),
            _ if is_xz_memory_limit(error) => Reject::new(
                RejectCode::Unsupported,
                format!(
                    "decompressing needs more than {} MiB, because of the dictionary of the xz data; compress the file \
                     again with `xz -9`, or decompress it with `xz -d`",
                    XZ_MEMORY_BYTES >> 20
                ),
            ),
            _ => Reject::new(RejectCode::Corrupt, format!("the compressed data is damaged ({error})")),
        })
    }
}

fn is_xz_memory_limit(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<liblzma::stream::Error>());
    matches!(inner, Some(liblzma::stream::Error::MemLimit))
}

/// Returns a reject if content that starts with `head` is not compressed as its name or `input_format` indicates.
fn misnamed(head: &[u8], compression: Option<Compression>, format: Option<&str>) -> Option<Reject> {
    let found = Compression::sniff(head);
    if compression.is_some() && head.is_empty() {
        let message = "the file is empty, but a compressed file never is";
        return Some(Reject::new(RejectCode::Empty, message));
    }
    if compression == found {
        return None;
    }
    if let Some(format) = format {
        let extension = |compression: Option<Compression>| compression.map_or("", Compression::extension);
        let content = match (found, compression) {
            (Some(found), _) => format!("is {} data", found.name()),
            (None, named) => format!("is not {} data", named.map_or("", Compression::name)),
        };
        let message = format!(
            "standard input {content}, but its format was given as {format}{}; use `input_format {format}{}`",
            extension(compression),
            extension(found)
        );
        return Some(Reject::new(RejectCode::UnknownType, message));
    }
    Some(match (compression, found) {
        (None, None) => return None,
        (None, Some(found)) => found.unexpected(),
        (Some(named), found) => {
            let actual = found.map_or("something else", Compression::name);
            let message = format!("the file name indicates {}, but the content is {actual}", named.name());
            Reject::new(RejectCode::UnknownType, message)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(bytes: Vec<u8>) -> Stream {
        let input = Box::new(io::Cursor::new(bytes));
        Stream::over(Path::new("-"), input, BUFFER_BYTES, Some(Compression::Zstd), None).unwrap()
    }

    #[test]
    fn peeked_bytes_are_still_returned_by_fill() {
        let text: Vec<u8> = (0..50_000u32).flat_map(u32::to_le_bytes).collect();
        let whole = zstd::encode_all(&text[..], 1).unwrap();
        for (bytes, is_whole) in [(whole.clone(), true), (whole[..whole.len() - 1].to_vec(), false)] {
            for (peeks, reads) in [(&[10, 5, 100_000][..], 7_000), (&[1 << 20], 1 << 20), (&[0], 300_000)] {
                let mut stream = stream(bytes.clone());
                for &peek in peeks {
                    let seen = stream.peek(peek).unwrap();
                    assert_eq!(seen, &text[..seen.len()]);
                    assert!(!is_whole || seen.len() == peek.min(text.len()));
                }
                let (mut found, mut buffer) = (Vec::new(), vec![0; reads]);
                let damage = loop {
                    match stream.fill(&mut buffer) {
                        Ok(0) => break false,
                        Ok(read) => found.extend_from_slice(&buffer[..read]),
                        Err(Broken::Damaged(_)) => break true,
                        Err(Broken::Failed(error)) => panic!("{error}"),
                    }
                };
                assert_eq!(damage, !is_whole);
                assert!(found == text[..found.len()] && (!is_whole || found.len() == text.len()));
                assert!(is_whole || found.len() > text.len() / 2);
            }
        }
    }
}
