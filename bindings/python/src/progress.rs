//! What a loader has returned to Python, and what it is about to return.

use std::collections::VecDeque;

use dsconvert::reader::loader::LoaderState;
use pyo3::prelude::*;

use crate::batch_info::BatchInfo;

/// What a loader has returned, and what it is about to return.
#[derive(Debug)]
pub(crate) struct LoaderProgress {
    /// Number of the current iteration. Another iteration, or a move of the loader, makes it invalid.
    pub(crate) iteration: u64,
    /// Batches that are ready, but not yet returned: usually none or one.
    pub(crate) ready: VecDeque<ReadyBatch>,
    /// Whether a thread prepares the first of them to be returned.
    pub(crate) is_preparing: bool,
    /// State after the returned batches.
    pub(crate) at: LoaderState,
    /// Information about the last batch, and the state before the first batch of its step or, if the batch before that
    /// failed, before the failed one.
    pub(crate) last: Option<(BatchInfo, LoaderState)>,
}

/// A batch that is ready to be returned. It counts as returned only then: until an exception of a signal handler, such
/// as `KeyboardInterrupt`, cannot take its place any more.
#[derive(Debug)]
pub(crate) struct ReadyBatch {
    /// The batch in Python, or why it cannot be represented.
    pub(crate) object: PyResult<Py<PyAny>>,
    pub(crate) info: BatchInfo,
    /// Decoding errors of its blank rows, in row order.
    pub(crate) blank: Vec<String>,
    /// States before and after the batch.
    pub(crate) before: LoaderState,
    pub(crate) after: LoaderState,
}

impl LoaderProgress {
    pub(crate) fn new(at: LoaderState) -> Self {
        Self { iteration: 0, ready: VecDeque::new(), is_preparing: false, at, last: None }
    }

    /// Offers the first ready batch, which is returned at once unless it `needs_preparation`.
    pub(crate) fn offer(&mut self, py: Python<'_>, needs_preparation: bool) -> Offer {
        if self.is_preparing {
            return Offer::InPreparation;
        }
        match self.ready.front() {
            Some(ReadyBatch { object: Ok(object), blank, .. }) if needs_preparation => {
                self.is_preparing = true;
                Offer::ToPrepare(object.clone_ref(py), blank.clone())
            }
            Some(_) => self.take_ready().map_or(Offer::Nothing, Offer::Returned),
            None => Offer::Nothing,
        }
    }

    /// Takes the first ready batch, which is thereby returned.
    pub(crate) fn take_ready(&mut self) -> Option<PyResult<Py<PyAny>>> {
        let ReadyBatch { object, info, before, after, .. } = self.ready.pop_front()?;
        let start = match self.last.take() {
            Some((last, start)) if last.is_same_step(&info) => start,
            _ => before,
        };
        (self.at, self.last) = (after, Some((info, start)));
        Some(object)
    }
}

/// The next batch, as far as it is known.
pub(crate) enum Offer {
    /// The batch, which is thereby returned.
    Returned(PyResult<Py<PyAny>>),
    /// A batch that `prepare` must be called with, and the decoding errors of its blank rows.
    ToPrepare(Py<PyAny>, Vec<String>),
    /// Another thread prepares a batch.
    InPreparation,
    /// No batch is ready.
    Nothing,
}
