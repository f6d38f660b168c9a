//! Merges the rows of one image into one record: the values of some columns become lists.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::sample::{Reject, RejectCode, Value};
use crate::schema::{Field, FieldType};
use crate::source::list::detail::Detail;
use crate::source::list::source_file::SourceFile;
use crate::source::table::missing_field::no_column;
use crate::source::table::typed_values::as_json;

/// The columns whose values become lists.
pub(super) struct ListFields {
    /// Type of the list elements per field; `None` if the field is not a list.
    elements: Vec<Option<FieldType>>,
    /// Names of the fields, for messages.
    names: Vec<String>,
}

/// A file named by several rows, with their values so far.
pub(super) struct RowsOfFile<P> {
    pub(super) file: SourceFile,
    pub(super) detail: Detail,
    /// Position of the first row.
    pub(super) place: P,
    /// The values of all rows as JSON, per field.
    lists: Vec<Vec<String>>,
}

impl ListFields {
    /// Turns the fields `names` into lists. Returns `None` if there are none.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such field, or its values cannot be in a list.
    pub(super) fn of(names: &[String], fields: &mut [Field]) -> Result<Option<Self>> {
        let mut elements = vec![None; fields.len()];
        for name in names {
            let Some(at) = fields.iter().position(|field| field.name == *name) else {
                let there: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
                return Err(no_column("list_fields", name, &there));
            };
            if fields[at].ty == FieldType::Binary {
                return Err(Error::usage(format!(
                    "the column {name:?} holds bytes, which JSON lists cannot"
                ))
                .of_option("list_fields")
                .help("name columns of strings, numbers, booleans or JSON"));
            }
            elements[at] = Some(elements[at].unwrap_or(fields[at].ty));
        }
        for (field, _) in fields.iter_mut().zip(&elements).filter(|(_, element)| element.is_some()) {
            field.ty = FieldType::Json;
        }
        let all = fields.iter().map(|field| field.name.clone()).collect();
        Ok((!names.is_empty()).then_some(Self { elements, names: all }))
    }

    /// Groups rows into one entry per file, in the order of the first row of each file.
    pub(super) fn group<P>(
        &self,
        rows: impl Iterator<Item = (SourceFile, Detail, P)>,
    ) -> Vec<(SourceFile, Detail, P)> {
        let mut by_origin: HashMap<String, usize> = HashMap::new();
        let mut grouped: Vec<RowsOfFile<P>> = Vec::new();
        for (file, detail, place) in rows {
            let at = *by_origin.entry(file.origin.clone()).or_insert(grouped.len());
            match grouped.get_mut(at) {
                Some(known) => self.add(known, detail),
                None => {
                    let lists = vec![Vec::new(); self.elements.len()];
                    let mut first = RowsOfFile { file, detail, place, lists };
                    let values = first.detail.values.clone();
                    self.append(&mut first.lists, &values);
                    grouped.push(first);
                }
            }
        }
        let finished = grouped.into_iter().map(|RowsOfFile { file, mut detail, place, lists }| {
            for ((value, list), element) in detail.values.iter_mut().zip(lists).zip(&self.elements) {
                if element.is_some() {
                    *value = Value::Text(format!("[{}]", list.join(",")).as_str().into());
                }
            }
            (file, detail, place)
        });
        finished.collect()
    }

    /// Adds a further row. The record is rejected if the row cannot be read, or contradicts the first row.
    fn add<P>(&self, known: &mut RowsOfFile<P>, detail: Detail) {
        if known.detail.defect.is_some() {
            return;
        }
        let defect = detail.defect.or_else(|| {
            let differs = |at: &usize| {
                self.elements[*at].is_none() && !is_same(&known.detail.values[*at], &detail.values[*at])
            };
            let different = match known.detail.label == detail.label {
                false => Some("label"),
                true => (0..self.elements.len()).find(differs).map(|at| self.names[at].as_str()),
            };
            let message = different.map(|name| {
                format!("rows of the image differ in {name:?}, which `list_fields` does not name")
            });
            message.map(|message| Box::new(Reject::new(RejectCode::InvalidValue, message)))
        });
        match defect {
            Some(_) => known.detail.defect = defect,
            None => self.append(&mut known.lists, &detail.values),
        }
    }

    fn append(&self, lists: &mut [Vec<String>], values: &[Value]) {
        for ((list, value), element) in lists.iter_mut().zip(values).zip(&self.elements) {
            if let Some(ty) = element {
                list.push(as_json(*ty, value));
            }
        }
    }
}

/// Returns whether two values are equal, where NaN equals itself.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
        _ => a == b,
    }
}
