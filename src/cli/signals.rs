//! Signal handling: SIGINT and SIGTERM end a run within two seconds, and it can be resumed. A second signal ends it
//! immediately.
//!
//! A run checks for a stop request between tasks. Anything that blocks for longer (a source on a dead network drive, a
//! sort, a listing) is abandoned. The manifest is renamed last, so the process may end at any moment.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use super::print;
use crate::error::{Error, ErrorKind, Result};
use crate::pipeline::Stop;
use crate::threads;

/// Time that a run has to end on its own, so that its tasks and files are closed in order.
const GRACE: Duration = Duration::from_millis(1500);

/// Watches for signals during the rest of the process, and returns the request that a run checks.
pub(super) fn watch() -> Result<Arc<Stop>> {
    let request: Arc<Stop> = Arc::default();
    let seen = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(cannot_watch)?;
    let stop = Arc::clone(&request);
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            stop.request(signal);
            if stop.is_writing() {
                std::thread::sleep(GRACE);
            }
            print::last_error(&stop.interrupted(signal));
            signal_hook::low_level::exit(128 + signal);
        }
    };
    threads::named("signals").spawn(wait).map_err(threads::refused)?;
    for signal in [SIGINT, SIGTERM] {
        // The handlers run in this order: the first signal finds the flag unset and sets it, the next ends the process.
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&seen))
            .map_err(cannot_watch)?;
        signal_hook::flag::register(signal, Arc::clone(&seen)).map_err(cannot_watch)?;
    }
    Ok(request)
}

/// Makes writing beyond the limit of `ulimit -f` an error instead of the end of the process.
pub(super) fn survive_file_size_limit() -> Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop).map_err(cannot_watch)
}

fn cannot_watch(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, "cannot watch for signals").caused_by(error)
}
