//! Panic containment.
//!
//! A panic is a bug in this crate or in one of its dependencies. A panic while the bytes of one item are decoded or
//! encoded rejects that item; anywhere else it ends the run with an internal error. Either way the thread survives and
//! returns a result, so no other thread waits for it forever.
//!
//! The library never replaces the program's panic hook. To keep contained panics off standard error, a program calls
//! [`note`] in its own hook, as the command does (`cli/hook.rs`).

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::Error;
use crate::sample::{Reject, RejectCode};

/// Maximum characters kept of a panic message; some messages print whole buffers.
const MAX_MESSAGE_CHARS: usize = 300;

thread_local! {
    /// Number of nested [`caught`] calls on this thread.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Source location of the last contained panic, if the panic hook called [`note`].
    static LOCATION: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A caught panic.
#[derive(Debug)]
pub struct Panic {
    message: String,
    /// Only for messages shown to people: it may contain a path of the build machine.
    location: Option<String>,
}

/// Runs `work` and returns its panic, if any, instead of unwinding further.
///
/// After a panic, state modified by `work` may be inconsistent: the caller discards or rebuilds it.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    let deeper = |by: fn(usize) -> usize| {
        // Fails during thread teardown, when nothing is caught any more.
        let _ = DEPTH.try_with(|depth| depth.set(by(depth.get())));
    };
    deeper(|depth| depth + 1);
    let result = catch_unwind(AssertUnwindSafe(work));
    deeper(|depth| depth.saturating_sub(1));
    result.map_err(|payload| Panic {
        message: message(&*payload),
        location: LOCATION.try_with(|location| location.take()).ok().flatten(),
    })
}

/// Runs `work` on the bytes of one item and turns a panic into a reject of that item.
pub fn contained<T>(work: impl FnOnce() -> Result<T, Reject>) -> Result<T, Reject> {
    caught(work).unwrap_or_else(|panic| Err(panic.into_reject()))
}

/// Records the location of a contained panic. Call it from a panic hook.
///
/// Returns whether the panic on this thread is contained, so the hook can skip printing it.
pub fn note(location: Option<&std::panic::Location<'_>>) -> bool {
    let is_contained = DEPTH.try_with(Cell::get).is_ok_and(|depth| depth > 0);
    if is_contained {
        let _ = LOCATION.try_with(|last| last.replace(location.map(ToString::to_string)));
    }
    is_contained
}

impl Panic {
    /// Converts the panic into an internal error: a bug hit while `doing` something.
    pub fn into_error(self, doing: &str) -> Error {
        let Self { message, location } = self;
        let location = location.map(|location| format!(" ({location})")).unwrap_or_default();
        Error::internal(format!("a panic while {doing}: {message}{location}"))
    }

    /// Converts the panic into a reject. The message omits the source location because rejects are part of the dataset.
    pub fn into_reject(self) -> Reject {
        Reject::new(
            RejectCode::DecoderPanicked,
            format!("a panic in the code for this item: {}", self.message),
        )
    }

    /// Returns the panic message.
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
