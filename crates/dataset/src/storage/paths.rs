//! Paths inside a dataset, and durable operations on them.

use std::ffi::OsString;
use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::dirs::{contained, for_each_entry, remove_tree};
use crate::error::{Error, ErrorKind, Result};

/// Resolves `relative` (from a manifest, plan or part) to a file or directory under `root`.
///
/// Rejects absolute paths, `..`, empty paths, backslashes, and symbolic links in any component below `root`. A foreign
/// dataset must not make dsconvert read, merge or overwrite files outside of it.
pub fn resolve(root: &Path, relative: &str) -> Result<PathBuf> {
    let refuse = |why: &str| {
        Error::corrupt(format!("the path {relative:?} {why}"))
            .at_path(root)
            .help("the dataset was altered; convert it again")
    };
    let refuse_link = || {
        refuse("passes through a symbolic link").help(
            "copy the files themselves, without links (from the Hugging Face Hub: download with `local_dir`)",
        )
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
        if lstat(&path)?.is_some_and(|meta| meta.file_type().is_symlink()) {
            return Err(refuse_link());
        }
    }
    Ok(path)
}

/// Returns the metadata of `path`, following symbolic links, or `None` if it does not exist. Unlike in `Path::exists`
/// and similar functions, a failed check is an error: a file that cannot be examined at the moment is not a missing
/// file.
pub fn stat(path: &Path) -> Result<Option<Metadata>> {
    found(path, std::fs::metadata(path))
}

/// Returns the metadata of `path` itself, without following symbolic links, or `None` if it does not exist.
pub fn lstat(path: &Path) -> Result<Option<Metadata>> {
    found(path, std::fs::symlink_metadata(path))
}

/// Returns the folder that contains a file: `.` for a plain name.
pub fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns `path` as an absolute path without symbolic links and `..`. Components that do not exist are kept as they are,
/// because they are created as directories: `..` after one of them cancels it. So are links that form a loop.
pub fn real_path(path: &Path) -> Result<PathBuf> {
    let fail = |e| Error::io("resolve the path", path, e);
    if let Ok(real) = path.canonicalize() {
        return Ok(real);
    }
    let mut real = PathBuf::new();
    for component in std::path::absolute(path).map_err(fail)?.components() {
        match component {
            Component::ParentDir => drop(real.pop()),
            component => real.push(component),
        }
        match real.canonicalize() {
            Ok(found) => real = found,
            Err(e) if names_nothing(&e) || Errno::from_io_error(&e) == Some(Errno::LOOP) => {}
            Err(e) => return Err(fail(e)),
        }
    }
    Ok(real)
}

/// Opens a file to read. A FIFO is opened without waiting for a writer; callers check what they opened. Without
/// `follow_links`, the last component must not be a symbolic link.
pub fn open_file(path: &Path, follow_links: bool) -> io::Result<File> {
    let mut flags = OFlags::NONBLOCK;
    flags.set(OFlags::NOFOLLOW, !follow_links);
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

fn found(path: &Path, metadata: io::Result<Metadata>) -> Result<Option<Metadata>> {
    match metadata {
        Ok(metadata) => Ok(Some(metadata)),
        Err(e) if names_nothing(&e) => Ok(None),
        Err(e) => Err(Error::io("examine the file", path, e)),
    }
}

/// Returns whether the failure means that no file can have this name.
fn names_nothing(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename)
}

/// A directory entry.
#[derive(Debug, Clone)]
pub struct DirItem {
    /// Path of the entry, including the directory.
    pub path: PathBuf,
    /// Name within the directory.
    pub name: OsString,
    /// Type of the entry; links are not followed.
    pub kind: FileType,
}

/// Number of attempts to list a directory that keeps changing before it is an error.
const LISTING_ATTEMPTS: u32 = 4;

/// Returns the entries of the directory `dir` sorted by name, or no entries if it does not exist. Other processes may
/// concurrently create the directory, and create and remove entries.
pub fn list_dir(dir: &Path) -> Result<Vec<DirItem>> {
    for _ in 1..LISTING_ATTEMPTS {
        match entries(dir) {
            // The directory does not exist, or it was created in the meantime, or an entry was removed.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                if lstat(dir)?.is_none() {
                    return Ok(Vec::new());
                }
            }
            listed => return listed.map_err(|e| Error::io("list", dir, e)),
        }
    }
    entries(dir).map_err(|e| Error::io("list", dir, e))
}

fn entries(dir: &Path) -> io::Result<Vec<DirItem>> {
    let mut items = Vec::new();
    for_each_entry(
        dir,
        |e| e,
        |entry| {
            items.push(DirItem { path: entry.path(), name: entry.file_name(), kind: entry.file_type()? });
            Ok(())
        },
    )?;
    items.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(items)
}

/// Returns a symbolic link below `root`, or `None` if there is none. `root` itself may be a link.
pub fn find_link(root: &Path) -> Result<Option<PathBuf>> {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in list_dir(&folder)? {
            if entry.kind.is_symlink() {
                return Ok(Some(entry.path));
            }
            if entry.kind.is_dir() {
                folders.push(entry.path);
            }
        }
    }
    Ok(None)
}

/// Makes the names in `dir` durable.
pub fn sync_dir(dir: &Path) -> Result<()> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir).and_then(|d| d.sync_all()).map_err(|e| Error::io("sync the directory", dir, e))
}

/// Creates `dir` and its parents, and makes the new names durable. Also syncs the name of the closest existing
/// directory: a process may have created it and died before syncing it.
pub fn create_dir(dir: &Path) -> Result<()> {
    let mut missing = Vec::new();
    for dir in dir.ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
        match stat(dir)? {
            Some(meta) if meta.is_dir() => {
                sync_parent(dir)?;
                break;
            }
            Some(_) => return Err(Error::new(ErrorKind::Io, "this is not a directory").at_path(dir)),
            None => missing.push(dir),
        }
    }
    for dir in missing.into_iter().rev() {
        match std::fs::create_dir(dir) {
            // Another process may have just created it.
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("create the directory", dir, e));
            }
            _ => sync_dir(dir.parent().unwrap_or(Path::new("")))?,
        }
    }
    Ok(())
}

/// Makes the name of the existing directory `dir` durable. Its parent may belong to someone else: it is skipped if it
/// may not be opened or if its file system does not support syncing directories.
fn sync_parent(dir: &Path) -> Result<()> {
    let Some(parent) = dir.parent() else { return Ok(()) };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    match File::open(parent).and_then(|d| d.sync_all()) {
        Err(e) if matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) => Ok(()),
        synced => synced.map_err(|e| Error::io("sync the directory", parent, e)),
    }
}

/// Renames a file durably. Both paths must be on one file system, inside one output directory.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).map_err(|e| Error::io("rename", from, e))?;
    let (old, new) = (folder_of(from), folder_of(to));
    sync_dir(new)?;
    // After a power failure, the file must not reappear under its old name.
    if old == new { Ok(()) } else { sync_dir(old) }
}

/// Removes a file. A file that is already gone is not an error.
pub fn remove_file(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path, e)),
        _ => Ok(()),
    }
}

/// Removes a directory created by dsconvert and all its contents. A directory that is already gone is not an error.
pub fn remove_dir_all(dir: &Path) -> Result<()> {
    remove_tree(dir).map_err(|e| Error::io("remove", dir, e))
}

/// Removes a directory if it is empty. Returns whether it is gone.
pub fn remove_empty_dir(dir: &Path) -> Result<bool> {
    match std::fs::remove_dir(dir) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
        Err(e) => Err(Error::io("remove", dir, e)),
    }
}

/// Returns whether `dir` is missing or empty.
pub fn is_empty_dir(dir: &Path) -> Result<bool> {
    match contained(|| std::fs::read_dir(dir)?.next().transpose()) {
        Ok(first) => Ok(first.is_none()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(e) => Err(Error::io("list", dir, e)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::fs::{CWD, Mode, mknodat};

    use super::*;

    #[test]
    fn a_fifo_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jpg");
        mknodat(CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(open_file(&path, true).unwrap().read(&mut [0; 8]).unwrap(), 0);
    }

    #[test]
    fn a_directory_created_concurrently_can_be_listed() {
        let root = tempfile::tempdir().unwrap();
        let ready = std::sync::Barrier::new(2);
        let path = |i: u32| root.path().join(i.to_string());
        let mut failed = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..3000 {
                    ready.wait();
                    std::fs::create_dir(path(i)).unwrap();
                }
            });
            for i in 0..3000 {
                ready.wait();
                failed.extend(list_dir(&path(i)).err());
            }
        });
        assert!(failed.is_empty(), "{failed:?}");
    }

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

    #[test]
    fn a_failed_check_does_not_count_as_absent() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(stat(&file).unwrap().is_some());
        for absent in [dir.path().join("no"), file.join("below"), dir.path().join("x".repeat(300))] {
            assert!(stat(&absent).unwrap().is_none() && lstat(&absent).unwrap().is_none());
        }
        let circle = dir.path().join("circle");
        std::os::unix::fs::symlink(&circle, &circle).unwrap();
        assert!(stat(&circle).is_err() && lstat(&circle).unwrap().is_some());
    }

    #[test]
    fn a_path_is_resolved_even_where_it_does_not_exist_yet() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        create_dir(&root.join("folder/deep")).unwrap();
        std::os::unix::fs::symlink("folder/deep", root.join("link")).unwrap();
        for (path, real) in [
            ("folder/new/x", "folder/new/x"),
            ("link/new", "folder/deep/new"),
            ("link/../new", "folder/new"),
            ("new/../link/x", "folder/deep/x"),
            ("new/deeper/../../folder/./x", "folder/x"),
            ("new/..", ""),
        ] {
            assert_eq!(real_path(&root.join(path)).unwrap(), root.join(real), "{path}");
        }
        assert_eq!(real_path(Path::new("/../..")).unwrap(), Path::new("/"));
        std::os::unix::fs::symlink("circle", root.join("circle")).unwrap();
        assert_eq!(real_path(&root.join("circle/new")).unwrap(), root.join("circle/new"));
        assert_eq!(
            real_path(Path::new("none/..")).unwrap(),
            std::env::current_dir().unwrap().canonicalize().unwrap()
        );
    }

    #[test]
    fn a_link_is_found_at_any_depth() {
        let dir = tempfile::tempdir().unwrap();
        create_dir(&dir.path().join("a/b/c")).unwrap();
        std::fs::write(dir.path().join("a/file"), "x").unwrap();
        assert_eq!(find_link(dir.path()).unwrap(), None);
        let link = dir.path().join("a/b/link");
        std::os::unix::fs::symlink("/nonexistent", &link).unwrap();
        assert_eq!(find_link(dir.path()).unwrap(), Some(link));
    }

    #[test]
    fn remove_empty_dir_keeps_other_directories() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a");
        create_dir(&folder.join("b")).unwrap();
        assert!(!is_empty_dir(&folder).unwrap() && !remove_empty_dir(&folder).unwrap());
        assert!(remove_empty_dir(&folder.join("b")).unwrap() && remove_empty_dir(&folder).unwrap());
        assert!(remove_empty_dir(&folder).unwrap() && is_empty_dir(&folder).unwrap());
        assert!(create_dir(Path::new("/proc/self/status/x")).is_err());
    }
}
