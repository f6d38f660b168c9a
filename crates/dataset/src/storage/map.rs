//! Memory-mapping of files: the only module with `unsafe` code.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use bytes::Bytes;
use memmap2::Mmap;

/// Maps the whole `file` as shared bytes without reading it.
///
/// Mapped bytes are only as stable as the file. If another process truncates it, accessing the lost part is fatal
/// (SIGBUS); if it is overwritten, the bytes change. Dataset files are never written after their commit, callers first
/// check the size against the manifest, and `mmap=false` is for those who cannot rule out such changes.
pub(super) fn map(file: &File) -> io::Result<Bytes> {
    if file.metadata()?.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is read-only and private to this value; see above for the effects of other writers.
    let map = unsafe { Mmap::map(file)? };
    Ok(Bytes::from_owner(map))
}
