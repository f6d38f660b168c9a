//! Calls of the reference that turn its errors and panics into an [`EncodeError`].

use crate::error::EncodeError;
use crate::panics::caught;

/// Start of the message of the panic of `onig` when Oniguruma reaches a limit in a match.
const PATTERN_LIMIT: &str = "Onig: Regex search error: ";

/// Runs `call`, and turns an error or a panic into an error of the text.
pub(super) fn guarded<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, EncodeError> {
    match caught(call) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(EncodeError::Unsupported(e.to_string())),
        Err(panic) => Err(match panic.strip_prefix(PATTERN_LIMIT) {
            Some(reason) => EncodeError::PatternLimit(reason.to_owned()),
            None => EncodeError::Panicked(panic),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_reference_is_an_error_of_the_text() {
        let error = guarded::<()>(|| panic!("as on a malformed character map")).unwrap_err();
        assert_eq!(error, EncodeError::Panicked("as on a malformed character map".to_owned()));
    }
}
