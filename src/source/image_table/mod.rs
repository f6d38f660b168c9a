//! Images in the rows of Parquet files, as datasets of the Hugging Face Hub have them: a column of structs of `bytes` and `path`, or
//! of bytes, and labels whose names are declared beside the schema.

mod columns;

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use bytes::Bytes;
use serde_json::Value as Json;

pub use self::columns::ImageColumns;
use super::PlannedFile;
use super::metadata::{BESIDE_NAMES, Labels};
use super::stream::Broken;
use super::table::parquet::{Groups, ParquetFile};
use super::table::{NextRows, RowBatch, bytes, cell, json};
use crate::error::Result;
use crate::sample::{Reject, RejectCode, Value};

/// Footer key under which `datasets` stores its features.
const DECLARED: &str = "huggingface";
/// Bytes of the largest image that is read.
const MAX_IMAGE_BYTES: u64 = 256 << 20;
/// The ordinal of a missing label where labels have names.
const NO_LABEL: i64 = -1;

/// Whether a file of this name may be a table of images.
pub fn is_parquet(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or_default();
    name.to_ascii_lowercase().ends_with(".parquet") && !BESIDE_NAMES.contains(&name)
}

/// A Parquet file with images.
pub struct ImageTable {
    file: ParquetFile,
    columns: Arc<ImageColumns>,
}

impl ImageTable {
    /// Opens a Parquet file; `None` when it has no images.
    ///
    /// # Errors
    ///
    /// A footer that cannot be read is damage. That several columns have images is a failure.
    pub fn open(planned: &PlannedFile) -> Result<Option<Self>, Broken> {
        let file = ParquetFile::open(planned)?;
        let columns = ImageColumns::find(file.schema(), file.note(DECLARED))
            .map_err(|e| Broken::Failed(e.at_path(&planned.path)))?;
        Ok(columns.map(|columns| Self { file, columns: Arc::new(columns) }))
    }

    /// What the columns are.
    pub fn columns(&self) -> &Arc<ImageColumns> {
        &self.columns
    }

    /// Number of rows that the footer claims.
    pub fn row_count(&self) -> u64 {
        self.file.row_count()
    }

    /// Adds the labels of all rows that can be read to `labels`.
    ///
    /// # Errors
    ///
    /// Failures of the operating system, never damage of the file.
    pub fn labels(&self, labels: &mut BTreeSet<String>) -> Result<()> {
        let Some(label) = self.columns.label else { return Ok(()) };
        let groups = 0..self.file.group_count();
        let mut groups = Groups::new(self.file.clone(), vec![label], groups, MAX_IMAGE_BYTES);
        while let Some(found) = groups.read()? {
            let NextRows::Rows(rows) = found else { continue };
            let column = rows.batch().column(0);
            labels.extend((0..column.len()).filter_map(|row| label_text(&json(column, row))));
        }
        Ok(())
    }

    /// The rows in order.
    pub fn rows(self) -> ImageRows {
        let roots = self.columns.roots();
        let columns = Arc::new(self.columns.among(&roots));
        let groups = 0..self.file.group_count();
        ImageRows { columns, groups: Groups::new(self.file, roots, groups, MAX_IMAGE_BYTES) }
    }
}

fn label_text(label: &Json) -> Option<String> {
    match label {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The names of the classes that `labels` are: integers are ordinals.
///
/// # Errors
///
/// An integer too large to be an ordinal.
pub fn class_names(labels: &BTreeSet<String>) -> Result<Vec<String>> {
    Labels::of(labels.iter().map(String::as_str), None).map(Labels::into_names)
}

/// Reads the rows of a table.
pub struct ImageRows {
    columns: Arc<ImageColumns>,
    groups: Groups,
}

/// What comes next in a table of images.
pub enum FoundRows {
    /// Some rows.
    Rows(ImageBatch),
    /// Rows from `row` on cannot be read; others may follow.
    Broken {
        /// Ordinal of the first row that cannot be read.
        row: u64,
        /// What is wrong.
        reject: Reject,
    },
}

impl ImageRows {
    /// The next rows; `None` at the end.
    ///
    /// # Errors
    ///
    /// Failures of the operating system, never damage of the file; at the end, that the file has changed.
    pub fn read(&mut self) -> Result<Option<FoundRows>> {
        let Some(found) = self.groups.read()? else {
            self.groups.check_unchanged()?;
            return Ok(None);
        };
        Ok(Some(match found {
            NextRows::Rows(rows) => FoundRows::Rows(ImageBatch { rows, columns: Arc::clone(&self.columns) }),
            NextRows::Broken { row, reject } => FoundRows::Broken { row, reject },
        }))
    }
}

/// Neighbouring rows.
pub struct ImageBatch {
    rows: RowBatch,
    columns: Arc<ImageColumns>,
}

/// An image, and what else its row has.
pub struct ImageRow {
    /// Ordinal of the row in the file, from 0.
    pub number: u64,
    /// The bytes of the image file.
    pub image: Result<Bytes, Reject>,
    /// The label as it is stored.
    pub label: Json,
    /// One value per field.
    pub values: Vec<Value>,
}

impl ImageBatch {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes of the columns in memory.
    pub fn memory_bytes(&self) -> u64 {
        self.rows.memory_bytes()
    }

    /// Takes the first `count` rows out.
    pub fn take(&mut self, count: usize) -> Self {
        Self { rows: self.rows.take_first(count), columns: Arc::clone(&self.columns) }
    }

    /// What the columns are.
    pub fn columns(&self) -> &ImageColumns {
        &self.columns
    }

    /// The rows in order.
    pub fn rows(&self) -> impl Iterator<Item = ImageRow> {
        let (columns, batch) = (&self.columns, self.rows.batch());
        (0..self.len()).map(move |row| {
            let kept = columns.kept.iter().zip(&columns.fields);
            ImageRow {
                number: self.rows.first() + row as u64,
                image: image(batch.column(columns.image), row),
                label: columns.label.map_or(Json::Null, |at| json(batch.column(at), row)),
                values: kept.map(|(&at, field)| cell(batch.column(at), row, field.ty)).collect(),
            }
        })
    }
}

impl ImageColumns {
    /// The name of the class that a label means, or the label itself where labels have no names; `None` when there is no label.
    ///
    /// # Errors
    ///
    /// An ordinal that no class has.
    pub fn class_of(&self, label: &Json) -> Result<Option<String>, Reject> {
        let (Some(classes), Some(ordinal)) = (&self.declared_classes, label.as_i64()) else {
            return Ok(label_text(label));
        };
        if ordinal == NO_LABEL {
            return Ok(None);
        }
        let class = usize::try_from(ordinal).ok().and_then(|ordinal| classes.get(ordinal));
        class.cloned().map(Some).ok_or_else(|| {
            let message = format!("the label {ordinal} is none of the {} classes of the file", classes.len());
            Reject::new(RejectCode::UnknownLabel, message)
        })
    }
}

/// The bytes of an image.
fn image(column: &ArrayRef, row: usize) -> Result<Bytes, Reject> {
    let bytes = |column: &ArrayRef| bytes(column, row).map(Bytes::copy_from_slice);
    let missing = |message: &str| Reject::new(RejectCode::MissingField, message);
    let Some(members) = column.as_struct_opt() else {
        return bytes(column).ok_or_else(|| missing("the row has no image"));
    };
    let found = members.column_by_name("bytes").filter(|_| !column.is_null(row)).and_then(bytes);
    found.ok_or_else(|| match members.column_by_name("path").map(|paths| json(paths, row)) {
        Some(Json::String(path)) if !column.is_null(row) => {
            missing(&format!("the row has no bytes of an image, only its path {path:?}"))
        }
        _ => missing("the row has no image"),
    })
}
