//! Signals and bugs that stop a run early.

use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::continuation::Continuation;
use crate::error::{Error, ErrorKind, Result};

/// A request to stop a run early, because of a signal or a bug. Finished work is kept.
#[derive(Debug, Default)]
pub struct Stop {
    signal: AtomicI32,
    bug: OnceLock<String>,
    /// How to continue the run, once it writes.
    continuation: Mutex<Option<Continuation>>,
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
        self.bug.get().map(|message| self.continuation().add_to(Error::internal(message)))
    }

    /// Returns whether the run has to stop.
    pub fn is_set(&self) -> bool {
        self.requested().is_some() || self.bug.get().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Continuation>> {
        self.continuation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the run as writing: from now on, `continuation` tells how to continue it.
    pub(super) fn start_writing(&self, continuation: Continuation) {
        *self.lock() = Some(continuation);
    }

    /// Returns whether the run may have written anything.
    pub fn is_writing(&self) -> bool {
        self.lock().is_some()
    }

    /// Returns how to continue the run.
    pub(super) fn continuation(&self) -> Continuation {
        self.lock().clone().unwrap_or_default()
    }

    /// Returns the error of a run that signal number `signal` stopped.
    pub fn interrupted(&self, signal: i32) -> Error {
        let kind = ErrorKind::Interrupted(signal);
        match self.is_writing() {
            true => Error::new(kind, "stopped before the end").help(self.continuation().after_signal()),
            false => Error::new(kind, "stopped before anything was written"),
        }
    }

    /// Returns an error if the run has to stop.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`] after a bug, [`ErrorKind::Interrupted`] after a signal.
    pub fn check(&self) -> Result<()> {
        match (self.bug(), self.requested()) {
            (Some(bug), _) => Err(bug),
            (None, Some(signal)) => Err(self.interrupted(signal)),
            (None, None) => Ok(()),
        }
    }
}
