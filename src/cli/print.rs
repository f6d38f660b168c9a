//! Everything that the command prints. Output that cannot be printed is never a panic.
//!
//! Results go to standard output, and a caller learns when that fails. Messages go to standard error; when that fails
//! there is nowhere left to report it.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};

/// Prints results.
///
/// # Errors
///
/// See [`failed`].
pub(super) fn out(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(failed)
}

/// Prints a result as JSON.
///
/// # Errors
///
/// See [`failed`].
pub(super) fn json(result: &impl Serialize) -> Result<()> {
    let json = serde_json::to_string_pretty(result);
    out(&(json.map_err(|e| Error::internal("the result has no JSON").caused_by(e))? + "\n"))
}

/// The error of results that could not be printed.
pub(super) fn failed(e: io::Error) -> Error {
    Error::new(ErrorKind::Io, "cannot print to standard output").caused_by(e)
}

/// Whether printing failed because the reader of the output has ended (`dsconvert inspect … | head`).
pub(super) fn is_closed(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|e| e.downcast_ref::<io::Error>());
    // Only errors of printing have no path: a broken pipe elsewhere is a failure.
    error.place().path.is_none() && cause.is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints a message.
pub(super) fn say(message: impl Display) {
    let _ = io::stderr().write_all(format!("dsconvert: {message}\n").as_bytes());
}

/// Prints an error and what can be done about it.
pub(super) fn error(error: &Error) {
    let _ = io::stderr().write_all(described(error).as_bytes());
}

fn described(error: &Error) -> String {
    let help = error.remedy().map(|help| format!("  {help}\n")).unwrap_or_default();
    format!("dsconvert: {error}\n{help}")
}

/// Prints an error right before the process is ended from outside the thread that works: waits neither for another
/// thread that prints nor for a reader that does not read.
pub(super) fn last_error(error: &Error) {
    let stderr = io::stderr();
    let line = if stderr.is_terminal() { "\n" } else { "" };
    let mut ready = [PollFd::new(&stderr, PollFlags::OUT)];
    if poll(&mut ready, Some(&Timespec::default())).is_ok_and(|count| count > 0) {
        let _ = rustix::io::write(&stderr, format!("{line}{}", described(error)).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_printing_can_meet_a_closed_pipe() {
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_closed(&failed(closed())));
        assert!(!is_closed(&failed(io::ErrorKind::StorageFull.into())));
        assert!(!is_closed(&Error::io("write", std::path::Path::new("a"), closed())));
    }
}
