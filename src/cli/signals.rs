//! Signal handling: SIGINT and SIGTERM end a run within two seconds, so that it can be resumed; a second signal, at
//! once.
//!
//! A run checks for the request between tasks. Anything that blocks for longer (a source on a dead network drive, a
//! sort, a listing) is abandoned. The manifest is renamed last, so the process may end at any moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::print;
use crate::error::{Error, ErrorKind, Result};
use crate::pipeline::Stop;
use crate::threads;

/// Time for a run to end on its own, so that its tasks and files are closed in order.
const GRACE: Duration = Duration::from_millis(1500);

/// Stop request of this process.
pub(super) struct SignalWatch {
    stop: Arc<Stop>,
    /// Whether the run writes, so that there is something to resume.
    writes: Arc<AtomicBool>,
}

/// Starts to watch for signals, for the rest of the process.
pub(super) fn watch() -> Result<SignalWatch> {
    let fail = |e: std::io::Error| Error::new(ErrorKind::Io, "cannot watch for signals").caused_by(e);
    let watch = SignalWatch { stop: Arc::default(), writes: Arc::default() };
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
        // Registered before the flag is set: the first signal sets the flag, and the next one ends the process.
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&seen))
            .map_err(fail)?;
        signal_hook::flag::register(signal, Arc::clone(&seen)).map_err(fail)?;
    }
    Ok(watch)
}

impl SignalWatch {
    /// Returns the request that the run checks.
    pub(super) fn stop(&self) -> &Stop {
        &self.stop
    }

    /// From here on, a signal gives the run time to end on its own, and the message says how to resume.
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
