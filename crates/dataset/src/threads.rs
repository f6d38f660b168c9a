//! Starting threads when the system may refuse them.
//!
//! `std::thread::spawn` and `Scope::spawn` panic when the system cannot create a thread (`EAGAIN`), so this crate
//! avoids them. Work shared by several threads proceeds with fewer.

use std::io;
use std::thread::Builder;

use crate::error::{Error, ErrorKind, Result};

/// Returns a builder for a thread called `name`.
pub fn named(name: &str) -> Builder {
    Builder::new().name(name.to_owned())
}

/// Returns the error for a required thread that could not be started.
pub fn refused(error: io::Error) -> Error {
    Error::new(ErrorKind::Io, "cannot start a thread")
        .caused_by(error)
        .help("allow this user or container more processes and threads (ulimit -u), or use fewer threads")
}

/// Calls `work` on a separate thread called `name`. The allocator retains freed memory per thread. This way, it does so
/// only for as many threads as do such work at once, not for every worker that ever did it. If no thread can be
/// started, calls it on this one.
pub fn on_own_thread<R: Send>(name: &str, mut work: impl FnMut() -> R + Send) -> R {
    let result = std::thread::scope(|scope| {
        let thread = named(name).spawn_scoped(scope, &mut work).ok()?;
        Some(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    result.unwrap_or_else(work)
}

/// Starts up to `count` threads with `start`, which receives each ordinal. Stops at the first one that the system
/// refuses.
///
/// # Errors
///
/// Fails if the system refuses even the first thread.
pub fn start_up_to<H>(count: usize, mut start: impl FnMut(usize) -> io::Result<H>) -> Result<Vec<H>> {
    let mut started = Vec::with_capacity(count);
    for ordinal in 0..count {
        match start(ordinal) {
            Ok(thread) => started.push(thread),
            Err(error) if started.is_empty() => return Err(refused(error)),
            Err(_) => break,
        }
    }
    Ok(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_threads_suffice_and_none_is_an_error() {
        let limited = |limit: usize| {
            start_up_to(4, |n| if n < limit { Ok(n) } else { Err(io::ErrorKind::WouldBlock.into()) })
        };
        assert_eq!(limited(9).unwrap(), [0, 1, 2, 3]);
        assert_eq!(limited(2).unwrap(), [0, 1]);
        let error = limited(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.remedy().is_some());
        assert!(start_up_to::<()>(0, |_| Ok(())).unwrap().is_empty());
    }
}
