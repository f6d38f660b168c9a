//! SIGINT and SIGTERM end a run so that it can be resumed, within two seconds; a second one ends it at once.
//!
//! A run looks at the request between tasks. Whatever may block longer than that (a source on a dead network drive, a
//! sort, a listing) is left behind: the manifest is renamed last, so that the process may end at any moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::print;
use crate::error::{Error, ErrorKind, Result};
use crate::pipeline::Stop;
use crate::threads;

/// What a run has for ending by itself, so that its tasks and files are closed in order.
const GRACE: Duration = Duration::from_millis(1500);

/// The requests of this process to stop.
pub(super) struct Watch {
    stop: Arc<Stop>,
    /// Whether anything is written, so that there is something to resume.
    writes: Arc<AtomicBool>,
}

/// Starts to watch, for the rest of the process.
pub(super) fn watch() -> Result<Watch> {
    let fail = |e: std::io::Error| Error::new(ErrorKind::Io, "cannot watch for signals").caused_by(e);
    let watch = Watch { stop: Arc::default(), writes: Arc::default() };
    let seen = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(fail)?;
    let (stop, writes) = (Arc::clone(&watch.stop), Arc::clone(&watch.writes));
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            stop.request(signal);
            if writes.load(SeqCst) {
                std::thread::sleep(GRACE);
            }
            print::last_error(&stopped(signal, writes.load(SeqCst)));
            signal_hook::low_level::exit(128 + signal);
        }
    };
    threads::named("signals").spawn(wait).map_err(threads::refused)?;
    for signal in [SIGINT, SIGTERM] {
        // Registered first: a signal that comes after one that was seen ends the process.
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&seen))
            .map_err(fail)?;
        signal_hook::flag::register(signal, Arc::clone(&seen)).map_err(fail)?;
    }
    Ok(watch)
}

impl Watch {
    /// The request that the run looks at.
    pub(super) fn stop(&self) -> &Stop {
        &self.stop
    }

    /// From here on, a signal leaves the run some time to end by itself, and the message says how to go on.
    pub(super) fn writes(&self) {
        self.writes.store(true, SeqCst);
    }
}

fn stopped(signal: i32, writes: bool) -> Error {
    let kind = ErrorKind::Interrupted(signal);
    if writes {
        Error::new(kind, "stopped before the end").help("run the same command with --resume to go on")
    } else {
        Error::new(kind, "stopped before anything was written")
    }
}
