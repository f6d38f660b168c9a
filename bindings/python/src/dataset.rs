//! Python handles for datasets and their splits.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use dsconvert::error::{Error, Result};
use dsconvert::format::Format;
use dsconvert::reader::{self, ClassNames, Concatenated, Description, Mixture, RecordSource};
use dsconvert::report::{ClassCounts, DatasetReport, ReportOptions, summary_html};
use dsconvert::sample::Numbers;
use dsconvert::schema::{DType, HEIGHT, IMAGE, WIDTH};
use dsconvert::storage::{Access, ObjectUrl};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::buffer::{Buffer, to_numpy};
use crate::error::raise;
use crate::interrupt::detached;
use crate::options::mixture_options;
use crate::record::{DecodedRecord, FieldNames};

/// Returns the name of a format from which a loader reads token ids faster, and how many times as fast.
#[pyfunction]
pub(crate) fn faster_format(format: &str) -> PyResult<Option<(&'static str, f64)>> {
    let format: Format = format.parse().map_err(raise)?;
    Ok(format.faster_for_ids().map(|(faster, times)| (faster.name(), times)))
}

/// An opened dataset.
#[pyclass(frozen, module = "dsconvert._native")]
#[derive(Debug)]
pub(crate) struct Dataset(reader::Dataset);

#[pymethods]
impl Dataset {
    #[new]
    #[pyo3(signature = (path, *, add, mmap, verify_checksums, open_shards, read_ahead_bytes, cache_dir, cache_bytes, storage_options))]
    #[expect(clippy::too_many_arguments, reason = "they are the keyword arguments of `dsconvert.open`")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        add: Option<Vec<PathBuf>>,
        mmap: bool,
        verify_checksums: bool,
        open_shards: Option<usize>,
        read_ahead_bytes: Option<u64>,
        cache_dir: Option<PathBuf>,
        cache_bytes: Option<u64>,
        storage_options: Option<BTreeMap<String, String>>,
    ) -> PyResult<Self> {
        let access = if mmap { Access::Map } else { Access::Read };
        let mut options = reader::OpenOptions::new().access(access).verify_checksums(verify_checksums);
        if let Some(shards) = open_shards {
            options = options.open_shards(shards);
        }
        if let Some(bytes) = read_ahead_bytes {
            options = options.read_ahead_bytes(bytes);
        }
        if let Some(dir) = cache_dir {
            options = options.cache_dir(dir);
        }
        if let Some(bytes) = cache_bytes {
            options = options.cache_bytes(bytes);
        }
        for (name, value) in storage_options.unwrap_or_default() {
            options = options.storage_option(name, value);
        }
        let add = add.unwrap_or_default();
        // The keys of a dataset that was converted again are compared, which may take long.
        let may_wait = !add.is_empty() || matches!(ObjectUrl::parse(&path), Ok(Some(_)));
        let options = add.into_iter().fold(options, reader::OpenOptions::add_companion);
        detached(py, may_wait, || options.open(path)).map(Self)
    }

    /// Fingerprint of the sources and options of the dataset, and of its companions.
    #[getter]
    fn fingerprint(&self) -> String {
        self.0.fingerprint()
    }

    /// `images`, `text` or `records`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.manifest().kind().name()
    }

    /// `parquet`, `arrow`, `msgpack` or `protobuf`.
    #[getter]
    fn format(&self) -> &'static str {
        self.0.manifest().format.name()
    }

    /// Names of the classes, in the order of their labels.
    #[getter]
    fn class_names(&self) -> Vec<String> {
        self.0.class_names().to_vec()
    }

    /// Names of the splits, in order.
    #[getter]
    fn splits(&self) -> Vec<String> {
        self.0.splits().map(|split| split.name().to_owned()).collect()
    }

    /// Returns the split called `name`, with all fields or the given ones. With `decode`, images are arrays.
    #[pyo3(signature = (name, fields=None, decode=false))]
    fn split(
        &self,
        py: Python<'_>,
        name: &str,
        fields: Option<Vec<String>>,
        decode: bool,
    ) -> PyResult<Split> {
        let mut split = self.0.split(name).map_err(raise)?;
        let mut visible = split.schema().fields.len();
        if let Some(fields) = fields {
            let mut fields: Vec<&str> = fields.iter().map(String::as_str).collect();
            visible = fields.len();
            if decode && fields.contains(&IMAGE) {
                // Decoding needs the size. Fields without an entry in `names` are not returned.
                fields.extend(
                    [WIDTH, HEIGHT].iter().filter(|name| !fields.contains(name)).copied().collect::<Vec<_>>(),
                );
            }
            split = split.select(&fields).map_err(raise)?;
        }
        let names = FieldNames::of(py, split.schema(), visible);
        Ok(Split { names, source: split.clone().into(), split: Some(split), decode })
    }

    /// Returns counts, sizes, lengths, histograms and labels, as JSON, and warnings.
    fn describe(&self, py: Python<'_>) -> PyResult<(String, Vec<String>)> {
        detached(py, self.0.is_remote(), || {
            let description = Description::Dataset(Box::new(self.0.describe()?));
            let mut warnings = Vec::new();
            let classes = ClassCounts::of(&self.0, &mut |split, error| {
                warnings.push(format!("labels of {split} cannot be read: {error}"));
            });
            Ok((classes.describe(&description)?.to_string(), warnings))
        })
    }

    /// Returns a compact description as HTML, for notebooks.
    fn summary_html(&self, py: Python<'_>) -> PyResult<String> {
        let options = ReportOptions {
            thumbnails: NOTEBOOK_THUMBNAILS,
            documents: 0,
            compact: true,
            ..ReportOptions::default()
        };
        detached(py, self.0.is_remote(), || {
            DatasetReport::of(&self.0, &options).map(|report| summary_html(&report))
        })
    }
}

/// Thumbnails per split in a notebook.
const NOTEBOOK_THUMBNAILS: usize = 12;

/// One split of a dataset, or several read as one.
#[pyclass(frozen, module = "dsconvert._native")]
#[derive(Debug)]
pub(crate) struct Split {
    source: Arc<dyn RecordSource>,
    /// The split, if it is a single one.
    split: Option<reader::Split>,
    names: FieldNames,
    decode: bool,
}

impl Split {
    /// Returns the records.
    pub(crate) fn source(&self) -> &Arc<dyn RecordSource> {
        &self.source
    }

    fn records(&self) -> u64 {
        self.source.lengths().records()
    }

    fn read(&self, records: &[u64]) -> Result<Vec<DecodedRecord>> {
        let records = match (&self.split, records) {
            // Reads ahead if ordinals follow each other.
            (Some(split), [record]) => vec![split.get(*record)?],
            _ => self.source.get_many(records)?,
        };
        records.into_iter().map(|record| self.decoded(record)).collect()
    }

    fn decoded(&self, record: reader::Record) -> Result<DecodedRecord> {
        DecodedRecord::new(&*self.source, record, self.decode)
    }
}

/// Parts of a split, each with a name for messages.
pub(crate) type NamedSplits<'py> = Vec<(String, Bound<'py, Split>)>;

/// The same, as sources.
type NamedSources = Vec<(String, Arc<dyn RecordSource>)>;

fn class_names(merge_classes: bool) -> ClassNames {
    if merge_classes { ClassNames::Merged } else { ClassNames::Equal }
}

#[pymethods]
impl Split {
    /// Returns the records of several splits as one.
    #[staticmethod]
    fn concatenated(py: Python<'_>, parts: NamedSplits<'_>, merge_classes: bool) -> PyResult<Self> {
        let classes = class_names(merge_classes);
        Self::joined(py, parts, |sources| Ok(Arc::new(Concatenated::new(sources, classes)?)))
    }

    /// Returns several splits in given shares. `options` is a JSON object of the given options.
    #[staticmethod]
    fn mixture(py: Python<'_>, parts: NamedSplits<'_>, merge_classes: bool, options: &str) -> PyResult<Self> {
        let (classes, options) = (class_names(merge_classes), mixture_options(options).map_err(raise)?);
        Self::joined(py, parts, |sources| Ok(Arc::new(Mixture::new(sources, classes, options)?)))
    }

    fn __len__(&self) -> usize {
        // A split with more records than `usize::MAX` cannot be indexed anyway.
        usize::try_from(self.records()).unwrap_or(usize::MAX)
    }

    /// Names and types of the fields, in order.
    #[getter]
    fn fields(&self) -> Vec<(String, Cow<'static, str>)> {
        let fields = self.source.schema().fields.iter().take(self.names.len());
        fields.map(|field| (field.name.clone(), field.ty.name())).collect()
    }

    /// `images` or `text`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.source.schema().kind.name()
    }

    /// Names of the classes, in the order of their labels.
    #[getter]
    fn class_names(&self) -> Vec<String> {
        self.source.schema().class_names.clone()
    }

    /// Identifier of the records in saved states.
    #[getter]
    fn fingerprint(&self) -> String {
        self.source.fingerprint()
    }

    /// Returns the processor of the images of chats, as JSON.
    fn vision(&self) -> PyResult<Option<String>> {
        let vision = self.source.properties().vision;
        let json = vision.map(|vision| serde_json::to_string(&vision)).transpose();
        json.map_err(|e| raise(Error::not_serialized("the processor", e)))
    }

    /// Returns the record with the ordinal `record`.
    fn get<'py>(&self, py: Python<'py>, record: u64) -> PyResult<Bound<'py, PyDict>> {
        let missing = || Error::internal("the source returns no record").at_row(record);
        let record =
            detached(py, self.source.is_remote(), || self.read(&[record])?.pop().ok_or_else(missing))?;
        self.names.dict(py, record)
    }

    /// Returns the records with the ordinals `records`, in that order.
    fn get_many<'py>(&self, py: Python<'py>, records: Vec<u64>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let records = detached(py, self.source.is_remote(), || match &*records {
            [] => Ok(Vec::new()),
            records => self.read(records),
        })?;
        records.into_iter().map(|record| self.names.dict(py, record)).collect()
    }

    /// Iterates over all records in order, reading each shard and row group once.
    #[pyo3(name = "records")]
    fn iterate(slf: Bound<'_, Self>) -> Records {
        Records { records: Mutex::new(slf.get().source.iter()), split: slf.unbind() }
    }

    /// Returns the first record, the number of records and the size in bytes of each shard, in record order.
    fn shards(&self) -> PyResult<Vec<(u64, u64, u64)>> {
        let Some(split) = &self.split else {
            let error = Error::usage("several datasets that are read as one have no common list of shards");
            return Err(raise(error.help("read each dataset by itself")));
        };
        Ok(split.shards().iter().map(|shard| (shard.first_record, shard.records, shard.bytes)).collect())
    }

    /// Returns the length of a record, from the index.
    fn length(&self, py: Python<'_>, record: u64) -> PyResult<u64> {
        detached(py, self.source.is_remote(), || self.source.lengths().length_of(record))
    }

    /// Returns the same split, whose lengths are those of the column `name` of the record index.
    fn with_length(&self, py: Python<'_>, name: &str) -> PyResult<Self> {
        let split = self.single()?;
        let source = detached(py, self.source.is_remote(), || reader::Measured::new(split.clone(), name))?;
        let names = FieldNames::of(py, split.schema(), self.names.len());
        Ok(Self { names, source: Arc::new(source), split: Some(split.clone()), decode: self.decode })
    }

    /// Returns the column `name` of the record index, as an array.
    fn index_column<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let split = self.single()?;
        let column = detached(py, self.source.is_remote(), || split.index_column_of_all(name))?;
        let shape = vec![column.len()];
        let bytes = Bytes::from(column.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
        to_numpy(py, Buffer::shared(Numbers { dtype: DType::UInt32, shape, bytes: &bytes }))
    }

    /// Returns the lengths of all records, as an array.
    fn lengths<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let lengths = detached(py, self.source.is_remote(), || {
            if let Some(split) = &self.split {
                // Checks the number of records before memory is allocated for them.
                split.record_index()?;
            }
            let mut bytes = Vec::with_capacity(self.__len__().saturating_mul(size_of::<u64>()));
            for record in 0..self.records() {
                bytes.extend_from_slice(&self.source.lengths().length_of(record)?.to_le_bytes());
            }
            Ok(Bytes::from(bytes))
        });
        let lengths = lengths?;
        let shape = vec![lengths.len() / DType::UInt64.bytes()];
        to_numpy(py, Buffer::shared(Numbers { dtype: DType::UInt64, shape, bytes: &lengths }))
    }
}

impl Split {
    /// Returns the split if it is a single one.
    fn single(&self) -> PyResult<&reader::Split> {
        let several = || {
            let error = Error::usage("several datasets that are read as one have no common record index");
            raise(error.help("read each dataset by itself"))
        };
        self.split.as_ref().ok_or_else(several)
    }

    /// Returns the source that `join` makes of several splits.
    fn joined(
        py: Python<'_>,
        parts: NamedSplits<'_>,
        join: impl FnOnce(NamedSources) -> Result<Arc<dyn RecordSource>> + Send,
    ) -> PyResult<Self> {
        let decode = parts.iter().any(|(_, part)| part.get().decode);
        // Fields that only decoding needs come last.
        let hidden: Vec<String> = parts.iter().flat_map(|(_, part)| part.get().hidden_fields()).collect();
        let sources: NamedSources =
            parts.into_iter().map(|(name, part)| (name, Arc::clone(&part.get().source))).collect();
        let is_remote = sources.iter().any(|(_, source)| source.is_remote());
        let source = detached(py, is_remote, || join(sources))?;
        let visible = source.schema().fields.iter().filter(|field| !hidden.contains(&field.name)).count();
        let names = FieldNames::of(py, source.schema(), visible);
        Ok(Self { source, split: None, names, decode })
    }

    /// Returns the names of the fields that records do not return.
    fn hidden_fields(&self) -> Vec<String> {
        let fields = self.source.schema().fields.iter().skip(self.names.len());
        fields.map(|field| field.name.clone()).collect()
    }
}

type RecordIterator = Box<dyn Iterator<Item = Result<reader::Record>> + Send>;

/// Iterator over the records of a split.
#[pyclass(frozen, module = "dsconvert._native")]
pub(crate) struct Records {
    records: Mutex<RecordIterator>,
    split: Py<Split>,
}

#[pymethods]
impl Records {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let split = self.split.get();
        // After a panic, the iterator is still between two records and can continue.
        let next = || {
            let record = self.records.lock().unwrap_or_else(PoisonError::into_inner).next();
            record.transpose()?.map(|record| split.decoded(record)).transpose()
        };
        let record = detached(py, split.source.is_remote(), next)?;
        record.map(|record| split.names.dict(py, record)).transpose()
    }
}
