//! The bytes of a tar file, whatever they are compressed with.
//!
//! A failure of the operating system is told apart from damage: it fails the unit, while damage is the fault of the file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flate2::bufread::MultiGzDecoder;

use crate::error::{Error, Result};
use crate::source::{changed, retried};

/// Bytes read from the disk at a time.
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes that one stored byte may become, beside [`FREE_BYTES`].
const MAX_RATIO: u64 = 1000;
/// Bytes that any file may become.
const FREE_BYTES: u64 = 64 << 20;

/// A file that remembers how much of it was used, and the failure that ended it. What is only read ahead does not count.
struct Watched {
    file: BufReader<File>,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    bytes: AtomicU64,
    failure: Mutex<Option<io::Error>>,
}

impl Seen {
    fn failed(&self, e: io::Error) -> io::Error {
        let copy = io::Error::from(e.kind());
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(e);
        copy
    }
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = retried(|| self.file.read(buffer)).map_err(|e| self.seen.failed(e))?;
        self.seen.bytes.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

impl BufRead for Watched {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        retried(|| self.file.fill_buf().map(|_| ())).map_err(|e| self.seen.failed(e))?;
        // Does not read again: the buffer is filled, or this is the end.
        Ok(self.file.buffer())
    }

    fn consume(&mut self, amount: usize) {
        self.file.consume(amount);
        self.seen.bytes.fetch_add(amount as u64, Ordering::Relaxed);
    }
}

/// Decompressed bytes.
pub(super) struct Stream {
    path: PathBuf,
    reader: Box<dyn Read + Send>,
    seen: Arc<Seen>,
    produced: u64,
}

/// Why bytes could not be read.
pub(super) enum Broken {
    /// Not the fault of the file.
    Failed(Error),
    /// The file is damaged, in one sentence.
    Damaged(String),
}

impl Stream {
    pub(super) fn open(path: &Path, planned_bytes: u64) -> Result<Self> {
        let fail = |e| Error::io("open the tar file", path, e);
        let file = retried(|| File::open(path)).map_err(fail)?;
        let now = file.metadata().map_err(fail)?.len();
        if now != planned_bytes {
            return Err(changed(path, planned_bytes, now));
        }
        let seen = Arc::new(Seen::default());
        let raw = Watched { file: BufReader::with_capacity(BUFFER_BYTES, file), seen: Arc::clone(&seen) };
        let name = path.to_string_lossy().to_ascii_lowercase();
        let reader: Box<dyn Read + Send> = if name.ends_with("gz") {
            Box::new(MultiGzDecoder::new(raw))
        } else if name.ends_with("zst") {
            Box::new(zstd::stream::read::Decoder::with_buffer(raw).map_err(fail)?)
        } else {
            Box::new(raw)
        };
        Ok(Self { path: path.to_owned(), reader, seen, produced: 0 })
    }

    /// Bytes of the file that were used so far.
    pub(super) fn raw_bytes(&self) -> u64 {
        self.seen.bytes.load(Ordering::Relaxed)
    }

    /// Fills `buffer` as far as there are bytes, and says how far.
    pub(super) fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, Broken> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    let failure = self.seen.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
                    return Err(match failure {
                        Some(failure) => Broken::Failed(Error::io("read the tar file", &self.path, failure)),
                        None => Broken::Damaged(format!("its compressed data are damaged ({e})")),
                    });
                }
            }
        }
        self.produced += filled as u64;
        if self.produced > self.raw_bytes().saturating_mul(MAX_RATIO).saturating_add(FREE_BYTES) {
            return Err(Broken::Damaged(format!("it decompresses to more than {MAX_RATIO} times its size")));
        }
        Ok(filled)
    }
}
