//! Detection of stores that no longer respond.
//!
//! A request is retried for minutes before it fails. With many requests in sequence, an unreachable store would stall a
//! run for hours. After several consecutive failures, further requests therefore fail immediately for a while.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::client::retry_time;
use crate::error::{Error, ErrorKind};

/// Number of consecutive failures that count as an outage.
const FAILURES: u32 = 3;
/// Time during which requests fail immediately.
pub(super) const PAUSE: Duration = Duration::from_secs(30);

/// Failures per store.
#[derive(Debug, Default)]
pub(super) struct Outages(Mutex<HashMap<String, Outage>>);

#[derive(Debug)]
struct Outage {
    failures: u32,
    last: Instant,
    why: String,
}

impl Outages {
    /// Returns the error for a request that is not worth sending, because requests fail immediately during `pause`.
    pub(super) fn check(&self, store: &str, pause: Duration) -> Option<Error> {
        let outages = self.lock();
        let outage = outages.get(store)?;
        (outage.failures >= FAILURES && outage.last.elapsed() < pause).then(|| {
            let failures = outage.failures;
            let message =
                format!("the last {failures} requests to {store} failed, most recently: {}", outage.why);
            unavailable(message)
        })
    }

    /// Same as [`Self::check`], for a reader that started at `since` and was waiting for the request of another one: if
    /// a request has failed despite retries in the meantime, its own would probably fail, too.
    ///
    /// Readers may read again at any time, so the pause is not longer than the retries.
    pub(super) fn check_since(&self, store: &str, since: Instant) -> Option<Error> {
        self.check(store, PAUSE.min(retry_time())).or_else(|| {
            let outages = self.lock();
            let outage = outages.get(store).filter(|outage| outage.last > since)?;
            let message = format!("a request to {store} failed: {}", outage.why);
            Some(unavailable(message))
        })
    }

    /// Counts a request that failed despite retries.
    pub(super) fn add(&self, store: &str, error: &Error) {
        let mut outages = self.lock();
        let failures = outages.get(store).map_or(0, |outage| outage.failures);
        let outage = Outage { failures: failures + 1, last: Instant::now(), why: error.to_string() };
        outages.insert(store.to_owned(), outage);
    }

    /// Ends the outage after a response from the store.
    pub(super) fn end(&self, store: &str) {
        self.lock().remove(store);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Outage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unavailable(message: String) -> Error {
    Error::new(ErrorKind::Io, message).help("wait until the store responds again").unavailable()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_failures_are_an_outage_until_a_response() {
        let outages = Outages::default();
        let error = Error::new(ErrorKind::Io, "refused");
        for _ in 0..FAILURES {
            assert!(outages.check("s3://a", PAUSE).is_none());
            outages.add("s3://a", &error);
        }
        let found = outages.check("s3://a", PAUSE).unwrap();
        assert!(found.to_string().contains("refused") && found.kind() == ErrorKind::Io, "{found}");
        assert!(outages.check("s3://b", PAUSE).is_none());
        outages.end("s3://a");
        assert!(outages.check("s3://a", PAUSE).is_none());
    }

    #[test]
    fn a_request_that_waited_for_a_failed_one_fails_without_being_sent() {
        let outages = Outages::default();
        let before = Instant::now();
        assert!(outages.check_since("s3://a", before).is_none());
        std::thread::sleep(Duration::from_millis(1));
        outages.add("s3://a", &Error::new(ErrorKind::Io, "refused"));
        std::thread::sleep(Duration::from_millis(1));
        let found = outages.check_since("s3://a", before).unwrap();
        assert!(found.to_string().contains("refused") && found.kind() == ErrorKind::Io, "{found}");
        assert!(outages.check_since("s3://a", Instant::now()).is_none());
        outages.end("s3://a");
        assert!(outages.check_since("s3://a", before).is_none());
    }
}
