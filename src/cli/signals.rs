//! SIGINT and SIGTERM end a run so that it can be resumed; a second one ends it at once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::{Error, ErrorKind, Result};
use crate::pipeline::Stop;

/// Starts to watch, for the rest of the process.
pub(super) fn watch() -> Result<Arc<Stop>> {
    let fail = |e: std::io::Error| Error::new(ErrorKind::Io, "cannot watch for signals").caused_by(e);
    let stop = Arc::new(Stop::default());
    let seen = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Registered first: a signal that comes after one that was seen ends the process.
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&seen))
            .map_err(fail)?;
        signal_hook::flag::register(signal, Arc::clone(&seen)).map_err(fail)?;
    }
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(fail)?;
    let seen = Arc::clone(&stop);
    std::thread::spawn(move || {
        for signal in signals.forever() {
            seen.request(signal);
        }
    });
    Ok(stop)
}
