//! Detection of stores that no longer respond.
//!
//! A request is retried for minutes before it fails. With many requests in sequence, an unreachable store would stall a
//! run for hours. After several consecutive failures, further requests therefore fail immediately for a while.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};

/// Number of consecutive failures that count as an outage.
const FAILURES: u32 = 3;
/// Time during which requests fail immediately.
const PAUSE: Duration = Duration::from_secs(30);

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
    /// Returns the error for a request that is not worth sending.
    pub(super) fn check(&self, store: &str) -> Option<Error> {
        let outages = self.lock();
        let outage = outages.get(store)?;
        (outage.failures >= FAILURES && outage.last.elapsed() < PAUSE).then(|| {
            let failures = outage.failures;
            let message =
                format!("the last {failures} requests to {store} failed, most recently: {}", outage.why);
            Error::new(ErrorKind::Io, message).help("wait until the store responds again")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_failures_are_an_outage_until_a_response() {
        let outages = Outages::default();
        let error = Error::new(ErrorKind::Io, "refused");
        for _ in 0..FAILURES {
            assert!(outages.check("s3://a").is_none());
            outages.add("s3://a", &error);
        }
        let found = outages.check("s3://a").unwrap();
        assert!(found.to_string().contains("refused") && found.kind() == ErrorKind::Io, "{found}");
        assert!(outages.check("s3://b").is_none());
        outages.end("s3://a");
        assert!(outages.check("s3://a").is_none());
    }
}
