//! Listing directories.
//!
//! The standard library panics when the system cannot close a directory (`EIO`), at the latest when the last entry of a
//! listing is dropped. So entries never leave the functions here.

use std::fs::DirEntry;
use std::io;
use std::path::Path;

use crate::error::{Error, Result};
use crate::panics::caught;

/// Calls `each` for every entry of `dir`, in no certain order.
///
/// # Errors
///
/// Those of `each`; [`ErrorKind::Io`](crate::error::ErrorKind) when the directory cannot be listed.
pub fn for_each_entry(dir: &Path, mut each: impl FnMut(&DirEntry) -> Result<()>) -> Result<()> {
    let fail = |e| Error::io("list the folder", dir, e);
    let mut list = || {
        for entry in std::fs::read_dir(dir).map_err(fail)? {
            each(&entry.map_err(fail)?)?;
        }
        Ok(())
    };
    contained(|| Ok(list())).unwrap_or_else(|e| Err(fail(e)))
}

/// Runs an operation that lists a directory. The standard library panics when the system cannot close one; that is a
/// failure to read, as others are.
pub(crate) fn contained<T>(list: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    caught(list).unwrap_or_else(|panic| Err(io::Error::other(panic.into_message())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_listed_or_closed_is_an_io_error() {
        let dir = tempfile::tempdir().unwrap();
        let mut names = Vec::new();
        std::fs::write(dir.path().join("a"), "").unwrap();
        for_each_entry(dir.path(), |entry| {
            names.push(entry.file_name());
            Ok(())
        })
        .unwrap();
        assert_eq!(names, ["a"]);
        let missing = for_each_entry(&dir.path().join("b"), |_| Ok(())).unwrap_err();
        assert_eq!(missing.kind(), crate::error::ErrorKind::Io);
        // As the standard library does at the end of a listing.
        let closing = || -> io::Result<()> { panic!("unexpected error during closedir: 5") };
        assert!(contained(closing).unwrap_err().to_string().contains("closedir"));
    }
}
