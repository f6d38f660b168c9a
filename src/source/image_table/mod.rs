//! Images in the rows of Parquet files, as in datasets of the Hugging Face Hub: a column of structs of `bytes` and
//! `path`, or of bytes, and labels whose names are declared next to the schema.

mod columns;

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use bytes::Bytes;
use serde_json::Value as Json;

pub use self::columns::ImageColumns;
use super::PlannedFile;
use super::broken::Broken;
use super::metadata::BESIDE_NAMES;
use super::table::parquet::{Groups, ParquetFile};
use super::table::{NextRows, RowBatch, bytes, cell, json};
use crate::error::Result;
use crate::sample::{Reject, RejectCode, Value};

/// Footer key under which `datasets` stores its features.
const DECLARED: &str = "huggingface";
/// Maximum size of an image, in bytes.
const MAX_IMAGE_BYTES: u64 = 256 << 20;
/// Ordinal of a missing label if labels have names.
const NO_LABEL: i64 = -1;

/// Returns whether a file of this name may be an image table.
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
    /// Opens a Parquet file; returns `None` if it has no images.
    ///
    /// # Errors
    ///
    /// A footer that cannot be read is returned as damage; several image columns, as a failure.
    pub fn open(planned: &PlannedFile) -> Result<Option<Self>, Broken> {
        let file = ParquetFile::open(planned)?;
        let columns = ImageColumns::find(file.schema(), file.metadata_value(DECLARED))
            .map_err(|e| e.at_path(&planned.path))?;
        Ok(columns.map(|columns| Self { file, columns: Arc::new(columns) }))
    }

    /// Returns the columns.
    pub fn columns(&self) -> &Arc<ImageColumns> {
        &self.columns
    }

    /// Returns the number of rows that the footer claims.
    pub fn row_count(&self) -> u64 {
        self.file.row_count()
    }

    /// Adds the labels of all readable rows to `labels`.
    ///
    /// # Errors
    ///
    /// Returns operating-system errors, never damage to the file.
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

    /// Returns a reader of the rows, in order.
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

/// Reader of the rows of a table.
pub struct ImageRows {
    columns: Arc<ImageColumns>,
    groups: Groups,
}

/// The next part of an image table.
pub enum FoundRows {
    /// Some rows.
    Rows(ImageBatch),
    /// Rows from `row` on cannot be read; readable rows may follow.
    Broken {
        /// Ordinal of the first row that cannot be read.
        row: u64,
        /// The defect.
        reject: Reject,
    },
}

impl ImageRows {
    /// Returns the next rows; `None` at the end.
    ///
    /// # Errors
    ///
    /// Returns operating-system errors, never damage to the file. At the end, returns an error if the file has changed.
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

/// Consecutive rows.
pub struct ImageBatch {
    rows: RowBatch,
    columns: Arc<ImageColumns>,
}

/// An image and the other values of its row.
pub struct ImageRow {
    /// Ordinal of the row in the file, from 0.
    pub number: u64,
    /// The bytes of the image file.
    pub image: Result<Bytes, Reject>,
    /// The label as stored.
    pub label: Json,
    /// One value per field.
    pub values: Vec<Value>,
}

impl ImageBatch {
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the size of the columns in memory, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.rows.memory_bytes()
    }

    /// Removes and returns the first `count` rows.
    pub fn take(&mut self, count: usize) -> Self {
        Self { rows: self.rows.take_first(count), columns: Arc::clone(&self.columns) }
    }

    /// Returns the columns.
    pub fn columns(&self) -> &ImageColumns {
        &self.columns
    }

    /// Returns the rows, in order.
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
    /// Returns the class name that a label denotes, or the label itself if labels have no names; `None` if there is no
    /// label.
    ///
    /// # Errors
    ///
    /// Returns a reject if no class has this ordinal.
    pub fn class_of(&self, label: &Json) -> Result<Option<String>, Reject> {
        let (Some(classes), Some(ordinal)) = (&self.declared_classes, label.as_i64()) else {
            return Ok(label_text(label));
        };
        if ordinal == NO_LABEL {
            return Ok(None);
        }
        let class = usize::try_from(ordinal).ok().and_then(|ordinal| classes.get(ordinal));
        class.cloned().map(Some).ok_or_else(|| {
            let message = format!(
                "the label {ordinal} is not below {}, the number of classes that the file declares",
                classes.len()
            );
            Reject::new(RejectCode::UnknownLabel, message)
        })
    }
}

/// Returns the bytes of an image.
fn image(column: &ArrayRef, row: usize) -> Result<Bytes, Reject> {
    let bytes = |column: &ArrayRef| bytes(column, row).map(Bytes::copy_from_slice);
    let missing = |message: &str| Reject::new(RejectCode::MissingField, message);
    let Some(members) = column.as_struct_opt() else {
        return bytes(column).ok_or_else(|| missing("the row has no image"));
    };
    let found = members.column_by_name("bytes").filter(|_| !column.is_null(row)).and_then(bytes);
    found.ok_or_else(|| match members.column_by_name("path").map(|paths| json(paths, row)) {
        Some(Json::String(path)) if !column.is_null(row) => {
            missing(&format!(
                "the row has an image path ({path:?}), but no image bytes; before `Dataset.to_parquet`, embed the \
                 images with `datasets.table.embed_table_storage`"
            ))
        }
        _ => missing("the row has no image"),
    })
}
