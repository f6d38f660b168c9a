//! Tables in Parquet files. Fields have the types of the schema; lists and structs become JSON.

use ::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use ::parquet::file::metadata::ParquetMetaData;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Schema};
use bytes::Bytes;
use serde_json::Value as Json;

use super::columns::{Columns, Wanted};
use super::{Row, Table};
use crate::error::{Error, Result};
use crate::panics::caught;
use crate::sample::Value;
use crate::schema::{Field, FieldType};
use crate::source::pages::{BadPages, check_column};

/// Rows decoded at a time.
const BATCH_ROWS: usize = 1024;
/// Decoded bytes that one stored byte may claim, beside [`FREE_BYTES`].
const MAX_RATIO: u64 = 1024;
/// Decoded bytes that any column may claim.
const FREE_BYTES: u64 = 64 << 20;
/// Rows that a byte of the file may stand for, beside [`FREE_ROWS`]: each names a file of its own.
const MAX_ROWS_RATIO: u64 = 64;
/// Rows that any row group may have.
const FREE_ROWS: u64 = 1 << 20;
/// Deepest nesting of lists and structs.
const MAX_DEPTH: usize = 32;

pub(super) fn read(bytes: Vec<u8>, wanted: &Wanted<'_>) -> Result<Table> {
    // The decoder meets some damage with a panic; nothing it worked on is used after one.
    caught(|| decode(Bytes::from(bytes), wanted))
        .unwrap_or_else(|_| Err(Error::usage("the Parquet file is damaged: its decoder gave up")))
}

fn decode(bytes: Bytes, wanted: &Wanted<'_>) -> Result<Table> {
    let failed =
        |e: ::parquet::errors::ParquetError| Error::usage("the Parquet file cannot be read").caused_by(e);
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes.clone()).map_err(failed)?;
    check_claims(builder.metadata(), &bytes)?;
    let schema = builder.schema().clone();
    let names: Vec<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
    let columns = wanted.among(&names)?;
    let fields = fields(&schema, &columns, &columns.path_field)?;
    let mut rows = Vec::new();
    for batch in builder.with_batch_size(BATCH_ROWS).build().map_err(failed)? {
        let batch = batch.map_err(|e| Error::usage("the Parquet file cannot be read").caused_by(e))?;
        for row in 0..batch.num_rows() {
            let number = rows.len() as u64;
            rows.push(read_row(&batch, row, number, &columns, &fields));
        }
    }
    let has_labels = columns.label.is_some();
    Ok(Table { path_field: columns.path_field, fields, has_labels, rows, counted: "row" })
}

/// Refuses a file whose footer or pages claim more than its bytes can hold, before anything is allocated for it.
fn check_claims(file: &ParquetMetaData, bytes: &Bytes) -> Result<()> {
    let damaged = |what: &str| Err(Error::usage(format!("the Parquet file is damaged: {what}")));
    let file_bytes = bytes.len() as u64;
    for group in file.row_groups() {
        let rows = u64::try_from(group.num_rows()).unwrap_or(u64::MAX);
        if rows > file_bytes.saturating_mul(MAX_ROWS_RATIO).saturating_add(FREE_ROWS) {
            return damaged("a row group claims more rows than the file can hold");
        }
        for column in group.columns() {
            let (stored, claimed) = (column.compressed_size(), column.uncompressed_size());
            let most = match (u64::try_from(stored), u64::try_from(claimed)) {
                (Ok(stored), Ok(claimed)) => {
                    let most = stored.saturating_mul(MAX_RATIO).saturating_add(FREE_BYTES);
                    (stored <= file_bytes && claimed <= most).then_some(most)
                }
                _ => None,
            };
            let Some(most) = most else {
                return damaged("a column claims more than the file holds");
            };
            let checked = check_column(bytes, column, rows, most);
            match checked.map_err(|e| Error::usage("the Parquet file cannot be read").caused_by(e))? {
                None => {}
                Some(BadPages::Corrupt(what)) => return damaged(what),
                Some(BadPages::Truncated) => return damaged("a column ends after the file"),
                Some(BadPages::TooLarge(_)) => return damaged("a page claims more than the file holds"),
            }
        }
    }
    Ok(())
}

fn fields(schema: &Schema, columns: &Columns, path: &str) -> Result<Vec<Field>> {
    let ty = |at: usize| schema.field(at).data_type();
    if !is_text(ty(columns.path)) {
        return Err(Error::usage(format!("the column {path:?} does not hold strings"))
            .help("--path-field names the column of paths"));
    }
    if let Some(label) = columns.label
        && !(is_text(ty(label)) || ty(label).is_integer())
    {
        return Err(Error::usage("the column \"label\" holds neither strings nor integers")
            .help("rename the column to keep it as a field of another kind"));
    }
    let mut fields = Vec::new();
    for (at, kept) in &columns.kept {
        let found = field_type(ty(*at)).ok_or_else(|| {
            Error::usage(format!("the column {:?} is {}, which no field can hold", kept.name, ty(*at)))
                .help("leave it out: --keep-fields names the columns to keep")
        })?;
        if let Some(declared) = kept.ty.filter(|&declared| declared != found) {
            return Err(Error::usage(format!(
                "the column {:?} is {}, not {}",
                kept.name,
                found.name(),
                declared.name()
            ))
            .help("leave the type out: columns of Parquet have types of their own"));
        }
        fields.push(Field::nullable(&kept.name, found));
    }
    Ok(fields)
}

pub(in crate::source) fn is_text(ty: &DataType) -> bool {
    matches!(ty, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

pub(in crate::source) fn field_type(ty: &DataType) -> Option<FieldType> {
    Some(match ty {
        ty if is_text(ty) => FieldType::String,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => FieldType::Binary,
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

/// Whether values of the type can be written as JSON.
fn is_json(ty: &DataType, depth: usize) -> bool {
    match ty {
        _ if depth > MAX_DEPTH => false,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            is_json(item.data_type(), depth + 1)
        }
        DataType::Struct(members) => members.iter().all(|m| is_json(m.data_type(), depth + 1)),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => false,
        DataType::Null => true,
        scalar => {
            is_text(scalar)
                || scalar.is_integer()
                || matches!(scalar, DataType::Boolean | DataType::Float32 | DataType::Float64)
        }
    }
}

fn read_row(batch: &RecordBatch, row: usize, number: u64, columns: &Columns, fields: &[Field]) -> Row {
    let text = |at: usize| match json(batch.column(at), row) {
        Json::String(text) if text.is_empty() => None,
        Json::String(text) => Some(text),
        Json::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let values = columns.kept.iter().zip(fields).map(|((at, _), f)| cell(batch.column(*at), row, f.ty));
    Row {
        number: number + 1,
        mark: number,
        name: text(columns.path).map(String::into_bytes),
        label: columns.label.and_then(text),
        values: Ok(values.collect()),
    }
}

/// The value of a cell, which is of the type that [`field_type`] gave.
pub(in crate::source) fn cell(column: &ArrayRef, row: usize, ty: FieldType) -> Value {
    if column.is_null(row) {
        return Value::Null;
    }
    let bytes = |bytes: &[u8]| Value::Bytes(Bytes::copy_from_slice(bytes));
    match column.data_type() {
        DataType::Binary => return bytes(column.as_binary::<i32>().value(row)),
        DataType::LargeBinary => return bytes(column.as_binary::<i64>().value(row)),
        DataType::BinaryView => return bytes(column.as_binary_view().value(row)),
        // Not through JSON, which has no infinity.
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

/// The value of a cell as JSON; numbers that JSON has not are null.
pub(in crate::source) fn json(column: &ArrayRef, row: usize) -> Json {
    if column.is_null(row) {
        return Json::Null;
    }
    let list = |items: ArrayRef| Json::Array((0..items.len()).map(|i| json(&items, i)).collect());
    match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).into(),
        DataType::LargeUtf8 => column.as_string::<i64>().value(row).into(),
        DataType::Utf8View => column.as_string_view().value(row).into(),
        DataType::Boolean => column.as_boolean().value(row).into(),
        DataType::Int8 => column.as_primitive::<Int8Type>().value(row).into(),
        DataType::Int16 => column.as_primitive::<Int16Type>().value(row).into(),
        DataType::Int32 => column.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).into(),
        DataType::UInt8 => column.as_primitive::<UInt8Type>().value(row).into(),
        DataType::UInt16 => column.as_primitive::<UInt16Type>().value(row).into(),
        DataType::UInt32 => column.as_primitive::<UInt32Type>().value(row).into(),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).into(),
        DataType::Float32 => column.as_primitive::<Float32Type>().value(row).into(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).into(),
        DataType::List(_) => list(column.as_list::<i32>().value(row)),
        DataType::LargeList(_) => list(column.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => list(column.as_fixed_size_list().value(row)),
        DataType::Struct(members) => {
            let columns = column.as_struct().columns();
            members.iter().zip(columns).map(|(m, c)| (m.name().clone(), json(c, row))).collect()
        }
        _ => Json::Null,
    }
}
