//! Fields of the documents of packed rows: a row has the values of its documents, one after another.

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::sample::{Value, can_be_joined, joined};
use dsconvert_dataset::schema::{FieldType, Schema};

use super::batch::Column;
use super::batch_field::BatchField;
use super::options::LoaderOptions;
use super::stored;
use super::text::TokenRows;
use crate::Record;

/// Returns how the field at `index` of documents that are packed becomes a column.
///
/// # Errors
///
/// Fails if its values cannot be joined, or if a document may be cut.
pub(super) fn field(
    schema: &Schema,
    options: &LoaderOptions,
    index: usize,
    name: &str,
) -> Result<BatchField> {
    let ty = schema.fields.get(index).map_or(FieldType::Binary, |field| field.ty);
    if options.batching.budget().is_some() && can_be_joined(ty) {
        return Ok(BatchField::Joined(index, ty));
    }
    let what = format!("{name:?} is a field of single records, but a packed row holds several");
    Err(Error::usage(what).help(match can_be_joined(ty) {
        true => "leave it out; or set a second budget, with which documents are packed whole",
        false => "leave it out; each batch has the ordinals of its records",
    }))
}

/// Returns the column of the field at `index`, of type `ty`, with one value per row.
pub(super) fn column(text: &TokenRows<'_>, index: usize, ty: FieldType) -> Result<Column> {
    let mut rows = Vec::new();
    for row in text.pieces.rows() {
        let records = || row.iter().filter_map(|piece| text.stored.get(piece.record));
        let Some(first) = records().next() else { continue }; // never: every row has a document
        let value = joined(records().map(|record| record.values().get(index).unwrap_or(&Value::Null)));
        let mut record: Record = first.clone();
        record.set(
            index,
            value.ok_or_else(|| {
                let what = format!("the values of field {index} of the documents of a row cannot be joined");
                Error::corrupt(what).at_row(first.ordinal())
            })?,
        );
        rows.push(record);
    }
    stored::column(text.pool, &rows, text.rows(), index, ty)
}
