//! Conversion of decoded Arrow columns to records, used by the Parquet reader.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int32Type, Int64Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, GenericListArray, RecordBatch, make_array};
use arrow_buffer::Buffer;
use bytes::Bytes;

use super::arrow_schema::number_type;
use super::check;
use super::columns::little_endian;
use crate::sample::{ArrayValue, Record, Text, Value};
use crate::schema::{ArrayLayout, ArrayType, DType, Field, FieldType, ListItems, Schema};

/// Decoded rows. Text, bytes and ids are returned as views into the decoded columns.
pub(super) struct DecodedRows {
    columns: Vec<(Field, Column)>,
    /// Number of rows.
    pub(super) len: usize,
}

enum Column {
    /// As decoded by the `parquet` crate, with the buffer that values are views into.
    Array(ArrayRef, Bytes),
    /// Values of token lists, which `parquet/lists.rs` decodes, and of arrays.
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
            let column = match field.ty {
                ty if ty.is_token_list() => lists.next().map(Column::Values),
                FieldType::Texts | FieldType::Images => {
                    arrays.next().map(|array| items(field, array)).transpose()?
                }
                FieldType::Array(ty) => {
                    let decoded = |array: &ArrayRef| {
                        let values = array_values(ty, array);
                        values
                            .map(Column::Values)
                            .ok_or_else(|| format!("column {:?} is damaged", field.name))
                    };
                    arrays.next().map(decoded).transpose()?
                }
                _ => arrays.next().map(array).transpose()?,
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
                    Value::Texts(texts) => {
                        let bytes = |text: &Text| size_of_val(text) + text.as_bytes().len();
                        texts.iter().map(bytes).sum()
                    }
                    Value::Files(files) => files.iter().map(|file| size_of_val(file) + file.len()).sum(),
                    Value::Array(array) => size_of_val(array.shape()) + array.as_bytes().len(),
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
    nested_numbers(values, items.columns.as_slice(), items.dtype)
}

/// Returns the numbers of nested lists of fixed `sizes`, the outermost first, as little-endian bytes. `None` if a list or a
/// number is null, or a list has another size.
fn nested_numbers(array: &ArrayRef, sizes: &[usize], dtype: DType) -> Option<Buffer> {
    let Some((&size, sizes)) = sizes.split_first() else { return numbers(array, dtype) };
    // Parquet has no lists of a fixed size. Each list has the same number of items, and the first one starts at the first
    // item.
    let lists = array.as_list_opt::<i32>()?;
    let is_whole = |pair: &[i32]| i64::from(pair[1]) - i64::from(pair[0]) == size as i64;
    let offsets = lists.value_offsets();
    let are_whole = lists.null_count() == 0
        && offsets.first().is_none_or(|&first| first == 0)
        && offsets.windows(2).all(is_whole);
    are_whole.then(|| nested_numbers(lists.values(), sizes, dtype))?
}

/// Returns the lists of texts or images of a column as views into one buffer.
fn items(field: &Field, column: &ArrayRef) -> Result<Column, String> {
    let other = || format!("column {:?} is damaged", field.name);
    let list = column.as_list_opt::<i32>().ok_or_else(other)?;
    let all = list.values();
    let ty = if field.ty == FieldType::Images { FieldType::Image } else { FieldType::String };
    let payload = payload(ty, all).ok_or_else(other)?;
    let of = Field::required(&field.name, ty);
    let item = |at: i32| value(&of, all, &payload, usize::try_from(at).map_err(|_| other())?);
    let text = |at: i32| match item(at)? {
        Value::Text(text) => Ok(text),
        _ => Err(other()),
    };
    let file = |at: i32| match item(at)? {
        Value::Bytes(file) => Ok(file),
        _ => Err(other()),
    };
    let of_row = |row| match list.is_null(row) {
        true => Ok(Value::Null),
        false => {
            let ends = list.value_offsets().get(row..row + 2).unwrap_or_default();
            let &[begin, end] = ends else { return Err(other()) };
            match ty {
                FieldType::Image => (begin..end).map(file).collect::<Result<_, _>>().map(Value::Files),
                _ => (begin..end).map(text).collect::<Result<_, _>>().map(Value::Texts),
            }
        }
    };
    (0..column.len()).map(of_row).collect::<Result<_, _>>().map(Column::Values)
}

/// Returns the arrays of a column as views into one buffer, or `None` if the column has another type or its lists contradict
/// the type.
fn array_values(ty: ArrayType, column: &ArrayRef) -> Option<Vec<Value>> {
    let dtype = ty.dtype();
    let sizes = |sizes: &[usize]| sizes.iter().map(|&size| size as u32).collect::<Vec<_>>();
    // Numbers, the offsets of each row in items, and the bytes and the shape of an item.
    let (numbers, offsets, item) = match ty.layout() {
        ArrayLayout::Fixed(of) => match of.split_first() {
            None => {
                // Nulls have numbers, too.
                let width = dtype.bytes();
                let stored = column.to_data();
                (*stored.data_type() == number_type(dtype)).then_some(())?;
                let without_nulls = make_array(stored.into_builder().nulls(None).build().ok()?);
                let bytes = Bytes::from_owner(numbers(&without_nulls, dtype)?);
                let value = |row: usize| {
                    let number = bytes.slice_ref(bytes.get(row * width..(row + 1) * width)?);
                    Some(ArrayValue::new(Vec::new(), number))
                };
                return present(column, value);
            }
            Some((_, inner)) => {
                let list = column.as_list_opt::<i32>()?;
                (nested_numbers(list.values(), inner, dtype)?, list.value_offsets(), sizes(inner))
            }
        },
        ArrayLayout::Rows(inner) => {
            let list = column.as_list_opt::<i32>()?;
            (nested_numbers(list.values(), &inner, dtype)?, list.value_offsets(), sizes(&inner))
        }
        ArrayLayout::Shaped(_) => {
            let [data, shapes] = column.as_struct_opt()?.columns() else { return None };
            let (data, shapes) = (data.as_list_opt::<i32>()?, shapes.as_list_opt::<i32>()?);
            let all = shapes.values().as_primitive_opt::<Int32Type>()?.values();
            let bytes = Bytes::from_owner(numbers(data.values(), dtype)?);
            let value = |row: usize| {
                (data.is_valid(row) && shapes.is_valid(row)).then_some(())?;
                let of = shapes.value_offsets();
                let shape =
                    all.get(usize::try_from(*of.get(row)?).ok()?..usize::try_from(*of.get(row + 1)?).ok()?)?;
                let shape =
                    shape.iter().map(|&size| u32::try_from(size).ok()).collect::<Option<Vec<u32>>>()?;
                Some(ArrayValue::new(shape, slice(&bytes, data.value_offsets(), row, dtype.bytes())?))
            };
            return present(column, value);
        }
    };
    let bytes = Bytes::from_owner(numbers);
    let item_bytes = item.iter().try_fold(dtype.bytes(), |bytes, &size| bytes.checked_mul(size as usize))?;
    present(column, |row| {
        let bytes = slice(&bytes, offsets, row, item_bytes)?;
        let count = u32::try_from(bytes.len() / item_bytes).ok()?;
        Some(ArrayValue::new([&[count], item.as_slice()].concat(), bytes))
    })
}

/// Returns the array of each row, from `value` where it is not null.
fn present(column: &ArrayRef, value: impl Fn(usize) -> Option<ArrayValue>) -> Option<Vec<Value>> {
    let of_row = |row| match column.is_null(row) {
        true => Some(Value::Null),
        false => value(row).map(Value::Array),
    };
    (0..column.len()).map(of_row).collect()
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
