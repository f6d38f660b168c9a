//! Values of records from Python objects. `python/dsconvert/records/values.py` prepares them: numbers of arrays are bytes
//! with a shape.

use bytes::Bytes;
use dsconvert::error::Error;
use dsconvert::sample::{ArrayValue, Ids, Text, Value, pack_pair};
use dsconvert::schema::{Field, FieldType};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString};

use crate::error::raise;

/// Returns the value of `field`.
///
/// # Errors
///
/// `UsageError` that names the field, its type and the type of the object.
pub(crate) fn from_python(field: &Field, object: &Bound<'_, PyAny>) -> PyResult<Value> {
    if object.is_none() {
        return Ok(Value::Null);
    }
    let wrong = || {
        let name = object.get_type().qualname().map_or_else(|_| "object".to_owned(), |name| name.to_string());
        let what = format!("field {:?} is of type {}, not of {name}", field.name, field.ty.name());
        raise(Error::usage(what))
    };
    let fits = |is_right: bool| if is_right { Ok(()) } else { Err(wrong()) };
    let is_number = || !object.is_instance_of::<PyBool>();
    Ok(match field.ty {
        FieldType::String => Value::Text(text(object).ok_or_else(wrong)?),
        FieldType::Json => {
            let text = text(object).ok_or_else(wrong)?;
            serde_json::from_str::<serde::de::IgnoredAny>(text.as_str()).map_err(|e| {
                raise(Error::usage(format!("field {:?} holds text that is not JSON: {e}", field.name)))
            })?;
            Value::Text(text)
        }
        FieldType::Binary | FieldType::Image | FieldType::Mask | FieldType::Flags => {
            Value::Bytes(bytes(object).ok_or_else(wrong)?)
        }
        FieldType::Bool => {
            fits(object.is_instance_of::<PyBool>())?;
            Value::Bool(object.extract()?)
        }
        FieldType::Int32 | FieldType::Int64 | FieldType::Label => {
            fits(is_number() && object.is_instance_of::<PyInt>())?;
            Value::Int(object.extract().map_err(|_| wrong())?)
        }
        FieldType::UInt32 | FieldType::UInt64 => {
            fits(is_number() && object.is_instance_of::<PyInt>())?;
            Value::UInt(object.extract().map_err(|_| wrong())?)
        }
        FieldType::Float32 | FieldType::Float64 => {
            fits(is_number() && (object.is_instance_of::<PyFloat>() || object.is_instance_of::<PyInt>()))?;
            let number: f64 = object.extract().map_err(|_| wrong())?;
            Value::Float(if field.ty == FieldType::Float32 { f64::from(number as f32) } else { number })
        }
        FieldType::IdsU16 | FieldType::IdsU32 => {
            let (ids, width) = (bytes(object).ok_or_else(wrong)?, field.ty.id_width());
            width.and_then(|width| Ids::new(width, ids)).map(Value::Ids).ok_or_else(wrong)?
        }
        FieldType::Int32Pair => {
            let (first, second) = object.extract::<(i32, i32)>().map_err(|_| wrong())?;
            Value::Bytes(pack_pair([first, second]))
        }
        FieldType::Texts => {
            let items = object.try_iter().map_err(|_| wrong())?;
            let texts = items.map(|item| text(&item?).ok_or_else(wrong));
            fits(!object.is_instance_of::<PyString>())?;
            Value::Texts(texts.collect::<PyResult<_>>()?)
        }
        FieldType::Images => {
            let items = object.try_iter().map_err(|_| wrong())?;
            fits(!object.is_instance_of::<PyBytes>())?;
            Value::Files(items.map(|item| bytes(&item?).ok_or_else(wrong)).collect::<PyResult<_>>()?)
        }
        FieldType::Array(_) => {
            let (shape, numbers) = object.extract::<(Vec<u32>, Bound<'_, PyAny>)>().map_err(|_| wrong())?;
            Value::Array(ArrayValue::new(shape, bytes(&numbers).ok_or_else(wrong)?))
        }
        // Types that such records cannot have.
        _ => return Err(wrong()),
    })
}

fn text(object: &Bound<'_, PyAny>) -> Option<Text> {
    // Not a lone surrogate, which is no UTF-8.
    object.cast::<PyString>().ok()?.to_cow().ok().map(|text| Text::from(text.as_ref()))
}

/// Copies the bytes of an object with a buffer.
fn bytes(object: &Bound<'_, PyAny>) -> Option<Bytes> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Some(Bytes::copy_from_slice(bytes.as_bytes()));
    }
    let buffer = PyBuffer::<u8>::get(object).ok()?;
    buffer.to_vec(object.py()).ok().map(Bytes::from)
}
