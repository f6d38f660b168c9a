//! A new file that records write failures, because libraries convert the original error to text.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use crate::storage::NewFile;

/// File passed to a library for writing.
#[derive(Debug)]
pub struct WatchedFile {
    file: NewFile,
    failure: WriteFailure,
}

/// Last failed write of a [`WatchedFile`].
#[derive(Debug, Clone, Default)]
pub struct WriteFailure(Arc<Mutex<Option<io::Error>>>);

impl WriteFailure {
    /// Takes the failure; later calls return `None`.
    pub fn take(&self) -> Option<io::Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|e| {
            let copy = e.raw_os_error().map_or_else(|| e.kind().into(), io::Error::from_raw_os_error);
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(e);
            copy
        })
    }
}

impl WatchedFile {
    /// Wraps `file`. The second value returns its failures.
    pub fn new(file: NewFile) -> (Self, WriteFailure) {
        let failure = WriteFailure::default();
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
