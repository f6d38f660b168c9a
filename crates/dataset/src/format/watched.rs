//! A new file that records write failures, because libraries convert the original error to text.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use ::parquet::errors::ParquetError;

use crate::error::Error;
use crate::storage::NewFile;

/// File passed to a library for writing.
#[derive(Debug)]
pub struct WatchedFile {
    file: NewFile,
    failure: WriteFailure,
}

/// Last failed write of a [`WatchedFile`].
#[derive(Debug, Clone)]
pub struct WriteFailure {
    path: PathBuf,
    last: Arc<Mutex<Option<io::Error>>>,
    /// Message if the library fails for another reason.
    bug: &'static str,
}

impl WriteFailure {
    /// Returns the failed write, because of which the library failed with `error`. Without one, the error is a bug: the values
    /// were checked.
    pub fn explain(&self, error: ParquetError) -> Error {
        match self.last.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(cause) => Error::io("write", &self.path, cause),
            None => Error::internal(self.bug).at_path(&self.path).caused_by(error),
        }
    }

    fn note<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|e| {
            let copy = e.raw_os_error().map_or_else(|| e.kind().into(), io::Error::from_raw_os_error);
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(e);
            copy
        })
    }
}

impl WatchedFile {
    /// Wraps `file`. The second value returns its failures; `bug` is the message of others.
    pub fn new(file: NewFile, bug: &'static str) -> (Self, WriteFailure) {
        let failure = WriteFailure { path: file.path().to_owned(), last: Arc::default(), bug };
        (Self { file, failure: failure.clone() }, failure)
    }

    /// Returns the file.
    pub fn into_file(self) -> NewFile {
        self.file
    }
}

impl Write for WatchedFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.failure.note(self.file.write(data))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.failure.note(self.file.flush())
    }
}
