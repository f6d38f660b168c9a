//! The one place with `unsafe`: mapping a file into memory.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use bytes::Bytes;
use memmap2::Mmap;

/// The whole of `file` as shared bytes, without reading it.
///
/// Mapped bytes are only as stable as the file: if another process truncates it, touching the lost part is fatal
/// (SIGBUS); if it is overwritten, the bytes change. Dataset files are never written after their commit, callers check
/// the size against the manifest first, and `mmap=false` exists for those who cannot rule it out.
pub(super) fn map(file: &File) -> io::Result<Bytes> {
    if file.metadata()?.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is read-only and private to this value; see above for what writers elsewhere can do.
    let map = unsafe { Mmap::map(file)? };
    Ok(Bytes::from_owner(map))
}
