//! Columns of stored fields: numbers become arrays, everything else becomes lists.

use std::sync::Arc;

use bytes::Bytes;
use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::packing::IGNORE_LABEL;
use dsconvert_dataset::sample::{Int32Pair, Numbers, Value, pair};
use dsconvert_dataset::schema::{ArrayType, DType, FieldType};

use super::array::Array;
use super::batch::{BlankRow, Column};
use super::element::{BHalf, Element, Half};
use super::pool::Pool;
use crate::Record;

/// Returns the values of the field at `field_index` of all `records`. Rows after them have no value.
pub(super) fn column(
    pool: &Arc<Pool>,
    records: &[Record],
    rows: usize,
    field_index: usize,
    ty: FieldType,
) -> Result<Column> {
    let values =
        || records.iter().map(move |record| record.values().get(field_index).unwrap_or(&Value::Null));
    let wrong = |record: &Record| {
        let what = format!("a value of field {field_index} is not of type {}", ty.name());
        Error::corrupt(what).at_row(record.ordinal())
    };
    // A value whose type differs from its field would be a defect of the reader.
    macro_rules! numbers {
        ($t:ty, $($value:pat => $number:expr),+) => {
            numbers::<$t>(pool, rows, records, field_index, |value| match *value {
                Value::Null => Some(<$t>::default()),
                $($value => Some($number),)+
                _ => None,
            })
            .map_err(wrong)
        };
    }
    macro_rules! list {
        ($list:ident, $variant:ident) => {{
            let one = |value: &Value| match value {
                Value::$variant(value) => Some(value.clone()),
                _ => None,
            };
            let nothing = std::iter::repeat_n(None, rows.saturating_sub(records.len()));
            Ok(Column::$list(values().map(one).chain(nothing).collect()))
        }};
    }
    match ty {
        FieldType::Bool => numbers!(bool, Value::Bool(b) => b),
        FieldType::Int32 => numbers!(i32, Value::Int(i) => i32::try_from(i).unwrap_or_default()),
        FieldType::Int64 | FieldType::Label => numbers!(i64, Value::Int(i) => i),
        // torch barely supports unsigned 32-bit numbers, and all of them fit into an i64.
        FieldType::UInt32 => numbers!(i64, Value::UInt(u) => i64::try_from(u).unwrap_or_default()),
        FieldType::UInt64 => numbers!(u64, Value::UInt(u) => u),
        FieldType::Float32 => numbers!(f32, Value::Float(x) => x as f32),
        FieldType::Float64 => numbers!(f64, Value::Float(x) => x),
        FieldType::String | FieldType::Json => list!(Texts, Text),
        FieldType::Texts => list!(TextLists, Texts),
        FieldType::Images => list!(FileLists, Files),
        FieldType::Binary | FieldType::Image | FieldType::Mask | FieldType::Flags => list!(Bytes, Bytes),
        FieldType::IdsU16 | FieldType::IdsU32 => list!(Ids, Ids),
        FieldType::Int32Pair => pairs(pool, records, rows, field_index, |_, _, pair| pair).map_err(wrong),
        FieldType::Array(array) if ty.fixed_shape().is_some() => {
            let shape = ty.fixed_shape().unwrap_or_default();
            stacked(pool, records, rows, field_index, array, shape).map_err(wrong)
        }
        // The remaining types are lists of numbers.
        ty => {
            let array = |value| Numbers::of(ty, value).map(array);
            let nothing = std::iter::repeat_with(|| None).take(rows.saturating_sub(records.len()));
            Ok(Column::Arrays(values().map(array).chain(nothing).collect()))
        }
    }
}

/// Calls `$numbers` with a type of elements and the function that makes one of little-endian bytes.
macro_rules! with_element {
    ($dtype:expr, $numbers:ident) => {
        match $dtype {
            DType::Bool => $numbers!(bool, |bytes: [u8; 1]| bytes != [0]),
            DType::UInt8 => $numbers!(u8, u8::from_le_bytes),
            DType::Int8 => $numbers!(i8, i8::from_le_bytes),
            DType::UInt16 => $numbers!(u16, u16::from_le_bytes),
            DType::Int16 => $numbers!(i16, i16::from_le_bytes),
            DType::UInt32 => $numbers!(u32, u32::from_le_bytes),
            DType::Int32 => $numbers!(i32, i32::from_le_bytes),
            DType::UInt64 => $numbers!(u64, u64::from_le_bytes),
            DType::Int64 => $numbers!(i64, i64::from_le_bytes),
            DType::Float16 => $numbers!(Half, |bytes| Half(u16::from_le_bytes(bytes))),
            DType::BFloat16 => $numbers!(BHalf, |bytes| BHalf(u16::from_le_bytes(bytes))),
            DType::Float32 => $numbers!(f32, f32::from_le_bytes),
            DType::Float64 => $numbers!(f64, f64::from_le_bytes),
        }
    };
}

pub(super) use with_element;

/// Copies the numbers of a record.
fn array(numbers: Numbers<&Bytes>) -> Array {
    let Numbers { dtype, shape, bytes } = numbers;
    macro_rules! array {
        ($t:ty, $number:expr) => {
            Array::new(shape, bytes.as_chunks().0.iter().copied().map($number).collect::<Vec<$t>>(), None)
        };
    }
    with_element!(dtype, array)
}

/// Returns the arrays of the field at `field_index`, which all have `shape`, as one array with an axis for the rows. Null is
/// zeros. The error is the first record whose field has another type.
fn stacked<'a>(
    pool: &Arc<Pool>,
    records: &'a [Record],
    rows: usize,
    field_index: usize,
    array: ArrayType,
    shape: Vec<usize>,
) -> Result<Column, &'a Record> {
    let ty = FieldType::Array(array);
    let size: usize = shape.iter().product();
    let shape = [vec![rows], shape].concat();
    macro_rules! stacked {
        ($t:ty, $number:expr) => {{
            let mut out = pool.take::<$t>(rows * size);
            for (to, record) in out.chunks_exact_mut(size.max(1)).zip(records) {
                let value = record.values().get(field_index).unwrap_or(&Value::Null);
                match (Numbers::of(ty, value), value) {
                    (Some(numbers), _) if numbers.bytes.len() == size_of_val(to) => {
                        let from = numbers.bytes.as_chunks().0.iter().copied().map($number);
                        to.iter_mut().zip(from).for_each(|(to, from)| *to = from);
                    }
                    (None, Value::Null) => to.fill(<$t>::default()),
                    _ => return Err(record),
                }
            }
            fill_rest(&mut out, records.len() * size, rows * size, <$t>::default());
            Ok(Column::Array(Array::new(shape, out, Some(Arc::clone(pool)))))
        }};
    }
    with_element!(array.dtype(), stacked)
}

fn numbers<'a, T: Element>(
    pool: &Arc<Pool>,
    rows: usize,
    records: &'a [Record],
    field_index: usize,
    number: impl Fn(&Value) -> Option<T>,
) -> Result<Column, &'a Record> {
    let mut out = pool.take::<T>(rows);
    for (slot, record) in out.iter_mut().zip(records) {
        *slot = number(record.values().get(field_index).unwrap_or(&Value::Null)).ok_or(record)?;
    }
    fill_rest(&mut out, records.len(), rows, T::default());
    Ok(Column::Array(Array::new(vec![rows], out, Some(Arc::clone(pool)))))
}

/// Returns the pairs in the field at `field_index` of all `records`, after `of_record`, in an array of `[rows, 2]`. The error
/// is the first record whose field has another type.
pub(super) fn pairs<'a>(
    pool: &Arc<Pool>,
    records: &'a [Record],
    rows: usize,
    field_index: usize,
    of_record: impl Fn(usize, &Record, Int32Pair) -> Int32Pair,
) -> Result<Column, &'a Record> {
    let mut out = pool.take::<i32>(2 * rows);
    for (row, (slot, record)) in out.chunks_exact_mut(2).zip(records).enumerate() {
        let found = match record.values().get(field_index) {
            Some(Value::Bytes(bytes)) => of_record(row, record, pair(bytes).ok_or(record)?),
            Some(Value::Null) => Int32Pair::default(),
            _ => return Err(record),
        };
        slot.copy_from_slice(&found);
    }
    fill_rest(&mut out, 2 * records.len(), 2 * rows, 0);
    Ok(Column::Array(Array::new(vec![rows, 2], out, Some(Arc::clone(pool)))))
}

/// Returns whether the field at `field_index` has a value, per row.
pub(super) fn validity(pool: &Arc<Pool>, records: &[Record], rows: usize, field_index: usize) -> Column {
    let is_valid =
        |record: &Record| record.values().get(field_index).is_some_and(|value| *value != Value::Null);
    per_row(pool, rows, records.iter().map(is_valid), false, &[])
}

/// Returns whether a row holds a record and is not blank, per row.
pub(super) fn valid(pool: &Arc<Pool>, records: usize, rows: usize, blank: &[BlankRow]) -> Column {
    per_row(pool, rows, std::iter::repeat_n(true, records), false, blank)
}

/// Returns the class of each record, or [`IGNORE_LABEL`] where there is none or the row is blank.
pub(super) fn labels(
    pool: &Arc<Pool>,
    records: &[Record],
    rows: usize,
    field_index: usize,
    blank: &[BlankRow],
) -> Column {
    let label = |record: &Record| match record.values().get(field_index) {
        Some(Value::Int(label)) => *label,
        _ => IGNORE_LABEL,
    };
    per_row(pool, rows, records.iter().map(label), IGNORE_LABEL, blank)
}

/// Returns the number of the source of each record, in a source of several with these `ends`; −1 where there is no record.
pub(super) fn sources(pool: &Arc<Pool>, ends: &[u64], records: Vec<Option<u64>>) -> Column {
    let source = |record: u64| ends.partition_point(|end| *end <= record) as i32;
    let sources = records.iter().map(|record| record.map_or(-1, source));
    per_row(pool, records.len(), sources, -1, &[])
}

/// Returns `values`, one for each of the first rows. The rows after them, and those that are blank, have `missing`.
pub(super) fn per_row<T: Element>(
    pool: &Arc<Pool>,
    rows: usize,
    values: impl Iterator<Item = T>,
    missing: T,
    blank: &[BlankRow],
) -> Column {
    let mut out = pool.take::<T>(rows);
    let mut held = 0;
    for (slot, value) in out.iter_mut().zip(values) {
        *slot = value;
        held += 1;
    }
    fill_rest(&mut out, held, rows, missing);
    for row in blank {
        if let Some(slot) = out.get_mut(row.row) {
            *slot = missing;
        }
    }
    Column::Array(Array::new(vec![rows], out, Some(Arc::clone(pool))))
}

/// Overwrites stale values in rows without a record.
pub(super) fn fill_rest<T: Copy>(out: &mut [T], from: usize, to: usize, value: T) {
    if let Some(rest) = out.get_mut(from..to) {
        rest.fill(value);
    }
}
