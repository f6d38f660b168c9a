//! Reads that Python signals interrupt.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use dsconvert::error::Result;
use dsconvert::storage::interrupt;
use pyo3::prelude::*;

use crate::error::raise;

/// Runs `work` without the GIL. If it waits for object storage (`is_remote`), signal handlers run in the meantime, and
/// the exception of one of them (`KeyboardInterrupt`) ends the wait and is raised.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    is_remote: bool,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    if !is_remote {
        return py.detach(work).map_err(raise);
    }
    let (result, raised) = py.detach(|| {
        let raised: Rc<RefCell<Option<PyErr>>> = Rc::default();
        let condition = {
            let (raised, last) = (Rc::clone(&raised), Cell::new(Instant::now()));
            move || is_interrupted(&raised, &last)
        };
        let result = interrupt::interruptible(condition, work);
        (result, raised.take())
    });
    match raised {
        Some(exception) => Err(exception),
        None => result.map_err(raise),
    }
}

/// Runs the handlers of pending signals and returns whether one of them, now or before, has raised an exception. Does
/// so only from time to time, because it needs the GIL.
fn is_interrupted(raised: &RefCell<Option<PyErr>>, last: &Cell<Instant>) -> bool {
    if raised.borrow().is_none() && last.get().elapsed() >= interrupt::INTERVAL {
        last.set(Instant::now());
        match Python::try_attach(|py| py.check_signals()) {
            Some(Ok(())) => {}
            Some(Err(exception)) => *raised.borrow_mut() = Some(exception),
            // The interpreter is shutting down.
            None => return true,
        }
    }
    raised.borrow().is_some()
}
