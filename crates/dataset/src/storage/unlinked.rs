//! Temporary files that are deleted with the process.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Creates a file in `dir` for reading and writing, and unlinks it: the kernel frees it whatever happens to the process.
///
/// # Errors
///
/// Returns the error of the operating system, without the path.
pub fn unlinked_file(dir: &Path) -> io::Result<File> {
    // Names collide only until the file is unlinked: with another process, or with a leftover of a dead one.
    for number in 0u32.. {
        let path = dir.join(format!("sort-{number}.tmp"));
        match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}
