//! The columns of a table that are read: their ordinals by name, their types as fields, and their positions in batches of
//! only these columns. Documents, metadata and images in tables all find their columns here.

use std::collections::BTreeSet;

use arrow_schema::{DataType, Schema};

use super::{field_type, fits};
use crate::error::{Error, Result};
use crate::schema::FieldType;
use crate::source::table::missing_field::no_column;

/// The names of all columns of a table.
#[derive(Debug, Clone)]
pub struct ColumnNames<'a>(Vec<&'a str>);

impl<'a> ColumnNames<'a> {
    /// Returns the names of `columns`.
    pub fn new(columns: &'a [impl AsRef<str>]) -> Self {
        Self(columns.iter().map(AsRef::as_ref).collect())
    }

    /// Returns the names of the columns of `schema`.
    pub fn of(schema: &'a Schema) -> Self {
        Self(schema.fields().iter().map(|field| field.name().as_str()).collect())
    }

    /// Returns all names, in order.
    pub fn all(&self) -> &[&'a str] {
        &self.0
    }

    /// Returns the ordinals of the first two columns that are called `wanted`.
    pub fn find(&self, wanted: &str) -> (Option<usize>, Option<usize>) {
        let mut found = (0..self.0.len()).filter(|&at| self.0[at] == wanted);
        (found.next(), found.next())
    }

    /// Returns the ordinal of the column that is called `wanted`, if there is one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) if there are two.
    pub fn at(&self, wanted: &str) -> Result<Option<usize>> {
        match self.find(wanted) {
            (found, None) => Ok(found),
            _ => Err(Error::usage(format!("two columns are called {wanted:?}")).help("rename one of them")),
        }
    }

    /// Returns the ordinal of the column that is called `wanted`, which `option` names.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) if there is none, or if there are two.
    pub fn required(&self, wanted: &str, option: &'static str) -> Result<usize> {
        self.at(wanted)?.ok_or_else(|| no_column(option, wanted, &self.0))
    }
}

/// Returns the type of the field for the column `name`, which has the type `column`, and which the user keeps with the type
/// `declared`, if that is given.
///
/// # Errors
///
/// [`ErrorKind::Usage`](crate::error::ErrorKind) if no field, or none of the declared type, can hold the column.
pub fn kept_type(name: &str, column: &DataType, declared: Option<FieldType>) -> Result<FieldType> {
    let refused = |what: String, help| Err(Error::usage(what).of_option("keep_fields").help(help));
    match (field_type(column), declared) {
        (None, _) => {
            let help = "leave it out of `keep_fields`; `image_fields` names columns of images";
            refused(format!("the column {name:?} is {column}, which no field can hold"), help)
        }
        (Some(found), Some(declared)) if !fits(found, declared) => {
            let help = "leave the type out: columns of Parquet and Arrow have types of their own";
            refused(format!("the column {name:?} is {}, not {}", found.name(), declared.name()), help)
        }
        (Some(found), declared) => Ok(declared.unwrap_or(found)),
    }
}

/// Returns the ordinals of columns that are read alone: ascending, each once.
pub fn read_columns(columns: impl IntoIterator<Item = usize>) -> Vec<usize> {
    columns.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the position of the column with the ordinal `at` in a batch of the columns `read`.
pub fn position(read: &[usize], at: usize) -> usize {
    read.partition_point(|&other| other < at)
}
