//! Interruption of reads that may block for minutes.
//!
//! Failed requests to object storage are retried for minutes. Callers that must react sooner, to a signal or because
//! nobody needs the result any more, run their reads inside [`interruptible`]. The condition is kept per thread, because
//! reads pass through decoders of other libraries. Only waits check it: reads of local files cost nothing more.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// Interval at which waits check whether they are interrupted.
pub const INTERVAL: Duration = Duration::from_millis(50);

type Condition = Rc<dyn Fn() -> bool>;

thread_local! {
    /// Conditions of the calls of [`interruptible`] in progress on this thread.
    static CONDITIONS: RefCell<Vec<Condition>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work`. Once `condition` returns true, waits for object storage on this thread end with
/// [`ErrorKind::Interrupted`]. Calls may be nested; the conditions of outer calls stay in effect.
///
/// `condition` is called before each request and every [`INTERVAL`] while waiting, and stays true once it was.
pub fn interruptible<T>(condition: impl Fn() -> bool + 'static, work: impl FnOnce() -> T) -> T {
    /// Removes the condition, also after a panic.
    struct Entered;
    impl Drop for Entered {
        fn drop(&mut self) {
            CONDITIONS.with_borrow_mut(Vec::pop);
        }
    }
    CONDITIONS.with_borrow_mut(|conditions| conditions.push(Rc::new(condition)));
    let _entered = Entered;
    work()
}

/// Returns whether waits on this thread should end.
pub fn is_interrupted() -> bool {
    // Cloned, because a condition may run code that reads from a dataset.
    let conditions = CONDITIONS.with_borrow(Vec::clone);
    conditions.iter().any(|condition| condition())
}

/// Returns an error if waits on this thread should end.
///
/// # Errors
///
/// [`ErrorKind::Interrupted`], with 0 as the signal.
pub fn check() -> Result<()> {
    match is_interrupted() {
        true => Err(Error::new(ErrorKind::Interrupted(0), "the read was interrupted")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_of_outer_calls_stay_in_effect_until_they_end() {
        assert!(check().is_ok());
        interruptible(
            || true,
            || {
                assert!(interruptible(|| false, check).is_err());
                assert_eq!(check().unwrap_err().kind(), ErrorKind::Interrupted(0));
            },
        );
        assert!(check().is_ok());
        assert!(crate::panics::caught(|| interruptible(|| true, || panic!("deliberate"))).is_err());
        assert!(check().is_ok());
    }
}
