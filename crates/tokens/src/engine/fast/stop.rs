//! How an engine ends in the middle of a text.

use crate::engine::Outcome;
use crate::error::EncodeError;

/// Why an engine stopped.
pub(super) enum Stop {
    NeedsReference,
    Failed(EncodeError),
}

impl From<EncodeError> for Stop {
    fn from(error: EncodeError) -> Self {
        Stop::Failed(error)
    }
}

/// The outcome of a text; `out` is truncated to `before` unless it is done.
pub(super) fn finish(
    result: Result<(), Stop>,
    before: usize,
    out: &mut Vec<u32>,
) -> Result<Outcome, EncodeError> {
    match result {
        Ok(()) => Ok(Outcome::Done),
        Err(stop) => {
            out.truncate(before);
            match stop {
                Stop::NeedsReference => Ok(Outcome::Declined),
                Stop::Failed(error) => Err(error),
            }
        }
    }
}
