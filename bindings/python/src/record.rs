//! Records as Python dictionaries.

use bytes::Bytes;
use dsconvert::error::{Error, Result};
use dsconvert::reader::loader::{Array, decode_image};
use dsconvert::reader::{Record, RecordSource};
use dsconvert::sample::{Ids, Numbers, Text, Value};
use dsconvert::schema::{FieldType, IMAGE, Schema};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::buffer::{Buffer, to_numpy};
use crate::error::raise;

/// A record with its image, if that was decoded.
#[derive(Debug)]
pub(crate) struct DecodedRecord {
    record: Record,
    /// Index of the image field, and the decoded image.
    image: Option<(usize, Array)>,
}

impl DecodedRecord {
    /// Decodes the image of `record`, a record of `source`, if `decode` is set and there is an image.
    pub(crate) fn new(source: &dyn RecordSource, record: Record, decode: bool) -> Result<Self> {
        let index = record.schema().index_of(IMAGE).filter(|_| decode);
        let image = index.map(|index| Ok((index, decode_image(source, &record)?))).transpose()?;
        Ok(Self { record, image })
    }
}

/// Field names as Python strings, created once and shared by the dictionaries of records.
#[derive(Debug)]
pub(crate) struct FieldNames(Vec<Py<PyString>>);

impl FieldNames {
    /// Returns the names of the first `count` fields.
    pub(crate) fn of(py: Python<'_>, schema: &Schema, count: usize) -> Self {
        let fields = schema.fields.iter().take(count);
        Self(fields.map(|field| PyString::intern(py, &field.name).unbind()).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns a dictionary of names and values, in order. Values without a name are left out.
    pub(crate) fn dict<'py>(&self, py: Python<'py>, decoded: DecodedRecord) -> PyResult<Bound<'py, PyDict>> {
        let DecodedRecord { record, image } = decoded;
        let dict = PyDict::new(py);
        for (name, (_, ty, value)) in self.0.iter().zip(record.fields()) {
            let value = to_python(py, ty, value)?;
            dict.set_item(name, value)?;
        }
        if let Some((index, array)) = image
            && let Some(name) = self.0.get(index)
        {
            dict.set_item(name, to_numpy(py, Buffer::sole(array))?)?;
        }
        Ok(dict)
    }
}

/// Converts a value. Text and encoded images are copied, because `str` and `bytes` own their content; numbers are not.
fn to_python<'py>(py: Python<'py>, ty: FieldType, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    if let Some(numbers) = Numbers::of(ty, value) {
        return to_numpy(py, Buffer::shared(numbers));
    }
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(b) => b.into_pyobject(py)?.to_owned().into_any(),
        Value::Int(i) => i.into_pyobject(py)?.into_any(),
        Value::UInt(u) => u.into_pyobject(py)?.into_any(),
        Value::Float(x) => x.into_pyobject(py)?.into_any(),
        Value::Text(text) => PyString::new(py, text.as_str()).into_any(),
        Value::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        Value::Ids(ids) => to_numpy(py, ids_buffer(ids))?,
        Value::Texts(texts) => text_list(py, texts)?.into_any(),
        Value::Files(files) => file_list(py, files)?.into_any(),
        Value::Array(_) => return Err(raise(Error::internal("an array of another type"))),
    })
}

/// Copies a list of texts.
pub(crate) fn text_list<'py>(py: Python<'py>, texts: &[Text]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, texts.iter().map(|text| text.as_str()))
}

/// Copies a list of files.
pub(crate) fn file_list<'py>(py: Python<'py>, files: &[Bytes]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, files.iter().map(|file| PyBytes::new(py, file)))
}

/// Returns the ids as a buffer.
pub(crate) fn ids_buffer(ids: &Ids) -> Buffer {
    Buffer::shared(ids.numbers())
}
