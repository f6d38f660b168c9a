//! Lists of numbers in cells.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

use crate::sample::{Reject, RejectCode};
use crate::source::table::number_lists::{Integers, ListItems, RowList};

/// Returns whether values of the type are lists of such `items`.
pub fn can_be_list(ty: &DataType, items: ListItems) -> bool {
    match ty {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            let item = item.data_type();
            item.is_integer()
                || (items == ListItems::Flags && *item == DataType::Boolean)
                || (items == ListItems::Numbers && item.is_floating())
        }
        // A column without values.
        DataType::Null => true,
        _ => false,
    }
}

/// Returns the list in a cell of the column `name`, whose values are `items`; `None` if the cell is null.
///
/// # Errors
///
/// Returns a reject if a value is null.
pub fn row_list<'a>(
    column: &'a ArrayRef,
    row: usize,
    name: &str,
    items: ListItems,
) -> Result<Option<RowList<'a>>, Reject> {
    if column.is_null(row) {
        return Ok(None);
    }
    let Some((values, range)) = values_of(column, row) else { return Ok(None) };
    if values.nulls().is_some_and(|nulls| nulls.slice(range.start, range.len()).null_count() > 0) {
        let message = format!("the list in the field {name:?} has a null");
        return Err(Reject::new(RejectCode::WrongType, message));
    }
    Ok(match items {
        ListItems::Numbers => numbers(values, range).map(RowList::Numbers),
        ListItems::Integers | ListItems::Flags => integers(values, range).map(RowList::Integers),
    })
}

/// Returns the column of the values of all lists, and the range of those of a row.
fn values_of(column: &ArrayRef, row: usize) -> Option<(&ArrayRef, Range<usize>)> {
    let range = |start: usize, end: usize| start..end;
    Some(match column.data_type() {
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let offsets = list.value_offsets();
            (list.values(), range(*offsets.get(row)? as usize, *offsets.get(row + 1)? as usize))
        }
        DataType::LargeList(_) => {
            let list = column.as_list::<i64>();
            let offsets = list.value_offsets();
            (list.values(), range(*offsets.get(row)? as usize, *offsets.get(row + 1)? as usize))
        }
        DataType::FixedSizeList(..) => {
            let list = column.as_fixed_size_list();
            let (start, length) = (list.value_offset_at(row) as usize, list.value_length() as usize);
            (list.values(), range(start, start + length))
        }
        _ => return None,
    })
}

/// Returns integers, of which booleans are 0 or 1. Those that do not fit in 64 bits with a sign are the largest that does.
fn integers(values: &ArrayRef, range: Range<usize>) -> Option<Integers<'_>> {
    macro_rules! of {
        ($t:ty) => {
            values.as_primitive::<$t>().values().get(range)?
        };
    }
    Some(match values.data_type() {
        DataType::Int8 => Integers::I8(of!(Int8Type)),
        DataType::Int16 => Integers::I16(of!(Int16Type)),
        DataType::Int32 => Integers::I32(of!(Int32Type)),
        DataType::Int64 => Integers::I64(of!(Int64Type).into()),
        DataType::UInt8 => Integers::U8(of!(UInt8Type).into()),
        DataType::UInt16 => Integers::U16(of!(UInt16Type)),
        DataType::UInt32 => Integers::U32(of!(UInt32Type)),
        DataType::UInt64 => {
            let wide = of!(UInt64Type).iter().map(|&value| i64::try_from(value).unwrap_or(i64::MAX));
            Integers::I64(wide.collect())
        }
        DataType::Boolean => {
            let flags = values.as_boolean().values().slice(range.start, range.len());
            Integers::U8(flags.iter().map(u8::from).collect())
        }
        _ => return None,
    })
}

/// Returns numbers, rounded to 32 bits.
fn numbers(values: &ArrayRef, range: Range<usize>) -> Option<Vec<f32>> {
    macro_rules! of {
        ($t:ty, $number:expr) => {
            values.as_primitive::<$t>().values().get(range)?.iter().map($number).collect()
        };
    }
    Some(match values.data_type() {
        DataType::Float16 => of!(Float16Type, |number| number.to_f32()),
        DataType::Float32 => of!(Float32Type, |number| *number),
        DataType::Float64 => of!(Float64Type, |number| *number as f32),
        _ => integers(values, range)?.rounded(),
    })
}

/// Returns the number of values of the list in a cell.
pub fn list_length(column: &ArrayRef, row: usize) -> usize {
    match column.data_type() {
        DataType::List(_) => column.as_list::<i32>().value_length(row) as usize,
        DataType::LargeList(_) => column.as_list::<i64>().value_length(row) as usize,
        DataType::FixedSizeList(..) => column.as_fixed_size_list().value_length() as usize,
        _ => 0,
    }
}
