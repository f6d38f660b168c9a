//! Writing to the disk in the background.
//!
//! The kernel keeps what is written in memory until someone waits for it. For a shard of 256 MiB that someone is the
//! commit, which then waits for most of a second. A [`Writeback`] waits while the shard is still growing, on a thread
//! of its own, so that little is left to wait for at the end.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::panics::caught;
use crate::threads;

/// Bytes of a file after which its next part is sent to the disk.
pub(super) const EVERY_BYTES: u64 = 16 << 20;

/// Files that may wait. When the disk is that far behind, asking once more would not make it faster.
const QUEUE: usize = 4;

/// Sends growing files to the disk. Clones are handles of one thread, which ends with the last of them.
#[derive(Debug, Clone)]
pub struct Writeback {
    files: Option<SyncSender<PathBuf>>,
    /// What the thread panicked with.
    bug: Arc<OnceLock<String>>,
}

impl Writeback {
    /// Starts the thread. Where that fails, files are written at their commit.
    pub fn start() -> Self {
        let (files, waiting) = sync_channel::<PathBuf>(QUEUE);
        let bug = Arc::new(OnceLock::new());
        let noted = Arc::clone(&bug);
        let thread = threads::named("writeback").spawn(move || {
            let sync = || {
                for path in waiting {
                    // A file opened anew: failures are told once to each that has the file open, and the writer must
                    // be told of them at its commit. Nothing depends on what happens here.
                    let _ = OpenOptions::new().write(true).open(path).and_then(|file| file.sync_data());
                }
            };
            if let Err(panic) = caught(sync) {
                let _ = noted.set(panic.into_error("sending files to the disk").to_string());
            }
        });
        Self { files: thread.is_ok().then_some(files), bug }
    }

    /// Fails when the thread has panicked.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`](crate::error::ErrorKind).
    pub fn check(&self) -> Result<()> {
        self.bug.get().map_or(Ok(()), |bug| Err(Error::internal(bug)))
    }

    /// Has what was written to the file `path` so far sent to the disk, sooner or later. Never waits.
    pub(super) fn send(&self, path: &Path) {
        if let Some(files) = &self.files {
            // A queue that is full is as good: one of the next calls, or the commit, will do it.
            let _ = files.try_send(path.to_owned());
        }
    }
}
