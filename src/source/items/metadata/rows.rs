//! The rows of metadata tables: of one table as read, and of all of them with their files.

use crate::sample::{Reject, Value};
use crate::schema::{Field, LABEL};
use crate::source::list::detail::Detail;
use crate::source::list::source_file::SourceFile;
use crate::warning::Warning;

/// The rows of one or more tables.
#[derive(Debug)]
pub struct Metadata {
    /// One file per row, in order, followed by those of its further images.
    pub files: Vec<SourceFile>,
    /// One detail per file.
    pub details: Vec<Detail>,
    /// Fields that the rows have values for.
    pub fields: Vec<Field>,
    /// Names of the classes, if there is a column with classes.
    pub class_names: Option<Vec<String>>,
    /// XXH3-128 of the table; for several tables, of their hashes.
    pub content: u128,
    /// Names of the fields with further images, and of the columns with their paths. The files are among the files, each
    /// after the file of its row.
    pub image_fields: Vec<(String, String)>,
    /// Warning about names that were found below the folder.
    pub below: Option<Warning>,
}

/// A table whose files are not yet resolved.
pub(super) struct MetadataTable {
    /// Name of the path column.
    pub(super) path_field: String,
    pub(super) fields: Vec<Field>,
    pub(super) has_labels: bool,
    pub(super) rows: Vec<MetadataRow>,
    /// What [`MetadataRow::number`] counts: lines or rows.
    pub(super) counted: &'static str,
}

pub(super) struct MetadataRow {
    /// Line or row number, from 1.
    pub(super) number: u64,
    /// Number of the row in an origin: its byte offset, or its ordinal.
    pub(super) mark: u64,
    /// Value of the path column.
    pub(super) name: Option<Vec<u8>>,
    pub(super) label: Option<String>,
    pub(super) values: Result<Box<[Value]>, Reject>,
}

impl MetadataTable {
    /// Puts the fields in the order of `first`, which must have the same fields. The error describes the difference.
    pub(super) fn take_order(&mut self, first: &Self) -> std::result::Result<(), String> {
        let in_one = |name: &str| format!("{name:?} is in only one of them");
        if self.has_labels != first.has_labels {
            return Err(in_one(LABEL));
        }
        let mut order = Vec::new();
        for field in &first.fields {
            let at = self.fields.iter().position(|own| own.name == field.name);
            let at = at.ok_or_else(|| in_one(&field.name))?;
            let (own, other) = (self.fields[at].ty.name(), field.ty.name());
            if own != other {
                return Err(format!("{:?} is {own} in one and {other} in the other", field.name));
            }
            order.push(at);
        }
        if let Some(more) = (0..self.fields.len()).find(|at| !order.contains(at)) {
            return Err(in_one(&self.fields[more].name));
        }
        for row in &mut self.rows {
            if let Ok(values) = &mut row.values {
                *values = order.iter().map(|&at| values[at].clone()).collect();
            }
        }
        Ok(())
    }
}
