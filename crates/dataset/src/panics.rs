//! Contained panics.
//!
//! A panic is a bug, in this crate or in a library that it uses. While the bytes of one item are decoded or encoded, a
//! panic rejects the item; everywhere else it ends the run with an internal error. In both cases the thread goes on and
//! returns a result, so that no other thread waits for it in vain.
//!
//! The library never replaces the panic hook of its program. A program that does not want contained panics on standard
//! error asks [`note`] in its own hook, as the command does (`cli/hook.rs`).

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::Error;
use crate::sample::{Reject, RejectCode};

/// Characters of a panic's message that are kept: some messages print whole buffers.
const MAX_MESSAGE_CHARS: usize = 300;

thread_local! {
    /// Nested calls of [`caught`] on this thread.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Source line of the last contained panic, as far as a hook noted it.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic that was caught.
#[derive(Debug)]
pub struct Panic {
    message: String,
    /// Only for messages to people: it may hold a path of the machine that built the program.
    place: Option<String>,
}

/// Runs `work` and returns its panic instead of unwinding further. What `work` changed may be half done afterwards: the
/// caller gives it up or makes it anew.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    let deeper = |by: fn(usize) -> usize| {
        // Gone at the end of a thread, where nothing is caught any more.
        let _ = DEPTH.try_with(|depth| depth.set(by(depth.get())));
    };
    deeper(|depth| depth + 1);
    let result = catch_unwind(AssertUnwindSafe(work));
    deeper(|depth| depth.saturating_sub(1));
    result.map_err(|payload| Panic {
        message: message(&*payload),
        place: PLACE.try_with(|place| place.take()).ok().flatten(),
    })
}

/// Runs `work` on the bytes of one item; a panic is a reject of that item.
pub fn contained<T>(work: impl FnOnce() -> Result<T, Reject>) -> Result<T, Reject> {
    caught(work).unwrap_or_else(|panic| Err(panic.into_reject()))
}

/// For a panic hook: whether the panic on this thread is contained, so that nothing need be printed.
pub fn note(location: Option<&std::panic::Location<'_>>) -> bool {
    let is_contained = DEPTH.try_with(Cell::get).is_ok_and(|depth| depth > 0);
    if is_contained {
        let _ = PLACE.try_with(|place| place.replace(location.map(ToString::to_string)));
    }
    is_contained
}

impl Panic {
    /// The internal error of a bug that was met while `doing` something.
    pub fn into_error(self, doing: &str) -> Error {
        let Self { message, place } = self;
        let place = place.map(|place| format!(" ({place})")).unwrap_or_default();
        Error::internal(format!("a panic while {doing}: {message}{place}"))
    }

    /// The reject of an item. Its message is part of a dataset: it names no path.
    pub fn into_reject(self) -> Reject {
        Reject::new(
            RejectCode::DecoderPanicked,
            format!("a panic in the code for this item: {}", self.message),
        )
    }

    /// What the panic said.
    pub fn into_message(self) -> String {
        self.message
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
    use crate::error::ErrorKind;

    #[test]
    fn a_panic_becomes_a_reject_or_an_internal_error_with_its_message() {
        let reject = contained::<()>(|| panic!("bad block {}", 7)).unwrap_err();
        assert_eq!(reject.code, RejectCode::DecoderPanicked);
        assert!(reject.message.ends_with("bad block 7"), "{}", reject.message);
        let error = caught::<()>(|| panic!("static")).unwrap_err().into_error("testing");
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.to_string().starts_with("a panic while testing: static"), "{error}");
        assert_eq!(contained(|| Ok(5)), Ok(5));
        let long = caught::<()>(|| panic!("{}", "x".repeat(5000))).unwrap_err();
        assert_eq!(long.into_message().len(), MAX_MESSAGE_CHARS);
        let odd = caught::<()>(|| std::panic::panic_any(5)).unwrap_err();
        assert_eq!(odd.into_message(), "no message");
    }
}
