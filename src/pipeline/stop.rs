//! Why a run ends before its end.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use crate::error::{Error, ErrorKind, Result};

/// What a person can do when a bug has ended a run.
const BUG_HELP: &str = "this is a bug in dsconvert: please report it, with this message and the command; the finished \
                        units are kept, and the same command with --resume goes on";

/// Says in an internal error of a run how to go on; other errors stay as they are.
pub(super) fn resumable(error: Error) -> Error {
    if error.kind() == ErrorKind::Internal { error.help(BUG_HELP) } else { error }
}

/// Why a run has to stop before its end: a signal, or a bug. What is done stays done.
#[derive(Debug, Default)]
pub struct Stop {
    signal: AtomicI32,
    bug: OnceLock<String>,
}

impl Stop {
    /// Asks the run to stop because of signal number `signal`. Safe to call in a signal handler.
    pub fn request(&self, signal: i32) {
        self.signal.store(signal, Relaxed);
    }

    /// The signal, when there was one.
    pub fn requested(&self) -> Option<i32> {
        Some(self.signal.load(Relaxed)).filter(|&s| s != 0)
    }

    /// Stops the run because of a bug. Only the first one is kept.
    pub fn report_bug(&self, error: &Error) {
        let _ = self.bug.set(error.to_string());
    }

    /// The bug that was reported, as an error that says how to go on.
    pub fn bug(&self) -> Option<Error> {
        self.bug.get().map(|message| Error::internal(message).help(BUG_HELP))
    }

    /// Whether the run has to stop.
    pub fn is_set(&self) -> bool {
        self.requested().is_some() || self.bug.get().is_some()
    }

    /// Returns why the run has to stop.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`] after a bug, [`ErrorKind::Interrupted`] after a signal.
    pub fn check(&self) -> Result<()> {
        match (self.bug(), self.requested()) {
            (Some(bug), _) => Err(bug),
            (None, None) => Ok(()),
            (None, Some(signal)) => Err(Error::new(ErrorKind::Interrupted(signal), "stopped before the end")
                .help("run the same command with --resume to go on")),
        }
    }
}
