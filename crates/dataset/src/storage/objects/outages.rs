//! Stores that no longer answer.
//!
//! A request is repeated for minutes before it fails. Where many requests follow each other, a store that is gone would hold a run up for
//! hours: after some failures in a row, others fail at once, for a while.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};

/// Failures without a success between them that make an outage.
const FAILURES: u32 = 3;
/// How long requests fail at once.
const PAUSE: Duration = Duration::from_secs(30);

/// Failures by store.
#[derive(Debug, Default)]
pub(super) struct Outages(Mutex<HashMap<String, Outage>>);

#[derive(Debug)]
struct Outage {
    failures: u32,
    last: Instant,
    why: String,
}

impl Outages {
    /// The error of a request that is not worth sending.
    pub(super) fn check(&self, store: &str) -> Option<Error> {
        let outages = self.lock();
        let outage = outages.get(store)?;
        (outage.failures >= FAILURES && outage.last.elapsed() < PAUSE).then(|| {
            let failures = outage.failures;
            let message =
                format!("{store} has failed {failures} requests in a row, the last one: {}", outage.why);
            Error::new(ErrorKind::Io, message)
                .help("when it answers again, the same command goes on with --resume")
        })
    }

    /// Counts a request that failed although it was repeated.
    pub(super) fn add(&self, store: &str, error: &Error) {
        let mut outages = self.lock();
        let failures = outages.get(store).map_or(0, |outage| outage.failures);
        let outage = Outage { failures: failures + 1, last: Instant::now(), why: error.to_string() };
        outages.insert(store.to_owned(), outage);
    }

    /// The store has answered.
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
    fn failures_in_a_row_are_an_outage_until_an_answer() {
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
