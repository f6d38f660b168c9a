//! Conversion of batches to Python: dictionaries of arrays, tensors and lists, and the information about a batch.

use dsconvert::error::{Error, ErrorKind};
use dsconvert::reader::loader::{self, Array, BatchId, Column};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyList, PyString};

use crate::buffer::{Buffer, to_numpy, to_torch};
use crate::error::raise;
use crate::record::{file_list, ids_buffer, text_list};

/// Information about a batch beyond its arrays, in the order of the fields of the Python class `BatchInfo`: epoch, step,
/// micro-batch, rows, filler rows, tokens, greatest length, ordinals of the records and of those whose rows are blank, and
/// number of tokens that the loss is computed on.
pub(crate) type BatchInfo = (u64, u64, u64, usize, usize, u64, u64, Vec<u64>, Vec<u64>, Option<u64>);

pub(crate) fn batch_info(batch: &loader::Batch) -> BatchInfo {
    let BatchId { epoch, step, micro_batch } = batch.id();
    let (rows, filler_rows) = (batch.rows(), batch.filler_rows());
    let blank = batch.blank_rows().iter().map(|row| row.record).collect();
    let (tokens, max_length, records) = (batch.tokens(), batch.max_len(), batch.records().to_vec());
    (epoch, step, micro_batch, rows, filler_rows, tokens, max_length, records, blank, batch.trained())
}

/// Returns a batch in Python: the result of a function of the user, or a dictionary of arrays or tensors.
pub(crate) fn object(py: Python<'_>, batch: &mut loader::Batch, as_torch: bool) -> PyResult<Py<PyAny>> {
    if let Some(Ok(made)) = batch.take_attached().map(|made| made.downcast::<Py<PyAny>>()) {
        return Ok(*made);
    }
    dict(py, batch.take_columns(), as_torch).map(|dict| dict.into_any().unbind())
}

/// Returns the columns as a dictionary of arrays or tensors.
pub(crate) fn dict<'py>(
    py: Python<'py>,
    columns: Vec<(String, Column)>,
    as_torch: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, values) in columns {
        dict.set_item(PyString::intern(py, &name), column(py, values, as_torch)?)?;
    }
    Ok(dict)
}

/// Converts a column. Arrays are moved, lists are copied.
fn column(py: Python<'_>, column: Column, as_torch: bool) -> PyResult<Bound<'_, PyAny>> {
    Ok(match column {
        Column::Array(array) => to_python(py, array, as_torch)?,
        Column::Number(number) => number.into_pyobject(py)?.into_any(),
        Column::Flag(flag) => PyBool::new(py, flag).to_owned().into_any(),
        Column::Texts(texts) => {
            let text =
                |text: &Option<dsconvert::sample::Text>| text.as_ref().map(|t| PyString::new(py, t.as_str()));
            PyList::new(py, texts.iter().map(text))?.into_any()
        }
        Column::TextLists(rows) => {
            let list = PyList::empty(py);
            for texts in &rows {
                list.append(texts.as_ref().map(|texts| text_list(py, texts)).transpose()?)?;
            }
            list.into_any()
        }
        Column::FileLists(rows) => {
            let list = PyList::empty(py);
            for files in &rows {
                list.append(files.as_ref().map(|files| file_list(py, files)).transpose()?)?;
            }
            list.into_any()
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
        Column::Arrays(rows) => {
            let list = PyList::empty(py);
            for array in rows {
                list.append(array.map(|array| to_python(py, array, as_torch)).transpose()?)?;
            }
            list.into_any()
        }
        other => {
            let what = format!("cannot convert {other:?} to Python");
            return Err(raise(Error::new(ErrorKind::Unsupported, what)));
        }
    })
}

fn to_python(py: Python<'_>, array: Array, as_torch: bool) -> PyResult<Bound<'_, PyAny>> {
    if as_torch { to_torch(py, Buffer::sole(array)) } else { to_numpy(py, Buffer::sole(array)) }
}
