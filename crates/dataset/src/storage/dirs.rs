//! Directory listing.
//!
//! The standard library panics if the system cannot close a directory (`EIO`), at the latest when the last entry of a
//! listing is dropped. Entries therefore never leave the functions here, and no listing is open while another one is: a
//! second panic while the first one unwinds would abort the process.

use std::ffi::OsString;
use std::fs::DirEntry;
use std::io;
use std::path::Path;

use crate::panics::caught;

/// Calls `each` for every entry of `dir`, in no particular order.
///
/// # Errors
///
/// Errors of `each`; or, if the directory cannot be listed, the failure converted by `fail`.
pub fn for_each_entry<E>(
    dir: &Path,
    fail: impl Fn(io::Error) -> E,
    mut each: impl FnMut(&DirEntry) -> Result<(), E>,
) -> Result<(), E> {
    let mut list = || {
        for entry in std::fs::read_dir(dir).map_err(&fail)? {
            each(&entry.map_err(&fail)?)?;
        }
        Ok(())
    };
    contained(|| Ok(list())).unwrap_or_else(|e| Err(fail(e)))
}

/// Runs an operation that lists a directory. Converts the panic of the standard library when the system cannot close
/// the directory into an ordinary read error.
pub fn contained<T>(list: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    caught(list).unwrap_or_else(|panic| Err(io::Error::other(panic.into_message())))
}

/// Removes `dir` and its contents like `std::fs::remove_dir_all`. Entries that are already gone are not an error.
pub(super) fn remove_tree(dir: &Path) -> io::Result<()> {
    let is_gone = |e: &io::Error| e.kind() == io::ErrorKind::NotFound;
    let mut entries: Vec<(OsString, bool)> = Vec::new();
    let listed = for_each_entry(
        dir,
        |e| e,
        |entry| {
            entries.push((entry.file_name(), entry.file_type()?.is_dir()));
            Ok(())
        },
    );
    match listed {
        Err(e) if is_gone(&e) => return Ok(()),
        listed => listed?,
    }
    for (name, is_dir) in entries {
        let path = dir.join(name);
        // A link to a directory counts as a file here.
        let removed = if is_dir { remove_tree(&path) } else { std::fs::remove_file(&path) };
        match removed {
            Err(e) if !is_gone(&e) => return Err(e),
            _ => {}
        }
    }
    match std::fs::remove_dir(dir) {
        Err(e) if !is_gone(&e) => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn a_directory_that_cannot_be_listed_or_closed_is_an_io_error() {
        let dir = tempfile::tempdir().unwrap();
        let mut names = Vec::new();
        std::fs::write(dir.path().join("a"), "").unwrap();
        let fail = |e| Error::io("list the folder", dir.path(), e);
        for_each_entry(dir.path(), fail, |entry| {
            names.push(entry.file_name());
            Ok(())
        })
        .unwrap();
        assert_eq!(names, ["a"]);
        let missing = for_each_entry(&dir.path().join("b"), fail, |_| Ok(())).unwrap_err();
        assert_eq!(missing.kind(), crate::error::ErrorKind::Io);
        // Mimics the standard library at the end of a listing.
        let closing = || -> io::Result<()> { panic!("unexpected error during closedir: 5") };
        assert!(contained(closing).unwrap_err().to_string().contains("closedir"));
    }

    #[test]
    fn a_tree_is_removed_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, other) = (dir.path().join("tree"), dir.path().join("other"));
        std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
        std::fs::create_dir(&other).unwrap();
        for file in [tree.join("x"), tree.join("a/b/y"), other.join("z")] {
            std::fs::write(file, "").unwrap();
        }
        std::os::unix::fs::symlink(&other, tree.join("a/link")).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists() && other.join("z").exists());
        remove_tree(&tree).unwrap();
        assert!(remove_tree(&other.join("z")).is_err(), "not a directory");
    }
}
