//! How the server fails.

use std::time::Duration;

use crate::http::Request;

/// A way to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Status 500.
    Internal,
    /// Status 503, as S3 answers too many requests.
    SlowDown,
    /// Status 403.
    Denied,
    /// Status 403, as S3 answers an access key that it does not know.
    UnknownKey,
    /// Status 403, as S3 answers a request that was signed at another time.
    Skewed,
    /// The connection is closed, and nothing was done.
    Dropped,
    /// The request is served, and then the connection is closed: the client does not know.
    LostResponse,
    /// The connection is closed in the middle of the body.
    Truncated,
    /// The response comes late.
    Slow,
    /// No request is answered any more.
    Dead,
    /// The request waits until the faults are changed; then the connection is closed, and nothing was done.
    Held,
    /// The request is served. The connection is closed without a response when the faults are changed.
    HeldResponse,
}

/// Which requests fail, and how. The default is that none does.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Of so many requests, about one fails, chosen by [`Self::seed`]; 0: none.
    pub one_in: u64,
    /// Chooses the requests, and among [`Self::kinds`].
    pub seed: u64,
    /// How they fail.
    pub kinds: Vec<Fault>,
    /// The request of this number, counted from 0 since the server started, fails in this way.
    pub nth: Option<(u64, Fault)>,
    /// Requests are answered so often; then the server is dead.
    pub dies_after: Option<u64>,
    /// Only requests whose path contains this, where it is set, are failed.
    pub only: Option<String>,
    /// Time before each response.
    pub latency: Duration,
    /// What all responses together may send.
    pub bytes_per_second: Option<u64>,
    /// PUT with `If-None-Match: *` overwrites, as in stores that do not know the condition.
    pub ignores_conditions: bool,
    /// Objects in a page of a listing; 0 is 1000.
    pub page: usize,
}

impl Faults {
    /// One in `one_in` requests fails in one of the ways that every client has to live with.
    pub fn usual(one_in: u64, seed: u64) -> Self {
        use Fault::{Dropped, Internal, LostResponse, Slow, SlowDown, Truncated};
        let kinds = vec![Internal, SlowDown, Dropped, LostResponse, Truncated, Slow];
        Self { one_in, seed, kinds, ..Self::default() }
    }

    /// What happens to the request `number`.
    pub(crate) fn of(&self, number: u64, request: &Request) -> Option<Fault> {
        if self.dies_after.is_some_and(|after| number >= after) {
            return Some(Fault::Dead);
        }
        if let Some((_, fault)) = self.nth.filter(|(nth, _)| *nth == number) {
            return Some(fault);
        }
        if self.one_in == 0 || self.only.as_ref().is_some_and(|only| !request.path.contains(only.as_str())) {
            return None;
        }
        // SplitMix64: neighbouring requests are independent.
        let mut x = number.wrapping_add(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        x.is_multiple_of(self.one_in)
            .then(|| self.kinds.get((x >> 32) as usize % self.kinds.len().max(1)).copied())?
    }
}
