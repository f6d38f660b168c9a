//! Open source files, on disk or in object storage.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::ops::{Deref, Range};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;

use super::planned::{CHANGED_HELP, PlannedFile, changed};
use super::retry::retried;
use crate::error::{Error, Result};
use crate::storage::objects::ObjectReader;

/// An open source file.
#[derive(Debug)]
pub struct OpenedFile {
    content: FileContent,
    planned: PlannedFile,
}

#[derive(Debug)]
enum FileContent {
    Local {
        file: File,
        /// Device and inode, which identify the file as long as it is open.
        identity: (u64, u64),
    },
    /// An object, whose every response is checked against the plan.
    Object(ObjectReader),
}

impl OpenedFile {
    pub(in crate::source) fn local(planned: &PlannedFile, file: File, meta: &Metadata) -> Self {
        let content = FileContent::Local { file, identity: (meta.dev(), meta.ino()) };
        Self { content, planned: planned.clone() }
    }

    pub(in crate::source) fn object(planned: &PlannedFile, object: ObjectReader) -> Self {
        Self { content: FileContent::Object(object), planned: planned.clone() }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.planned.path
    }

    /// Returns the planned size in bytes.
    pub fn bytes(&self) -> u64 {
        self.planned.bytes
    }

    /// Announces that `range` will be read sequentially. In object storage, its bytes are requested ahead.
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses to create a thread.
    pub fn will_read(&self, range: Range<u64>) -> Result<()> {
        match &self.content {
            FileContent::Local { .. } => Ok(()),
            FileContent::Object(object) => object.will_read(range),
        }
    }

    /// Announces that only little will be read. In object storage, nothing is requested ahead.
    pub(in crate::source) fn will_read_little(&self) {
        if let FileContent::Object(object) = &self.content {
            object.request_nothing_ahead();
        }
    }

    /// Announces that bytes will be read several times. For objects, up to `bytes` bytes are kept in memory.
    pub fn hold(&self, bytes: u64) {
        if let FileContent::Object(object) = &self.content {
            object.hold(bytes);
        }
    }

    /// Reads bytes at `offset` into `buffer`. A short read does not mean the end of the file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.content {
            FileContent::Local { file, .. } => file.read_at(buffer, offset),
            FileContent::Object(object) => object.read_at(buffer, offset).map_err(io::Error::other),
        }
    }

    /// Fills `buffer` with the bytes at `offset`. Failures that may be temporary are retried.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or ends before `buffer` is full.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut filled = 0;
        retried(|| {
            while filled < buffer.len() {
                match self.read_at(&mut buffer[filled..], offset + filled as u64) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(read) => filled += read,
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
            Ok(())
        })
    }

    /// Appends bytes at `offset` to `buffer`, up to its spare capacity, and returns their number.
    pub(super) fn append_at(&self, buffer: &mut Vec<u8>, offset: u64) -> io::Result<usize> {
        match &self.content {
            FileContent::Local { file, .. } => loop {
                match rustix::io::pread(file, spare_capacity(buffer), offset) {
                    Err(Errno::INTR) => {}
                    read => return Ok(read?),
                }
            },
            FileContent::Object(object) => {
                let room = buffer.capacity() - buffer.len();
                let bytes = object.bytes_at(offset, room).map_err(io::Error::other)?;
                buffer.extend_from_slice(&bytes);
                Ok(bytes.len())
            }
        }
    }

    /// Reads the bytes after those of the previous call.
    pub(super) fn read_next(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.content {
            FileContent::Local { file, .. } => {
                let mut file = file;
                file.read(buffer)
            }
            FileContent::Object(object) => object.read_next(buffer).map_err(io::Error::other),
        }
    }

    /// Returns a reader of `range`.
    pub(in crate::source) fn reader(&self, range: Range<u64>) -> RangeReader<&Self> {
        RangeReader { opened: self, range }
    }

    /// Checks that the file that was read is the planned file. Must be called after the last byte, and before damage is
    /// reported.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Io`](crate::error::ErrorKind) if the file was written to, or replaced by another file.
    pub fn check_unchanged(&self) -> Result<()> {
        let FileContent::Local { file, identity } = &self.content else { return Ok(()) };
        let path = self.path();
        let fail = |e| Error::io("examine the file", path, e).help(CHANGED_HELP);
        self.planned.check(&file.metadata().map_err(fail)?)?;
        let current = match self.planned.follow_symlinks {
            true => retried(|| std::fs::metadata(path)),
            false => retried(|| std::fs::symlink_metadata(path)),
        };
        let current = current.map_err(fail)?;
        if (current.dev(), current.ino()) != *identity {
            return Err(changed(path, "the file was replaced by another while it was read"));
        }
        Ok(())
    }
}

impl Read for &OpenedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_next(buffer)
    }
}

/// The bytes of a file that is read at any position.
#[derive(Debug, Clone)]
pub(in crate::source) enum FileBytes {
    File(Arc<OpenedFile>),
    Memory(Bytes),
}

impl FileBytes {
    /// Returns the size in bytes.
    pub(in crate::source) fn len(&self) -> u64 {
        match self {
            Self::File(file) => file.bytes(),
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Fills `buffer` with the bytes at `offset`.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or ends before `buffer` is full.
    pub(in crate::source) fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.read_exact_at(buffer, offset),
            Self::Memory(bytes) => {
                let from = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
                let from = from.get(..buffer.len()).ok_or(ErrorKind::UnexpectedEof)?;
                buffer.copy_from_slice(from);
                Ok(())
            }
        }
    }

    /// Checks, after the last byte, that the file has not changed since it was planned.
    ///
    /// # Errors
    ///
    /// As [`OpenedFile::check_unchanged`].
    pub(in crate::source) fn check_unchanged(&self) -> Result<()> {
        match self {
            Self::File(file) => file.check_unchanged(),
            Self::Memory(_) => Ok(()),
        }
    }
}

/// Reader of a byte range of a file, which it borrows or shares.
pub(in crate::source) struct RangeReader<F> {
    pub(in crate::source) opened: F,
    pub(in crate::source) range: Range<u64>,
}

impl<F: Deref<Target = OpenedFile>> Read for RangeReader<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.range.end.saturating_sub(self.range.start);
        let length = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.opened.read_at(&mut buffer[..length], self.range.start)?;
        self.range.start += read as u64;
        Ok(read)
    }
}
