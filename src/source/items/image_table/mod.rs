//! Images in the rows of Parquet and Arrow files, as in datasets of the Hugging Face Hub: columns of structs of `bytes` and
//! `path`, of bytes, or of lists of these, and labels whose names are declared next to the schema.

mod columns;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Schema, SchemaRef};
use bytes::Bytes;
use serde_json::Value as Json;

pub use self::columns::{ImageCell, ImageColumn, ImageColumns, TableImages};
use super::metadata::columns::KeptField;
use super::metadata::placed::BESIDE_NAMES;
use crate::error::Result;
use crate::options::SourceSpec;
use crate::sample::{Reject, RejectCode, Value};
use crate::source::io::broken::Broken;
use crate::source::io::name::portable_name;
use crate::source::io::planned::{PlannedFile, changed};
use crate::source::io::stream::Stream;
use crate::source::list::source_file::SourceFile;
use crate::source::table::arrow::Batches;
use crate::source::table::columns::{position, read_columns};
use crate::source::table::parquet::{Groups, ParquetFile};
use crate::source::table::{NextRows, RowBatch, bytes, checked_cell, json};

/// Key in a footer or schema under which `datasets` stores its features.
const DECLARED: &str = "huggingface";
/// Maximum size of an image in a Parquet file, in bytes.
const MAX_IMAGE_BYTES: u64 = 256 << 20;
/// Ordinal of a missing label if labels have names.
const NO_LABEL: i64 = -1;
/// Number of rows whose images are inspected.
const INSPECTED_ROWS: usize = 16;
/// Number of rows among which these are searched, because images may be null.
const SEARCHED_ROWS: u64 = 1024;

/// Extension of Parquet files.
const PARQUET: &str = "parquet";
/// Extensions of Arrow files.
const ARROW: [&str; 3] = ["arrow", "feather", "ipc"];
/// Start of the names of Arrow files in which `datasets` keeps results beside a dataset, such as copies of its rows.
const CACHED: &str = "cache-";

/// Returns whether a file may be an image table, by its name.
pub fn is_image_table(file: &SourceFile, sources: &[SourceSpec]) -> bool {
    // Most files are images, for which nothing is allocated.
    let path = if file.is_named() { Cow::Owned(file.path(sources)) } else { Cow::Borrowed(&*file.relative) };
    let has = |known: &str| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(known));
    if file.member.is_some() || !(has(PARQUET) || ARROW.iter().any(|known| has(known))) {
        return false;
    }
    let name = path.file_name().map(portable_name).unwrap_or_default();
    let is_cached = !file.is_named() && !has(PARQUET) && name.starts_with(CACHED);
    !is_cached && !BESIDE_NAMES.contains(&&*name)
}

/// A Parquet or Arrow file that may have images.
pub struct TableFile {
    planned: PlannedFile,
    content: TableContent,
}

enum TableContent {
    Parquet(ParquetFile),
    Arrow(SchemaRef),
}

impl TableFile {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// A footer or schema that cannot be read is returned as damage.
    pub fn open(planned: PlannedFile) -> Result<Self, Broken> {
        let is_parquet = planned.path.extension().is_some_and(|e| e.eq_ignore_ascii_case(PARQUET));
        let content = match is_parquet {
            true => TableContent::Parquet(ParquetFile::open(&planned)?),
            false => TableContent::Arrow(Arc::new(open_arrow(&planned)?.schema().clone())),
        };
        Ok(Self { planned, content })
    }

    fn schema(&self) -> &Schema {
        match &self.content {
            TableContent::Parquet(file) => file.schema(),
            TableContent::Arrow(schema) => schema,
        }
    }

    /// Returns the JSON in which `datasets` describes the columns.
    fn declared(&self) -> Option<&str> {
        match &self.content {
            TableContent::Parquet(file) => file.metadata_value(DECLARED),
            TableContent::Arrow(schema) => schema.metadata().get(DECLARED).map(String::as_str),
        }
    }

    /// Returns a reader of the columns with the ordinals `roots`, which must ascend. Of a Parquet file, it reads only the
    /// leaf called `leaf` of each column that has one.
    fn rows(&self, roots: Vec<usize>, leaf: Option<&'static str>) -> Result<TableRows> {
        Ok(match &self.content {
            TableContent::Parquet(file) => {
                let groups = 0..file.group_count();
                let rows = file.row_count();
                let groups = Groups::new(file.clone(), roots, groups, MAX_IMAGE_BYTES).only_leaf(leaf);
                TableRows::Parquet { groups, rows, bytes: self.planned.bytes }
            }
            TableContent::Arrow(_) => {
                let mut batches = open_arrow(&self.planned).map_err(|broken| match broken {
                    Broken::Failed(error) => error,
                    Broken::Damaged(reject) => changed(&self.planned.path, reject.message),
                })?;
                batches.select(roots);
                TableRows::Arrow { batches, read: 0 }
            }
        })
    }

    /// Returns the columns that have images, and those that may have some.
    pub fn image_columns(&self) -> Vec<ImageColumn> {
        ImageColumn::find(self.schema(), self.declared())
    }

    /// Returns the images in the given columns of the first rows that have any: for each row and column, those that are not
    /// null.
    ///
    /// # Errors
    ///
    /// Returns operating-system errors, never damage to the file.
    pub fn first_images(&self, columns: &[&ImageColumn]) -> Result<Vec<Vec<Vec<Bytes>>>> {
        let roots = read_columns(columns.iter().map(|column| column.at));
        let mut table = self.rows(roots.clone(), None)?;
        let mut found = Vec::new();
        while let Some(next) = table.read()? {
            let NextRows::Rows(rows) = next else { continue };
            for row in 0..rows.len() {
                let images = columns.iter().map(|column| {
                    let array = rows.batch().column(position(&roots, column.at));
                    let items = if column.is_list { list_length(array, row) } else { 1 };
                    let image = |item| image(array, row, column.is_list.then_some(item)).ok().flatten();
                    (0..items).filter_map(image).collect::<Vec<_>>()
                });
                let images: Vec<_> = images.collect();
                if images.iter().any(|images| !images.is_empty()) {
                    found.push(images);
                }
                if found.len() == INSPECTED_ROWS {
                    return Ok(found);
                }
            }
            if rows.end() >= SEARCHED_ROWS {
                break;
            }
        }
        Ok(found)
    }

    /// Returns the maximum length of the lists in a column.
    ///
    /// # Errors
    ///
    /// Returns operating-system errors, never damage to the file.
    pub fn max_items(&self, column: &str) -> Result<usize> {
        let Ok(at) = self.schema().index_of(column) else { return Ok(0) };
        // The paths of the images are as many as the images, and much smaller.
        let mut table = self.rows(vec![at], Some("path"))?;
        let mut max = 0;
        while let Some(found) = table.read()? {
            let NextRows::Rows(rows) = found else { continue };
            let column = rows.batch().column(0);
            max = (0..rows.len()).map(|row| list_length(column, row)).fold(max, usize::max);
        }
        Ok(max)
    }

    /// Returns the table of the given images; `None` if the file does not have the column of the main image. `label` names
    /// the column with the classes, if the user does. With `keep`, only these columns become fields.
    ///
    /// # Errors
    ///
    /// Fails if the file lacks another column, or a column to keep cannot be a field.
    pub fn table(
        self,
        images: &TableImages,
        label: Option<&str>,
        keep: Option<&[KeptField]>,
    ) -> Result<Option<ImageTable>> {
        let columns = ImageColumns::find(self.schema(), self.declared(), images, label, keep)?;
        Ok(columns.map(|columns| ImageTable { file: self, columns: Arc::new(columns) }))
    }
}

fn open_arrow(planned: &PlannedFile) -> Result<Batches, Broken> {
    Batches::open(Stream::open(planned, None)?)
}

/// Reader of the rows of a file.
enum TableRows {
    /// With the numbers of rows and bytes of the file.
    Parquet { groups: Groups, rows: u64, bytes: u64 },
    /// With the number of bytes already attributed to rows.
    Arrow { batches: Batches, read: u64 },
}

impl TableRows {
    /// Returns the next rows; `None` at the end.
    fn read(&mut self) -> Result<Option<NextRows>> {
        match self {
            Self::Parquet { groups, .. } => groups.read(),
            Self::Arrow { batches, .. } => batches.read(),
        }
    }

    /// Returns the bytes of the file that `rows` stand for, which were just read.
    fn source_bytes(&mut self, rows: &RowBatch) -> u64 {
        match self {
            Self::Parquet { rows: all, bytes, .. } => {
                let share = |row: u64| u128::from(*bytes) * u128::from(row) / u128::from((*all).max(1));
                (share(rows.end()) - share(rows.first())) as u64
            }
            Self::Arrow { batches, read } => {
                let end = batches.raw_bytes();
                end - std::mem::replace(read, end)
            }
        }
    }

    fn check_unchanged(&self) -> Result<()> {
        match self {
            Self::Parquet { groups, .. } => groups.check_unchanged(),
            Self::Arrow { batches, .. } => batches.check_unchanged(),
        }
    }
}

/// A Parquet or Arrow file with images.
pub struct ImageTable {
    file: TableFile,
    /// The columns.
    pub columns: Arc<ImageColumns>,
}

impl ImageTable {
    /// Returns the labels of all readable rows.
    ///
    /// # Errors
    ///
    /// Returns operating-system errors, never damage to the file.
    pub fn labels(&self) -> Result<BTreeSet<String>> {
        let mut labels = BTreeSet::new();
        let Some(label) = self.columns.label else { return Ok(labels) };
        let mut table = self.file.rows(vec![label], None)?;
        while let Some(found) = table.read()? {
            let NextRows::Rows(rows) = found else { continue };
            let column = rows.batch().column(0);
            labels.extend((0..column.len()).filter_map(|row| label_text(&json(column, row))));
        }
        Ok(labels)
    }

    /// Calls `each` with the values of the fields at `wanted` of all readable rows. All other values are null.
    ///
    /// # Errors
    ///
    /// Returns operating-system errors, never damage to the file.
    pub fn each_row(&self, wanted: &[usize], mut each: impl FnMut(&[Value])) -> Result<()> {
        let columns = &self.columns;
        let roots = read_columns(wanted.iter().filter_map(|at| columns.kept.get(*at)).copied());
        let mut table = self.file.rows(roots.clone(), None)?;
        let mut values = vec![Value::Null; columns.fields.len()];
        while let Some(found) = table.read()? {
            let NextRows::Rows(rows) = found else { continue };
            for row in 0..rows.len() {
                for &at in wanted {
                    let (column, field) =
                        (rows.batch().column(position(&roots, columns.kept[at])), &columns.fields[at]);
                    values[at] = checked_cell(column, row, field).unwrap_or(Value::Null);
                }
                each(&values);
            }
        }
        Ok(())
    }

    /// Returns the names of the categories that are declared for the objects in the field `name`.
    pub fn declared_categories(&self, name: &str) -> Option<Vec<String>> {
        columns::declared_categories(self.file.declared(), name)
    }

    /// Returns a reader of the rows, in order.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub fn rows(self) -> Result<ImageRows> {
        let (read, columns) = self.columns.alone();
        Ok(ImageRows { columns: Arc::new(columns), table: self.file.rows(read, None)? })
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
    table: TableRows,
}

impl ImageRows {
    /// Returns the next rows; `None` at the end.
    ///
    /// # Errors
    ///
    /// Returns operating-system errors, never damage to the file. At the end, returns an error if the file has changed.
    pub fn read(&mut self) -> Result<Option<NextRows<ImageBatch>>> {
        let Some(found) = self.table.read()? else {
            self.table.check_unchanged()?;
            return Ok(None);
        };
        Ok(Some(match found {
            NextRows::Rows(rows) => {
                let source_bytes = self.table.source_bytes(&rows);
                NextRows::Rows(ImageBatch { rows, columns: Arc::clone(&self.columns), source_bytes })
            }
            NextRows::Broken { row, reject } => NextRows::Broken { row, reject },
        }))
    }
}

/// Consecutive rows.
pub struct ImageBatch {
    /// The rows with all columns that are read.
    pub rows: RowBatch,
    /// The columns.
    pub columns: Arc<ImageColumns>,
    /// Bytes of the file that the rows stand for.
    pub source_bytes: u64,
}

/// An image and the other values of its row.
pub struct ImageRow {
    /// Ordinal of the row in the file, from 0.
    pub number: u64,
    /// The bytes of the image file, and those of the additional images.
    pub images: Result<(Bytes, Vec<Option<Bytes>>), Reject>,
    /// Number of images in lists that no field holds.
    pub left_out: u64,
    /// The label as stored.
    pub label: Json,
    /// One value per field.
    pub values: Vec<Value>,
}

impl ImageBatch {
    /// Removes and returns the first `count` rows.
    pub fn take(&mut self, count: usize) -> Self {
        let all = self.rows.len().max(1) as u128;
        let rows = self.rows.take_first(count);
        let source_bytes = (u128::from(self.source_bytes) * rows.len() as u128 / all) as u64;
        self.source_bytes -= source_bytes;
        Self { rows, columns: Arc::clone(&self.columns), source_bytes }
    }

    /// Returns the image of a row with its other values. `row` counts from the first row of the batch.
    pub fn row(&self, row: usize) -> ImageRow {
        let (columns, batch) = (&self.columns, self.rows.batch());
        let kept = columns.kept.iter().zip(&columns.fields);
        let values: Result<Vec<Value>, Reject> =
            kept.map(|(&at, field)| checked_cell(batch.column(at), row, field)).collect();
        let (values, images) = match values {
            Ok(values) => (values, columns.images_of(batch, row)),
            Err(reject) => (Vec::new(), Err(reject)),
        };
        ImageRow {
            number: self.rows.first() + row as u64,
            images,
            left_out: columns.left_out_of(batch, row),
            label: columns.label.map_or(Json::Null, |at| json(batch.column(at), row)),
            values,
        }
    }
}

impl ImageColumns {
    /// Returns the images of a row.
    fn images_of(&self, batch: &RecordBatch, row: usize) -> Result<(Bytes, Vec<Option<Bytes>>), Reject> {
        let mut images = Vec::new();
        for ((at, item), name) in self.images.iter().zip(&self.image_names) {
            let found = image(batch.column(*at), row, *item);
            images.push(found.map_err(|reject| match images.is_empty() {
                true => reject,
                false => Reject::new(reject.code, format!("the column {name:?}: {}", reject.message)),
            })?);
        }
        let mut images = images.into_iter();
        let main = images.next().flatten();
        let main = main.ok_or_else(|| Reject::new(RejectCode::MissingField, "the row has no image"))?;
        Ok((main, images.collect()))
    }

    /// Returns the number of images in the lists of a row that are not among its images.
    fn left_out_of(&self, batch: &RecordBatch, row: usize) -> u64 {
        let lists: BTreeSet<usize> =
            self.images.iter().filter(|(_, item)| item.is_some()).map(|(at, _)| *at).collect();
        let of_list = |at: usize| {
            let Some(items) = items(batch.column(at), row) else { return 0 };
            let is_used = |item: usize| self.images.contains(&(at, Some(item)));
            (0..items.len()).filter(|&item| items.is_valid(item) && !is_used(item)).count() as u64
        };
        lists.into_iter().map(of_list).sum()
    }

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

/// Returns the length of a list, or 0 if it is null or no list.
fn list_length(column: &ArrayRef, row: usize) -> usize {
    items(column, row).map_or(0, |items| items.len())
}

/// Returns the items of a list; `None` if it is null or no list.
fn items(column: &ArrayRef, row: usize) -> Option<ArrayRef> {
    if column.is_null(row) {
        return None;
    }
    match column.data_type() {
        DataType::List(_) => Some(column.as_list::<i32>().value(row)),
        DataType::LargeList(_) => Some(column.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => Some(column.as_fixed_size_list().value(row)),
        _ => None,
    }
}

/// Returns the bytes of an image, or of an item of a list of images; `None` if it is null.
///
/// # Errors
///
/// Returns a reject if the row has only the path of an image.
fn image(column: &ArrayRef, row: usize, item: Option<usize>) -> Result<Option<Bytes>, Reject> {
    if let Some(item) = item {
        return match items(column, row) {
            Some(items) if item < items.len() => image(&items, item, None),
            _ => Ok(None),
        };
    }
    let bytes = |column: &ArrayRef| bytes(column, row).map(Bytes::copy_from_slice);
    let Some(members) = column.as_struct_opt() else { return Ok(bytes(column)) };
    if column.is_null(row) {
        return Ok(None);
    }
    let found = members.column_by_name("bytes").and_then(bytes);
    match members.column_by_name("path").map(|paths| json(paths, row)) {
        Some(Json::String(path)) if found.is_none() => Err(Reject::new(
            RejectCode::MissingField,
            format!(
                "the row has an image path ({path:?}), but no image bytes; before `Dataset.to_parquet`, embed the \
                 images with `datasets.table.embed_table_storage`"
            ),
        )),
        _ => Ok(found),
    }
}
