//! Documents in the rows of tables with typed columns.

use std::borrow::Cow;

use arrow_schema::Schema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::fields::{SourceDocument, TextFields, object, unread};
use super::token_row::IdField;
use crate::error::{Error, Result};
use crate::sample::{Reject, RejectCode};
use crate::schema::{Field, FieldType};
use crate::source::items::metadata::columns::Keep;
use crate::source::table::columns::{ColumnNames, kept_type, position, read_columns};
use crate::source::table::number_lists::ListItems;
use crate::source::table::numbers::{can_be_list, list_length, row_list};
use crate::source::table::{
    RowBatch, can_be_json, can_be_json_with_bytes, can_be_text, checked_cell, json, memory_bytes,
    text_or_bytes, utf8,
};

/// Bytes of a token id.
const ID_BYTES: u64 = 4;

/// Names of the requested columns.
#[derive(Debug, Clone)]
pub struct WantedColumns {
    /// Columns of the text.
    pub text: TextFields,
    /// Column that holds the key.
    pub key: Option<String>,
    /// Columns that become fields.
    pub keep: Vec<Keep>,
    /// The one of them that decides the split, for messages.
    pub split_by: Option<String>,
    /// Whether the members of a chat may hold bytes: its images.
    pub has_images: bool,
}

/// Positions of the columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextColumns {
    /// Those of the text, or of the members of [`TextFields::Json`]; `None`: the table does not have the column.
    text: Vec<Option<usize>>,
    key: Option<usize>,
    kept: Vec<usize>,
    /// Names of the columns that nothing reads, if they are reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unread: Vec<String>,
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
        let text = match &self.text {
            TextFields::Text(name) => {
                let at = names.required(name, "text_field")?;
                if !can_be_text(ty(at)) {
                    return Err(wrong(name, at, "strings", "text_field"));
                }
                vec![Some(at)]
            }
            TextFields::Json(members) => {
                let has_images = self.has_images;
                let mut found = Vec::new();
                for member in members {
                    let at = match member.is_named {
                        true => Some(names.required(&member.field, member.option)?),
                        false => names.at(&member.field)?,
                    };
                    let fits = if has_images { can_be_json_with_bytes } else { can_be_json };
                    if let Some(at) = at.filter(|&at| !fits(ty(at))) {
                        return Err(wrong(&member.field, at, "strings, lists or structs", member.option));
                    }
                    found.push(at);
                }
                found
            }
            TextFields::Ids(ids) => {
                let mut found = Vec::new();
                for field in ids.fields() {
                    let at = match field.is_named {
                        true => Some(names.required(&field.name, field.option)?),
                        false => names.at(&field.name)?,
                    };
                    if let Some(at) = at.filter(|&at| !can_be_list(ty(at), field.items)) {
                        let expected = match field.items {
                            ListItems::Numbers => "lists of numbers",
                            _ => "lists of integers",
                        };
                        return Err(wrong(&field.name, at, expected, field.option));
                    }
                    found.push(at);
                }
                found
            }
        };
        let key = self.key.as_deref().map(|name| names.required(name, "key_field")).transpose()?;
        if let (Some(at), Some(name)) = (key, &self.key)
            && !(can_be_text(ty(at)) || ty(at).is_integer())
        {
            return Err(wrong(name, at, "strings or integers", "key_field"));
        }
        let (mut kept, mut types) = (Vec::new(), Vec::new());
        for keep in &self.keep {
            let is_group = self.split_by.as_ref() == Some(&keep.name);
            let at = names.required(&keep.name, if is_group { "split_by" } else { "keep_fields" })?;
            kept.push(at);
            // A declared type is compared with those of all files.
            types.push(kept_type(&keep.name, ty(at), None)?);
        }
        let unread = unread(&self.text, names.all().len(), text.iter().flatten().chain(&key).chain(&kept));
        let unread = unread.into_iter().map(|at| names.all()[at].to_owned()).collect();
        Ok((TextColumns { text, key, kept, unread }, types))
    }
}

impl TextColumns {
    /// Returns the names of the columns that nothing reads, if they are reported.
    pub fn unread(&self) -> &[String] {
        &self.unread
    }

    /// Returns the ordinals of the columns to read, ascending, and these columns as positions in a batch of only those.
    pub fn alone(&self) -> (Vec<usize>, Self) {
        let all = self.text.iter().flatten().chain(&self.key).chain(&self.kept);
        let read = read_columns(all.copied());
        let alone = Self {
            text: self.text.iter().map(|at| at.map(|at| position(&read, at))).collect(),
            key: self.key.map(|at| position(&read, at)),
            kept: self.kept.iter().map(|&at| position(&read, at)).collect(),
            unread: self.unread.clone(),
        };
        (read, alone)
    }

    /// Returns the document in `row` of `rows`. `wanted` must be the fields whose columns these are, and `fields` must have
    /// the types of the kept columns.
    ///
    /// # Errors
    ///
    /// A row whose text or key is null, or is not UTF-8, is a reject. With `lossy`, invalid UTF-8 in a text is replaced.
    pub fn document<'a>(
        &self,
        rows: &'a RowBatch,
        row: usize,
        wanted: &TextFields,
        fields: &[Field],
        lossy: bool,
    ) -> Result<SourceDocument<'a>, Reject> {
        let batch = rows.batch();
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
        let column = |at: usize| self.text.get(at).copied().flatten();
        let ids = match wanted {
            TextFields::Ids(ids) => {
                let list = |at: usize, field: &IdField| {
                    let column = column(at).map(|column| batch.column(column));
                    column.map_or(Ok(None), |column| row_list(column, row, &field.name, field.items))
                };
                Some(Box::new(ids.row(list)?))
            }
            _ => None,
        };
        let text = match wanted {
            TextFields::Ids(_) => Cow::Borrowed(""),
            TextFields::Text(field) => {
                let bytes = column(0).and_then(|at| text_or_bytes(batch.column(at), row));
                let bytes = bytes.ok_or_else(|| null(field))?;
                match lossy {
                    true => String::from_utf8_lossy(bytes),
                    false => Cow::Borrowed(utf8(bytes, field)?),
                }
            }
            TextFields::Json(members) => Cow::Owned(object(members, |member, _| {
                // A null may only mean that another row has this member.
                let cell = |at| without_null_members(json(batch.column(at), row)).to_string();
                Ok(column(member).map(cell))
            })?),
        };
        let kept = self.kept.iter().zip(fields);
        let kept = kept.map(|(&at, field)| checked_cell(batch.column(at), row, field));
        let unread = self.unread.clone();
        Ok(SourceDocument { kept: kept.collect::<Result<_, _>>()?, text, ids, key, unread })
    }

    /// Removes rows from the start of `rows` until they have `target_bytes` of text: at least one row, and at most
    /// `max_rows`. Returns them with the total size of their texts.
    pub fn take(&self, rows: &mut RowBatch, target_bytes: u64, max_rows: usize) -> (RowBatch, u64) {
        let (mut count, mut bytes) = (0, 0u64);
        let batch = rows.batch();
        // The values of several columns may be nested, and count as their mean.
        let nested = || self.text.iter().flatten().map(|&at| memory_bytes(batch.column(at))).sum::<u64>();
        let first = self.text.first().copied().flatten().map(|at| batch.column(at));
        let ids = first.filter(|ids| can_be_list(ids.data_type(), ListItems::Integers));
        let (text, mean) = match self.text[..] {
            [Some(at)] => (Some(batch.column(at)), 0),
            _ if ids.is_some() => (None, 0),
            _ => (None, nested() / (rows.len() as u64).max(1)),
        };
        while count < rows.len().min(max_rows) && bytes < target_bytes {
            let row = match (text, ids) {
                (Some(text), _) => text_or_bytes(text, count).map_or(0, |text| text.len() as u64),
                (None, Some(ids)) => ID_BYTES * list_length(ids, count) as u64,
                (None, None) => mean,
            };
            bytes = bytes.saturating_add(row);
            count += 1;
        }
        (rows.take_first(count), bytes)
    }
}

/// Removes the members of objects that are null. A table gives each struct of a column the same members.
fn without_null_members(value: Json) -> Json {
    match value {
        Json::Object(members) => {
            let members = members.into_iter().filter(|(_, value)| !value.is_null());
            members.map(|(name, value)| (name, without_null_members(value))).collect()
        }
        Json::Array(items) => items.into_iter().map(without_null_members).collect(),
        other => other,
    }
}
