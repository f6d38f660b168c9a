//! Signals and bugs that stop a run early.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use crate::error::{Error, ErrorKind, Result};

/// Help for an error caused by a bug.
const BUG_HELP: &str = "this is a bug in dsconvert: please report it, with this message and the command; the finished \
                        units are kept, and the same command with `resume` continues";

/// Adds help about resuming to an internal error. Other errors are returned unchanged.
pub(super) fn resumable(error: Error) -> Error {
    if error.kind() == ErrorKind::Internal { error.help(BUG_HELP) } else { error }
}

/// A request to stop a run early, because of a signal or a bug. Finished work is kept.
#[derive(Debug, Default)]
pub struct Stop {
    signal: AtomicI32,
    bug: OnceLock<String>,
}

impl Stop {
    /// Asks the run to stop because of signal number `signal`. Async-signal-safe.
    pub fn request(&self, signal: i32) {
        self.signal.store(signal, Relaxed);
    }

    /// Returns the signal number, if there was a signal.
    pub fn requested(&self) -> Option<i32> {
        Some(self.signal.load(Relaxed)).filter(|&s| s != 0)
    }

    /// Stops the run because of a bug. Only the first one is kept.
    pub fn report_bug(&self, error: &Error) {
        let _ = self.bug.set(error.to_string());
    }

    /// Returns the reported bug as an error with help about resuming.
    pub fn bug(&self) -> Option<Error> {
        self.bug.get().map(|message| Error::internal(message).help(BUG_HELP))
    }

    /// Returns whether the run has to stop.
    pub fn is_set(&self) -> bool {
        self.requested().is_some() || self.bug.get().is_some()
    }

    /// Returns an error if the run has to stop.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`] after a bug, [`ErrorKind::Interrupted`] after a signal.
    pub fn check(&self) -> Result<()> {
        match (self.bug(), self.requested()) {
            (Some(bug), _) => Err(bug),
            (None, None) => Ok(()),
            (None, Some(signal)) => Err(Error::new(ErrorKind::Interrupted(signal), "stopped before the end")
                .help("run the same command with `resume` to continue")),
        }
    }
}
