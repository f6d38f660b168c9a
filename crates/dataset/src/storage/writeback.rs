//! Writing to disk in the background.
//!
//! The kernel keeps most written data in memory until a process calls `fsync`. The commit of a 256 MiB shard would
//! therefore wait for most of a second. A [`Writeback`] syncs the file on its own thread while it grows, so little is
//! left for the commit.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::panics::caught;
use crate::threads;

/// Number of bytes after which the next part of a file is written to disk.
pub(super) const EVERY_BYTES: u64 = 16 << 20;

/// Queue capacity in files. If the disk is that far behind, more requests would not make it faster.
const QUEUE: usize = 4;

/// Writes growing files to disk. Clones share one thread, which ends with the last of them.
#[derive(Debug, Clone)]
pub struct Writeback {
    files: Option<SyncSender<PathBuf>>,
    /// Panic message of the thread.
    bug: Arc<OnceLock<String>>,
}

impl Writeback {
    /// Starts the thread. If that fails, files are written to disk at their commit.
    pub fn start() -> Self {
        let (files, waiting) = sync_channel::<PathBuf>(QUEUE);
        let bug = Arc::new(OnceLock::new());
        let noted = Arc::clone(&bug);
        let thread = threads::named("writeback").spawn(move || {
            let sync = || {
                for path in waiting {
                    // Opens the file separately. The kernel reports a failure once to each open file, and the writer
                    // must receive it at its commit. Nothing depends on the result here.
                    let _ = OpenOptions::new().write(true).open(path).and_then(|file| file.sync_data());
                }
            };
            if let Err(panic) = caught(sync) {
                let _ = noted.set(panic.into_error("writing files to disk").to_string());
            }
        });
        Self { files: thread.is_ok().then_some(files), bug }
    }

    /// Fails if the thread has panicked.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`](crate::error::ErrorKind).
    pub fn check(&self) -> Result<()> {
        self.bug.get().map_or(Ok(()), |bug| Err(Error::internal(bug)))
    }

    /// Requests that the data written to the file `path` so far be written to disk. Never blocks.
    pub(super) fn send(&self, path: &Path) {
        if let Some(files) = &self.files {
            // A full queue does no harm: a later call or the commit will write the data.
            let _ = files.try_send(path.to_owned());
        }
    }
}
