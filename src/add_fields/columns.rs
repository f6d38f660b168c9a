//! Columns of tables as fields of a companion: lists of numbers become arrays, lists of texts stay lists, and all other types
//! are those of every table.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use bytes::Bytes;

use crate::format::number_of;
use crate::sample::{ArrayValue, Value};
use crate::schema::{ArrayType, DType, Field, FieldType};
use crate::source::table::{checked_cell, field_type, is_text, text};

/// Returns whether values of the type are lists of numbers, with any number of items.
pub(super) fn has_one_open_axis(ty: FieldType) -> bool {
    match ty {
        FieldType::Array(array) => array.axes().eq([None]),
        _ => false,
    }
}

/// The axes of the arrays of a field so far: the size of each, or `None` where sizes differ.
#[derive(Debug, Default)]
pub(super) struct CommonShape(Option<Vec<Option<u32>>>);

impl CommonShape {
    /// Adds a value.
    pub(super) fn add(&mut self, value: &Value) {
        let Value::Array(array) = value else { return };
        match &mut self.0 {
            None => self.0 = Some(array.shape().iter().copied().map(Some).collect()),
            Some(axes) => axes.iter_mut().zip(array.shape()).for_each(|(axis, size)| {
                axis.take_if(|axis| axis != size);
            }),
        }
    }

    /// Returns `ty` with the sizes that all values have: Parquet has no type for lists of one size.
    pub(super) fn fix(&self, ty: FieldType) -> FieldType {
        let (FieldType::Array(array), Some(found)) = (ty, &self.0) else { return ty };
        let size = |(axis, found): (Option<usize>, &Option<u32>)| {
            axis.or_else(|| found.map(|size| size as usize).filter(|&size| size > 0))
        };
        let axes: Vec<_> = array.axes().zip(found).map(size).collect();
        ArrayType::new(array.dtype(), &axes).map_or(ty, FieldType::Array)
    }
}

/// Returns the type of the field for a column of the type `column`; `None` if no field can hold it.
pub(super) fn column_type(column: &DataType) -> Option<FieldType> {
    if let Some(item) = list_item(column)
        && is_text(item)
    {
        return Some(FieldType::Texts);
    }
    let mut axes = Vec::new();
    let mut numbers = column;
    while let Some(item) = list_item(numbers) {
        axes.push(match numbers {
            DataType::FixedSizeList(_, size) => usize::try_from(*size).ok(),
            _ => None,
        });
        numbers = item;
    }
    // No array holds booleans.
    match number_of(numbers).filter(|&dtype| dtype != DType::Bool) {
        // A number of 16 bits has no type of its own.
        Some(dtype) if !axes.is_empty() || dtype == DType::Float16 => {
            ArrayType::new(dtype, &axes).ok().map(FieldType::Array)
        }
        _ => field_type(column),
    }
}

fn list_item(ty: &DataType) -> Option<&DataType> {
    match ty {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Some(item.data_type())
        }
        _ => None,
    }
}

/// Returns the value of a cell of a column for which [`column_type`] is the type of `field`. The error is a clause for a message.
pub(super) fn value(column: &ArrayRef, row: usize, field: &Field) -> Result<Value, String> {
    match field.ty {
        _ if column.is_null(row) => Ok(Value::Null),
        FieldType::Texts => {
            let items = items(column, row).unwrap_or_else(|| column.slice(row, 0));
            let texts = (0..items.len()).map(|at| text(&items, at).map(Into::into));
            texts
                .collect::<Option<Vec<_>>>()
                .map(Value::Texts)
                .ok_or_else(|| "has a list with null".to_owned())
        }
        FieldType::Array(array) => {
            let mut shape = vec![None; array.axes().len()];
            let mut numbers = Vec::new();
            append(&column.slice(row, 1), 0, &mut shape, &mut numbers)?;
            // An empty list says nothing of the lists in it.
            let size = |(found, axis): (Option<u32>, Option<usize>)| {
                found.or_else(|| u32::try_from(axis?).ok()).unwrap_or_default()
            };
            let shape: Vec<u32> = shape.into_iter().zip(array.axes()).map(size).collect();
            Ok(Value::Array(ArrayValue::new(shape, Bytes::from(numbers))))
        }
        _ => checked_cell(column, row, field).map_err(|reject| reject.message),
    }
}

/// Returns the items of the list in a cell.
fn items(column: &ArrayRef, row: usize) -> Option<ArrayRef> {
    Some(match column.data_type() {
        DataType::List(_) => column.as_list::<i32>().value(row),
        DataType::LargeList(_) => column.as_list::<i64>().value(row),
        DataType::FixedSizeList(..) => column.as_fixed_size_list().value(row),
        _ => return None,
    })
}

/// Appends the numbers of `cells`, which are lists at the axis `depth`, to `out`. All lists of an axis have the same length,
/// which is set in `shape`.
fn append(
    cells: &ArrayRef,
    depth: usize,
    shape: &mut [Option<u32>],
    out: &mut Vec<u8>,
) -> Result<(), String> {
    if cells.null_count() > 0 {
        return Err("has a list with null".to_owned());
    }
    macro_rules! numbers {
        ($ty:ty) => {
            cells.as_primitive::<$ty>().values().iter().for_each(|number| out.extend(number.to_le_bytes()))
        };
    }
    match cells.data_type() {
        DataType::Int8 => numbers!(Int8Type),
        DataType::Int16 => numbers!(Int16Type),
        DataType::Int32 => numbers!(Int32Type),
        DataType::Int64 => numbers!(Int64Type),
        DataType::UInt8 => numbers!(UInt8Type),
        DataType::UInt16 => numbers!(UInt16Type),
        DataType::UInt32 => numbers!(UInt32Type),
        DataType::UInt64 => numbers!(UInt64Type),
        DataType::Float16 => numbers!(Float16Type),
        DataType::Float32 => numbers!(Float32Type),
        DataType::Float64 => numbers!(Float64Type),
        _ => {
            for row in 0..cells.len() {
                let Some(items) = items(cells, row) else { return Err("has no numbers".to_owned()) };
                let length =
                    u32::try_from(items.len()).map_err(|_| "has a list that is too long".to_owned())?;
                match shape.get_mut(depth) {
                    Some(axis) if axis.is_none_or(|axis| axis == length) => *axis = Some(length),
                    _ => return Err("has lists of different lengths, and is no array".to_owned()),
                }
                append(&items, depth + 1, shape, out)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow_schema::Field as ArrowField;

    use super::*;

    #[test]
    fn lists_of_booleans_are_no_arrays() {
        let list = |item| DataType::new_list(item, true);
        let array = |text: &str| Some(FieldType::Array(text.parse().unwrap()));
        for (column, expected) in [
            (list(DataType::Boolean), Some(FieldType::Json)),
            (DataType::Boolean, Some(FieldType::Bool)),
            (list(DataType::UInt16), array("array<uint16>[?]")),
            (DataType::new_fixed_size_list(list(DataType::Float32), 3, true), array("array<float32>[3,?]")),
            (DataType::Float16, array("array<float16>[]")),
            (DataType::UInt16, Some(FieldType::UInt32)),
            (list(DataType::Utf8), Some(FieldType::Texts)),
            (
                DataType::Struct([ArrowField::new("x", DataType::Int8, true)].into_iter().collect()),
                Some(FieldType::Json),
            ),
        ] {
            assert_eq!(column_type(&column), expected, "{column}");
        }
    }
}
