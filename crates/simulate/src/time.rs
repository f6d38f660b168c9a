//! Conversion of times to nanoseconds, and limits of times.

use crate::error::Error;

/// Maximum of a single time: one hour.
pub const MAX_TIME_NS: u64 = 3_600_000_000_000;
/// Maximum coefficient of variation.
pub const MAX_CV: f64 = 10.0;

const NS_PER_MS: f64 = 1e6;

/// Converts milliseconds to nanoseconds, for the option named `option`.
///
/// # Errors
///
/// If `ms` is negative, not finite, or more than an hour.
pub fn ns_from_ms(option: &'static str, ms: f64) -> Result<u64, Error> {
    let max = MAX_TIME_NS as f64 / NS_PER_MS;
    if !ms.is_finite() || ms < 0.0 {
        return Err(Error::new(option, format!("{ms} is not a non-negative number of milliseconds")));
    }
    if ms > max {
        return Err(Error::new(option, format!("{ms} ms is above the maximum of {max} ms (one hour)")));
    }
    Ok((ms * NS_PER_MS + 0.5).floor() as u64)
}
