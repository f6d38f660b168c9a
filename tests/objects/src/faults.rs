//! Faults that the server injects.

use std::time::Duration;

use crate::http::Request;

/// A fault of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Status 500.
    Internal,
    /// Status 503, as S3 responds to too many requests.
    SlowDown,
    /// Status 403.
    Denied,
    /// Status 403, as S3 responds to an unknown access key.
    UnknownKey,
    /// Status 403, as S3 responds to a request that was signed with a wrong clock.
    Skewed,
    /// The connection is closed, and the request has no effect.
    Dropped,
    /// The request is served, but the connection is closed without a response.
    LostResponse,
    /// The connection is closed in the middle of the body.
    Truncated,
    /// The first byte of the body is wrong.
    Damaged,
    /// The response is delayed.
    Slow,
    /// No further request is answered.
    Dead,
    /// The request waits until the faults are changed. Then the connection is closed, and the request has no effect.
    Held,
    /// The request is served. The connection is closed without a response when the faults are changed.
    HeldResponse,
}

/// Which requests fail, and how. By default, none fails.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// About one in this many requests fails, chosen by [`Self::seed`]; 0 for none.
    pub one_in: u64,
    /// Seed that chooses the requests, and their fault among [`Self::kinds`].
    pub seed: u64,
    /// Faults to choose from.
    pub kinds: Vec<Fault>,
    /// Number of a request, counted from 0 since the server started, and its fault.
    pub nth: Option<(u64, Fault)>,
    /// Number of requests to answer before the server stops answering.
    pub dies_after: Option<u64>,
    /// If set, [`Self::one_in`] applies only to requests whose method and path contain this: `/a`, `PUT /bucket/a`.
    pub only: Option<String>,
    /// Time before each response.
    pub latency: Duration,
    /// Bandwidth of all responses together.
    pub bytes_per_second: Option<u64>,
    /// PUT ignores conditions such as `If-None-Match: *`, as in stores that do not support them.
    pub ignores_conditions: bool,
    /// Entity tags are weak (`W/"…"`), and conditions on them never match.
    pub weak_etags: bool,
    /// GET ignores `Range`, as in simple web servers.
    pub ignores_ranges: bool,
    /// Objects per page of a listing; 0 means 1000.
    pub page: usize,
}

impl Faults {
    /// Returns faults that every client has to handle, for about one in `one_in` requests.
    pub fn usual(one_in: u64, seed: u64) -> Self {
        use Fault::{Dropped, Internal, LostResponse, Slow, SlowDown, Truncated};
        let kinds = vec![Internal, SlowDown, Dropped, LostResponse, Truncated, Slow];
        Self { one_in, seed, kinds, ..Self::default() }
    }

    /// Returns the fault of the request `number`, if any.
    pub(crate) fn of(&self, number: u64, request: &Request) -> Option<Fault> {
        if self.dies_after.is_some_and(|after| number >= after) {
            return Some(Fault::Dead);
        }
        if let Some((_, fault)) = self.nth.filter(|(nth, _)| *nth == number) {
            return Some(fault);
        }
        let line = || format!("{} {}", request.method, request.path);
        if self.one_in == 0 || self.only.as_ref().is_some_and(|only| !line().contains(only.as_str())) {
            return None;
        }
        // SplitMix64, so that adjacent requests are independent.
        let mut x = number.wrapping_add(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        x.is_multiple_of(self.one_in)
            .then(|| self.kinds.get((x >> 32) as usize % self.kinds.len().max(1)).copied())?
    }
}
