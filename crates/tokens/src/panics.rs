//! Contained panics: a panic of the reference, or a bug in an engine, becomes an error of the tokenizer or the text at hand.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Characters of a panic message that are kept: some messages print whole buffers.
const MAX_MESSAGE_CHARS: usize = 300;

thread_local! {
    /// Nested calls of [`caught`] on this thread.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Whether a panic on this thread would be caught by this crate and returned as an error.
///
/// For the panic hook of a program that does not want such panics on standard error. This crate never changes the hook.
pub fn is_panic_contained() -> bool {
    DEPTH.try_with(Cell::get).is_ok_and(|depth| depth > 0)
}

/// Runs `work`; the error is the message of its panic. Whatever `work` modified may be half done: the caller discards it.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let deeper = |by: fn(usize) -> usize| {
        // Inaccessible at the end of a thread, where nothing is caught any more.
        let _ = DEPTH.try_with(|depth| depth.set(by(depth.get())));
    };
    deeper(|depth| depth + 1);
    let result = catch_unwind(AssertUnwindSafe(work));
    deeper(|depth| depth.saturating_sub(1));
    result.map_err(|payload| message(&*payload))
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
    fn a_panic_becomes_its_message_and_is_announced_as_contained() {
        assert!(!is_panic_contained());
        assert_eq!(caught(is_panic_contained), Ok(true));
        assert_eq!(caught::<()>(|| panic!("bad block {}", 7)), Err("bad block 7".to_owned()));
        assert_eq!(caught::<()>(|| panic!("{}", "x".repeat(5000))).unwrap_err().len(), MAX_MESSAGE_CHARS);
        assert_eq!(caught::<()>(|| std::panic::panic_any(5)), Err("no message".to_owned()));
        assert!(!is_panic_contained());
    }
}
