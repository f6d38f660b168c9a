//! Random access to the bytes of a committed file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::map::map;
use super::objects::RemoteFile;
use super::paths::open_file;
use crate::error::{Error, ErrorKind, Result};

/// Access method for dataset files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Memory map: no copy, and all processes share the page cache.
    #[default]
    Map,
    /// `pread` into new memory: copies, but is safe if a file shrinks while it is being read.
    Read,
}

/// A committed file opened for random access. Cloning is cheap; all clones share one file or map.
#[derive(Debug, Clone)]
pub struct Blob {
    path: Arc<PathBuf>,
    len: u64,
    data: Data,
}

#[derive(Debug, Clone)]
enum Data {
    Mapped(Bytes),
    File(Arc<File>),
    #[cfg_attr(not(feature = "remote"), expect(dead_code, reason = "such a build opens none"))]
    Remote(Arc<RemoteFile>),
}

impl Blob {
    /// Opens `path`. With `expected_bytes` (from the manifest or shard table), a file of another size is an error. So
    /// is a symbolic link, because no file listed by a dataset is one.
    pub fn open(path: &Path, access: Access, expected_bytes: Option<u64>) -> Result<Self> {
        let fail = |e| Error::io("open", path, e);
        let file = open_file(path, expected_bytes.is_none()).map_err(|e| {
            let is_lost = expected_bytes.is_some() && e.kind() == io::ErrorKind::NotFound;
            let error = fail(e);
            if is_lost {
                error.help("the dataset was altered; restore the file or convert again")
            } else {
                error
            }
        })?;
        let meta = file.metadata().map_err(fail)?;
        if !meta.is_file() {
            return Err(Error::new(ErrorKind::Io, "this is not a regular file")
                .at_path(path)
                .help("the dataset was altered; restore the file or convert again"));
        }
        let len = meta.len();
        if let Some(expected) = expected_bytes.filter(|&e| e != len) {
            return Err(Error::corrupt(format!("the file has {len} bytes, expected {expected}"))
                .at_path(path)
                .help("the file was altered or truncated; restore it or convert again"));
        }
        let data = match access {
            Access::Map => Data::Mapped(map(&file).map_err(fail)?),
            Access::Read => Data::File(Arc::new(file)),
        };
        Ok(Self { path: Arc::new(path.to_owned()), len, data })
    }

    /// Creates a blob from bytes in memory; `path` is used in messages.
    pub fn from_bytes(path: &Path, bytes: Bytes) -> Self {
        Self { path: Arc::new(path.to_owned()), len: bytes.len() as u64, data: Data::Mapped(bytes) }
    }

    /// Creates a blob for an object in object storage; only the bytes that are read are fetched.
    #[cfg(feature = "remote")]
    pub(super) fn from_remote(file: RemoteFile) -> Self {
        let path = Arc::new(file.url.as_path().to_owned());
        Self { path, len: file.bytes, data: Data::Remote(Arc::new(file)) }
    }

    /// Returns the path or address, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the whole file if it is in memory or mapped. Lookups of a few bytes then need no reference count.
    pub fn as_slice(&self) -> Option<&[u8]> {
        match &self.data {
            Data::Mapped(bytes) => Some(bytes),
            Data::File(_) => None,
            Data::Remote(_) => None,
        }
    }

    /// Returns the bytes `offset..offset + len`: a view if mapped, otherwise a copy. A range past the end is
    /// [`ErrorKind::Corrupt`], detected before anything is allocated.
    pub fn read(&self, offset: u64, len: u64) -> Result<Bytes> {
        let end = self.end_of(offset, len)?;
        match &self.data {
            // Both ends lie within the map, which fits the address space.
            Data::Mapped(bytes) => Ok(bytes.slice(offset as usize..end as usize)),
            Data::File(file) => {
                let mut buffer = vec![0; len as usize];
                self.read_file(file, offset, &mut buffer)?;
                Ok(Bytes::from(buffer))
            }
            Data::Remote(file) => file.read(offset..end),
        }
    }

    /// Like [`Blob::read`], but returns an array instead of a view: threads contend for the reference count of a map.
    pub fn array<const N: usize>(&self, offset: u64) -> Result<[u8; N]> {
        match &self.data {
            Data::Mapped(bytes) => {
                let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..));
                rest.and_then(<[u8]>::first_chunk).copied().ok_or_else(|| self.too_short(offset, N as u64))
            }
            Data::File(file) => {
                self.end_of(offset, N as u64)?;
                let mut array = [0; N];
                self.read_file(file, offset, &mut array)?;
                Ok(array)
            }
            Data::Remote(file) => {
                let bytes = file.read(offset..self.end_of(offset, N as u64)?)?;
                bytes.first_chunk().copied().ok_or_else(|| self.too_short(offset, N as u64))
            }
        }
    }

    /// Like [`Blob::read`], but borrows the bytes without a reference count. `None` if the file is not in memory or too
    /// short.
    pub fn lend(&self, offset: u64, len: u64) -> Option<&[u8]> {
        let rest = self.as_slice()?.get(usize::try_from(offset).ok()?..)?;
        rest.get(..usize::try_from(len).ok()?)
    }

    fn end_of(&self, offset: u64, len: u64) -> Result<u64> {
        offset.checked_add(len).filter(|&end| end <= self.len).ok_or_else(|| self.too_short(offset, len))
    }

    fn too_short(&self, offset: u64, len: u64) -> Error {
        Error::corrupt(format!("expected {len} bytes, but the file ends at byte {}", self.len))
            .at_path(self.path())
            .at_offset(offset)
    }

    fn read_file(&self, file: &File, offset: u64, buffer: &mut [u8]) -> Result<()> {
        file.read_exact_at(buffer, offset).map_err(|e| Error::io("read", self.path(), e).at_offset(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_a_special_file_never_blocks() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for path in [path.as_path(), dir.path(), Path::new("/dev/zero")] {
            assert_eq!(Blob::open(path, Access::Read, None).unwrap_err().kind(), ErrorKind::Io);
        }
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "hello").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(Blob::open(&link, Access::Map, None).is_ok());
        assert_eq!(Blob::open(&link, Access::Map, Some(5)).unwrap_err().kind(), ErrorKind::Io);
    }

    #[test]
    fn map_and_read_return_the_same_bytes_and_errors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, b"hello").unwrap();
        for access in [Access::Map, Access::Read] {
            let blob = Blob::open(&path, access, Some(5)).unwrap();
            assert_eq!(blob.read(1, 3).unwrap().as_ref(), b"ell");
            assert_eq!(blob.read(5, 0).unwrap().as_ref(), b"");
            assert!(blob.read(3, 3).is_err_and(|e| e.kind() == ErrorKind::Corrupt));
            assert_eq!(blob.array(2).unwrap(), *b"llo");
            assert!(blob.array::<3>(3).is_err_and(|e| e.kind() == ErrorKind::Corrupt));
            assert!(blob.array::<2>(u64::MAX).is_err());
            assert!(blob.read(u64::MAX, 2).is_err());
            assert_eq!(blob.lend(1, 3), blob.as_slice().map(|_| &b"ell"[..]));
            assert_eq!((blob.lend(3, 3), blob.lend(u64::MAX, 1)), (None, None));
            assert_eq!(blob.as_slice().is_some(), access == Access::Map);
            assert!(Blob::open(&path, access, Some(6)).is_err());
        }
    }
}
