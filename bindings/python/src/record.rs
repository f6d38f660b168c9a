//! Records as dictionaries.

use bytes::Bytes;
use dsconvert::error::Result;
use dsconvert::reader::loader::{Array, decode_image};
use dsconvert::reader::{Record, Split};
use dsconvert::sample::{Ids, Value};
use dsconvert::schema::{IMAGE, IdWidth, Schema};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::buffer::{Buffer, Item, to_numpy};

/// A record whose image may be decoded.
#[derive(Debug)]
pub(crate) struct Decoded {
    record: Record,
    /// Its field and what becomes of it.
    image: Option<(usize, Array)>,
}

impl Decoded {
    /// Decodes the image of `record`, which is of `split`, when that is wanted and it has one.
    pub(crate) fn new(split: &Split, record: Record, decode: bool) -> Result<Self> {
        let place = record.schema().index_of(IMAGE).filter(|_| decode);
        let image = place.map(|place| Ok((place, decode_image(split, &record)?))).transpose()?;
        Ok(Self { record, image })
    }
}

/// The names of the fields as Python strings, made once: dictionaries of records share them.
#[derive(Debug)]
pub(crate) struct Names(Vec<Py<PyString>>);

impl Names {
    pub(crate) fn of(py: Python<'_>, schema: &Schema) -> Self {
        Self(schema.fields.iter().map(|field| PyString::intern(py, &field.name).unbind()).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self(self.0.iter().map(|name| name.clone_ref(py)).collect())
    }

    /// Names and values, in order. Values that have no name are left out.
    pub(crate) fn dict<'py>(&self, py: Python<'py>, decoded: Decoded) -> PyResult<Bound<'py, PyDict>> {
        let Decoded { record, image } = decoded;
        let dict = PyDict::new(py);
        for (name, value) in self.0.iter().zip(record.values()) {
            dict.set_item(name, to_python(py, value)?)?;
        }
        if let Some((place, array)) = image
            && let Some(name) = self.0.get(place)
        {
            dict.set_item(name, to_numpy(py, Buffer::sole(array))?)?;
        }
        Ok(dict)
    }
}

/// Texts and encoded images are copied, since `str` and `bytes` own what they hold; token ids are viewed.
fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(b) => b.into_pyobject(py)?.to_owned().into_any(),
        Value::Int(i) => i.into_pyobject(py)?.into_any(),
        Value::UInt(u) => u.into_pyobject(py)?.into_any(),
        Value::Float(x) => x.into_pyobject(py)?.into_any(),
        Value::Text(text) => PyString::new(py, text.as_str()).into_any(),
        Value::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        Value::Ids(ids) => to_numpy(py, view(ids))?,
    })
}

/// The ids where they lie. Streams of records have them at any byte: what is not aligned is copied, because programs
/// that get an array by its address may rely on it.
pub(crate) fn view(ids: &Ids) -> Buffer {
    let item = match ids.width() {
        IdWidth::U16 => Item::U16,
        IdWidth::U32 => Item::U32,
    };
    let bytes = ids.as_bytes();
    let aligned = bytes.as_ptr().addr().is_multiple_of(ids.width().bytes());
    let bytes = if aligned { bytes.clone() } else { Bytes::copy_from_slice(bytes) };
    Buffer::shared(bytes, item)
}
