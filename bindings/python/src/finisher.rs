//! Functions of the user that a loader calls on batches, on the threads that make them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use dsconvert::error::{Error, ErrorKind, Result};
use dsconvert::reader::loader::{self, BatchFinisher};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::columns::{batch_info, dict};

/// Number of the signal that `KeyboardInterrupt` stands for.
const SIGINT: i32 = 2;

/// The threads that are calling functions of the user on batches of one loader.
#[derive(Debug, Default)]
pub(crate) struct FinishingThreads(Mutex<Vec<ThreadId>>);

impl FinishingThreads {
    fn lock(&self) -> MutexGuard<'_, Vec<ThreadId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `function` and counts the current thread as one of the threads.
    pub(crate) fn during<T>(&self, function: impl FnOnce() -> T) -> T {
        struct Entry<'a>(&'a FinishingThreads, ThreadId);
        impl Drop for Entry<'_> {
            fn drop(&mut self) {
                self.0.lock().retain(|id| *id != self.1);
            }
        }
        let entry = Entry(self, thread::current().id());
        self.lock().push(entry.1);
        function()
    }

    /// Returns whether the current thread is one of them.
    pub(crate) fn has_current(&self) -> bool {
        self.lock().contains(&thread::current().id())
    }
}

/// A function of the user that replaces batches, on the thread that made them.
pub(crate) struct PythonFinisher {
    pub(crate) function: Py<PyAny>,
    pub(crate) as_torch: bool,
    pub(crate) finishing: Arc<FinishingThreads>,
}

impl BatchFinisher for PythonFinisher {
    fn finish(&self, batch: loader::Batch) -> Result<loader::Batch> {
        self.finishing.during(|| self.with_result(batch))
    }

    /// Gives the thread one Python thread state for its whole life. If each batch had its own, `threading.local` would
    /// not outlast a batch, and a fork could happen while a thread holds the interpreter's lock on the list of states.
    fn run_thread(&self, work: &mut (dyn FnMut() + Send)) {
        let done = Python::try_attach(|py| py.detach(&mut *work));
        if done.is_none() {
            // The interpreter is shutting down; every batch will be an error.
            work();
        }
    }
}

impl PythonFinisher {
    /// Returns the batch with the result of the function attached.
    fn with_result(&self, mut batch: loader::Batch) -> Result<loader::Batch> {
        let (info, columns) = (batch_info(&batch), batch.take_columns());
        let made =
            Python::try_attach(|py| self.function.call1(py, (dict(py, columns, self.as_torch)?, info)));
        let made = made.ok_or_else(shut_down)?.map_err(|raised| {
            let is_failure = Python::attach(|py| raised.is_instance_of::<PyException>(py));
            let kind = if is_failure { ErrorKind::Usage } else { ErrorKind::Interrupted(SIGINT) };
            let id = batch.id();
            let what = format!(
                "raised by a transform of the Loader, in epoch {}, step {}, micro-batch {}",
                id.epoch, id.step, id.micro_batch
            );
            Error::new(kind, what).caused_by(raised)
        })?;
        batch.attach(Box::new(made));
        Ok(batch)
    }
}

/// Returns the error of work that needs an interpreter which has shut down.
pub(crate) fn shut_down() -> Error {
    Error::new(ErrorKind::Internal, "the Python interpreter has shut down")
}
