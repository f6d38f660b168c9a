//! Documents in the rows of tables with typed columns.

use std::borrow::Cow;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::error::{Error, Result};
use crate::sample::{Reject, RejectCode, Value};
use crate::schema::{Field, FieldType};
use crate::source::metadata::Keep;
use crate::source::table::columns::{ColumnNames, ReadColumns, kept_type};
use crate::source::table::{RowBatch, can_be_text, checked_cell, json, text_or_bytes, utf8};

/// Names of the requested columns.
#[derive(Debug, Clone)]
pub struct WantedColumns {
    /// Column that holds the text.
    pub text: String,
    /// Column that holds the key.
    pub key: Option<String>,
    /// Columns that become fields.
    pub keep: Vec<Keep>,
}

/// Positions of the columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextColumns {
    text: usize,
    key: Option<usize>,
    kept: Vec<usize>,
}

impl WantedColumns {
    /// Finds the columns in `schema`. Returns them with the types of the kept columns.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Usage`](crate::error::ErrorKind) if a column is missing, occurs twice, or has an unsuitable
    /// type.
    pub fn columns(&self, schema: &Schema) -> Result<(TextColumns, Vec<FieldType>)> {
        let names = ColumnNames::of(schema);
        let ty = |at: usize| schema.field(at).data_type();
        let wrong = |name: &str, at: usize, wanted: &str, option: &'static str| {
            Error::usage(format!("the column {name:?} has the type {}; expected {wanted}", ty(at)))
                .of_option(option)
                .help("name another column")
        };
        let text = names.required(&self.text, "text_field")?;
        if !can_be_text(ty(text)) {
            return Err(wrong(&self.text, text, "strings", "text_field"));
        }
        let key = self.key.as_deref().map(|name| names.required(name, "key_field")).transpose()?;
        if let (Some(at), Some(name)) = (key, &self.key)
            && !(can_be_text(ty(at)) || ty(at).is_integer())
        {
            return Err(wrong(name, at, "strings or integers", "key_field"));
        }
        let (mut kept, mut types) = (Vec::new(), Vec::new());
        for keep in &self.keep {
            let at = names.required(&keep.name, "keep_fields")?;
            kept.push(at);
            // A declared type is compared with those of all files.
            types.push(kept_type(&keep.name, ty(at), None)?);
        }
        Ok((TextColumns { text, key, kept }, types))
    }
}

impl TextColumns {
    /// Returns the ordinals of the columns to read, ascending, and these columns as positions in a batch of only those.
    pub fn alone(&self) -> (Vec<usize>, Self) {
        let read = ReadColumns::new([self.text].into_iter().chain(self.key).chain(self.kept.iter().copied()));
        let alone = Self {
            text: read.position(self.text),
            key: self.key.map(|at| read.position(at)),
            kept: self.kept.iter().map(|&at| read.position(at)).collect(),
        };
        (read.ordinals(), alone)
    }

    fn text_bytes(&self, batch: &RecordBatch, row: usize) -> u64 {
        text_or_bytes(batch.column(self.text), row).map_or(0, |text| text.len() as u64)
    }

    fn row<'a>(
        &self,
        batch: &'a RecordBatch,
        row: usize,
        fields: &[Field],
        lossy: bool,
    ) -> Result<DocumentRow<'a>, Reject> {
        let null = |name: &str| Reject::new(RejectCode::MissingField, format!("the field {name:?} is null"));
        let name = |at: usize| batch.schema().field(at).name().clone();
        let key = match self.key {
            None => None,
            Some(at) => match (text_or_bytes(batch.column(at), row), json(batch.column(at), row)) {
                (Some(key), _) => Some(utf8(key, &name(at))?.to_owned()),
                (None, Json::Number(key)) => Some(key.to_string()),
                _ => return Err(null(&name(at))),
            },
        };
        let bytes = text_or_bytes(batch.column(self.text), row).ok_or_else(|| null(&name(self.text)))?;
        let text = match lossy {
            true => String::from_utf8_lossy(bytes),
            false => Cow::Borrowed(utf8(bytes, &name(self.text))?),
        };
        let kept = self.kept.iter().zip(fields);
        let kept = kept.map(|(&at, field)| checked_cell(batch.column(at), row, field));
        Ok(DocumentRow { kept: kept.collect::<Result<_, _>>()?, text, key })
    }

    /// Removes rows from the start of `rows` until they have `target_bytes` of text: at least one row, and at most
    /// `max_rows`. Returns them with the total size of their texts.
    pub fn take(&self, rows: &mut RowBatch, target_bytes: u64, max_rows: usize) -> (RowBatch, u64) {
        let (mut count, mut bytes) = (0, 0u64);
        while count < rows.len().min(max_rows) && bytes < target_bytes {
            bytes = bytes.saturating_add(self.text_bytes(rows.batch(), count));
            count += 1;
        }
        (rows.take_first(count), bytes)
    }

    /// Returns the documents of `rows`, in order. `fields` must have the types of the kept columns.
    ///
    /// # Errors
    ///
    /// A row whose text or key is null, or is not UTF-8, is a reject. With `lossy`, invalid UTF-8 in a text is replaced.
    pub fn documents<'a>(
        &'a self,
        rows: &'a RowBatch,
        fields: &'a [Field],
        lossy: bool,
    ) -> impl Iterator<Item = Result<DocumentRow<'a>, Reject>> {
        (0..rows.len()).map(move |row| self.row(rows.batch(), row, fields, lossy))
    }
}

/// A document in a row of a table.
#[derive(Debug, PartialEq)]
pub struct DocumentRow<'a> {
    /// The text.
    pub text: Cow<'a, str>,
    /// The key, if requested.
    pub key: Option<String>,
    /// One value per kept field.
    pub kept: Vec<Value>,
}
