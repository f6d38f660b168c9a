//! Datasets of records that Python programs write: units, one outcome per item, and the commit.
//!
//! `python/dsconvert/records` calls these classes, and nothing else does. A program opens the output, processes join it and
//! write units, and one of them commits, as [`dsconvert::writer`] describes.

use std::path::PathBuf;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dsconvert::error::{Error, Result};
use dsconvert::format::Format;
use dsconvert::sample::{Record, Reject, RejectCode};
use dsconvert::schema::{Field, Schema};
use dsconvert::storage::ObjectUrl;
use dsconvert::writer::{self, Existing, Placement, Provenance, ResumeCheck, WriterOptions};
use pyo3::prelude::*;
use pyo3::types::PyList;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::raise;
use crate::interrupt::detached;
use crate::value::from_python;

/// Fields of a dataset, besides the key.
#[derive(Deserialize)]
struct Fields {
    fields: Vec<Field>,
    #[serde(default)]
    class_names: Vec<String>,
    #[serde(default)]
    index_columns: Vec<String>,
}

/// Options of a writer.
#[derive(Deserialize)]
struct Options {
    units: u32,
    fingerprint: String,
    splits: Vec<String>,
    format: Format,
    shard_bytes: u64,
    shard_records: Option<u64>,
    existing: String,
    scratch: Option<PathBuf>,
    max_rejects: String,
    is_resumable: bool,
}

impl Options {
    fn parsed(self) -> Result<WriterOptions> {
        let Self {
            units,
            fingerprint,
            splits,
            format,
            shard_bytes,
            shard_records,
            scratch,
            is_resumable,
            ..
        } = self;
        let existing = match self.existing.as_str() {
            "resume" => Existing::Resume(ResumeCheck::Sizes),
            "overwrite" => Existing::Overwrite,
            _ => Existing::Refuse,
        };
        let max_rejects = self.max_rejects.parse().map_err(|e: Error| e.of_option("max_rejects"))?;
        let options = WriterOptions::new(units, fingerprint);
        Ok(WriterOptions {
            splits,
            format,
            shard_bytes,
            shard_records,
            existing,
            scratch,
            max_rejects,
            is_resumable,
            ..options
        })
    }
}

fn parsed<T: DeserializeOwned>(what: &str, json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|e| Error::usage(format!("{what} cannot be read: {e}")))
}

/// What only the process that made it may use, until it is taken out. A forked process has a copy, whose files and locks
/// are those of its parent: it can neither use nor drop it.
struct OfProcess<T> {
    made_by: u32,
    inner: Mutex<Option<T>>,
}

impl<T> OfProcess<T> {
    fn new(inner: T) -> Self {
        Self { made_by: process::id(), inner: Mutex::new(Some(inner)) }
    }

    /// Returns the content; `None` if it was taken out.
    fn lock(&self) -> Result<MutexGuard<'_, Option<T>>> {
        // Before the lock, which another thread may have held when the process was forked.
        if process::id() != self.made_by {
            return Err(Error::usage(
                "another process has opened this writer, and this one was forked from it",
            )
            .help("write in the process that opened it, or open another output here"));
        }
        Ok(self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if process::id() != self.made_by {
            // Dropping it would remove files that the parent is writing.
            std::mem::forget(self.inner.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

/// A dataset that is being written. Until `commit`, no reader sees it.
#[pyclass(frozen, module = "dsconvert._native")]
pub(crate) struct DatasetWriter {
    inner: OfProcess<writer::DatasetWriter>,
    schema: Schema,
    is_remote: bool,
}

impl DatasetWriter {
    fn with<T>(&self, read: impl FnOnce(&writer::DatasetWriter) -> Result<T>) -> Result<T> {
        match &*self.inner.lock()? {
            Some(writer) => read(writer),
            None => Err(Error::usage("the writer is closed")),
        }
    }
}

#[pymethods]
impl DatasetWriter {
    /// Opens `out` for this process alone or, with `join`, to write units of what another process has opened. `schema` and
    /// `options` are JSON objects.
    #[new]
    fn new(py: Python<'_>, out: PathBuf, schema: &str, options: &str, join: bool) -> PyResult<Self> {
        let is_remote = matches!(ObjectUrl::parse(&out), Ok(Some(_)));
        let made = || {
            let Fields { fields, class_names, index_columns } = parsed("the schema", schema)?;
            let names: Vec<&str> = index_columns.iter().map(String::as_str).collect();
            let schema = Schema { class_names, ..Schema::records(fields)? }.with_indexed(&names)?;
            let options = parsed::<Options>("the options", options)?.parsed()?;
            let inner = match join {
                true => writer::DatasetWriter::join(&out, &schema, &options),
                false => writer::DatasetWriter::open(&out, &schema, &options),
            }?;
            Ok(Self { inner: OfProcess::new(inner), schema, is_remote })
        };
        detached(py, is_remote, made)
    }

    /// Whether the same dataset is already committed.
    #[getter]
    fn committed(&self) -> PyResult<bool> {
        self.with(|writer| Ok(writer.committed().is_some())).map_err(raise)
    }

    /// Returns the numbers of the units that are not finished, ascending.
    fn unfinished(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        detached(py, self.is_remote, || self.with(writer::DatasetWriter::unfinished))
    }

    /// Starts to write a unit.
    fn unit(&self, py: Python<'_>, number: u32) -> PyResult<UnitWriter> {
        let inner = detached(py, self.is_remote, || self.with(|writer| writer.unit(number)))?;
        Ok(UnitWriter {
            inner: OfProcess::new(Box::new(inner)),
            schema: self.schema.clone(),
            is_remote: self.is_remote,
        })
    }

    /// Commits the dataset. `options` is a JSON object that the manifest has, and `binding` that of a companion. Returns the
    /// manifest as JSON.
    #[pyo3(signature = (options, sources, binding=None))]
    fn commit(
        &self,
        py: Python<'_>,
        options: &str,
        sources: Vec<String>,
        binding: Option<&str>,
    ) -> PyResult<String> {
        let commit = || {
            let provenance = Provenance {
                options: parsed("the options", options)?,
                sources,
                binding: binding.map(|binding| parsed("the binding", binding)).transpose()?,
                ..Provenance::default()
            };
            let writer = self.inner.lock()?.take().ok_or_else(|| Error::usage("the writer is closed"))?;
            let manifest = writer.commit(&provenance)?;
            serde_json::to_string(&manifest).map_err(|e| Error::not_serialized("the manifest", e))
        };
        detached(py, self.is_remote, commit)
    }

    /// Releases the output. Finished units are kept.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.lock().map(|mut writer| drop(writer.take()))).map_err(raise)
    }

    /// Releases the output, and removes everything that was written to it, and the directory itself if this created it.
    /// `unit` is one that nobody finishes.
    #[pyo3(signature = (unit=None))]
    fn abandon(&self, py: Python<'_>, unit: Option<&UnitWriter>) -> PyResult<()> {
        detached(py, self.is_remote, || {
            let unit = unit.map(|unit| unit.inner.lock().map(|mut unit| unit.take())).transpose()?.flatten();
            let writer = self.inner.lock()?.take();
            unit.map_or(Ok(()), |unit| unit.abandon())?;
            writer.map_or(Ok(()), writer::DatasetWriter::abandon)
        })
    }
}

/// A unit that is being written. It is final with `finish`, and absent before.
#[pyclass(frozen, module = "dsconvert._native")]
pub(crate) struct UnitWriter {
    /// In a box, because its hash is aligned to 64 bytes, and objects of Python to 16.
    inner: OfProcess<Box<writer::UnitWriter>>,
    schema: Schema,
    is_remote: bool,
}

impl UnitWriter {
    fn with(
        &self,
        py: Python<'_>,
        write: impl FnOnce(&mut writer::UnitWriter) -> Result<()> + Send,
    ) -> PyResult<()> {
        detached(py, self.is_remote, || match &mut *self.inner.lock()? {
            Some(unit) => write(unit),
            None => Err(Error::usage("the unit is finished")),
        })
    }
}

#[pymethods]
impl UnitWriter {
    /// Appends a record: one value per field of the schema, the key first. `continues` is set for a further record of the
    /// previous item. `UsageError` if a value does not fit; the unit is as before then.
    #[pyo3(signature = (values, split, continues=false))]
    fn push(&self, py: Python<'_>, values: &Bound<'_, PyList>, split: &str, continues: bool) -> PyResult<()> {
        let fields = &self.schema.fields;
        if values.len() != fields.len() {
            let what = format!("{} values for {} fields", values.len(), fields.len());
            return Err(raise(Error::usage(what)));
        }
        let values = fields.iter().zip(values).map(|(field, value)| from_python(field, &value));
        let record = Record { values: values.collect::<PyResult<_>>()? };
        self.with(py, |unit| unit.push(record, Placement { split, continues }))
    }

    /// Counts an item that cannot become a record.
    fn reject(&self, py: Python<'_>, origin: &str, code: &str, message: &str, split: &str) -> PyResult<()> {
        let code: RejectCode = serde_json::from_value(code.into())
            .map_err(|e| raise(Error::internal("unknown code of a reject").caused_by(e)))?;
        self.with(py, |unit| unit.reject(origin, Reject::new(code, message), split))
    }

    /// Counts an item that is left out.
    fn filter(&self, py: Python<'_>, origin: &str, reason: &str, split: &str) -> PyResult<()> {
        self.with(py, |unit| unit.filter(origin, reason, split))
    }

    /// Makes the unit final. Returns whether it is this one: if another process has finished the unit with other records,
    /// that result stays.
    fn finish(&self, py: Python<'_>) -> PyResult<bool> {
        detached(py, self.is_remote, || {
            let unit = self.inner.lock()?.take().ok_or_else(|| Error::usage("the unit is finished"))?;
            unit.finish_if_first().map(|result| result.is_some())
        })
    }
}
