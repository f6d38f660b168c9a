//! Signals and bugs that stop a run early.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use crate::error::{Error, ErrorKind, Result};
use crate::printable::shell_word;

/// Says in a help text how to continue a run. Commands without the option `resume` replace it with
/// [`replace_resume`].
pub(super) const RESUME: &str = "run the same command with `resume`";
/// Says in a help text how to accept the rejects of a run, before [`RESUME`].
pub(super) const ACCEPT_REJECTS: &str = "set a larger `max_rejects`, then ";
/// Help for an error caused by a bug.
const BUG_HELP: &str = "this is a bug in dsconvert: please report it, with this message and the command; the finished \
                        units are kept: run the same command with `resume`";

/// Adds help about resuming to an error of a run that keeps its finished units.
pub(super) fn resumable(error: Error) -> Error {
    match (error.kind(), error.remedy()) {
        (ErrorKind::Internal, _) => error.help(BUG_HELP),
        (ErrorKind::Io, None) => error.help(format!("the finished units are kept: {RESUME}")),
        (ErrorKind::Io, Some(help)) if !help.contains("`resume`") => {
            let help = format!("{help}; then {RESUME}");
            error.help(help)
        }
        _ => error,
    }
}

/// Replaces [`RESUME`] in the help of an error.
pub(super) fn replace_resume(error: Error, how: &str) -> Error {
    match error.remedy().map(|help| help.replace(RESUME, how)) {
        Some(help) => error.help(help),
        None => error,
    }
}

/// Replaces [`RESUME`] in the help of an error of a run that cannot be resumed, because it reads standard input. Its
/// finished units can still be merged.
pub(super) fn merge_instead(error: Error, out: &Path) -> Error {
    let Some(help) = error.remedy() else { return error };
    let merge = format!("dsconvert merge {}", shell_word(out));
    let accept =
        format!("commit the finished units with `{merge} --max-rejects N`, with a larger number or share");
    let help = help.replace(&format!("{ACCEPT_REJECTS}{RESUME}"), &accept);
    let help = help.replace(&format!("{RESUME} to continue"), RESUME);
    let how = format!("commit them with `{merge}` if all are finished; otherwise, start again");
    error.help(help.replace(RESUME, &how))
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
                .help(format!("{RESUME} to continue"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_writing_say_how_to_continue() {
        let help = |error: Error| error.remedy().map(str::to_owned);
        let io = |help: Option<&str>| {
            let error = Error::new(ErrorKind::Io, "no space");
            resumable(match help {
                Some(help) => error.help(help),
                None => error,
            })
        };
        assert_eq!(
            help(io(None)).unwrap(),
            "the finished units are kept: run the same command with `resume`"
        );
        let other = Some("choose another `scratch`");
        assert_eq!(
            help(io(other)).unwrap(),
            "choose another `scratch`; then run the same command with `resume`"
        );
        assert_eq!(
            help(replace_resume(io(other), "merge again")).unwrap(),
            "choose another `scratch`; then merge again"
        );
        let merged =
            |text: String| help(merge_instead(Error::usage("x").help(text), Path::new("o"))).unwrap();
        let how = "commit them with `dsconvert merge o` if all are finished; otherwise, start again";
        assert_eq!(merged(format!("the units are kept: {RESUME}")), format!("the units are kept: {how}"));
        assert_eq!(merged(format!("{RESUME} to continue")), how);
        assert_eq!(
            merged(format!("to accept them, {ACCEPT_REJECTS}{RESUME}")),
            "to accept them, commit the finished units with `dsconvert merge o --max-rejects N`, with a larger number \
             or share"
        );
        let spaced = merge_instead(Error::usage("x").help(RESUME), Path::new("my out"));
        assert!(help(spaced).unwrap().contains("`dsconvert merge 'my out'`"));
        assert_eq!(help(io(Some("start with `resume`"))).unwrap(), "start with `resume`");
        assert_eq!(help(resumable(Error::new(ErrorKind::Corrupt, "x"))), None);
    }
}
