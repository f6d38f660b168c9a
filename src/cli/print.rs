//! Printing for the command. A failure to print never panics.
//!
//! Results go to standard output, and a failure is returned to the caller. Messages go to standard error; if that
//! fails, there is nowhere left to report it.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use clap::builder::styling::{AnsiColor, Style, Styles};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::flags::{shown, with_flags};
use crate::error::{Error, ErrorKind, Result};
use crate::testing::pause_point;

/// Held while the progress line is drawn, and from the last error to the end of the process.
static PROGRESS_LINE: Mutex<()> = Mutex::new(());

/// Moves to the start of a line on a terminal, and erases it.
const CLEAR_LINE: &str = "\r\x1b[2K";

/// Time that the last error waits for a redraw, which takes microseconds unless the terminal is stopped.
const REDRAW_LIMIT: Duration = Duration::from_millis(100);

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
    out(&(json.map_err(|e| Error::not_serialized("the result", e))? + "\n"))
}

/// Returns the error for results that cannot be printed.
pub(super) fn failed(e: io::Error) -> Error {
    Error::new(ErrorKind::Io, "cannot print to standard output").caused_by(e)
}

/// Returns whether printing failed because the reader closed the pipe (`dsconvert inspect … | head`).
pub(super) fn is_closed(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|e| e.downcast_ref::<io::Error>());
    // Only printing errors have no path: a broken pipe elsewhere is a failure.
    error.place().path.is_none() && cause.is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// Returns success if printing failed only because the reader closed the pipe.
pub(super) fn unless_closed(printed: Result<()>) -> Result<()> {
    match printed {
        Err(error) if is_closed(&error) => Ok(()),
        printed => printed,
    }
}

/// Prints the summary of work that is done in any case, so that a failure is only a warning. `done` says what it was.
pub(super) fn summary(text: &str, done: &str) {
    if let Err(error) = unless_closed(out(text)) {
        warning(format!("{done}, but {}", shown(&error)));
    }
}

/// Prints a note.
pub(super) fn note(message: impl Display) {
    labeled(&Style::new().bold(), "note:", message);
}

/// Prints a warning: something may be unintended, or failed without ending the command.
pub(super) fn warning(message: impl Display) {
    labeled(&AnsiColor::Yellow.on_default().bold(), "warning:", message);
}

/// Prints an error and its remedy.
pub(super) fn error(error: &Error) {
    put(&error_text(error));
}

/// Prints a line about the progress of a run.
pub(super) fn progress(line: impl Display) {
    put(&format!("{line}\n"));
}

fn labeled(style: &Style, label: &str, message: impl Display) {
    put(&format!("{style}{label}{style:#} {message}\n"));
}

/// Prints styled text to standard error. As in clap's messages, styles are dropped for `NO_COLOR`, files and pipes.
fn put(text: &str) {
    let _ = AutoStream::auto(io::stderr()).write_all(text.as_bytes());
}

/// Returns whether results on standard output may have styles: not for `NO_COLOR`, files and pipes.
pub(super) fn has_styles() -> bool {
    AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// Formats an error in the form and the styles of clap's own errors.
fn error_text(error: &Error) -> String {
    let styles = Styles::styled();
    let (bad, good) = (styles.get_error(), styles.get_valid());
    let help = error.remedy().map(|help| format!("  {good}tip:{good:#} {}\n", with_flags(help)));
    let (error, help) = (shown(error), help.unwrap_or_default());
    format!("{bad}error:{bad:#} {error}\n{help}")
}

/// Calls `draw`, which draws or erases the progress line. Waits forever once the last error has been printed.
pub(super) fn draw_line(draw: impl FnOnce()) {
    let _held = PROGRESS_LINE.lock().unwrap_or_else(PoisonError::into_inner);
    draw();
}

/// Prints a warning from another thread, in place of the progress line, which is drawn again below it.
pub(super) fn warning_between_redraws(message: &str) {
    draw_line(|| {
        if io::stderr().is_terminal() {
            // Not a style, so it is written for `NO_COLOR`, too.
            let _ = io::stderr().write_all(CLEAR_LINE.as_bytes());
        }
        warning(message);
    });
}

/// Prints an error just before a background thread ends the process. On a terminal, the error replaces the progress
/// line, which is not drawn again. Never waits for the lock of standard error or for a full pipe.
pub(super) fn last_error(error: &Error) {
    // Never unlocked.
    std::mem::forget(lock_line());
    let stderr = io::stderr();
    let clear_line = if stderr.is_terminal() { CLEAR_LINE } else { "" };
    let mut text = error_text(error);
    if AutoStream::choice(&stderr) == ColorChoice::Never {
        text = strip_str(&text).to_string();
    }
    let mut ready = [PollFd::new(&stderr, PollFlags::OUT)];
    if poll(&mut ready, Some(&Timespec::default())).is_ok_and(|count| count > 0) {
        let _ = rustix::io::write(&stderr, format!("{clear_line}{text}").as_bytes());
    }
    pause_point("last error");
}

/// Locks the progress line, unless it is being drawn for longer than [`REDRAW_LIMIT`].
fn lock_line() -> Option<MutexGuard<'static, ()>> {
    let end = Instant::now() + REDRAW_LIMIT;
    loop {
        match PROGRESS_LINE.try_lock() {
            Ok(held) => return Some(held),
            Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() >= end => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_printing_errors_count_as_a_closed_pipe() {
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_closed(&failed(closed())));
        assert!(!is_closed(&failed(io::ErrorKind::StorageFull.into())));
        assert!(!is_closed(&Error::io("write", std::path::Path::new("a"), closed())));
    }
}
