//! Sections of tables with typed columns, whose blocks are rows of record batches.

use std::borrow::Cow;
use std::sync::Arc;

use dsconvert_writer::outcome::Outcomes;
use xxhash_rust::xxh3::Xxh3;

use super::source::{BYTES_HELD_PER_BYTE, ItemContext, SectionReader, SourceTask, TaskBlock, TextItem};
use crate::error::{Error, Result};
use crate::sample::Record;
use crate::schema::FieldType;
use crate::source::items::text::columns::TextColumns;
use crate::source::items::text::fields::{SourceDocument, TextFields};
use crate::source::table::{NextRows, RowBatch, fits};

/// Maximum number of rows per task, however short they are.
const TASK_ROWS: usize = 4096;

/// A source of record batches.
pub(super) trait BatchSource: Send {
    fn read(&mut self) -> Result<Option<NextRows>>;

    /// Returns the bytes of the file that were read so far.
    fn raw_bytes(&self) -> u64;

    fn check_unchanged(&self) -> Result<()>;
}

/// Refuses a column whose type differs from the type of its field.
pub(in crate::pipeline::text) fn check_type(name: &str, found: FieldType, wanted: FieldType) -> Result<()> {
    if fits(found, wanted) {
        return Ok(());
    }
    Err(Error::usage(format!(
        "the column {name:?} has type {}, but the field has type {}",
        found.name(),
        wanted.name()
    ))
    .help("a field has one type: leave its type out of `keep_fields`, or convert the files separately"))
}

/// A section of a table.
pub(super) struct BatchSection<S> {
    source: S,
    columns: Arc<TextColumns>,
    task_bytes: usize,
    /// Bytes of the file that were read for earlier blocks.
    read: u64,
    /// Rows that were read but not yet returned.
    rest: Option<RowBatch>,
    /// Bytes of `rest` that are not yet attributed to a block.
    memory_bytes: u64,
}

impl<S: BatchSource> BatchSection<S> {
    /// Creates the section of the rows of `source`, which has only the requested columns.
    pub(super) fn new(source: S, columns: TextColumns, task_bytes: usize) -> Self {
        Self { source, columns: Arc::new(columns), task_bytes, read: 0, rest: None, memory_bytes: 0 }
    }
}

impl<S: BatchSource> SectionReader for BatchSection<S> {
    fn next(&mut self) -> Result<Option<TaskBlock>> {
        loop {
            if let Some(all) = self.rest.as_mut().filter(|rows| !rows.is_empty()) {
                let (rows, bytes) = self.columns.take(all, self.task_bytes as u64, TASK_ROWS);
                let held = bytes.saturating_mul(BYTES_HELD_PER_BYTE);
                let held = held.saturating_add(std::mem::take(&mut self.memory_bytes));
                let columns = Arc::clone(&self.columns);
                let items = Box::new(BatchTask { columns, rows, at: 0, hash: Xxh3::new() });
                let raw_bytes = self.source.raw_bytes();
                let source_bytes = raw_bytes - std::mem::replace(&mut self.read, raw_bytes);
                return Ok(Some(TaskBlock { items, member: None, source_bytes, held }));
            }
            match self.source.read()? {
                None => return Ok(None),
                Some(NextRows::Broken { row, reject }) => {
                    return Ok(Some(TaskBlock::damage(Some(row), reject, 0)));
                }
                Some(NextRows::Rows(rows)) => {
                    self.memory_bytes = rows.memory_bytes();
                    self.rest = Some(rows);
                }
            }
        }
    }

    fn check_unchanged(&self) -> Result<()> {
        self.source.check_unchanged()
    }
}

/// Rows that follow each other in a table.
struct BatchTask {
    columns: Arc<TextColumns>,
    rows: RowBatch,
    /// The next row.
    at: usize,
    /// Hash of the content of the rows before.
    hash: Xxh3,
}

impl SourceTask for BatchTask {
    fn end(&self) -> u64 {
        self.rows.end()
    }

    fn rows(&self) -> Option<u64> {
        Some(self.rows.len() as u64)
    }

    fn next(&mut self, context: &ItemContext<'_>, out: &mut Outcomes) -> Result<Option<TextItem<'_>>> {
        let Self { columns, rows, at, hash } = self;
        if *at == rows.len() {
            out.content.push(hash.digest128());
            return Ok(None);
        }
        let mark = Some(rows.first().saturating_add(*at as u64));
        let lossy = context.is_lossy();
        let row = columns.document(rows, *at, context.text, context.fields, lossy);
        *at += 1;
        hash.update(&[u8::from(row.is_ok())]);
        let document = row.and_then(|row| {
            hash.update(&(row.text.len() as u64).to_le_bytes());
            hash.update(row.text.as_bytes());
            row.ids.iter().for_each(|ids| ids.for_each_bytes(|bytes| hash.update(bytes)));
            hash.update(row.key.as_deref().unwrap_or_default().as_bytes());
            // A text of several fields is always a copy.
            if matches!((context.text, &row.text), (TextFields::Text(_), Cow::Owned(_))) {
                out.note("invalid_utf8_replaced");
            }
            context.check_length(row.text.len() + row.ids.as_ref().map_or(0, |ids| ids.bytes()))?;
            let kept = Record { values: row.kept };
            hash.update(&kept.crc32c().to_le_bytes());
            Ok(SourceDocument { kept: kept.values, ..row })
        });
        Ok(Some(TextItem { mark, document }))
    }
}
