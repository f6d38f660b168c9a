//! Python handle for a loader, which assembles batches in the background and returns them as dictionaries of arrays.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dsconvert::error::{Error, ErrorKind, Result};
use dsconvert::reader::batch::{Layout, Position};
use dsconvert::reader::loader::{self, Column, LabelsFor, LoaderState, Next};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::buffer::{Buffer, to_numpy, to_torch};
use crate::dataset::Split;
use crate::error::raise;
use crate::options::loader_options;
use crate::record::ids_buffer;

/// Interval between checks for Python signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Batches of one split for one rank.
#[pyclass(frozen, module = "dsconvert._native")]
#[derive(Debug)]
pub(crate) struct Loader {
    state: Mutex<LoaderInner>,
    as_torch: bool,
}

#[derive(Debug)]
struct LoaderInner {
    loader: loader::Loader,
    /// Information about the last batch, and the state before the first batch of its step.
    last: Option<(BatchInfo, LoaderState)>,
    /// Decoding errors of its blank rows.
    blank: Vec<String>,
}

/// Information about a batch beyond its arrays: epoch, step, micro-batch, rows, filler rows, tokens, longest length,
/// the ordinals of its records, and the ordinals of the records whose rows are blank.
type BatchInfo = (u64, u64, u64, usize, usize, u64, u64, Vec<u64>, Vec<u64>);

/// Rows, tokens, padded tokens, labels.
type TotalsTuple = (u64, u64, u64, Option<u64>);

impl Loader {
    fn lock(&self) -> MutexGuard<'_, LoaderInner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Loader {
    /// Creates a loader. `options` is a JSON object of the given options. `finish` is called on the thread that made a
    /// batch, with the batch as a dictionary and the information that [`Loader::last`] returns. Its result replaces the
    /// batch. If `assemble` is false, the batch is empty, and `finish` reads the records.
    #[new]
    #[pyo3(signature = (split, options, layout, as_torch, finish=None, assemble=true))]
    fn new(
        py: Python<'_>,
        split: &Bound<'_, Split>,
        options: &str,
        layout: (u64, u64, u64),
        as_torch: bool,
        finish: Option<Py<PyAny>>,
        assemble: bool,
    ) -> PyResult<Self> {
        let split = split.get().inner().clone();
        let loader = py.detach(|| {
            let (rank, world_size, replication) = layout;
            let layout = Layout::replicated(rank, world_size, replication)?;
            let options = loader_options(options, layout, &split, assemble)?;
            let loader = loader::Loader::new(split, options)?;
            Ok(match finish {
                Some(finish) => loader.finish_with(Arc::new(move |batch| finished(batch, &finish, as_torch))),
                None => loader,
            })
        });
        let state = LoaderInner { loader: loader.map_err(raise)?, last: None, blank: Vec::new() };
        Ok(Self { state: Mutex::new(state), as_torch })
    }

    /// Returns the next batch, or `None` at the end of the epoch.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        loop {
            match py.detach(|| self.lock().next()).map_err(raise)? {
                Next::Batch(mut batch) => {
                    if let Some(Ok(made)) = batch.take_attached().map(|made| made.downcast::<Py<PyAny>>()) {
                        return Ok(Some(made.into_bound(py)));
                    }
                    return dict(py, batch.take_columns(), self.as_torch).map(|dict| Some(dict.into_any()));
                }
                Next::Done => return Ok(None),
                Next::NotYet => py.check_signals()?,
            }
        }
    }

    /// Returns the number of batches per epoch.
    fn len(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.lock().loader.len()).map_err(raise)
    }

    /// Returns the number of batches left in the epoch.
    fn remaining(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.lock().loader.remaining()).map_err(raise)
    }

    /// Returns the number of global steps per epoch.
    fn steps(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.lock().loader.steps()).map_err(raise)
    }

    /// Micro-batches per global step, over all ranks.
    #[getter]
    fn micro_batches(&self) -> u64 {
        self.lock().loader.micro_batches()
    }

    #[getter]
    fn epoch(&self) -> u64 {
        self.lock().loader.epoch()
    }

    /// Goes to the start of an epoch.
    fn set_epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        py.detach(|| self.lock().loader.set_epoch(epoch)).map_err(raise)
    }

    /// Returns the state after the returned batches, as JSON.
    fn state(&self) -> PyResult<String> {
        json(&self.lock().loader.state())
    }

    /// Returns the state in a forked child process. Returns `None` if a thread of the parent held the lock at the fork,
    /// because the lock is then never released.
    fn state_of_parent(&self) -> PyResult<Option<String>> {
        self.state.try_lock().ok().map(|state| json(&state.loader.state())).transpose()
    }

    /// Stops the threads and drops the batches they have prepared.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.lock().loader.stop());
    }

    /// Goes to the position of a saved state.
    fn restore(&self, py: Python<'_>, state: &str) -> PyResult<()> {
        let state: LoaderState = serde_json::from_str(state)
            .map_err(|e| raise(Error::usage("this is not the state of a loader").caused_by(e)))?;
        py.detach(|| {
            let mut inner = self.lock();
            inner.last = None;
            inner.loader.restore(&state)
        })
        .map_err(raise)
    }

    /// Returns information about the last batch.
    fn last(&self) -> Option<BatchInfo> {
        self.lock().last.as_ref().map(|(info, _)| info.clone())
    }

    /// Returns the decoding errors of the blank rows of the last batch, in row order.
    fn blank(&self) -> Vec<String> {
        self.lock().blank.clone()
    }

    /// Returns the rows, tokens, padded tokens and, when packed, labels of the step of the last batch, over all ranks.
    fn totals(&self, py: Python<'_>) -> PyResult<Option<TotalsTuple>> {
        py.detach(|| self.lock().totals()).map_err(raise)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // Detached, because the loader's threads may be waiting for the GIL, which this thread holds.
        let _ = Python::try_attach(|py| py.detach(|| self.lock().loader.stop()));
    }
}

/// Returns the batch with the result of `finish` attached.
fn finished(mut batch: loader::Batch, finish: &Py<PyAny>, as_torch: bool) -> Result<loader::Batch> {
    let (info, columns) = (info_of(&batch), batch.take_columns());
    let made = Python::try_attach(|py| -> PyResult<Py<PyAny>> {
        let made = finish.call1(py, (dict(py, columns, as_torch)?, info))?;
        Ok(made)
    });
    let made = match made {
        Some(Ok(made)) => made,
        Some(Err(error)) => {
            let id = batch.id();
            let what = format!(
                "raised by a transform of the Loader, in epoch {}, step {}, micro-batch {}",
                id.epoch, id.step, id.micro_batch
            );
            return Err(Error::usage(what).caused_by(error));
        }
        None => return Err(Error::new(ErrorKind::Internal, "the Python interpreter has shut down")),
    };
    batch.attach(Box::new(made));
    Ok(batch)
}

fn info_of(batch: &loader::Batch) -> BatchInfo {
    let id = batch.id();
    (
        id.epoch,
        id.step,
        id.micro_batch,
        batch.rows(),
        batch.filler_rows(),
        batch.tokens(),
        batch.max_len(),
        batch.records().to_vec(),
        batch.blank_rows().iter().map(|row| row.record).collect(),
    )
}

fn json(state: &LoaderState) -> PyResult<String> {
    serde_json::to_string(state).map_err(|e| raise(Error::not_serialized("the state", e)))
}

impl LoaderInner {
    fn next(&mut self) -> Result<Next> {
        let before = self.loader.state();
        let next = self.loader.next_within(SIGNAL_INTERVAL)?;
        if let Next::Batch(batch) = &next {
            let id = batch.id();
            let info = info_of(batch);
            self.blank = batch.blank_rows().iter().map(|row| row.error.to_string()).collect();
            let start = match self.last.take() {
                Some((last, start)) if (last.0, last.1) == (id.epoch, id.step) => start,
                _ => before,
            };
            self.last = Some((info, start));
        }
        Ok(next)
    }

    fn totals(&self) -> Result<Option<TotalsTuple>> {
        let Some(((epoch, step, ..), start)) = &self.last else { return Ok(None) };
        if let Some(plan) = self.loader.batch_plan() {
            let totals = plan.totals(Position { epoch: *epoch, step: *step })?;
            return Ok(Some((totals.records, totals.tokens, totals.padded_tokens, None)));
        }
        let (Some(plan), loader::SavedPlan::Packed(start)) = (self.loader.pack_plan(), &start.plan) else {
            return Ok(None);
        };
        let Some((step, _)) = plan.steps(start)?.next().transpose()? else { return Ok(None) };
        let rows = step.rows.len() as u64;
        let padded = rows.saturating_mul(plan.options().seq_len);
        let labels = match self.loader.options().text.labels_in(true) {
            LabelsFor::NextToken => step.labels(),
            LabelsFor::HuggingFace => step.tokens_after_first(),
        };
        Ok(Some((rows, step.tokens(), padded, Some(labels))))
    }
}

/// Returns the columns as a dictionary of arrays or tensors.
fn dict<'py>(
    py: Python<'py>,
    columns: Vec<(String, Column)>,
    as_torch: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, part) in columns {
        dict.set_item(PyString::intern(py, &name), column(py, part, as_torch)?)?;
    }
    Ok(dict)
}

/// Converts a column. Arrays are moved, lists are copied.
fn column(py: Python<'_>, column: Column, as_torch: bool) -> PyResult<Bound<'_, PyAny>> {
    Ok(match column {
        Column::Array(array) if as_torch => to_torch(py, Buffer::sole(array))?,
        Column::Array(array) => to_numpy(py, Buffer::sole(array))?,
        Column::Texts(texts) => {
            let text =
                |text: &Option<dsconvert::sample::Text>| text.as_ref().map(|t| PyString::new(py, t.as_str()));
            PyList::new(py, texts.iter().map(text))?.into_any()
        }
        Column::Bytes(rows) => {
            let bytes = |row: &Option<bytes::Bytes>| row.as_ref().map(|b| PyBytes::new(py, b));
            PyList::new(py, rows.iter().map(bytes))?.into_any()
        }
        Column::Ids(rows) => {
            let list = PyList::empty(py);
            for ids in &rows {
                list.append(ids.as_ref().map(|ids| to_numpy(py, ids_buffer(ids))).transpose()?)?;
            }
            list.into_any()
        }
        other => {
            let what = format!("cannot convert {other:?} to Python");
            return Err(raise(Error::new(ErrorKind::Unsupported, what)));
        }
    })
}
