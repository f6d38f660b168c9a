//! Threads that share work before the first unit.

use super::progress::Stop;
use super::testing::panic_point;
use crate::error::Result;
use crate::{panics, threads};

/// Runs `work` on up to `count` threads until all have returned; `doing` completes the name of a bug. Work looks at
/// `stop` between its steps: after a panic in one thread, the others end there.
///
/// # Errors
///
/// The first error of a thread, a panic among them; no thread could be started.
pub(super) fn on_threads(
    count: usize,
    doing: &str,
    stop: &Stop,
    work: &(dyn Fn() -> Result<()> + Sync),
) -> Result<()> {
    let work = || {
        let work = || {
            panic_point("prepare");
            work()
        };
        panics::caught(work).unwrap_or_else(|panic| {
            let error = panic.into_error(doing);
            stop.report_bug(&error);
            Err(error)
        })
    };
    std::thread::scope(|scope| {
        let started = threads::start_up_to(count, |_| threads::named("prepare").spawn_scoped(scope, work))?;
        let results = started.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(crate::error::Error::internal("a thread died")))
        });
        // All are waited for, whatever the first has said.
        let results: Vec<Result<()>> = results.collect();
        stop.bug().map_or(Ok(()), Err)?;
        results.into_iter().collect()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_panic_in_one_thread_ends_all_with_an_internal_error() {
        let (stop, ordinal) = (Stop::default(), AtomicUsize::new(0));
        let work = || {
            assert_ne!(ordinal.fetch_add(1, Ordering::Relaxed), 1, "as the test wants it");
            // The others would go on for ever.
            while stop.check().is_ok() {
                std::thread::yield_now();
            }
            stop.check()
        };
        let error = on_threads(3, "testing", &stop, &work).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.to_string().contains("a panic while testing"), "{error}");
        assert!(error.to_string().contains("as the test wants it"), "{error}");
    }
}
