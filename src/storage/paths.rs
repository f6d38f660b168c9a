//! Paths inside a dataset, and the durable operations on them.

use std::fs::File;
use std::path::{Component, Path, PathBuf};

use super::dirs::{contained, remove_tree};
use crate::error::{Error, Result};

/// The file or directory that `relative` (from a manifest, plan or part) names under `root`.
///
/// Refuses absolute paths, `..`, empty paths and backslashes, and any component under `root` that is a symbolic link:
/// a dataset from elsewhere must not make the reader, merge or overwrite touch a file outside of it.
pub fn resolve(root: &Path, relative: &str) -> Result<PathBuf> {
    let refuse = |why: &str| {
        Error::corrupt(format!("the path {relative:?} {why}"))
            .at_path(root)
            .help("the dataset was altered; convert it again")
    };
    if relative.is_empty() || relative.contains(['\\', '\0']) {
        return Err(refuse("is not a relative path"));
    }
    let mut path = root.to_owned();
    for component in Path::new(relative).components() {
        match component {
            Component::Normal(name) => path.push(name),
            _ => return Err(refuse("is not a plain relative path")),
        }
        match std::fs::symlink_metadata(&path) {
            Ok(meta) if meta.file_type().is_symlink() => {
                return Err(refuse("passes through a symbolic link"));
            }
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io("look at the file", &path, e)),
        }
    }
    Ok(path)
}

/// Makes the names in `dir` durable.
pub fn sync_dir(dir: &Path) -> Result<()> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir).and_then(|d| d.sync_all()).map_err(|e| Error::io("sync the directory", dir, e))
}

/// Creates `dir` (and its parents) and makes its name durable.
pub fn create_dir(dir: &Path) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(dir).map_err(|e| Error::io("create the directory", dir, e))?;
    match dir.parent() {
        Some(parent) => sync_dir(parent),
        None => Ok(()),
    }
}

/// Renames durably. Both paths are on one file system, inside one output directory.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).map_err(|e| Error::io("rename", from, e))?;
    match to.parent() {
        Some(parent) => sync_dir(parent),
        None => Ok(()),
    }
}

/// Removes one file; one that is already gone is no error.
pub fn remove_file(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path, e)),
        _ => Ok(()),
    }
}

/// Removes a directory of our own making with all it holds; one that is already gone is no error.
pub fn remove_dir_all(dir: &Path) -> Result<()> {
    remove_tree(dir).map_err(|e| Error::io("remove", dir, e))
}

/// Whether `dir` is missing or holds nothing.
pub fn is_empty_dir(dir: &Path) -> Result<bool> {
    match contained(|| Ok(std::fs::read_dir(dir)?.next().is_none())) {
        Ok(is_empty) => Ok(is_empty),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(e) => Err(Error::io("list", dir, e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_relative_paths_resolve() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        assert_eq!(resolve(root, "train/a.parquet").unwrap(), root.join("train/a.parquet"));
        for bad in ["", "/etc/passwd", "../x", "train/../../x", "a\\b", "a\0b"] {
            assert!(resolve(root, bad).is_err(), "{bad:?}");
        }
        std::os::unix::fs::symlink("/", root.join("link")).unwrap();
        assert!(resolve(root, "link/etc/passwd").is_err());
        assert!(resolve(root, "link").is_err());
    }
}
