//! The local directory of a process that writes to object storage.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::storage::{DirLock, create_dir, list_dir, lstat, random, remove_dir_all, rename};

/// Name of the lock file in a scratch directory. The lock is held until the process ends.
const LOCK_NAME: &str = "lock";
/// Name prefix of a directory that is not locked yet.
const UNLOCKED: &str = "new-";

/// A local directory of one process. It is removed on drop or, after its process was killed, by the next process on the
/// same machine.
#[derive(Debug)]
pub(in crate::pipeline) struct ScratchDir {
    path: PathBuf,
    _lock: DirLock,
}

impl ScratchDir {
    /// Creates a directory in `parent` or, without one, in the system's directory for temporary files.
    pub(in crate::pipeline) fn create(parent: Option<&Path>) -> Result<Self> {
        Self::create_in(&Self::root(parent)).map_err(|error| match error.remedy() {
            None => error.help(HELP),
            Some(_) => error,
        })
    }

    fn create_in(root: &Path) -> Result<Self> {
        create_private(root)?;
        remove_dead(root);
        let name = format!("{}-{:016x}", host(), random());
        let unlocked = root.join(format!("{UNLOCKED}{name}"));
        create_dir(&unlocked)?;
        let lock = DirLock::acquire(&unlocked.join(LOCK_NAME))?;
        // Only directories with this name may be removed as dead, and by then the directory is locked.
        let path = root.join(name);
        rename(&unlocked, &path)?;
        Ok(Self { path, _lock: lock })
    }

    /// Returns the parent of all scratch directories of this user.
    pub(in crate::pipeline) fn root(parent: Option<&Path>) -> PathBuf {
        let user = rustix::process::getuid().as_raw();
        let temporary = std::env::temp_dir();
        parent.unwrap_or(&temporary).join(format!("dsconvert-{user}"))
    }

    pub(in crate::pipeline) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // Leftovers are removed by the next process.
        let _ = remove_dir_all(&self.path);
    }
}

/// Creates `root` for this user only. The directory for temporary files is shared by all users, so another user may
/// have created something at this path.
fn create_private(root: &Path) -> Result<()> {
    if let Some(parent) = root.parent() {
        create_dir(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(root) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        created => created.map_err(|e| Error::io("create the directory", root, e))?,
    }
    let user = rustix::process::getuid().as_raw();
    match lstat(root)? {
        Some(meta) if meta.is_dir() && meta.uid() == user => Ok(()),
        _ => Err(Error::io("use the directory", root, std::io::ErrorKind::PermissionDenied.into())),
    }
}

const HELP: &str = "choose another scratch directory with `scratch`";

/// Removes the directories of dead processes on this machine. Locks do not work across machines on every file system.
fn remove_dead(root: &Path) {
    let prefix = format!("{}-", host());
    for entry in list_dir(root).unwrap_or_default() {
        if !entry.kind.is_dir() || !entry.name.to_string_lossy().starts_with(&prefix) {
            continue;
        }
        if let Ok(_lock) = DirLock::acquire(&entry.path.join(LOCK_NAME)) {
            // The next process tries again.
            let _ = remove_dir_all(&entry.path);
        }
    }
}

/// Returns the name of this machine as part of a file name.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || ".-".contains(*c)).collect();
    if name.is_empty() || name.starts_with(UNLOCKED) { format!("host{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_dead_processes_are_removed_and_no_others() {
        let parent = tempfile::tempdir().unwrap();
        let alive = ScratchDir::create(Some(parent.path())).unwrap();
        std::fs::write(alive.path().join("x"), "x").unwrap();
        let root = ScratchDir::root(Some(parent.path()));
        let dead = root.join(format!("{}-{:016x}", host(), 1));
        let elsewhere = root.join("some-other-machine-0000000000000001");
        for dir in [&dead, &elsewhere] {
            std::fs::create_dir(dir).unwrap();
            std::fs::write(dir.join("train.rows"), "x").unwrap();
        }
        let next = ScratchDir::create(Some(parent.path())).unwrap();
        assert_ne!(next.path(), alive.path());
        assert!(!dead.exists() && elsewhere.exists() && alive.path().join("x").exists());
        let path = next.path().to_owned();
        drop(next);
        assert!(!path.exists() && alive.path().exists());
    }

    #[test]
    fn a_planted_link_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), ScratchDir::root(Some(parent.path()))).unwrap();
        let error = ScratchDir::create(Some(parent.path())).unwrap_err();
        assert!(error.remedy().is_some_and(|help| help.contains("`scratch`")), "{error}");
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}
