//! Python handle for a loader, which assembles batches in the background and returns them as dictionaries of arrays.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use dsconvert::error::{Error, Result};
use dsconvert::reader::batch::Layout;
use dsconvert::reader::loader::{self, LoaderCounts, LoaderState, Next};
use dsconvert::storage::interrupt::INTERVAL;
use pyo3::prelude::*;

use crate::batch_info::{BatchInfo, BatchInfoTuple};
use crate::columns::object;
use crate::dataset::Split;
use crate::error::raise;
use crate::finisher::{FinishingThreads, PythonFinisher, shut_down};
use crate::interrupt::detached;
use crate::options::loader_options;
use crate::plan::NOT_A_STATE;
use crate::progress::{LoaderProgress, Offer, ReadyBatch};

/// How often a thread checks whether another one has prepared its batch. Two threads rarely share an iterator.
const PREPARATION_CHECK: Duration = Duration::from_millis(1);

/// Batches of one split for one rank.
///
/// Functions of the user may call every method while the loader makes a batch, on the calling thread or on another one.
/// The methods that return something therefore use `progress` and `counts` only, and the others are refused.
#[pyclass(frozen, module = "dsconvert._native")]
#[derive(Debug)]
pub(crate) struct Loader {
    /// Locked while a batch is made, which may need the GIL. So threads release the GIL before they lock it.
    loader: Mutex<loader::Loader>,
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

/// What a wait for the next batch has led to.
enum Waited {
    /// The batch may be ready, and signals are to be checked.
    Awake,
    /// The epoch is over.
    Done,
}

/// Name of a source of a mixture, requested share, realized share, passes.
type SourceTuple = (String, f64, f64, f64);

/// Rows, tokens, padded tokens, labels, trained tokens, sources of a mixture.
type TotalsTuple = (u64, u64, u64, Option<u64>, Option<u64>, Vec<SourceTuple>);

impl Loader {
    /// Locks the loader. The caller has released the GIL.
    fn lock(&self) -> MutexGuard<'_, loader::Loader> {
        self.loader.lock().unwrap_or_else(PoisonError::into_inner)
    }

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
        py.detach(|| {
            let mut loader = self.lock();
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

    /// Raises an error if another iteration was started, or the loader was moved.
    fn check_iteration(&self, py: Python<'_>, iteration: u64) -> PyResult<()> {
        if self.progress(py).iteration == iteration { Ok(()) } else { Err(raise(moved_meanwhile())) }
    }

    /// Waits up to [`INTERVAL`] for the next batch and makes it ready to be returned.
    fn wait_for_next(&self) -> Result<Waited> {
        let mut loader = self.lock();
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
                return Ok(Waited::Done);
            }
            Next::NotYet => return Ok(Waited::Awake),
        };
        let (after, info) = (loader.state(), BatchInfo::of(&batch));
        let blank = batch.blank_rows().iter().map(|row| row.error.to_string()).collect();
        let noted = Python::try_attach(|py| {
            // Making Python objects may run code of the user, such as finalizers of collected garbage.
            let object = self.finishing.during(|| object(py, &mut batch, self.as_torch));
            self.progress(py).ready.push_back(ReadyBatch { object, info, blank, before, after });
        });
        noted.ok_or_else(shut_down)?;
        Ok(Waited::Awake)
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
    #[new]
    #[pyo3(signature = (split, options, rank_layout, as_torch, finish=None, assemble=true))]
    fn new(
        py: Python<'_>,
        split: &Bound<'_, Split>,
        options: &str,
        rank_layout: (u64, u64, u64),
        as_torch: bool,
        finish: Option<Py<PyAny>>,
        assemble: bool,
    ) -> PyResult<Self> {
        let source = Arc::clone(split.get().source());
        let finishing = Arc::new(FinishingThreads::default());
        let finisher =
            finish.map(|function| PythonFinisher { function, as_torch, finishing: Arc::clone(&finishing) });
        let loader = detached(py, source.is_remote(), || {
            let (rank, world_size, replication) = rank_layout;
            let rank_layout = Layout::replicated(rank, world_size, replication)?;
            let options = loader_options(options, rank_layout, &*source, assemble)?;
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
            loader: Mutex::new(loader),
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
            self.check_iteration(py, iteration)?;
            let offer = self.progress(py).offer(py, prepare.is_some());
            match offer {
                Offer::Returned(object) => return object.map(|object| Some(object.into_bound(py))),
                Offer::ToPrepare(object, blank) => {
                    // May run code of the user and signal handlers, so nothing is locked.
                    let prepared = match prepare {
                        Some(prepare) => self.finishing.during(|| prepare.call1((object, blank))),
                        None => Ok(object.into_bound(py)),
                    };
                    self.progress(py).is_preparing = false;
                    let prepared = prepared?;
                    self.check_iteration(py, iteration)?;
                    // Released without the locked progress, as it may run a finalizer.
                    let _unprepared = self.progress(py).take_ready();
                    return Ok(Some(prepared));
                }
                Offer::InPreparation => {
                    py.detach(|| thread::sleep(PREPARATION_CHECK));
                    continue;
                }
                Offer::Nothing => {}
            }
            match py.detach(|| self.wait_for_next()).map_err(raise)? {
                Waited::Awake => {}
                Waited::Done => return Ok(None),
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
            py.detach(|| self.lock().stop());
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
    fn last(&self, py: Python<'_>) -> Option<BatchInfoTuple> {
        self.progress(py).last.as_ref().map(|(info, _)| info.clone().into_tuple())
    }

    /// Returns the rows, tokens, padded tokens, labels when packed, and trained tokens of the step of the last batch, over all
    /// ranks, and the sources of a mixture.
    fn totals(&self, py: Python<'_>) -> PyResult<Option<TotalsTuple>> {
        let step =
            self.progress(py).last.as_ref().map(|(info, start)| (info.epoch, info.step, start.clone()));
        let Some((epoch, step, start)) = step else { return Ok(None) };
        let totals = detached(py, self.is_remote, || self.counts.totals(epoch, step, &start))?;
        Ok(totals.map(|all| {
            let sources = all.sources.into_iter();
            let sources = sources.map(|of| (of.name, of.requested, of.realized, of.epochs)).collect();
            (all.rows, all.tokens, all.padded_tokens, all.labels, all.trained, sources)
        }))
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // Detached, because the loader's threads may be waiting for the GIL, which this thread holds.
        let loader = self.loader.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = Python::try_attach(|py| py.detach(|| loader.stop()));
    }
}

fn moved_meanwhile() -> Error {
    Error::usage(
        "this iterator is no longer valid: while it waited, another thread started an iter(), loaded a state or set the \
         epoch",
    )
    .help("use one iterator at a time, or create a second loader")
}
