//! Lock files, one writer per output directory, and non-blocking locks of memory.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, TryLockError};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// Help of the error of a lock that another process holds.
pub const LOCKED_HELP: &str = "wait for it to end, or use another output directory";

/// An exclusive or shared `flock`, held until dropped. The kernel releases it when the process dies for any reason.
///
/// Some network file systems have no locks, for example Lustre without the mount option `flock`. There, nothing is
/// locked: a run is correct without the lock, which only keeps two runs from doing the same work.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
}

impl DirLock {
    /// Locks the file `path` (created if missing) exclusively. Fails if another process holds a lock on it.
    pub fn acquire(path: &Path) -> Result<Self> {
        Self::lock(path, FlockOperation::NonBlockingLockExclusive)
    }

    /// Locks the file `path` (created if missing) in shared mode. Fails if a process holds it exclusively.
    pub fn share(path: &Path) -> Result<Self> {
        Self::lock(path, FlockOperation::NonBlockingLockShared)
    }

    fn lock(path: &Path, operation: FlockOperation) -> Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            // Nothing below the output directory may be a symbolic link.
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(path)
            .map_err(|e| Error::io("open the lock file", path, e))?;
        match rustix::io::retry_on_intr(|| flock(&file, operation)) {
            Ok(()) | Err(Errno::NOSYS | Errno::NOTSUP | Errno::NOLCK) => Ok(Self { _file: file }),
            Err(Errno::WOULDBLOCK) => {
                Err(Error::usage("another dsconvert is writing to this output directory")
                    .at_path(path)
                    .help(LOCKED_HELP))
            }
            Err(e) => Err(Error::io("lock", path, e.into())),
        }
    }
}

// Non-blocking locks.
//
// If a process is forked while another thread holds a lock, the child would wait for that lock forever. The locks
// taken here are held for a few dozen nanoseconds and protect only optimizations, so a caller that cannot get one
// proceeds without it.

/// Number of attempts before a lock counts as taken.
const TRIES: u32 = 1000;

/// Number of initial attempts that spin. Later attempts yield to other threads.
const SPINS: u32 = 200;

/// Locks `mutex`, or returns `None` if it stays taken.
pub fn briefly<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for attempt in 0..TRIES {
        match mutex.try_lock() {
            Ok(held) => return Some(held),
            Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
            Err(TryLockError::WouldBlock) if attempt < SPINS => std::hint::spin_loop(),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exclusive_lock_excludes_all_others_until_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = DirLock::acquire(&path).unwrap();
        assert!(DirLock::acquire(&path).is_err());
        drop(first);
        drop(DirLock::acquire(&path).unwrap());
        let shared = [DirLock::share(&path).unwrap(), DirLock::share(&path).unwrap()];
        assert!(DirLock::acquire(&path).is_err());
        drop(shared);
        let _alone = DirLock::acquire(&path).unwrap();
        assert!(DirLock::share(&path).is_err());
    }
}
