//! Python handle of a loader: returns batches as dictionaries of arrays, which are made in the background.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dsconvert::error::{Error, ErrorKind, Result};
use dsconvert::reader::batch::{Layout, Position};
use dsconvert::reader::loader::{
    self, Batching, Column, Crop, IdType, ImageLayout, LabelsFor, LoaderOptions, LoaderState, MAX_CROP,
    MAX_THREADS, Next, PadSide, StoredPacking,
};
use dsconvert::schema::Kind;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use serde::Deserialize;

use crate::buffer::{Buffer, to_numpy, to_torch};
use crate::dataset::Split;
use crate::error::raise;
use crate::options::{Given, batch_options, pack_options};
use crate::record::view;

/// Interval between checks for Python signals.
const PATIENCE: Duration = Duration::from_millis(50);

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
    last: Option<(Info, LoaderState)>,
    /// Errors of the images of its blank rows.
    blank: Vec<String>,
}

/// Information about a batch beyond its arrays: epoch, step, micro-batch, rows, filler rows, tokens, longest length,
/// the ordinals of its records, and the ordinals of the records whose rows are blank.
type Info = (u64, u64, u64, usize, usize, u64, u64, Vec<u64>, Vec<u64>);

/// Rows, tokens, padded tokens, labels.
type TotalsTuple = (u64, u64, u64, Option<u64>);

impl Loader {
    fn lock(&self) -> MutexGuard<'_, LoaderInner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Loader {
    /// `options` is a JSON object of the given options. `finish` is called on the thread that made a batch, with the
    /// batch as a dictionary and with the information that [`Loader::last`] returns. Its result replaces the batch.
    #[new]
    #[pyo3(signature = (split, options, layout, as_torch, finish=None))]
    fn new(
        py: Python<'_>,
        split: &Bound<'_, Split>,
        options: &str,
        layout: (u64, u64, u64),
        as_torch: bool,
        finish: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let split = split.get().inner().clone();
        let loader = py.detach(|| {
            let (rank, world_size, replication) = layout;
            let layout = Layout::replicated(rank, world_size, replication)?;
            let options = loader_options(options, layout, &split)?;
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

    /// Returns the state in a forked child process, where a thread that no longer exists may hold the lock forever.
    /// Returns `None` if so.
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
            .map_err(|e| raise(Error::usage("this is no state of a loader").caused_by(e)))?;
        py.detach(|| {
            let mut held = self.lock();
            held.last = None;
            held.loader.restore(&state)
        })
        .map_err(raise)
    }

    /// Returns information about the last batch.
    fn last(&self) -> Option<Info> {
        self.lock().last.as_ref().map(|(info, _)| info.clone())
    }

    /// Returns the errors of the images of the blank rows of the last batch, row by row.
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
        // Detached, because the loader's threads may wait for the interpreter's lock, which this thread holds.
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
        None => return Err(Error::new(ErrorKind::Internal, "the interpreter has ended")),
    };
    batch.attach(Box::new(made));
    Ok(batch)
}

fn info_of(batch: &loader::Batch) -> Info {
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
    serde_json::to_string(state).map_err(|e| raise(Error::corrupt("the state is no JSON").caused_by(e)))
}

impl LoaderInner {
    fn next(&mut self) -> Result<Next> {
        let before = self.loader.state();
        let next = self.loader.next_within(PATIENCE)?;
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
                list.append(ids.as_ref().map(|ids| to_numpy(py, view(ids))).transpose()?)?;
            }
            list.into_any()
        }
        other => {
            let what = format!("this build cannot hand out {other:?}");
            return Err(raise(Error::new(ErrorKind::Unsupported, what)));
        }
    })
}

/// Options that apply only to images.
const IMAGE_OPTIONS: [&str; 9] = [
    "decode",
    "center_crop",
    "random_resized_crop",
    "crop_scale",
    "crop_ratio",
    "hflip",
    "layout",
    "channels",
    "undecodable",
];

/// Options that apply only to text.
const TEXT_OPTIONS: [&str; 10] = [
    "seq_len",
    "packing",
    "pack_window",
    "pad_id",
    "pad_side",
    "pad_to_multiple_of",
    "labels_for",
    "shift_labels",
    "id_dtype",
    "stored_packing",
];

/// Parses the options of a loader, including those of its plan.
fn loader_options(json: &str, layout: Layout, split: &dsconvert::reader::Split) -> Result<LoaderOptions> {
    let mut given = Given::parse(json)?;
    match split.schema().kind {
        Kind::Images => given.refuse(&TEXT_OPTIONS, "the dataset holds images")?,
        Kind::Text => given.refuse(&IMAGE_OPTIONS, "the dataset holds text")?,
    }
    if split.packed_length().is_none() {
        given.refuse(&["stored_packing"], "the records are not packed")?;
    }
    if !given.has("seq_len") {
        given.refuse(&["packing", "pack_window"], "rows are packed only with seq_len")?;
    }
    let batching = match given.take("seq_len")? {
        Some(seq_len) => Batching::Packed(pack_options(&mut given, seq_len)?),
        None => Batching::Records(batch_options(&mut given)?),
    };
    let mut options = LoaderOptions::new(batching);
    options.layout = layout;
    options.micro_batches = given.take("micro_batches")?;
    options.prefetch = given.take("prefetch")?;
    options.fields = given.take("fields")?;
    if let Some(seed) = given.take("seed")? {
        options.seed = seed;
    }
    if let Some(threads) = given.take("num_threads")? {
        if threads > MAX_THREADS {
            return Err(Error::usage(format!("num_threads is {threads}, not between 0 and {MAX_THREADS}")));
        }
        options.threads = threads;
    }
    image_options(&mut given, &mut options.image)?;
    text_options(&mut given, &mut options.text)?;
    given.finish()?;
    Ok(options)
}

/// A side, or height and width.
#[derive(Deserialize)]
#[serde(untagged)]
enum Side {
    Square(u32),
    Sides(u32, u32),
}

impl Side {
    fn sides(&self) -> (u32, u32) {
        match *self {
            Side::Square(side) => (side, side),
            Side::Sides(height, width) => (height, width),
        }
    }

    /// Returns height and width, which must be valid for the option `name`.
    fn checked(&self, name: &str) -> Result<(u32, u32)> {
        let (height, width) = self.sides();
        if [height, width].iter().all(|side| (1..=MAX_CROP).contains(side)) {
            return Ok((height, width));
        }
        let what = format!("{name} is {height} × {width} pixels: each side is between 1 and {MAX_CROP}");
        Err(Error::usage(what))
    }
}

/// Returns the smallest and largest number of the option `name`, which must be within `limits`.
fn range(given: &mut Given, name: &str, default: (f64, f64), limits: (f64, f64)) -> Result<(f64, f64)> {
    let (least, most) = given.take(name)?.unwrap_or(default);
    if limits.0 <= least && least <= most && most <= limits.1 {
        return Ok((least, most));
    }
    let (low, high) = limits;
    Err(Error::usage(format!(
        "{name} is ({least}, {most}): it is the smallest and the largest number, between {low} and {high}"
    )))
}

fn image_options(given: &mut Given, image: &mut loader::ImageOptions) -> Result<()> {
    if let Some(decode) = given.take("decode")? {
        image.decode = decode;
        if !decode {
            given.refuse(&IMAGE_OPTIONS, "with decode=False, images come as they are stored")?;
        }
    }
    if let Some(hflip) = given.take("hflip")? {
        image.hflip = hflip;
    }
    image.crop = match (given.take::<Side>("center_crop")?, given.take::<Side>("random_resized_crop")?) {
        (None, None) => image.crop,
        (Some(side), None) => {
            let (height, width) = side.checked("center_crop")?;
            Crop::Center { height, width }
        }
        (None, Some(side)) => {
            let (height, width) = side.checked("random_resized_crop")?;
            let scale = range(given, "crop_scale", Crop::SCALE, (1e-6, 1.0))?;
            let ratio = range(given, "crop_ratio", Crop::RATIO, (1e-3, 1e3))?;
            Crop::RandomResized { height, width, scale, ratio }
        }
        _ => return Err(Error::usage("give center_crop or random_resized_crop, not both")),
    };
    if let Some(layout) = given.take::<String>("layout")? {
        image.layout = match layout.as_str() {
            "hwc" => ImageLayout::Hwc,
            "chw" => ImageLayout::Chw,
            other => return Err(Error::usage(format!("layout is \"hwc\" or \"chw\", not {other:?}"))),
        };
    }
    if let Some(channels) = given.take::<u64>("channels")? {
        image.channels = match channels {
            3 => loader::Channels::Rgb,
            1 => loader::Channels::Gray,
            other => return Err(Error::usage(format!("channels is 3 or 1, not {other}"))),
        };
    }
    if let Some(policy) = given.take::<String>("undecodable")? {
        image.undecodable = match policy.as_str() {
            "error" => loader::Undecodable::Error,
            "blank" => loader::Undecodable::Blank,
            other => {
                return Err(Error::usage(format!("undecodable is \"error\" or \"blank\", not {other:?}")));
            }
        };
    }
    Ok(())
}

fn text_options(given: &mut Given, text: &mut loader::TextOptions) -> Result<()> {
    if let Some(pad_id) = given.take("pad_id")? {
        text.pad_id = pad_id;
    }
    if let Some(side) = given.take::<String>("pad_side")? {
        text.pad_side = match side.as_str() {
            "right" => PadSide::Right,
            "left" => PadSide::Left,
            other => return Err(Error::usage(format!("pad_side is \"right\" or \"left\", not {other:?}"))),
        };
    }
    text.labels_for = match (given.take::<String>("labels_for")?, given.take::<bool>("shift_labels")?) {
        (Some(_), Some(_)) => return Err(Error::usage("give labels_for or shift_labels, not both")),
        (None, None) => None,
        (None, Some(true)) => Some(LabelsFor::NextToken),
        (None, Some(false)) => Some(LabelsFor::HuggingFace),
        (Some(name), None) => Some(match name.as_str() {
            "huggingface" => LabelsFor::HuggingFace,
            "next_token" => LabelsFor::NextToken,
            other => {
                let what = format!("labels_for is \"huggingface\" or \"next_token\", not {other:?}");
                return Err(Error::usage(what));
            }
        }),
    };
    if let Some(policy) = given.take::<String>("stored_packing")? {
        text.stored_packing = match policy.as_str() {
            "keep" => StoredPacking::Keep,
            "ignore" => StoredPacking::Ignore,
            other => {
                let what = format!("stored_packing is \"keep\" or \"ignore\", not {other:?}");
                return Err(Error::usage(what));
            }
        };
    }
    if let Some(dtype) = given.take::<String>("id_dtype")? {
        text.ids = match dtype.as_str() {
            "int64" => IdType::Int64,
            "int32" => IdType::Int32,
            other => return Err(Error::usage(format!("id_dtype is \"int64\" or \"int32\", not {other:?}"))),
        };
    }
    Ok(())
}
