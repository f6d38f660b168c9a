//! Conversion of cells to values, and the field types that can hold them. Lists and structs become JSON; dates,
//! timestamps and decimals become strings.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Float32Type,
    Float64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow_array::{Array, ArrayRef, downcast_dictionary_array, downcast_integer_array};
use arrow_schema::{DataType, TimeUnit};
use bytes::Bytes;
use serde_json::Value as Json;

use crate::sample::{Reject, Value};
use crate::schema::{Field, FieldType};
use crate::source::io::base64;

/// Maximum nesting depth of lists and structs.
const MAX_DEPTH: usize = 32;

/// Returns whether values of the type are strings, which may be in a dictionary.
pub fn is_text(ty: &DataType) -> bool {
    match ty {
        DataType::Dictionary(_, values) => is_plain_text(values),
        ty => is_plain_text(ty),
    }
}

fn is_plain_text(ty: &DataType) -> bool {
    matches!(ty, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Returns whether values of the type can be text: strings, or bytes, which many writers of Parquet do not declare as
/// strings.
pub fn can_be_text(ty: &DataType) -> bool {
    is_text(ty) || is_bytes(ty)
}

/// Returns whether values of the type are bytes.
pub fn is_bytes(ty: &DataType) -> bool {
    matches!(ty, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// Returns whether values of the type are dates, timestamps or decimals, which [`written`] converts to text.
fn is_written(ty: &DataType) -> bool {
    let is_decimal = matches!(
        ty,
        DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..)
    );
    is_decimal || matches!(ty, DataType::Timestamp(..) | DataType::Date32 | DataType::Date64)
}

/// Returns the type of a field that holds values of the type `ty`; `None` if there is none.
pub fn field_type(ty: &DataType) -> Option<FieldType> {
    Some(match ty {
        ty if is_text(ty) || is_written(ty) => FieldType::String,
        ty if is_bytes(ty) => FieldType::Binary,
        DataType::Boolean => FieldType::Bool,
        DataType::Int8 | DataType::Int16 | DataType::Int32 => FieldType::Int32,
        DataType::Int64 => FieldType::Int64,
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => FieldType::UInt32,
        DataType::UInt64 => FieldType::UInt64,
        DataType::Float32 => FieldType::Float32,
        DataType::Float64 => FieldType::Float64,
        nested if is_json(nested, 0) => FieldType::Json,
        _ => return None,
    })
}

/// Returns whether values of the type can be written as JSON.
pub fn can_be_json(ty: &DataType) -> bool {
    is_json(ty, 0)
}

/// Returns whether values of the type can be written as JSON in which bytes are data URIs.
pub fn can_be_json_with_bytes(ty: &DataType) -> bool {
    is_json_with(ty, 0, true)
}

/// Returns the memory of the values of a column, in bytes.
pub fn memory_bytes(column: &ArrayRef) -> u64 {
    column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size()) as u64
}

fn is_json(ty: &DataType, depth: usize) -> bool {
    is_json_with(ty, depth, false)
}

fn is_json_with(ty: &DataType, depth: usize, bytes: bool) -> bool {
    match ty {
        _ if depth > MAX_DEPTH => false,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            is_json_with(item.data_type(), depth + 1, bytes)
        }
        DataType::Struct(members) => members.iter().all(|m| is_json_with(m.data_type(), depth + 1, bytes)),
        ty if is_bytes(ty) => bytes,
        DataType::Null => true,
        scalar => {
            is_text(scalar)
                || is_written(scalar)
                || scalar.is_integer()
                || matches!(scalar, DataType::Boolean | DataType::Float32 | DataType::Float64)
        }
    }
}

/// Returns whether a field of the type `wanted` can hold the values of a column for which [`field_type`] is `found`.
pub fn fits(found: FieldType, wanted: FieldType) -> bool {
    found == wanted || (found, wanted) == (FieldType::Binary, FieldType::String)
}

/// As [`cell`], also for a field of strings and a column of bytes.
///
/// # Errors
///
/// Returns a reject if bytes are not UTF-8.
pub fn checked_cell(column: &ArrayRef, row: usize, field: &Field) -> Result<Value, Reject> {
    if field.ty != FieldType::String || !is_bytes(column.data_type()) {
        return Ok(cell(column, row, field.ty));
    }
    let text = text_or_bytes(column, row).map(|bytes| utf8(bytes, &field.name)).transpose()?;
    Ok(text.map_or(Value::Null, |text| Value::Text(text.into())))
}

/// Returns the text `bytes` of the field `name`.
///
/// # Errors
///
/// Returns a reject if it is not UTF-8.
pub fn utf8<'a>(bytes: &'a [u8], name: &str) -> Result<&'a str, Reject> {
    std::str::from_utf8(bytes).map_err(|e| Reject::not_utf8(&format!("the field {name:?}"), &e))
}

/// Returns the value of a cell. `ty` must be the type returned by [`field_type`].
pub fn cell(column: &ArrayRef, row: usize, ty: FieldType) -> Value {
    // An array of type Null has no validity buffer.
    if column.is_null(row) || *column.data_type() == DataType::Null {
        return Value::Null;
    }
    if let Some(bytes) = bytes(column, row) {
        return Value::Bytes(Bytes::copy_from_slice(bytes));
    }
    match column.data_type() {
        // Floats are not converted through JSON, which has no infinity.
        DataType::Float32 => return Value::Float(column.as_primitive::<Float32Type>().value(row).into()),
        DataType::Float64 => return Value::Float(column.as_primitive::<Float64Type>().value(row)),
        _ => {}
    }
    let json = json(column, row);
    match (ty, &json) {
        (FieldType::Json, json) => Value::Text(json.to_string().into()),
        (_, Json::String(text)) => Value::Text(text.as_str().into()),
        (_, Json::Bool(b)) => Value::Bool(*b),
        (FieldType::Int32 | FieldType::Int64, Json::Number(n)) => n.as_i64().map_or(Value::Null, Value::Int),
        (_, Json::Number(n)) => n.as_u64().map_or(Value::Null, Value::UInt),
        _ => Value::Null,
    }
}

/// Returns the number that JSON writes with the digits that identify `value` among 32-bit numbers: 0.1, not
/// 0.10000000149011612.
fn shortest(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

/// Returns the value of a cell as JSON. Numbers that JSON cannot represent become null, and bytes a data URI.
pub fn json(column: &ArrayRef, row: usize) -> Json {
    if column.is_null(row) {
        return Json::Null;
    }
    let list = |items: ArrayRef| Json::Array((0..items.len()).map(|i| json(&items, i)).collect());
    if let Some(text) = text(column, row) {
        return text.into();
    }
    if let Some(bytes) = bytes(column, row) {
        return format!("data:;base64,{}", base64::encode(bytes)).into();
    }
    match column.data_type() {
        DataType::Boolean => column.as_boolean().value(row).into(),
        ty if ty.is_integer() => {
            downcast_integer_array!(column => column.value(row).into(), _ => Json::Null)
        }
        DataType::Float32 => shortest(column.as_primitive::<Float32Type>().value(row)).into(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).into(),
        DataType::List(_) => list(column.as_list::<i32>().value(row)),
        DataType::LargeList(_) => list(column.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => list(column.as_fixed_size_list().value(row)),
        DataType::Struct(members) => {
            let columns = column.as_struct().columns();
            members.iter().zip(columns).map(|(m, c)| (m.name().clone(), json(c, row))).collect()
        }
        _ => written(column, row).map_or(Json::Null, Json::from),
    }
}

/// Returns a decimal as digits, a date as `2024-02-29`, and a timestamp as `2024-02-29T12:30:00.5`, with `Z` for UTC if
/// its type has a time zone. Dates and timestamps outside of the years ±262,000 become numbers.
fn written(column: &ArrayRef, row: usize) -> Option<String> {
    /// Formats the value of a timestamp or date. The debug format of these types is ISO 8601.
    macro_rules! iso {
        ($ty:ty, $method:ident, $zone:expr) => {{
            let column = column.as_primitive::<$ty>();
            column
                .$method(row)
                .map_or_else(|| column.value(row).to_string(), |time| format!("{time:?}{}", $zone))
        }};
    }
    Some(match column.data_type() {
        DataType::Decimal32(..) => column.as_primitive::<Decimal32Type>().value_as_string(row),
        DataType::Decimal64(..) => column.as_primitive::<Decimal64Type>().value_as_string(row),
        DataType::Decimal128(..) => column.as_primitive::<Decimal128Type>().value_as_string(row),
        DataType::Decimal256(..) => column.as_primitive::<Decimal256Type>().value_as_string(row),
        DataType::Date32 => iso!(Date32Type, value_as_date, ""),
        DataType::Date64 => iso!(Date64Type, value_as_date, ""),
        DataType::Timestamp(unit, zone) => {
            let utc = if zone.is_some() { "Z" } else { "" };
            match unit {
                TimeUnit::Second => iso!(TimestampSecondType, value_as_datetime, utc),
                TimeUnit::Millisecond => iso!(TimestampMillisecondType, value_as_datetime, utc),
                TimeUnit::Microsecond => iso!(TimestampMicrosecondType, value_as_datetime, utc),
                TimeUnit::Nanosecond => iso!(TimestampNanosecondType, value_as_datetime, utc),
            }
        }
        _ => return None,
    })
}

/// Returns the text of a cell of a type for which [`is_text`] is true; `None` if it is null.
pub fn text(column: &ArrayRef, row: usize) -> Option<&str> {
    if column.is_null(row) {
        return None;
    }
    match column.data_type() {
        DataType::Utf8 => Some(column.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => Some(column.as_string::<i64>().value(row)),
        DataType::Utf8View => Some(column.as_string_view().value(row)),
        DataType::Dictionary(..) => downcast_dictionary_array!(
            column => {
                let key = column.key(row).filter(|&key| key < column.values().len())?;
                text(column.values(), key)
            },
            _ => None,
        ),
        _ => None,
    }
}

/// Returns the text, or what may be text, of a cell of a type for which [`can_be_text`] is true; `None` if it is null.
pub fn text_or_bytes(column: &ArrayRef, row: usize) -> Option<&[u8]> {
    if is_bytes(column.data_type()) { bytes(column, row) } else { text(column, row).map(str::as_bytes) }
}

/// Returns the bytes of a cell of a binary type; `None` if it is null.
pub fn bytes(column: &ArrayRef, row: usize) -> Option<&[u8]> {
    if column.is_null(row) {
        return None;
    }
    match column.data_type() {
        DataType::Binary => Some(column.as_binary::<i32>().value(row)),
        DataType::LargeBinary => Some(column.as_binary::<i64>().value(row)),
        DataType::BinaryView => Some(column.as_binary_view().value(row)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::ArrowPrimitiveType;
    use arrow_array::{
        Date32Array, Date64Array, Decimal32Array, Decimal128Array, DictionaryArray, Float32Array, ListArray,
        NullArray, PrimitiveArray, StringArray, TimestampSecondArray, UInt8Array,
    };

    use super::*;

    #[test]
    fn a_column_without_values_is_null_and_not_text() {
        let column: ArrayRef = Arc::new(NullArray::new(2));
        assert_eq!(cell(&column, 1, FieldType::Json), Value::Null);
        assert_eq!(json(&column, 1), Json::Null);
    }

    #[test]
    fn short_floats_in_lists_keep_their_digits() {
        let values = [Some(0.1), Some(3.0), Some(f32::NAN), None, Some(1e-20), Some(16_777_216.0)];
        let list: ArrayRef =
            Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>([Some(values.to_vec())]));
        assert_eq!(json(&list, 0).to_string(), "[0.1,3.0,null,null,1e-20,16777216.0]");
        let plain: ArrayRef = Arc::new(Float32Array::from(vec![0.1]));
        assert_eq!(cell(&plain, 0, FieldType::Float64), Value::Float(f64::from(0.1_f32)));
    }

    fn string(column: impl Array + 'static) -> String {
        let column: ArrayRef = Arc::new(column);
        assert_eq!(field_type(column.data_type()), Some(FieldType::String));
        assert!(is_json(column.data_type(), 0));
        match cell(&column, 0, FieldType::String) {
            Value::Text(text) => text.as_str().to_owned(),
            other => panic!("{other:?}"),
        }
    }

    fn timestamp<T: ArrowPrimitiveType<Native = i64>>(value: i64) -> String {
        string(PrimitiveArray::<T>::from_value(value, 1))
    }

    #[test]
    fn dates_timestamps_and_decimals_are_strings() {
        assert_eq!(string(Date32Array::from_value(19_782, 1)), "2024-02-29");
        assert_eq!(string(Date64Array::from_value(-1, 1)), "1969-12-31");
        assert_eq!(timestamp::<TimestampSecondType>(1_709_210_096), "2024-02-29T12:34:56");
        assert_eq!(timestamp::<TimestampMillisecondType>(-1), "1969-12-31T23:59:59.999");
        assert_eq!(timestamp::<TimestampMicrosecondType>(1), "1970-01-01T00:00:00.000001");
        assert_eq!(timestamp::<TimestampNanosecondType>(1), "1970-01-01T00:00:00.000000001");
        let zoned = TimestampSecondArray::from_value(0, 1).with_timezone("Europe/Berlin");
        assert_eq!(string(zoned), "1970-01-01T00:00:00Z");
        let decimal = |value, precision, scale| {
            string(Decimal128Array::from_value(value, 1).with_precision_and_scale(precision, scale).unwrap())
        };
        assert_eq!(decimal(-5, 5, 2), "-0.05");
        assert_eq!(decimal(12_345, 38, 0), "12345");
        assert_eq!(decimal(123, 5, -2), "12300");
        assert_eq!(string(Decimal32Array::from_value(7, 1).with_precision_and_scale(3, 3).unwrap()), "0.007");
    }

    #[test]
    fn times_without_a_date_are_numbers() {
        for value in [i64::MIN, i64::MAX] {
            for text in [
                timestamp::<TimestampSecondType>(value),
                timestamp::<TimestampMillisecondType>(value),
                timestamp::<TimestampMicrosecondType>(value),
                timestamp::<Date64Type>(value),
            ] {
                assert_eq!(text, value.to_string());
            }
            assert!(timestamp::<TimestampNanosecondType>(value).contains('T'));
        }
        for value in [i32::MIN, i32::MAX] {
            assert_eq!(string(Date32Array::from_value(value, 1)), value.to_string());
        }
    }

    #[test]
    fn strings_in_a_dictionary_are_strings() {
        let values = StringArray::from(vec![Some("a"), None, Some("b")]);
        let keys = UInt8Array::from(vec![Some(2), None, Some(1), Some(0)]);
        let column: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::new(values)));
        assert!(is_text(column.data_type()));
        assert_eq!([0, 1, 2, 3].map(|row| text(&column, row)), [Some("b"), None, None, Some("a")]);
        let null = cell(&column, 2, FieldType::String);
        assert_eq!((cell(&column, 0, FieldType::String), null), (Value::Text("b".into()), Value::Null));
    }
}
