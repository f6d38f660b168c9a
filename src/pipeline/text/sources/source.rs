//! What the kinds of text files have in common.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::Schema;
use dsconvert_writer::outcome::Outcomes;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::options::SourceSpec;
use crate::recipe::TextRecipe;
use crate::sample::{Reject, RejectCode};
use crate::schema::{Field, FieldType};
use crate::source::io::broken::Broken;
use crate::source::io::encoding::TextEncoding;
use crate::source::io::opened::OpenedFile;
use crate::source::io::planned::PlannedFile;
use crate::source::io::stream::Stream;
use crate::source::items::json_line::WantedFields;
use crate::source::items::text::columns::{TextColumns, WantedColumns};
use crate::source::items::text::fields::{SourceDocument, TextFields};
use crate::source::items::text::kind::FileKind;
use crate::source::items::text::rows::RequestedColumns;
use crate::source::list::source_file::SourceFile;
use crate::source::table::delimited::Dialect;

/// Source bytes per task.
pub(in crate::pipeline::text) const TASK_BYTES: usize = 256 << 10;
/// Bytes held per source byte: the text, its fields, ids and record.
pub(in crate::pipeline::text) const BYTES_HELD_PER_BYTE: u64 = 8;
/// Bytes that a block holds, unless a single document is longer.
pub(in crate::pipeline::text) const NEXT_BYTES: u64 = TASK_BYTES as u64 * BYTES_HELD_PER_BYTE;

/// The extent of a section in its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::pipeline::text) enum Extent {
    Whole,
    /// The lines that start in a range of bytes.
    Lines(Range<u64>),
    /// A range of parts that the kind of the file defines, such as row groups.
    Groups(Range<usize>),
}

impl Extent {
    pub(in crate::pipeline::text) fn start(&self) -> u64 {
        match self {
            Extent::Whole => 0,
            Extent::Lines(bytes) => bytes.start,
            Extent::Groups(groups) => groups.start as u64,
        }
    }
}

/// An item of a file.
pub(in crate::pipeline::text) struct TextItem<'a> {
    /// Byte offset or row; `None` if the document is the whole file.
    pub(in crate::pipeline::text) mark: Option<u64>,
    /// The document, or the reason why there is none.
    pub(in crate::pipeline::text) document: Result<SourceDocument<'a>, Reject>,
}

/// What determines the items of a file besides its content.
#[derive(Clone, Copy)]
pub(in crate::pipeline::text) struct ItemContext<'a> {
    pub(in crate::pipeline::text) sources: &'a [SourceSpec],
    pub(in crate::pipeline::text) follow_symlinks: bool,
    pub(in crate::pipeline::text) recipe: &'a TextRecipe,
    /// Fields of the text.
    pub(in crate::pipeline::text) text: &'a TextFields,
    /// Kept fields.
    pub(in crate::pipeline::text) fields: &'a [Field],
    /// Requested fields of a line of JSON.
    pub(in crate::pipeline::text) wanted: &'a WantedFields,
}

impl<'a> ItemContext<'a> {
    /// Returns the columns to request from tables without types.
    pub(super) fn requested_columns(&self) -> RequestedColumns<'a> {
        RequestedColumns { text: self.text, key: self.recipe.key_field.as_deref(), fields: self.fields }
    }

    /// Returns whether invalid UTF-8 is replaced.
    pub(super) fn is_lossy(&self) -> bool {
        self.recipe.replaces_invalid_utf8()
    }

    /// Decodes bytes as text, replacing invalid UTF-8 if requested.
    pub(super) fn utf8<'b>(
        &self,
        bytes: &'b [u8],
        what: &str,
        out: &mut Outcomes,
    ) -> Result<Cow<'b, str>, Reject> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Cow::Borrowed(text)),
            Err(_) if self.is_lossy() => {
                out.note("invalid_utf8_replaced");
                Ok(String::from_utf8_lossy(bytes))
            }
            Err(e) => Err(Reject::not_utf8(what, &e)),
        }
    }

    pub(super) fn check_length(&self, bytes: usize) -> Result<(), Reject> {
        match bytes as u64 > self.recipe.max_document_bytes {
            true => Err(too_long("document", bytes as u64, self.recipe.max_document_bytes)),
            false => Ok(()),
        }
    }
}

pub(super) fn too_long(what: &str, bytes: u64, limit: u64) -> Reject {
    let message = format!("the {what} has {bytes} bytes, more than `max_document_bytes {limit}`");
    Reject::new(RejectCode::TooLarge, message)
}

/// A task with adjacent items of a file.
pub(in crate::pipeline::text) trait SourceTask: Send {
    /// Returns the first mark after its items.
    fn end(&self) -> u64;

    /// Returns the number of rows, if the file is a table whose rows are counted before they are read.
    fn rows(&self) -> Option<u64> {
        None
    }

    /// Returns whether the file is damaged at this point.
    fn is_corrupt(&self) -> bool {
        false
    }

    /// Returns the next item. Adds its content to `out`, and counts what is noteworthy.
    ///
    /// # Errors
    ///
    /// Fails only for reasons other than the bytes of an item.
    fn next(&mut self, context: &ItemContext<'_>, out: &mut Outcomes) -> Result<Option<TextItem<'_>>>;
}

/// A task whose only item is a reject: a document that is too long, or a point from which on nothing can be read.
pub(in crate::pipeline::text) struct RejectTask {
    mark: Option<u64>,
    end: u64,
    reject: Option<Reject>,
}

impl RejectTask {
    /// Creates the task of an item at `mark` that ends at `end`.
    pub(super) fn boxed(mark: Option<u64>, end: u64, reject: Reject) -> Box<dyn SourceTask> {
        Box::new(Self { mark, end, reject: Some(reject) })
    }

    /// Creates the task of damage from `mark` on, or in the whole file.
    pub(super) fn damage(mark: Option<u64>, reject: Reject) -> Box<dyn SourceTask> {
        Self::boxed(mark, mark.unwrap_or(0), reject)
    }
}

impl SourceTask for RejectTask {
    fn end(&self) -> u64 {
        self.end
    }

    fn is_corrupt(&self) -> bool {
        self.reject.as_ref().is_some_and(|reject| reject.code == RejectCode::Corrupt)
    }

    fn next(&mut self, _: &ItemContext<'_>, _: &mut Outcomes) -> Result<Option<TextItem<'_>>> {
        let mark = self.mark;
        Ok(self.reject.take().map(|reject| TextItem { mark, document: Err(reject) }))
    }
}

/// A block of a section: the items of a task, the bytes of the file attributed to it, and the bytes that it holds.
pub(in crate::pipeline::text) struct TaskBlock {
    pub(in crate::pipeline::text) items: Box<dyn SourceTask>,
    /// For compressed files: the start of the last member that contributed bytes to `items`, if it differs from the one
    /// before.
    pub(in crate::pipeline::text) member: Option<u64>,
    pub(in crate::pipeline::text) source_bytes: u64,
    pub(in crate::pipeline::text) held: u64,
}

impl TaskBlock {
    /// Creates the block of damage from `mark` on, or in the whole file.
    pub(in crate::pipeline::text) fn damage(mark: Option<u64>, reject: Reject, source_bytes: u64) -> Self {
        Self { items: RejectTask::damage(mark, reject), member: None, source_bytes, held: 0 }
    }
}

/// The blocks of a section, in order.
pub(in crate::pipeline::text) trait SectionReader: Send {
    /// Returns the next block; `None` at the end.
    fn next(&mut self) -> Result<Option<TaskBlock>>;

    /// Checks that the file is still as planned; called after the last block.
    fn check_unchanged(&self) -> Result<()>;
}

/// A section with at most one block. The code that reads the file checks that it is as planned.
pub(in crate::pipeline::text) struct SingleBlock(Option<TaskBlock>);

impl SingleBlock {
    pub(in crate::pipeline::text) fn boxed<'a>(block: TaskBlock) -> Box<dyn SectionReader + 'a> {
        Box::new(Self(Some(block)))
    }

    pub(super) fn none<'a>() -> Box<dyn SectionReader + 'a> {
        Box::new(Self(None))
    }
}

impl SectionReader for SingleBlock {
    fn next(&mut self) -> Result<Option<TaskBlock>> {
        Ok(self.0.take())
    }

    fn check_unchanged(&self) -> Result<()> {
        Ok(())
    }
}

/// A file that is examined when the run is planned.
pub(in crate::pipeline::text) struct ExaminedFile<'a> {
    pub(in crate::pipeline::text) file: &'a SourceFile,
    pub(in crate::pipeline::text) sources: &'a [SourceSpec],
    pub(in crate::pipeline::text) planned: &'a PlannedFile,
    pub(in crate::pipeline::text) recipe: &'a TextRecipe,
    /// Maximum size of a section.
    pub(in crate::pipeline::text) section_bytes: u64,
}

impl ExaminedFile<'_> {
    /// Finds the requested columns in the schema of a table.
    pub(super) fn columns(&self, schema: &Schema) -> Result<FileColumns> {
        let (columns, types) = wanted_columns(self.recipe).columns(schema)?;
        Ok(FileColumns { columns, types })
    }
}

/// Returns the columns to request from tables.
pub(super) fn wanted_columns(recipe: &TextRecipe) -> WantedColumns {
    WantedColumns {
        text: recipe.text_fields(),
        key: recipe.key_field.clone(),
        keep: recipe.read_fields(),
        split_by: recipe.split_by.clone(),
        has_images: recipe.multimodal.is_given(),
    }
}

/// What the plan has found about a file.
#[derive(Default)]
pub(in crate::pipeline::text) struct FilePlan {
    pub(in crate::pipeline::text) columns: Option<FileColumns>,
    pub(in crate::pipeline::text) division: Division,
    /// A file beside it that is read with it.
    pub(in crate::pipeline::text) beside: Option<FileBeside>,
}

/// A file beside another one, as it was when the run was planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::pipeline::text) struct FileBeside {
    bytes: u64,
    modified_ns: i128,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
}

impl FileBeside {
    pub(super) fn of(planned: PlannedFile) -> Self {
        let PlannedFile { bytes, modified_ns, etag, .. } = planned;
        Self { bytes, modified_ns, etag }
    }

    /// Returns the file beside `file`, with another extension.
    pub(super) fn planned(&self, file: &PlannedFile, extension: &str) -> PlannedFile {
        PlannedFile {
            path: file.path.with_extension(extension),
            bytes: self.bytes,
            modified_ns: self.modified_ns,
            etag: self.etag.clone(),
            follow_symlinks: file.follow_symlinks,
        }
    }
}

/// The requested columns of a table.
pub(in crate::pipeline::text) struct FileColumns {
    pub(in crate::pipeline::text) columns: TextColumns,
    /// Types of the kept columns.
    pub(in crate::pipeline::text) types: Vec<FieldType>,
}

/// How a file is divided into sections.
#[derive(Default)]
pub(in crate::pipeline::text) enum Division {
    #[default]
    Whole,
    /// At any line end, unless the file is compressed or in an archive, or has another encoding than UTF-8.
    AtLineEnds,
    /// Between groups of rows. Each is a range of groups, with its estimated bytes of text and its bytes of the file.
    Groups(Vec<(Range<usize>, u64, u64)>),
}

/// Where the names of the fields of a file are.
pub(in crate::pipeline::text) enum FieldNames {
    /// There are none, or they are in a schema, which is read when the run is planned.
    Known,
    /// In each line, which is an object of JSON.
    InLines,
    /// In the first row.
    InHeader(Dialect),
}

/// A section that is to be read.
pub(in crate::pipeline::text) struct SectionFile<'a> {
    pub(in crate::pipeline::text) file: Arc<SourceFile>,
    pub(in crate::pipeline::text) kind: FileKind,
    pub(in crate::pipeline::text) planned: PlannedFile,
    pub(in crate::pipeline::text) extent: Extent,
    pub(in crate::pipeline::text) source_bytes: u64,
    /// The columns that the plan has found.
    pub(in crate::pipeline::text) columns: Option<&'a TextColumns>,
    /// The file beside it that is read with it.
    pub(in crate::pipeline::text) beside: Option<FileBeside>,
    /// The file, if its bytes were requested in advance.
    pub(in crate::pipeline::text) opened: Option<OpenedFile>,
    /// Standard input, if it is the file.
    pub(in crate::pipeline::text) stdin: Option<Stream>,
    pub(in crate::pipeline::text) context: ItemContext<'a>,
}

impl SectionFile<'_> {
    /// Opens the whole file as a stream in the form in which `source` is read.
    pub(super) fn stream(&mut self, source: &dyn TextSource) -> Result<Stream> {
        if let Some(stdin) = self.stdin.take() {
            return Ok(stdin);
        }
        let ItemContext { sources, follow_symlinks, recipe, .. } = self.context;
        let (opened, compression) = (self.opened.take(), self.kind.compression);
        let stream = self.file.stream(sources, follow_symlinks, opened, compression)?;
        Ok(source.decoded(stream, recipe.encoding))
    }
}

/// A kind of text files.
pub(in crate::pipeline::text) trait TextSource: Sync {
    /// Examines a file when the run is planned.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, is damaged, or lacks a requested column.
    fn plan(&self, file: &ExaminedFile<'_>) -> Result<FilePlan, Broken> {
        let _ = file;
        Ok(FilePlan::default())
    }

    /// Opens a section.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or is too damaged to be read.
    fn open<'a>(&'static self, section: SectionFile<'a>) -> Result<Box<dyn SectionReader + 'a>, Broken>;

    /// Returns the rows of a group of a divided file and the bytes that they hold, for predictions.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    fn weigh(
        &self,
        file: &PlannedFile,
        columns: Option<&TextColumns>,
        group: usize,
    ) -> Result<Option<(u64, u64)>, Broken> {
        let _ = (file, columns, group);
        Ok(None)
    }

    /// Returns `stream` in the form in which a file of this kind is read: text becomes UTF-8. Text without a byte order
    /// mark has the encoding `given`.
    fn decoded(&self, stream: Stream, given: Option<TextEncoding>) -> Stream {
        stream.with_encoding(given)
    }

    /// Returns whether the encoding of its text may be given.
    fn has_encoding(&self) -> bool {
        true
    }

    /// Returns whether an option defines where a document ends.
    fn is_plain(&self) -> bool {
        false
    }

    /// Returns whether each file is one document.
    fn is_document(&self, recipe: &TextRecipe) -> bool {
        let _ = recipe;
        false
    }

    /// Returns whether rows may hold lists of token ids.
    fn may_hold_ids(&self) -> bool {
        false
    }

    /// Returns where the names of fields are.
    fn field_names(&self) -> FieldNames {
        FieldNames::Known
    }

    /// Refuses standard input if such a file cannot be read from its start.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Usage`](crate::error::ErrorKind).
    fn check_stdin(&self) -> Result<()> {
        Ok(())
    }
}
