//! Signals and bugs that stop a run early, and how it is continued: the end of the help of its errors.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::error::{BUG_HELP, Error, ErrorKind, Result};
use crate::printable::shell_word;
use crate::storage::{LOCKED_HELP, ObjectUrl};

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
    pub fn start_writing(&self, continuation: Continuation) {
        *self.lock() = Some(continuation);
    }

    /// Returns whether the run may have written anything.
    pub fn is_writing(&self) -> bool {
        self.lock().is_some()
    }

    /// Returns how to continue the run.
    pub fn continuation(&self) -> Continuation {
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

/// How the finished units of a run that ended early become a dataset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Continuation {
    /// The same command with the option `resume` continues.
    #[default]
    Resume,
    /// The same part of a plan continues.
    SamePart,
    /// The same merge continues.
    SameMerge,
    /// Only a merge of this output can use them: the sources came from standard input, which cannot be read again.
    MergeOnly(PathBuf),
}

impl Continuation {
    /// Says what to do to continue.
    pub fn advice(&self) -> String {
        match self {
            Self::Resume => "run the same command with `resume`".to_owned(),
            Self::SamePart => "run the same part again".to_owned(),
            Self::SameMerge => "merge again".to_owned(),
            Self::MergeOnly(out) => {
                let (merge, restart) = (merge_command(out), restart(out));
                format!("commit them with `{merge}` if all are finished; otherwise, {restart}")
            }
        }
    }

    /// Says what to do to continue after a signal.
    pub(crate) fn after_signal(&self) -> String {
        match self {
            // The signal came before the end of standard input, except in the last moments of a run.
            Self::MergeOnly(out) => format!("standard input cannot be read again: {}", restart(out)),
            _ => format!("{} to continue", self.advice()),
        }
    }

    /// Changes the help of an error whose cause is another process that holds the lock: the output of a part or a merge
    /// cannot be another one.
    pub fn after_lock(&self, error: Error) -> Error {
        match error.remedy() == Some(LOCKED_HELP) {
            true => error.help(format!("wait for it to end, then {}", self.advice())),
            false => error,
        }
    }

    /// Says what to do to commit a dataset in spite of its rejects.
    pub(crate) fn accepting_rejects(&self) -> String {
        match self {
            Self::MergeOnly(out) => {
                let merge = merge_command(out);
                format!(
                    "commit the finished units with `{merge} --max-rejects N`, with a larger number or share"
                )
            }
            _ => format!("set a larger `max_rejects`, then {}", self.advice()),
        }
    }

    /// Adds how to continue to the help of an error that ended a run. Its finished units are kept.
    pub fn add_to(&self, error: Error) -> Error {
        let advice = self.advice();
        let help = match (error.kind(), error.remedy()) {
            (ErrorKind::Internal, _) => format!("{BUG_HELP}; the finished units are kept: {advice}"),
            (ErrorKind::Io, Some(help)) => format!("{help}; then {advice}"),
            (ErrorKind::Io, None) => format!("the finished units are kept: {advice}"),
            // A run reads only files of its own units here.
            (ErrorKind::Corrupt, None) => format!("the damaged unit counts as unfinished: {advice}"),
            _ => return error,
        };
        error.help(help)
    }
}

fn merge_command(out: &Path) -> String {
    format!("dsconvert merge {}", shell_word(out))
}

/// Says how to start again, as nothing in object storage is ever replaced.
pub fn restart(out: &Path) -> &'static str {
    match ObjectUrl::is_url(out) {
        true => "start again with another prefix for `out`",
        false => "start again with `overwrite`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(error: Error) -> Option<String> {
        error.remedy().map(str::to_owned)
    }

    #[test]
    fn errors_of_a_run_say_how_to_continue() {
        let full = || Error::new(ErrorKind::Io, "no space");
        let other = || full().help("choose another `scratch`");
        for (continuation, advice) in [
            (Continuation::Resume, "run the same command with `resume`"),
            (Continuation::SamePart, "run the same part again"),
            (Continuation::SameMerge, "merge again"),
        ] {
            let with = |error| help(continuation.add_to(error)).unwrap();
            assert_eq!(with(full()), format!("the finished units are kept: {advice}"));
            assert_eq!(with(other()), format!("choose another `scratch`; then {advice}"));
            let damaged = Error::corrupt("x");
            assert_eq!(with(damaged), format!("the damaged unit counts as unfinished: {advice}"));
            let bug = with(Error::internal("x"));
            assert!(bug.contains("please report it") && bug.ends_with(&format!("kept: {advice}")), "{bug}");
            assert_eq!(continuation.after_signal(), format!("{advice} to continue"));
            assert_eq!(
                continuation.accepting_rejects(),
                format!("set a larger `max_rejects`, then {advice}")
            );
        }
        assert_eq!(help(Continuation::Resume.add_to(Error::usage("x"))), None);
        assert_eq!(help(Continuation::Resume.add_to(Error::corrupt("x").help("y"))).unwrap(), "y");
    }

    #[test]
    fn a_run_on_standard_input_is_merged_or_started_again() {
        let only = |out: &str| Continuation::MergeOnly(out.into());
        assert_eq!(
            help(only("my out").add_to(Error::new(ErrorKind::Io, "no space"))).unwrap(),
            "the finished units are kept: commit them with `dsconvert merge 'my out'` if all are finished; otherwise, \
             start again with `overwrite`"
        );
        assert_eq!(
            only("o").accepting_rejects(),
            "commit the finished units with `dsconvert merge o --max-rejects N`, with a larger number or share"
        );
        let restarted = only("o").after_signal();
        assert_eq!(restarted, "standard input cannot be read again: start again with `overwrite`");
        assert!(only("s3://b/o").after_signal().ends_with("another prefix for `out`"));
    }
}
