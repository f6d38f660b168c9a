//! Images in Parquet files: one file is one unit, which its feed reads row group by row group.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use serde_json::Value as Json;

use super::convert::{Images, Item, Task};
use super::job::ImagesJob;
use super::options::ImagesOptions;
use crate::error::{Error, Result};
use crate::pipeline::conversion::Feed;
use crate::pipeline::outcome::{Outcome, Outcomes};
use crate::sample::{Reject, RejectCode, Value};
use crate::schema::Field;
use crate::source::image_table::{
    FoundRows, ImageBatch, ImageColumns, ImageRow, ImageRows, ImageTable, class_names, is_parquet,
};
use crate::source::stream::Broken;
use crate::source::walk::SourceFile;
use crate::transform::image::Scratch;

/// Bytes of the rows of one task, about, unless one row alone has more.
const TASK_BYTES: u64 = 1 << 20;

/// The Parquet files with images among the sources.
pub(super) struct FoundTables {
    pub(super) fields: Vec<Field>,
    pub(super) class_names: Option<Vec<String>>,
    /// Columns that no field can hold.
    pub(super) left_out: Vec<String>,
    /// Ordinals of Parquet files without images.
    pub(super) others: BTreeSet<usize>,
}

/// Looks into the Parquet files among `files`; `None` when none has images.
pub(super) fn find_tables(files: &[SourceFile], options: &ImagesOptions) -> Result<Option<FoundTables>> {
    let mut found: Vec<(&SourceFile, ImageTable)> = Vec::new();
    let mut others = BTreeSet::new();
    for (ordinal, file) in files.iter().enumerate().filter(|(_, file)| is_parquet(&file.origin)) {
        match ImageTable::open(&file.planned(&options.sources, options.follow_symlinks)) {
            Ok(Some(table)) => found.push((file, table)),
            Ok(None) => {
                others.insert(ordinal);
            }
            // One that is damaged is rejected when its turn comes.
            Err(Broken::Damaged(_)) => {}
            Err(Broken::Failed(error)) => return Err(error),
        }
    }
    let Some((first, table)) = found.first() else { return Ok(None) };
    let columns = table.columns();
    if let Some((other, _)) = found.iter().find(|(_, other)| !other.columns().fits(columns)) {
        let first = first.path(&options.sources);
        return Err(Error::usage(format!("the columns differ from those of {}", first.display()))
            .at_path(other.path(&options.sources))
            .help("convert Parquet files with different columns or classes separately"));
    }
    Ok(Some(FoundTables {
        fields: columns.fields.clone(),
        class_names: classes(&found, columns, options)?,
        left_out: columns.left_out.clone(),
        others,
    }))
}

/// Class names: those of the option, else those that the files declare, else the distinct labels of all rows.
fn classes(
    found: &[(&SourceFile, ImageTable)],
    columns: &ImageColumns,
    options: &ImagesOptions,
) -> Result<Option<Vec<String>>> {
    if !columns.has_labels() {
        return Ok(None);
    }
    if let Some(given) = options.classes.as_ref().or(columns.declared_classes.as_ref()) {
        return Ok(Some(given.clone()));
    }
    let mut labels = BTreeSet::new();
    found.iter().try_for_each(|(_, table)| table.labels(&mut labels))?;
    class_names(&labels).map(Some)
}

/// The ordinals of classes.
pub(super) struct ClassOrdinals {
    by_name: HashMap<String, usize>,
}

impl ClassOrdinals {
    pub(super) fn new(names: &[String]) -> Self {
        Self { by_name: names.iter().cloned().zip(0..).collect() }
    }

    /// The value of a label.
    fn value(&self, columns: &ImageColumns, label: &Json) -> Result<Value, Reject> {
        let Some(class) = columns.class_of(label)? else { return Ok(Value::Null) };
        let found = match columns.declared_classes {
            Some(_) => self.by_name.get(&class).copied().ok_or_else(|| unknown(&class))?,
            None => self.ordinal(&class)?,
        };
        Ok(Value::Int(found as i64))
    }

    /// The ordinal of the class that `label` names, or that it is the ordinal of.
    pub(super) fn ordinal(&self, label: &str) -> Result<usize, Reject> {
        let ordinal = || label.parse().ok().filter(|n| *n < self.by_name.len());
        self.by_name.get(label).copied().or_else(ordinal).ok_or_else(|| unknown(label))
    }
}

fn unknown(class: &str) -> Reject {
    let message = format!("the class {class:?} is not in the list of classes");
    Reject::new(RejectCode::UnknownLabel, message)
}

/// The rows of one Parquet file.
pub(super) struct TableFeed {
    file: usize,
    bytes: u64,
    row_count: u64,
    rows: Option<ImageRows>,
    /// Rows of which no task is made yet.
    pending: Option<ImageBatch>,
    /// What is wrong with the whole file.
    broken: Option<Reject>,
    /// Rows that tasks were made of already.
    fed: u64,
}

impl TableFeed {
    pub(super) fn open(job: &ImagesJob, ordinal: usize) -> Result<Self> {
        let file = &job.files[ordinal];
        let (table, broken) = match ImageTable::open(&job.planned(file)) {
            Ok(Some(table)) => (Some(table), None),
            Ok(None) => {
                (None, Some(Reject::new(RejectCode::MissingField, "the file has no column of images")))
            }
            Err(Broken::Damaged(reject)) => (None, Some(reject)),
            Err(Broken::Failed(error)) => return Err(error),
        };
        let row_count = table.as_ref().map_or(0, ImageTable::row_count);
        let rows = table.map(ImageTable::rows);
        Ok(Self { file: ordinal, bytes: file.bytes, row_count, rows, pending: None, broken, fed: 0 })
    }

    /// A task, and the bytes it holds: the rows, and about as much again for the records.
    fn task(&mut self, found: TableRows, rows: u64, bytes: u64) -> Option<(Task, u64)> {
        let share = |rows: u64| {
            (u128::from(self.bytes) * u128::from(rows) / u128::from(self.row_count.max(1))) as u64
        };
        let source_bytes = share(self.fed.saturating_add(rows)).saturating_sub(share(self.fed));
        self.fed = self.fed.saturating_add(rows);
        Some((Task::Table(TableTask { file: self.file, found, source_bytes }), bytes * 2))
    }
}

impl Feed<Task> for TableFeed {
    fn next_bytes(&self) -> u64 {
        TASK_BYTES * 2
    }

    fn next(&mut self) -> Result<Option<(Task, u64)>> {
        if let Some(reject) = self.broken.take() {
            return Ok(self.task(TableRows::Broken { row: None, reject }, 0, 0));
        }
        while self.pending.as_ref().is_none_or(ImageBatch::is_empty) {
            let Some(rows) = &mut self.rows else { return Ok(None) };
            match rows.read()? {
                None => return Ok(None),
                Some(FoundRows::Rows(batch)) => self.pending = Some(batch),
                Some(FoundRows::Broken { row, reject }) => {
                    return Ok(self.task(TableRows::Broken { row: Some(row), reject }, 0, 0));
                }
            }
        }
        let Some(batch) = &mut self.pending else { return Ok(None) };
        let each = batch.memory_bytes() / batch.len().max(1) as u64;
        let count = (TASK_BYTES / each.max(1)).max(1);
        let taken = batch.take(usize::try_from(count).unwrap_or(usize::MAX));
        let rows = taken.len() as u64;
        Ok(self.task(TableRows::Rows(taken), rows, each * rows))
    }
}

/// Neighbouring rows of a Parquet file.
pub(in crate::pipeline) struct TableTask {
    /// Ordinal of the file.
    file: usize,
    found: TableRows,
    /// The share of the bytes of the file.
    pub(super) source_bytes: u64,
}

enum TableRows {
    Rows(ImageBatch),
    Broken { row: Option<u64>, reject: Reject },
}

impl TableTask {
    /// Number of items.
    pub(super) fn len(&self) -> usize {
        match &self.found {
            TableRows::Rows(batch) => batch.len(),
            TableRows::Broken { .. } => 1,
        }
    }
}

impl Images<'_> {
    /// Converts rows.
    pub(super) fn table(&self, task: TableTask, scratch: &mut Scratch, out: &mut Outcomes) {
        out.source_bytes += task.source_bytes;
        let file = &self.job.files[task.file];
        match task.found {
            TableRows::Broken { row, reject } => {
                let origin = row.map_or_else(|| file.origin.clone(), |row| format!("{}#{row}", file.origin));
                let split = self.job.split_of_item(file, &origin);
                out.list.push(Outcome::Rejected { split, origin, reject });
            }
            TableRows::Rows(batch) => {
                for row in batch.rows() {
                    let origin = format!("{}#{}", file.origin, row.number);
                    let split = self.job.split_of_item(file, &origin);
                    let converted = self.row(&origin, row, batch.columns(), split, scratch, out);
                    let outcome =
                        converted.unwrap_or_else(|reject| Outcome::Rejected { split, origin, reject });
                    out.list.push(outcome);
                }
            }
        }
    }

    fn row(
        &self,
        origin: &str,
        row: ImageRow,
        columns: &ImageColumns,
        split: u16,
        scratch: &mut Scratch,
        out: &mut Outcomes,
    ) -> Result<Outcome, Reject> {
        out.read(origin.as_bytes());
        out.read(row.label.to_string().as_bytes());
        row.values.iter().for_each(|value| out.read(&bytes_of(value)));
        let bytes = row.image?;
        out.read(&bytes);
        let label = self.classes.value(columns, &row.label)?;
        let item = Item { origin: origin.to_owned(), bytes, label, values: row.values, further: Vec::new() };
        self.image(item, split, scratch, out)
    }
}

/// The bytes of a value that are added to the hash of the content.
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
