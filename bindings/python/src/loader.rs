//! Python handle for a loader, which assembles batches in the background and returns them as dictionaries of arrays.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use dsconvert::error::{Error, Result};
use dsconvert::reader::batch::Layout;
use dsconvert::reader::loader::{self, BatchId, Handoff, LoaderCounts, LoaderState, Next};
use dsconvert::storage::interrupt::INTERVAL;
use pyo3::prelude::*;

use crate::columns::{BatchInfo, batch_info, object};
use crate::dataset::Split;
use crate::error::raise;
use crate::finisher::{FinishingThreads, PythonFinisher, shut_down};
use crate::interrupt::detached;
use crate::options::loader_options;
use crate::plan::NOT_A_STATE;

/// How often a thread checks whether another one has prepared its batch, or moved the loader. Threads rarely share one.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Batches of one split for one rank.
///
/// Functions of the user may call every method while the loader makes a batch, on the calling thread or on another one.
/// The methods that return something therefore use `progress` and `counts` only, and the others are refused.
#[pyclass(frozen, module = "dsconvert._native")]
#[derive(Debug)]
pub(crate) struct Loader {
    /// Locked while a batch is made, which may need the GIL. So threads release the GIL before they lock it. Iterations
    /// lock it in turns. A thread that moves or stops the loader claims it, and no batch is returned until it is done.
    loader: Handoff<loader::Loader>,
    /// Locked only with the GIL, which is not released in the meantime. So locking never blocks, and a forked process
    /// never inherits it locked.
    progress: Mutex<LoaderProgress>,
    counts: LoaderCounts,
    finishing: Arc<FinishingThreads>,
    /// Whether [`Loader::stop`] was called while the loader made a batch.
    is_stop_requested: AtomicBool,
    as_torch: bool,
    /// Whether the dataset is in object storage, so that counting may wait for requests.
    is_remote: bool,
}

/// Name of a source of a mixture, requested share, realized share, passes.
type SourceTuple = (String, f64, f64, f64);

/// Rows, tokens, padded tokens, labels, trained tokens, columns of the record index, sources of a mixture.
type TotalsTuple = (u64, u64, u64, Option<u64>, Option<u64>, BTreeMap<String, u64>, Vec<SourceTuple>);

impl Loader {
    /// Locks the progress. The caller holds the GIL and does not release it before the lock.
    fn progress(&self, _py: Python<'_>) -> MutexGuard<'_, LoaderProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the progress while the loader is locked, so that changes are in the order of those of the loader.
    fn note<T>(&self, change: impl FnOnce(&mut LoaderProgress) -> T) -> Result<T> {
        Python::try_attach(|py| change(&mut self.progress(py))).ok_or_else(shut_down)
    }

    /// Moves the loader and notes its new state.
    fn move_to(
        &self,
        py: Python<'_>,
        step: impl FnOnce(&mut loader::Loader) -> Result<()> + Send,
        note: impl FnOnce(&mut LoaderProgress) + Send,
    ) -> PyResult<()> {
        self.check_is_not_finishing()?;
        let claim = self.loader.claim();
        py.detach(|| {
            let mut loader = claim.lock();
            step(&mut loader)?;
            let at = loader.state();
            // Released without the locked progress: a finalizer of the user may read it.
            let _stale = self.note(|progress| {
                progress.at = at;
                progress.iteration += 1;
                note(progress);
                std::mem::take(&mut progress.ready)
            })?;
            Ok(())
        })
        .map_err(raise)
    }

    /// Offers an iteration the next batch. Nothing can move the loader between the checks and the offer: a move ends with
    /// the progress locked, before its claim does.
    fn offer(&self, py: Python<'_>, iteration: u64, needs_preparation: bool) -> Offer {
        let mut progress = self.progress(py);
        if progress.iteration != iteration {
            Offer::Invalid
        } else if self.loader.is_claimed() {
            Offer::Later
        } else {
            progress.offer(py, needs_preparation)
        }
    }

    /// Waits up to [`INTERVAL`] for the next batch and makes it ready to be returned. Returns whether the epoch is over. If
    /// not, the batch may be ready, and signals are to be checked.
    fn wait_for_next(&self) -> Result<bool> {
        let Some(mut loader) = self.loader.turn() else { return Ok(false) };
        self.stop_if_requested(&mut loader);
        let before = loader.state();
        let next = loader.next_within(INTERVAL);
        self.stop_if_requested(&mut loader);
        let mut batch = match next? {
            Next::Batch(batch) => batch,
            Next::Done => {
                // The last batch may have failed, which counts from now on.
                let at = loader.state();
                self.note(|progress| {
                    if progress.ready.is_empty() {
                        progress.at = at;
                    }
                })?;
                return Ok(true);
            }
            Next::NotYet => return Ok(false),
        };
        let (after, id, info) = (loader.state(), batch.id(), batch_info(&batch));
        let blank = batch.blank_rows().iter().map(|row| row.error.to_string()).collect();
        let noted = Python::try_attach(|py| {
            // Making Python objects may run code of the user, such as finalizers of collected garbage.
            let object = self.finishing.during(|| object(py, &mut batch, self.as_torch));
            self.progress(py).ready.push_back(ReadyBatch { object, id, info, blank, before, after });
        });
        noted.ok_or_else(shut_down)?;
        Ok(false)
    }

    fn stop_if_requested(&self, loader: &mut loader::Loader) {
        if self.is_stop_requested.swap(false, Ordering::Relaxed) {
            loader.stop();
        }
    }
}

#[pymethods]
impl Loader {
    /// Creates a loader. `options` is a JSON object of the given options. `finish` is called on the thread that made a
    /// batch, with the batch as a dictionary and the information that [`Loader::last`] returns. Its result replaces the
    /// batch. If `assemble` is false, the batch is empty, and `finish` reads the records.
    /// `processor` has the files of the model, as JSON, whose processor must be that of the dataset.
    #[new]
    #[pyo3(signature = (split, options, rank_layout, as_torch, finish=None, assemble=true, processor=None))]
    #[expect(clippy::too_many_arguments, reason = "the arguments of Python")]
    fn new(
        py: Python<'_>,
        split: &Bound<'_, Split>,
        options: &str,
        rank_layout: (u64, u64, u64),
        as_torch: bool,
        finish: Option<Py<PyAny>>,
        assemble: bool,
        processor: Option<&str>,
    ) -> PyResult<Self> {
        let source = Arc::clone(split.get().source());
        let finishing = Arc::new(FinishingThreads::default());
        let finisher =
            finish.map(|function| PythonFinisher { function, as_torch, finishing: Arc::clone(&finishing) });
        let loader = detached(py, source.is_remote(), || {
            let (rank, world_size, replication) = rank_layout;
            let rank_layout = Layout::replicated(rank, world_size, replication)?;
            let options = loader_options(options, rank_layout, &*source, processor, assemble)?;
            let loader = loader::Loader::new(Arc::clone(&source), options)?;
            Ok(match finisher {
                Some(finisher) => loader.finish_with(Arc::new(finisher)),
                None => loader,
            })
        });
        let loader = loader?;
        let progress = LoaderProgress::new(loader.state());
        Ok(Self {
            counts: loader.counts().clone(),
            loader: Handoff::new(loader),
            progress: Mutex::new(progress),
            finishing,
            is_stop_requested: AtomicBool::new(false),
            as_torch,
            is_remote: source.is_remote(),
        })
    }

    /// Starts an iteration and returns its number, which [`Loader::next`] takes.
    fn start_iteration(&self, py: Python<'_>) -> u64 {
        let mut progress = self.progress(py);
        progress.iteration += 1;
        progress.iteration
    }

    /// Returns the next batch, or `None` at the end of the epoch. `prepare` is called with the batch and the decoding
    /// errors of its blank rows, and its result is returned instead. After an exception of `prepare` or of a signal
    /// handler, the next call returns the batch that this call would have returned.
    #[pyo3(signature = (iteration, prepare=None))]
    fn next<'py>(
        &self,
        py: Python<'py>,
        iteration: u64,
        prepare: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.check_is_not_finishing()?;
        loop {
            py.check_signals()?;
            match self.offer(py, iteration, prepare.is_some()) {
                Offer::Returned(object) => return object.map(|object| Some(object.into_bound(py))),
                Offer::ToPrepare(object, blank) => {
                    // May run code of the user and signal handlers, so nothing is locked.
                    let prepared = match prepare {
                        Some(prepare) => self.finishing.during(|| prepare.call1((object, blank))),
                        None => Ok(object.into_bound(py)),
                    };
                    let mut progress = self.progress(py);
                    progress.is_preparing = false;
                    let is_valid = progress.iteration == iteration;
                    let unprepared = (is_valid && prepared.is_ok()).then(|| progress.take_ready());
                    drop(progress);
                    // Released without the locked progress, as it may run a finalizer.
                    drop(unprepared);
                    let prepared = prepared?;
                    return if is_valid { Ok(Some(prepared)) } else { Err(raise(moved_meanwhile())) };
                }
                Offer::Later => {
                    py.detach(|| thread::sleep(CHECK_INTERVAL));
                    continue;
                }
                Offer::Invalid => return Err(raise(moved_meanwhile())),
                Offer::Nothing => {}
            }
            let is_over = py.detach(|| self.wait_for_next()).map_err(raise)?;
            if is_over {
                // If the loader was moved meanwhile, the epoch is that of another iteration.
                let is_valid = self.progress(py).iteration == iteration;
                return if is_valid { Ok(None) } else { Err(raise(moved_meanwhile())) };
            }
        }
    }

    /// Returns the number of batches per epoch.
    fn len(&self, py: Python<'_>) -> PyResult<u64> {
        let at = self.progress(py).at.clone();
        detached(py, self.is_remote, || self.counts.batches(&at))
    }

    /// Returns the number of batches left in the epoch.
    fn remaining(&self, py: Python<'_>) -> PyResult<u64> {
        let at = self.progress(py).at.clone();
        detached(py, self.is_remote, || self.counts.remaining(&at))
    }

    /// Returns the number of global steps per epoch.
    fn steps(&self, py: Python<'_>) -> PyResult<u64> {
        let at = self.progress(py).at.clone();
        detached(py, self.is_remote, || self.counts.steps(&at))
    }

    /// Micro-batches per global step, over all ranks.
    #[getter]
    fn micro_batches(&self) -> u64 {
        self.counts.micro_batches()
    }

    #[getter]
    fn epoch(&self, py: Python<'_>) -> u64 {
        self.progress(py).at.epoch()
    }

    /// Goes to the start of an epoch.
    fn set_epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        self.move_to(py, |loader| loader.set_epoch(epoch), |_| ())
    }

    /// Returns the state after the returned batches, as JSON.
    fn state(&self, py: Python<'_>) -> PyResult<String> {
        let at = &self.progress(py).at;
        serde_json::to_string(at).map_err(|e| raise(Error::not_serialized("the state", e)))
    }

    /// Stops the threads and drops the batches they have prepared.
    fn stop(&self, py: Python<'_>) {
        if self.finishing.has_current() {
            // A function of the user, or a garbage collection while it runs, has released an iterator or the loader.
            self.is_stop_requested.store(true, Ordering::Relaxed);
        } else {
            let claim = self.loader.claim();
            py.detach(|| claim.lock().stop());
        }
    }

    /// Raises an error in a function of the user that the loader calls, because the loader cannot move before the
    /// function has returned.
    fn check_is_not_finishing(&self) -> PyResult<()> {
        if self.finishing.has_current() {
            let what =
                "a transform of a Loader cannot iterate over that Loader, set its epoch or load a state";
            return Err(raise(
                Error::usage(what).help("do it between two batches, or create a second Loader"),
            ));
        }
        Ok(())
    }

    /// Goes to the position of a saved state.
    fn restore(&self, py: Python<'_>, state: &str) -> PyResult<()> {
        let state: LoaderState = serde_json::from_str(state)
            .map_err(|e| Error::usage("this is not the state of a loader").caused_by(e).help(NOT_A_STATE))
            .map_err(raise)?;
        self.move_to(py, |loader| loader.restore(&state), |progress| progress.last = None)
    }

    /// Returns information about the last batch.
    fn last(&self, py: Python<'_>) -> Option<BatchInfo> {
        self.progress(py).last.as_ref().map(|(_, info, _)| info.clone())
    }

    /// Returns the rows, tokens, padded tokens, labels when packed, trained tokens, and sums of columns of the record index of
    /// the step of the last batch, over all ranks, and the sources of a mixture.
    fn totals(&self, py: Python<'_>) -> PyResult<Option<TotalsTuple>> {
        let last = self.progress(py).last.as_ref().map(|(id, _, start)| (*id, start.clone()));
        let Some((id, start)) = last else { return Ok(None) };
        let totals = detached(py, self.is_remote, || self.counts.totals(id.step, &start))?;
        Ok(totals.map(|all| {
            let sources = all.sources.into_iter();
            let sources = sources.map(|of| (of.name, of.requested, of.realized, of.epochs)).collect();
            (all.rows, all.tokens, all.padded_tokens, all.labels, all.trained, all.columns, sources)
        }))
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // Detached, because the loader's threads may be waiting for the GIL, which this thread holds.
        let loader = self.loader.get_mut();
        let _ = Python::try_attach(|py| py.detach(|| loader.stop()));
    }
}

/// What a loader has returned, and what it is about to return.
#[derive(Debug)]
struct LoaderProgress {
    /// Number of the current iteration. Another iteration, or a move of the loader, makes it invalid.
    iteration: u64,
    /// Batches that are ready, but not yet returned: usually none or one.
    ready: VecDeque<ReadyBatch>,
    /// Whether a thread prepares the first of them to be returned.
    is_preparing: bool,
    /// State after the returned batches.
    at: LoaderState,
    /// The last batch, information about it, and the state before the first batch of its step or, if the batch before that
    /// failed, before the failed one.
    last: Option<(BatchId, BatchInfo, LoaderState)>,
}

/// A batch that is ready to be returned. It counts as returned only then: until an exception of a signal handler, such
/// as `KeyboardInterrupt`, cannot take its place any more.
#[derive(Debug)]
struct ReadyBatch {
    /// The batch in Python, or why it cannot be represented.
    object: PyResult<Py<PyAny>>,
    id: BatchId,
    info: BatchInfo,
    /// Decoding errors of its blank rows, in row order.
    blank: Vec<String>,
    /// States before and after the batch.
    before: LoaderState,
    after: LoaderState,
}

impl LoaderProgress {
    fn new(at: LoaderState) -> Self {
        Self { iteration: 0, ready: VecDeque::new(), is_preparing: false, at, last: None }
    }

    /// Offers the first ready batch, which is returned at once unless it `needs_preparation`.
    fn offer(&mut self, py: Python<'_>, needs_preparation: bool) -> Offer {
        if self.is_preparing {
            return Offer::Later;
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
    fn take_ready(&mut self) -> Option<PyResult<Py<PyAny>>> {
        let ReadyBatch { object, id, info, before, after, .. } = self.ready.pop_front()?;
        let start = match self.last.take() {
            Some((last, _, start)) if (last.epoch, last.step) == (id.epoch, id.step) => start,
            _ => before,
        };
        (self.at, self.last) = (after, Some((id, info, start)));
        Some(object)
    }
}

/// The next batch, as far as it is known.
enum Offer {
    /// The batch, which is thereby returned.
    Returned(PyResult<Py<PyAny>>),
    /// A batch that `prepare` must be called with, and the decoding errors of its blank rows.
    ToPrepare(Py<PyAny>, Vec<String>),
    /// Another thread prepares a batch, or is about to move or stop the loader.
    Later,
    /// The iteration is not the current one: another one was started, or the loader was moved.
    Invalid,
    /// No batch is ready.
    Nothing,
}

fn moved_meanwhile() -> Error {
    Error::usage(
        "this iterator is no longer valid: while it waited, another thread started an iter(), loaded a state or set the \
         epoch",
    )
    .help("use one iterator at a time, or create a second loader")
}
