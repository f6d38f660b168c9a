//! Containment of panics: a panic of the reference, or of an engine with a bug, becomes an error of the tokenizer or
//! the text.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::EncodeError;

/// Maximum length of a panic message in characters; some messages print whole buffers.
const MAX_MESSAGE_CHARS: usize = 300;
/// Start of the message of the panic of `onig` when Oniguruma reaches a limit in a match.
const PATTERN_LIMIT: &str = "Onig: Regex search error: ";

thread_local! {
    /// Number of nested [`caught`] calls on this thread.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Returns whether this crate would catch a panic on this thread and return it as an error.
///
/// A program's panic hook can use it to keep such panics off standard error. This crate never changes the hook.
pub fn is_panic_contained() -> bool {
    DEPTH.try_with(Cell::get).is_ok_and(|depth| depth > 0)
}

/// Runs `work` and returns its panic message as an error. The caller must discard everything that `work` modified,
/// because it may be left half modified.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let deeper = |by: fn(usize) -> usize| {
        // Access fails while the thread exits, when nothing is caught anymore.
        let _ = DEPTH.try_with(|depth| depth.set(by(depth.get())));
    };
    deeper(|depth| depth + 1);
    let result = catch_unwind(AssertUnwindSafe(work));
    deeper(|depth| depth.saturating_sub(1));
    result.map_err(|payload| message(&*payload))
}

/// Calls the reference, and turns an error or a panic into an error of the text.
pub(crate) fn guarded<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, EncodeError> {
    match caught(call) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(EncodeError::Unsupported(e.to_string())),
        Err(panic) => Err(match panic.strip_prefix(PATTERN_LIMIT) {
            Some(reason) => EncodeError::PatternLimit(reason.to_owned()),
            None => EncodeError::Panicked(panic),
        }),
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text.as_str(),
        (None, None) => "no message",
    };
    text.chars().take(MAX_MESSAGE_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_reference_is_an_error_of_the_text() {
        let error = guarded::<()>(|| panic!("as on a malformed character map")).unwrap_err();
        assert_eq!(error, EncodeError::Panicked("as on a malformed character map".to_owned()));
    }

    #[test]
    fn a_panic_is_contained_and_becomes_its_message() {
        assert!(!is_panic_contained());
        assert_eq!(caught(is_panic_contained), Ok(true));
        assert_eq!(caught::<()>(|| panic!("bad block {}", 7)), Err("bad block 7".to_owned()));
        assert_eq!(caught::<()>(|| panic!("{}", "x".repeat(5000))).unwrap_err().len(), MAX_MESSAGE_CHARS);
        assert_eq!(caught::<()>(|| std::panic::panic_any(5)), Err("no message".to_owned()));
        assert!(!is_panic_contained());
    }
}
