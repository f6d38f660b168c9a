//! Conversion of decoded Arrow columns to records, used by the Parquet reader.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int32Type, Int64Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, GenericListArray, RecordBatch};
use arrow_buffer::Buffer;
use bytes::Bytes;

use super::arrow_schema::number_type;
use super::check;
use super::columns::little_endian;
use crate::sample::{Record, Text, Value};
use crate::schema::{DType, Field, FieldType, ListItems, Schema};

/// Decoded rows. Text, bytes and ids are returned as views into the decoded columns.
pub(super) struct DecodedRows {
    columns: Vec<(Field, Column)>,
    /// Number of rows.
    pub(super) len: usize,
}

enum Column {
    /// As decoded by the `parquet` crate, with the buffer that values are views into.
    Array(ArrayRef, Bytes),
    /// Values of token lists, which `parquet/lists.rs` decodes.
    Values(Vec<Value>),
}

impl DecodedRows {
    /// Wraps the rows of `batch`, which has the columns of `schema` without token lists; those are in `lists`, in order. The
    /// error is one sentence.
    pub(super) fn new(schema: &Schema, batch: &RecordBatch, lists: Vec<Vec<Value>>) -> Result<Self, String> {
        let (mut arrays, mut lists) = (batch.columns().iter(), lists.into_iter());
        let mut columns = Vec::with_capacity(schema.fields.len());
        for field in &schema.fields {
            let array = |array: &ArrayRef| match payload(field.ty, array) {
                Some(payload) => Ok(Column::Array(array.clone(), payload)),
                None => Err(format!("column {:?} has unexpected type {}", field.name, array.data_type())),
            };
            let column = match field.ty.is_token_list() {
                true => lists.next().map(Column::Values),
                false => arrays.next().map(array).transpose()?,
            };
            columns.push((field.clone(), column.ok_or_else(|| format!("no column {:?}", field.name))?));
        }
        Ok(Self { columns, len: batch.num_rows() })
    }

    /// Returns how many bytes of memory the rows take.
    pub(super) fn memory_bytes(&self) -> usize {
        let of_column = |(_, column): &(Field, Column)| match column {
            Column::Array(array, _) => array.get_array_memory_size(),
            Column::Values(values) => {
                let payload = |value: &Value| match value {
                    Value::Ids(ids) => ids.as_bytes().len(),
                    Value::Bytes(bytes) => bytes.len(),
                    _ => 0,
                };
                values.capacity() * size_of::<Value>() + values.iter().map(payload).sum::<usize>()
            }
        };
        size_of::<Self>() + self.columns.iter().map(|c| size_of_val(c) + of_column(c)).sum::<usize>()
    }

    /// Returns the record in `row`, which must be less than their number.
    pub(super) fn record(&self, schema: &Schema, row: usize) -> Result<Record, String> {
        let mut values = Vec::with_capacity(self.columns.len());
        for (field, column) in &self.columns {
            let value = match column {
                Column::Array(array, payload) => value(field, array, payload, row)?,
                Column::Values(values) => values
                    .get(row)
                    .cloned()
                    .ok_or_else(|| format!("column {:?} has no row {row}", field.name))?,
            };
            check::value(schema, field, &value)?;
            values.push(value);
        }
        Ok(Record { values })
    }
}

/// Returns the buffer that the values of a column are views into, or `None` if the column has another type.
fn payload(ty: FieldType, column: &ArrayRef) -> Option<Bytes> {
    let buffer = match ty {
        FieldType::String | FieldType::Json => column.as_string_opt::<i32>()?.values().clone(),
        FieldType::Binary => column.as_binary_opt::<i32>()?.values().clone(),
        FieldType::Image | FieldType::Mask => {
            column.as_struct_opt()?.columns().first()?.as_binary_opt::<i32>()?.values().clone()
        }
        // Token lists are decoded by `parquet/lists.rs`.
        ty if ty.is_token_list() => return None,
        ty => match ty.list_items() {
            Some(items) => list_numbers(column, items)?,
            None => return Some(Bytes::new()),
        },
    };
    Some(Bytes::from_owner(buffer))
}

/// Returns the numbers of a list column as little-endian bytes, or `None` if an item is null or of another type.
fn list_numbers(column: &ArrayRef, items: ListItems) -> Option<Buffer> {
    let values = column.as_list_opt::<i32>()?.values();
    let Some(columns) = items.columns else { return numbers(values, items.dtype) };
    // Parquet has no lists of a fixed size. Each item has the same number of them, and the first one starts at the first
    // number.
    let rows = values.as_list_opt::<i32>()?;
    let is_row = |pair: &[i32]| i64::from(pair[1]) - i64::from(pair[0]) == columns as i64;
    let offsets = rows.value_offsets();
    let are_rows = rows.null_count() == 0
        && offsets.first().is_none_or(|&first| first == 0)
        && offsets.windows(2).all(is_row);
    are_rows.then(|| numbers(rows.values(), items.dtype))?
}

/// Returns numbers as little-endian bytes, or `None` if one is null or they have another type.
fn numbers(array: &ArrayRef, dtype: DType) -> Option<Buffer> {
    let data = array.to_data();
    (*data.data_type() == number_type(dtype) && data.null_count() == 0).then_some(())?;
    let (start, len) = (data.offset() * dtype.bytes(), data.len() * dtype.bytes());
    let bytes = data.buffers().first().filter(|bytes| start + len <= bytes.len())?;
    Some(little_endian(&bytes.slice_with_length(start, len), dtype.bytes()))
}

/// Returns the number in `row`; `None` if the column has another type.
fn number<T: ArrowPrimitiveType>(column: &ArrayRef, row: usize) -> Option<T::Native> {
    Some(column.as_primitive_opt::<T>()?.value(row))
}

fn value(field: &Field, column: &ArrayRef, payload: &Bytes, row: usize) -> Result<Value, String> {
    if column.is_null(row) {
        return Ok(Value::Null);
    }
    let other = || format!("column {:?} has an unexpected type", field.name);
    let cut =
        |range: Option<Bytes>| range.ok_or_else(|| format!("column {:?} has a damaged offset", field.name));
    Ok(match field.ty {
        FieldType::String | FieldType::Json => {
            let strings = column.as_string_opt::<i32>().ok_or_else(other)?;
            let text = Text::new(cut(slice(payload, strings.value_offsets(), row, 1))?);
            Value::Text(text.map_err(|_| format!("text in column {:?} is not UTF-8", field.name))?)
        }
        FieldType::Binary => {
            let bytes = column.as_binary_opt::<i32>().ok_or_else(other)?;
            Value::Bytes(cut(slice(payload, bytes.value_offsets(), row, 1))?)
        }
        FieldType::Image | FieldType::Mask => {
            let bytes = column.as_struct_opt().and_then(|s| s.columns().first()?.as_binary_opt::<i32>());
            let bytes = bytes.ok_or_else(other)?;
            if bytes.is_null(row) {
                return Err(format!("an image in column {:?} has no bytes", field.name));
            }
            Value::Bytes(cut(slice(payload, bytes.value_offsets(), row, 1))?)
        }
        FieldType::Bool => Value::Bool(column.as_boolean_opt().ok_or_else(other)?.value(row)),
        FieldType::Int32 => Value::Int(number::<Int32Type>(column, row).ok_or_else(other)?.into()),
        FieldType::Int64 | FieldType::Label => {
            Value::Int(number::<Int64Type>(column, row).ok_or_else(other)?)
        }
        FieldType::UInt32 => Value::UInt(number::<UInt32Type>(column, row).ok_or_else(other)?.into()),
        FieldType::UInt64 => Value::UInt(number::<UInt64Type>(column, row).ok_or_else(other)?),
        FieldType::Float32 => Value::Float(number::<Float32Type>(column, row).ok_or_else(other)?.into()),
        FieldType::Float64 => Value::Float(number::<Float64Type>(column, row).ok_or_else(other)?),
        ty => {
            let list: &GenericListArray<i32> = column.as_list_opt::<i32>().ok_or_else(other)?;
            let item_bytes = ty.item_bytes().filter(|_| !ty.is_token_list()).ok_or_else(other)?;
            Value::Bytes(cut(slice(payload, list.value_offsets(), row, item_bytes))?)
        }
    })
}

/// Returns the bytes between the offsets of `row`. The offsets count items of `item_bytes` bytes each.
fn slice(payload: &Bytes, offsets: &[i32], row: usize, item_bytes: usize) -> Option<Bytes> {
    let begin = usize::try_from(*offsets.get(row)?).ok()?.checked_mul(item_bytes)?;
    let end = usize::try_from(*offsets.get(row + 1)?).ok()?.checked_mul(item_bytes)?;
    (begin <= end && end <= payload.len()).then(|| payload.slice(begin..end))
}
