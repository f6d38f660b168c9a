//! Images in the rows of Parquet and Arrow files.

pub(in crate::pipeline::images) mod find;

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::source::{
    BYTES_HELD_PER_BYTE, ContainerFile, ImageItem, ImageSource, ItemContext, SourceFeed, SourceItem,
    SourceTask, TASK_BYTES,
};
use crate::error::Result;
use crate::options::SourceSpec;
use crate::pipeline::job::Feed;
use crate::sample::{Reject, RejectCode, Value};
use crate::schema::LABEL;
use crate::source::io::broken::Broken;
use crate::source::items::box_fields::RowBoxesReader;
use crate::source::items::image_table::{
    ImageBatch, ImageColumns, ImageRow, ImageRows, ImageTable, TableFile, TableImages, is_image_table,
};
use crate::source::list::source_file::SourceFile;
use crate::source::table::NextRows;
use crate::source::table::missing_field::quoted;
use crate::writer::outcome::Outcomes;

/// Parquet and Arrow files with images.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(in crate::pipeline::images) struct Tables {
    /// The images of the rows; `None` if all files are damaged.
    pub(in crate::pipeline::images) images: Option<TableImages>,
    /// The boxes in a column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::pipeline::images) boxes: Option<RowBoxesReader>,
}

impl ImageSource for Tables {
    fn holds(&self, file: &SourceFile, sources: &[SourceSpec]) -> bool {
        is_image_table(file, sources)
    }

    fn feed(&self, ContainerFile { file, planned, recipe }: ContainerFile<'_>) -> Result<SourceFeed> {
        let opened = TableFile::open(planned).and_then(|table| {
            let Some(images) = &self.images else { return Ok(None) };
            Ok(table.table(images, recipe.label_field.as_deref(), recipe.keep_fields.as_deref())?)
        });
        let (table, broken) = match opened {
            Ok(Some(table)) => (Some(table), None),
            Ok(None) => (None, Some(Reject::new(RejectCode::MissingField, "the file has no image column"))),
            Err(Broken::Damaged(reject)) => (None, Some(reject)),
            Err(Broken::Failed(error)) => return Err(error),
        };
        let rows = table.map(ImageTable::rows).transpose()?;
        Ok(Box::new(TableFeed { kind: Arc::new(self.clone()), file, rows, pending: None, broken }))
    }

    fn may_name_item(&self, name: &str) -> bool {
        name.parse::<u64>().is_ok_and(|row| row.to_string() == name)
    }

    fn place(&self) -> &'static str {
        "column"
    }

    fn are_related(&self) -> bool {
        false
    }

    fn has_label_field(&self) -> bool {
        self.images.is_some()
    }

    fn why_no_labels(&self, fields: &[String]) -> String {
        no_label_column(fields)
    }
}

/// Returns why rows with these columns have no label.
pub(in crate::pipeline::images) fn no_label_column(columns: &[String]) -> String {
    let name_one = match columns {
        [] => "add one, or name it with `label_field`".to_owned(),
        [one] => format!("`label_field` names another one, such as {one:?}"),
        _ => format!("`label_field` names another one: {}", quoted(columns)),
    };
    format!("there is no column {LABEL:?}; {name_one}")
}

/// Feed of the rows of a file.
struct TableFeed {
    kind: Arc<Tables>,
    file: Arc<SourceFile>,
    rows: Option<ImageRows>,
    /// Rows that are not yet in a task.
    pending: Option<ImageBatch>,
    /// The reason why the whole file is rejected.
    broken: Option<Reject>,
}

impl TableFeed {
    /// Creates a task. Returns it with the bytes that it holds.
    fn task(&self, found: TaskRows, bytes: u64) -> Option<(Box<dyn SourceTask>, u64)> {
        let (kind, file) = (Arc::clone(&self.kind), Arc::clone(&self.file));
        Some((Box::new(TableTask { kind, file, found, read: 0 }), bytes * BYTES_HELD_PER_BYTE))
    }
}

impl Feed<Box<dyn SourceTask>> for TableFeed {
    fn next_bytes(&self) -> u64 {
        TASK_BYTES * BYTES_HELD_PER_BYTE
    }

    fn next(&mut self) -> Result<Option<(Box<dyn SourceTask>, u64)>> {
        if let Some(reject) = self.broken.take() {
            return Ok(self.task(TaskRows::Broken(None, reject), 0));
        }
        while self.pending.as_ref().is_none_or(|batch| batch.rows.is_empty()) {
            let Some(rows) = &mut self.rows else { return Ok(None) };
            match rows.read()? {
                None => return Ok(None),
                Some(NextRows::Rows(batch)) => self.pending = Some(batch),
                Some(NextRows::Broken { row, reject }) => {
                    return Ok(self.task(TaskRows::Broken(Some(row), reject), 0));
                }
            }
        }
        let Some(batch) = &mut self.pending else { return Ok(None) };
        let each = batch.rows.allocated_bytes() / batch.rows.len().max(1) as u64;
        let count = (TASK_BYTES / each.max(1)).max(1);
        let taken = batch.take(usize::try_from(count).unwrap_or(usize::MAX));
        let rows = taken.rows.len() as u64;
        Ok(self.task(TaskRows::Rows(taken), each * rows))
    }
}

/// A task with adjacent rows.
struct TableTask {
    kind: Arc<Tables>,
    file: Arc<SourceFile>,
    found: TaskRows,
    /// Number of rows that were returned.
    read: usize,
}

/// The rows of a task.
enum TaskRows {
    Rows(ImageBatch),
    /// The reject of a row, or of the whole file.
    Broken(Option<u64>, Reject),
}

impl SourceTask for TableTask {
    fn file(&self) -> &SourceFile {
        &self.file
    }

    fn source_bytes(&self) -> u64 {
        match &self.found {
            TaskRows::Rows(batch) => batch.source_bytes,
            TaskRows::Broken(..) => 0,
        }
    }

    fn items(&self) -> u64 {
        match &self.found {
            TaskRows::Rows(batch) => batch.rows.len() as u64,
            TaskRows::Broken(..) => 1,
        }
    }

    fn next(&mut self, context: &ItemContext<'_>, out: &mut Outcomes) -> Option<(u64, SourceItem)> {
        let at = self.read;
        self.read += 1;
        let item = match &self.found {
            _ if at as u64 == self.items() => return None,
            TaskRows::Broken(row, reject) => {
                let origin = row.map_or_else(|| self.file.origin.clone(), |row| self.origin(row));
                SourceItem::Rejected(origin, reject.clone())
            }
            TaskRows::Rows(batch) => {
                let row = batch.row(at);
                let origin = self.origin(row.number);
                let item = self.kind.item(&origin, row, &batch.columns, context, out);
                item.unwrap_or_else(|reject| SourceItem::Rejected(origin, reject))
            }
        };
        Some((0, item))
    }
}

impl TableTask {
    fn origin(&self, row: u64) -> String {
        format!("{}#{row}", self.file.origin)
    }
}

impl Tables {
    fn item(
        &self,
        origin: &str,
        row: ImageRow,
        columns: &ImageColumns,
        context: &ItemContext<'_>,
        out: &mut Outcomes,
    ) -> Result<SourceItem, Reject> {
        out.add_content(origin.as_bytes());
        out.add_content(row.label.to_string().as_bytes());
        row.values.iter().for_each(|value| out.add_content(&bytes_of(value)));
        let (bytes, further) = row.images?;
        out.add_content(&bytes);
        further.iter().flatten().for_each(|bytes| out.add_content(bytes));
        if (context.excludes)(origin) {
            return Ok(SourceItem::Excluded(origin.to_owned()));
        }
        if row.left_out > 0 {
            out.count("images_left_out", row.left_out);
        }
        let label = match columns.class_of(&row.label)? {
            Some(class) => Value::Int(context.classes.ordinal(&class)?.into()),
            None => Value::Null,
        };
        let (mut values, mut boxes) = (row.values, None);
        if let Some(reader) = &self.boxes {
            boxes = reader.read(&values)?.map(Box::new);
            values.splice(..0, reader.fields().iter().map(|_| Value::Null));
        }
        let origin = origin.to_owned();
        Ok(SourceItem::Image(Box::new(ImageItem { origin, bytes, label, values, further, boxes })))
    }
}

/// Returns the bytes of a value that are added to the content hash.
fn bytes_of(value: &Value) -> Bytes {
    match value {
        Value::Bytes(bytes) => bytes.clone(),
        Value::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
        Value::Int(number) => Bytes::copy_from_slice(&number.to_le_bytes()),
        Value::UInt(number) => Bytes::copy_from_slice(&number.to_le_bytes()),
        Value::Float(number) => Bytes::copy_from_slice(&number.to_le_bytes()),
        Value::Bool(flag) => Bytes::copy_from_slice(&[u8::from(*flag)]),
        _ => Bytes::new(),
    }
}
