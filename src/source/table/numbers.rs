//! Lists of integers in cells.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

use crate::sample::{Reject, RejectCode};

/// Returns whether values of the type are lists of integers or, with `or_flags`, of booleans.
pub fn can_be_numbers(ty: &DataType, or_flags: bool) -> bool {
    match ty {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            item.data_type().is_integer() || (or_flags && *item.data_type() == DataType::Boolean)
        }
        // A column without values.
        DataType::Null => true,
        _ => false,
    }
}

/// Returns the integers of the list in a cell of the column `name`; `None` if the cell is null.
///
/// # Errors
///
/// Returns a reject if an integer is null, or does not fit in 64 bits with a sign.
pub fn numbers(column: &ArrayRef, row: usize, name: &str) -> Result<Option<Vec<i64>>, Reject> {
    if column.is_null(row) {
        return Ok(None);
    }
    let list = match column.data_type() {
        DataType::List(_) => column.as_list::<i32>().value(row),
        DataType::LargeList(_) => column.as_list::<i64>().value(row),
        DataType::FixedSizeList(..) => column.as_fixed_size_list().value(row),
        _ => return Ok(None),
    };
    if list.null_count() > 0 {
        let message = format!("the list in the field {name:?} has a null");
        return Err(Reject::new(RejectCode::WrongType, message));
    }
    let found = match list.data_type() {
        DataType::Int8 => integers::<Int8Type>(&list),
        DataType::Int16 => integers::<Int16Type>(&list),
        DataType::Int32 => integers::<Int32Type>(&list),
        DataType::Int64 => integers::<Int64Type>(&list),
        DataType::UInt8 => integers::<UInt8Type>(&list),
        DataType::UInt16 => integers::<UInt16Type>(&list),
        DataType::UInt32 => integers::<UInt32Type>(&list),
        DataType::UInt64 => {
            let values = list.as_primitive::<UInt64Type>().values();
            values.iter().map(|&value| i64::try_from(value).unwrap_or(i64::MAX)).collect()
        }
        DataType::Boolean => list.as_boolean().values().iter().map(i64::from).collect(),
        _ => return Ok(None),
    };
    Ok(Some(found))
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

fn integers<T: ArrowPrimitiveType<Native: Into<i64>>>(list: &ArrayRef) -> Vec<i64> {
    list.as_primitive::<T>().values().iter().map(|&value| value.into()).collect()
}
