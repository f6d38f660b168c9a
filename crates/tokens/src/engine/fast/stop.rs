//! Early stop of an engine in the middle of a text.

use crate::engine::Outcome;
use crate::error::EncodeError;

/// Reason why an engine stopped.
pub(super) enum EngineStop {
    NeedsReference,
    Failed(EncodeError),
}

impl From<EncodeError> for EngineStop {
    fn from(error: EncodeError) -> Self {
        EngineStop::Failed(error)
    }
}

/// Converts the result of encoding a text to its outcome. Truncates `out` to `before` unless the text is done.
pub(super) fn finish(
    result: Result<(), EngineStop>,
    before: usize,
    out: &mut Vec<u32>,
) -> Result<Outcome, EncodeError> {
    if result.is_err() {
        out.truncate(before);
    }
    match result {
        Ok(()) => Ok(Outcome::Done),
        Err(EngineStop::NeedsReference) => Ok(Outcome::Declined),
        Err(EngineStop::Failed(error)) => Err(error),
    }
}
