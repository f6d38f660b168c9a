//! Metadata tables in Parquet and Arrow files. Fields have the types of the schema.

use ::parquet::file::metadata::ParquetMetaData;
use arrow_array::RecordBatch;
use arrow_schema::Schema;
use bytes::Bytes;
use serde_json::Value as Json;

use super::columns::{MetadataColumns, WantedMetadata};
use super::rows::{MetadataRow, MetadataTable};
use crate::error::{Error, Result};
use crate::schema::{Field, LABEL};
use crate::source::io::broken::Broken;
use crate::source::table::arrow::Batches;
use crate::source::table::columns::kept_type;
use crate::source::table::parquet::{Groups, ParquetFile};
use crate::source::table::{NextRows, can_be_text, checked_cell, json, text_or_bytes, utf8};

/// Maximum size of a value, in bytes.
const MAX_VALUE_BYTES: u64 = 64 << 20;
/// Decoded bytes that a column may claim per stored byte, in addition to [`FREE_BYTES`].
const MAX_RATIO: u64 = 1024;
/// Decoded bytes that any column may claim.
const FREE_BYTES: u64 = 64 << 20;
/// Rows allowed per byte of the file, in addition to [`FREE_ROWS`]. Each row names its own file.
const MAX_ROWS_RATIO: u64 = 64;
/// Rows allowed in any row group.
const FREE_ROWS: u64 = 1 << 20;

pub(super) fn read(bytes: Vec<u8>, wanted: &WantedMetadata<'_>) -> Result<MetadataTable> {
    let file_bytes = bytes.len() as u64;
    let file = ParquetFile::in_memory(Bytes::from(bytes)).map_err(refused)?;
    check_claims(file.footer(), file_bytes)?;
    let schema = file.schema().clone();
    let (all, groups) = ((0..schema.fields().len()).collect(), 0..file.group_count());
    let mut groups = Groups::new(file, all, groups, MAX_VALUE_BYTES);
    table(&schema, wanted, || groups.read())
}

pub(super) fn read_arrow(bytes: Vec<u8>, wanted: &WantedMetadata<'_>) -> Result<MetadataTable> {
    let limit = (bytes.len() as u64).saturating_mul(MAX_RATIO).saturating_add(FREE_BYTES);
    let mut batches = Batches::in_memory(Bytes::from(bytes)).map_err(refused)?;
    let schema = batches.schema().clone();
    let mut decoded = 0u64;
    table(&schema, wanted, || {
        let next = batches.read()?;
        if let Some(NextRows::Rows(rows)) = &next {
            decoded = decoded.saturating_add(rows.memory_bytes());
        }
        match decoded > limit {
            true => Err(Error::usage("the Arrow file is damaged: it claims more than its bytes can hold")),
            false => Ok(next),
        }
    })
}

fn refused(broken: Broken) -> Error {
    match broken {
        Broken::Failed(error) => error,
        Broken::Damaged(reject) => Error::usage(reject.message),
    }
}

/// Reads all rows of a table, which `next` returns in order.
fn table(
    schema: &Schema,
    wanted: &WantedMetadata<'_>,
    mut next: impl FnMut() -> Result<Option<NextRows>>,
) -> Result<MetadataTable> {
    let names: Vec<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
    let columns = wanted.among(&names)?;
    let fields = fields(schema, &columns, &columns.path_field)?;
    let mut rows = Vec::new();
    while let Some(next) = next()? {
        let batch = match next {
            NextRows::Rows(batch) => batch,
            NextRows::Broken { reject, .. } => return Err(refused(Broken::Damaged(reject))),
        };
        for row in 0..batch.len() {
            let number = rows.len() as u64;
            rows.push(read_row(batch.batch(), row, number, &columns, &fields));
        }
    }
    let has_labels = columns.label.is_some();
    Ok(MetadataTable { path_field: columns.path_field, fields, has_labels, rows, counted: "row" })
}

/// Returns an error if the footer claims more than the bytes of the file can hold, because all rows are kept in memory.
fn check_claims(footer: &ParquetMetaData, file_bytes: u64) -> Result<()> {
    let damaged = |what: &str| Err(Error::usage(format!("the Parquet file is damaged: {what}")));
    for group in footer.row_groups() {
        let rows = u64::try_from(group.num_rows()).unwrap_or(u64::MAX);
        if rows > file_bytes.saturating_mul(MAX_ROWS_RATIO).saturating_add(FREE_ROWS) {
            return damaged("a row group claims more rows than the file can hold");
        }
        for column in group.columns() {
            let (stored, claimed) = (column.compressed_size(), column.uncompressed_size());
            let fits = match (u64::try_from(stored), u64::try_from(claimed)) {
                (Ok(stored), Ok(claimed)) => {
                    stored <= file_bytes
                        && claimed <= stored.saturating_mul(MAX_RATIO).saturating_add(FREE_BYTES)
                }
                _ => false,
            };
            if !fits {
                return damaged("a column claims more than the file holds");
            }
        }
    }
    Ok(())
}

fn fields(schema: &Schema, columns: &MetadataColumns, path: &str) -> Result<Vec<Field>> {
    let ty = |at: usize| schema.field(at).data_type();
    // Integers are ids.
    if columns.path.is_some_and(|at| !can_be_text(ty(at)) && !ty(at).is_integer()) {
        return Err(Error::usage(format!("the column {path:?} holds neither strings nor integers"))
            .help("`path_field` names the column of paths"));
    }
    if let Some(label) = columns.label
        && !(can_be_text(ty(label)) || ty(label).is_integer())
    {
        return Err(Error::usage("the column \"label\" holds neither strings nor integers")
            .help("rename the column to keep it as a field of another kind"));
    }
    let mut fields = Vec::new();
    for (at, kept) in &columns.kept {
        fields.push(Field::nullable(&kept.name, kept_type(&kept.name, ty(*at), kept.ty)?));
    }
    Ok(fields)
}

fn read_row(
    batch: &RecordBatch,
    row: usize,
    number: u64,
    columns: &MetadataColumns,
    fields: &[Field],
) -> MetadataRow {
    let bytes = |at: usize| match (text_or_bytes(batch.column(at), row), json(batch.column(at), row)) {
        (Some(bytes), _) => Some(bytes.to_vec()).filter(|bytes| !bytes.is_empty()),
        (None, Json::Number(number)) => Some(number.to_string().into_bytes()),
        _ => None,
    };
    let label = columns.label.and_then(bytes).map(|label| utf8(&label, LABEL).map(str::to_owned)).transpose();
    let kept = columns.kept.iter().zip(fields);
    let values = kept.map(|((at, _), field)| checked_cell(batch.column(*at), row, field)).collect();
    let (label, values) = match label {
        Ok(label) => (label, values),
        Err(reject) => (None, Err(reject)),
    };
    MetadataRow { number: number + 1, mark: number, name: columns.path.and_then(bytes), label, values }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ::parquet::arrow::ArrowWriter;
    use ::parquet::file::properties::WriterProperties;
    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, DictionaryArray, StringArray};

    use super::super::columns::PathColumn;
    use super::*;
    use crate::sample::Value;
    use crate::schema::FieldType;

    fn table(columns: [(&str, ArrayRef); 2]) -> Vec<u8> {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let one_group = WriterProperties::builder().set_max_row_group_row_count(None).build();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(one_group)).unwrap();
        writer.write(&batch).unwrap();
        writer.into_inner().unwrap()
    }

    fn read_table(bytes: Vec<u8>) -> Result<MetadataTable> {
        read(bytes, &WantedMetadata { path: PathColumn::Conventional, label: None, keep: None, lists: &[] })
    }

    fn names() -> ArrayRef {
        Arc::new(StringArray::from(vec!["a.jpg", "b.jpg", "c.jpg"]))
    }

    #[test]
    fn categories_are_strings() {
        let kinds = DictionaryArray::<Int32Type>::from_iter(["day", "night", "day"]);
        let table = read_table(table([("file_name", names()), ("kind", Arc::new(kinds))])).unwrap();
        assert_eq!(table.fields, [Field::nullable("kind", FieldType::String)]);
        let of = |row: &MetadataRow| row.values.as_ref().unwrap()[0].clone();
        assert_eq!(
            table.rows.iter().map(of).collect::<Vec<_>>(),
            ["day", "night", "day"].map(|k| Value::Text(k.into()))
        );
    }

    #[test]
    fn claims_that_the_file_cannot_hold_are_refused() {
        let refused = |file_name: ArrayRef, text: ArrayRef| {
            let whole = table([("file_name", file_name), ("text", text)]);
            read_table(whole).err().map(|e| e.to_string()).unwrap_or_default()
        };
        let same = |text: &str, count| Arc::new(StringArray::from(vec![text; count])) as ArrayRef;
        // One repeated name needs hardly any bytes per row.
        let rows = FREE_ROWS as usize + (1 << 20);
        let error = refused(same("a.jpg", rows), same("x", rows));
        assert!(error.contains("claims more rows than the file can hold"), "{error}");
    }

    #[test]
    fn damage_is_refused_and_not_a_row() {
        let whole = table([("file_name", names()), ("kind", names())]);
        let refused = |bytes: Vec<u8>| read_table(bytes).err().map(|e| e.to_string());
        assert_eq!(refused(whole.clone()), None);
        let start = refused(whole[..whole.len() - 9].to_vec()).unwrap();
        assert!(start.contains("the Parquet file is damaged"), "{start}");
        let mut pages = whole;
        pages[4..80].fill(0xff);
        let pages = refused(pages).unwrap();
        assert!(pages.contains("the Parquet file is damaged"), "{pages}");
    }
}
