//! One writer per output directory.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::error::{Error, Result};

/// An exclusive `flock`, held until dropped. The kernel releases it when the process dies, however it dies.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
}

impl DirLock {
    /// Locks through the file `path` (created if missing); an error when another process holds it.
    pub fn acquire(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            // The file is below the output directory, where nothing may be a symbolic link.
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(path)
            .map_err(|e| Error::io("open the lock file", path, e))?;
        let exclusive = || flock(&file, FlockOperation::NonBlockingLockExclusive);
        rustix::io::retry_on_intr(exclusive).map_err(|e| {
            if e == rustix::io::Errno::WOULDBLOCK {
                Error::usage("another dsconvert is writing to this output directory")
                    .at_path(path)
                    .help("wait for it to end, or choose another --out")
            } else {
                Error::io("lock", path, e.into())
            }
        })?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_writer_is_refused_until_the_first_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = DirLock::acquire(&path).unwrap();
        assert!(DirLock::acquire(&path).is_err());
        drop(first);
        DirLock::acquire(&path).unwrap();
    }
}
