//! Columns of arrays with one open axis, padded to the longest of a batch.

use std::sync::Arc;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::sample::{Numbers, Value};
use dsconvert_dataset::schema::{ArrayType, DType, FieldType};

use super::array::Array;
use super::batch::Column;
use super::element::{BHalf, Half};
use super::pool::Pool;
use super::stored::{fill_rest, per_row, with_element};
use crate::Record;

/// Returns the open axis of a type, or an error that says why its arrays cannot be padded.
pub(super) fn open_axis(name: &str, ty: FieldType) -> Result<usize> {
    let FieldType::Array(array) = ty else {
        return Err(Error::usage(format!("{name:?} cannot be padded: its type is {}", ty.name()))
            .help("only arrays with one open axis are padded"));
    };
    let mut open = array.axes().enumerate().filter(|(_, axis)| axis.is_none()).map(|(at, _)| at);
    match (open.next(), open.next()) {
        (Some(axis), None) => Ok(axis),
        _ => Err(Error::usage(format!("{name:?} cannot be padded: its type is {}", ty.name()))
            .help("an array with one open axis is padded; one without is stacked in any case")),
    }
}

/// Returns the size of the open `axis` of each record, 0 for a null, and 0 for rows without a record.
pub(super) fn lengths(
    pool: &Arc<Pool>,
    records: &[Record],
    rows: usize,
    index: usize,
    axis: usize,
) -> Column {
    per_row(pool, rows, records.iter().map(|record| size_of_axis(record, index, axis) as i64), 0, &[])
}

fn size_of_axis(record: &Record, index: usize, axis: usize) -> usize {
    match record.values().get(index) {
        Some(Value::Array(array)) => array.shape().get(axis).map_or(0, |&size| size as usize),
        _ => 0,
    }
}

/// Returns the arrays in the field at `index` of all records as one array: zeros follow where an array is shorter than the
/// longest one along `axis`. The error is the first record whose field has another type.
pub(super) fn padded<'a>(
    pool: &Arc<Pool>,
    records: &'a [Record],
    rows: usize,
    index: usize,
    array: ArrayType,
    axis: usize,
) -> Result<Column, &'a Record> {
    let longest = records.iter().map(|record| size_of_axis(record, index, axis)).max().unwrap_or(0);
    let sizes: Vec<usize> = array.axes().map(|size| size.unwrap_or(longest)).collect();
    let shape = [vec![rows], sizes.clone()].concat();
    let size: usize = sizes.iter().product();
    // Numbers of a step along the axis, and of a step along the axis before it.
    let inner: usize = sizes.iter().skip(axis + 1).product();
    let block = longest * inner;
    let ty = FieldType::Array(array);
    macro_rules! padded {
        ($t:ty, $number:expr) => {{
            let mut out = pool.take::<$t>(rows * size);
            out.fill(<$t>::default());
            for (to, record) in out.chunks_exact_mut(size.max(1)).zip(records) {
                let value = record.values().get(index).unwrap_or(&Value::Null);
                let Some(numbers) = Numbers::of(ty, value) else {
                    if *value == Value::Null { continue } else { return Err(record) }
                };
                let from = numbers.bytes.as_chunks().0;
                let own = size_of_axis(record, index, axis) * inner;
                for (to, from) in to.chunks_exact_mut(block.max(1)).zip(from.chunks_exact(own.max(1))) {
                    to.iter_mut().zip(from.iter().copied().map($number)).for_each(|(to, from)| *to = from);
                }
            }
            fill_rest(&mut out, records.len() * size, rows * size, <$t>::default());
            Ok(Column::Array(Array::new(shape, out, Some(Arc::clone(pool)))))
        }};
    }
    with_element!(array.dtype(), padded)
}
