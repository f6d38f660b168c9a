//! Reader of a section of a file, block by block.

use std::sync::Arc;

use super::conversion::{TextConversion, TextJob};
use super::options::TextInput;
use super::plan::{Extent, FileSection, check_type, wanted_columns};
use crate::error::{Error, Result};
use crate::pipeline::job_file::JobHeader;
use crate::sample::{Reject, RejectCode};
use crate::source::io::broken::Broken;
use crate::source::io::compression::Compression;
use crate::source::io::encoding::{MAX_GROWTH, is_marked};
use crate::source::io::lines::{LinePiece, LineReader};
use crate::source::io::opened::OpenedFile;
use crate::source::items::text::columns::TextColumns;
use crate::source::items::text::cut::{DocumentCut, DocumentCutter, Rule};
use crate::source::items::text::kind::{Documents, TextFormat};
use crate::source::items::text::rows::{self, TableHeader};
use crate::source::list::source_file::SourceFile;
use crate::source::table::arrow::Batches;
use crate::source::table::delimited::Dialect;
use crate::source::table::parquet::{Groups, ParquetFile};
use crate::source::table::{NextRows, RowBatch};

/// Source bytes per task.
const TASK_BYTES: usize = 256 << 10;
/// Bytes held per source byte: the text, its fields, ids and record.
pub(super) const BYTES_HELD_PER_BYTE: u64 = 8;
/// Maximum number of rows per task, however short they are.
const TASK_ROWS: usize = 4096;
/// Bytes that a block holds, unless a single document is longer.
pub(super) const NEXT_BYTES: u64 = TASK_BYTES as u64 * BYTES_HELD_PER_BYTE;

/// Input of a task.
pub(super) enum TaskInput {
    /// Whole documents of plain text, or lines of JSON.
    Lines(LinePiece),
    /// Rows of a table of separated values.
    Rows { header: Arc<TableHeader>, offset: u64, bytes: Vec<u8> },
    /// A plain file that is one document and still has to be read. It is already opened if its bytes were requested in
    /// advance.
    File(Option<OpenedFile>),
    /// Rows of a Parquet or Arrow table.
    Batch { columns: Arc<TextColumns>, rows: RowBatch },
    /// Nothing can be read, from `mark` on or in the whole file.
    Defect { mark: Option<u64>, reject: Reject },
    /// The quoted value of a row at `offset` is never closed: the last `bytes` bytes of the file are part of it.
    UnclosedQuote { offset: u64, bytes: u64 },
}

impl TaskInput {
    /// Returns whether the file is damaged at this point.
    pub(super) fn is_corrupt(&self) -> bool {
        matches!(self, TaskInput::Defect { reject, .. } if reject.code == RejectCode::Corrupt)
    }

    /// Returns the first mark after its documents.
    pub(super) fn end(&self) -> u64 {
        match self {
            TaskInput::Lines(LinePiece::Lines { offset, bytes }) | TaskInput::Rows { offset, bytes, .. } => {
                offset.saturating_add(bytes.len() as u64)
            }
            TaskInput::Lines(LinePiece::Overlong { offset, bytes })
            | TaskInput::UnclosedQuote { offset, bytes } => offset.saturating_add(*bytes),
            TaskInput::Batch { rows, .. } => rows.end(),
            TaskInput::File(_) => 0,
            TaskInput::Defect { mark, .. } => mark.unwrap_or(0),
        }
    }
}

/// A block of a section: the input of a task, the bytes of the file attributed to it, and the bytes that it holds.
pub(super) struct TaskBlock {
    pub(super) input: TaskInput,
    /// For compressed files: the start of the last member that contributed bytes to `input`, if it differs from the one
    /// before.
    pub(super) member: Option<u64>,
    pub(super) source_bytes: u64,
    pub(super) held: u64,
}

impl TaskBlock {
    pub(super) fn defect(mark: Option<u64>, reject: Reject) -> Self {
        Self { input: TaskInput::Defect { mark, reject }, member: None, source_bytes: 0, held: 0 }
    }
}

/// Reader of a section.
pub(super) enum SectionReader<'a> {
    /// A single block.
    Once(Option<TaskBlock>),
    Lines(LineReader),
    Cuts {
        cutter: DocumentCutter,
        read: u64,
    },
    Rows {
        table: DelimitedTable<'a>,
        read: u64,
    },
    /// `rest` was read but not yet returned. `memory_bytes` of it are not yet attributed to a task.
    Batches {
        source: BatchSource,
        read: u64,
        rest: Option<RowBatch>,
        memory_bytes: u64,
        columns: Arc<TextColumns>,
    },
}

/// A table of separated values. Its header is read first.
pub(super) struct DelimitedTable<'a> {
    cutter: DocumentCutter,
    dialect: Dialect,
    wanted: rows::RequestedColumns<'a>,
    header: Option<Arc<TableHeader>>,
    ended: bool,
}

impl DelimitedTable<'_> {
    fn next(&mut self) -> Result<Option<TaskInput>> {
        if let Some(cut) = self.cutter.next(TASK_BYTES)?.filter(|_| !self.ended) {
            let defect = |mark, reject| Ok(Some(TaskInput::Defect { mark, reject }));
            match (cut, &self.header) {
                (DocumentCut::Piece(LinePiece::Lines { offset, bytes }), Some(header)) => {
                    return Ok(Some(TaskInput::Rows { header: Arc::clone(header), offset, bytes }));
                }
                (DocumentCut::Piece(LinePiece::Lines { offset, mut bytes }), None) => {
                    match TableHeader::read(self.dialect, &bytes, self.wanted) {
                        Ok((header, end)) => {
                            let header = Arc::clone(self.header.insert(Arc::new(header)));
                            let bytes = bytes.split_off(end);
                            return Ok(Some(TaskInput::Rows { header, offset: offset + end as u64, bytes }));
                        }
                        Err(reject) => {
                            self.ended = true;
                            return defect(None, reject);
                        }
                    }
                }
                (DocumentCut::Piece(lines), Some(_)) => return Ok(Some(TaskInput::Lines(lines))),
                (DocumentCut::Piece(_), None) => {
                    self.ended = true;
                    let message = "the header line is longer than `max_document_bytes`";
                    return defect(None, Reject::new(RejectCode::TooLarge, message));
                }
                (DocumentCut::Unclosed { offset, bytes }, _) => {
                    return Ok(Some(TaskInput::UnclosedQuote { offset, bytes }));
                }
                (DocumentCut::Broken { offset, reject }, header) => {
                    return defect(header.as_ref().map(|_| offset), reject);
                }
            }
        }
        Ok(None)
    }
}

/// A source of record batches.
pub(super) enum BatchSource {
    /// Row groups, and the source bytes attributed to them.
    Parquet(Groups, u64),
    Arrow(Batches),
}

impl BatchSource {
    fn next(&mut self) -> Result<Option<NextRows>> {
        match self {
            Self::Parquet(groups, _) => groups.read(),
            Self::Arrow(batches) => batches.read(),
        }
    }

    fn raw_bytes(&self) -> u64 {
        match self {
            Self::Parquet(_, bytes) => *bytes,
            Self::Arrow(batches) => batches.raw_bytes(),
        }
    }
}

impl<'a> SectionReader<'a> {
    /// Opens a section. `opened` is its `file`, if [`TextJob::open_section_ahead`] has opened it.
    fn open(
        job: &'a TextJob,
        section: &FileSection,
        file: &SourceFile,
        mut opened: Option<OpenedFile>,
    ) -> Result<Self, Broken> {
        let TextConversion { recipe, fields, details, rule, .. } = &job.conversion;
        let detail = &details[section.file];
        let once = |input, source_bytes, held| {
            Ok(Self::Once(Some(TaskBlock { input, member: None, source_bytes, held })))
        };
        if let Some(reject) = detail.defect.clone() {
            return once(TaskInput::Defect { mark: None, reject }, section.source_bytes, 0);
        }
        let planned = job.planned(file);
        let kind = detail.kind;
        let stdin = job.conversion.input == TextInput::Stdin;
        let max_bytes = recipe.max_document_bytes;
        if let Extent::Lines(bytes) = &section.extent {
            let lines = opened.map_or_else(|| planned.open(), Ok)?;
            let mut head = [0; Compression::SNIFFED_BYTES];
            let read = lines.read_at(&mut head, 0).map_err(|e| Error::io("read", lines.path(), e))?;
            let (compression, is_encoded) = (Compression::sniff(&head[..read]), is_marked(&head[..read]));
            if compression.is_none() && !is_encoded {
                return Ok(Self::Lines(LineReader::over(lines, bytes.clone(), max_bytes)?));
            }
            // Such a file cannot be divided at line ends: its first section reads all of it.
            if bytes.start > 0 {
                return Ok(Self::Once(None));
            }
            if let Some(found) = compression {
                lines.check_unchanged()?;
                let reject = TaskInput::Defect { mark: None, reject: found.unexpected() };
                return once(reject, file.bytes, 0);
            }
            opened = Some(lines);
        }
        let mut stream = || match stdin {
            true => job.conversion.take_stdin().map_or_else(|| kind.stdin(recipe.encoding), Ok),
            false => {
                let JobHeader { sources, follow_symlinks, .. } = &job.header;
                let stream = file.stream(sources, *follow_symlinks, opened.take(), kind.compression);
                stream.map(|stream| kind.reads(stream, recipe.encoding))
            }
        };
        let mut cut = |rule| stream().map(|stream| DocumentCutter::new(stream, rule, max_bytes));
        match kind.format {
            TextFormat::Text
                if recipe.documents == Documents::File && kind.compression.is_none() && !stdin =>
            {
                let text_bytes = file.bytes.saturating_mul(recipe.encoding.map_or(1, |_| MAX_GROWTH));
                let held = text_bytes.min(max_bytes).saturating_mul(BYTES_HELD_PER_BYTE);
                once(TaskInput::File(opened), file.bytes, held)
            }
            TextFormat::Text => Ok(Self::Cuts { cutter: cut(rule.clone())?, read: 0 }),
            TextFormat::JsonLines | TextFormat::Json => Ok(Self::Cuts { cutter: cut(Rule::Lines)?, read: 0 }),
            TextFormat::Delimited(dialect) => {
                let wanted = job.conversion.requested_columns();
                let cutter = cut(rows::rule(dialect))?;
                let table = DelimitedTable { cutter, dialect, wanted, header: None, ended: false };
                Ok(Self::Rows { table, read: 0 })
            }
            TextFormat::Parquet => {
                let table = ParquetFile::open(&planned)?;
                let (Extent::Groups(groups), Some(columns)) = (section.extent.clone(), &detail.columns)
                else {
                    return Ok(Self::Once(None));
                };
                let (roots, columns) = columns.alone();
                let groups = Groups::new(table, roots, groups, max_bytes).limited_by("max_document_bytes");
                Ok(Self::batches(BatchSource::Parquet(groups, section.source_bytes), columns))
            }
            TextFormat::Arrow => {
                let mut batches = Batches::open(stream()?)?;
                let found = wanted_columns(recipe).columns(batches.schema());
                let (columns, types) = found?;
                for (field, ty) in fields.iter().zip(types) {
                    check_type(&field.name, ty, field.ty)?;
                }
                let (roots, columns) = columns.alone();
                batches.select(roots);
                Ok(Self::batches(BatchSource::Arrow(batches), columns))
            }
        }
    }

    /// Opens a section. A section whose content is too damaged to be read becomes one reject.
    pub(super) fn open_or_reject(
        job: &'a TextJob,
        section: &FileSection,
        file: &SourceFile,
        opened: Option<OpenedFile>,
    ) -> Result<Self> {
        match Self::open(job, section, file, opened) {
            Ok(reader) => Ok(reader),
            Err(Broken::Damaged(reject)) => {
                job.planned(file).open()?.check_unchanged()?;
                Ok(Self::Once(Some(TaskBlock::defect(None, reject))))
            }
            Err(Broken::Failed(error)) => Err(error),
        }
    }

    fn batches(source: BatchSource, columns: TextColumns) -> Self {
        Self::Batches { source, read: 0, rest: None, memory_bytes: 0, columns: Arc::new(columns) }
    }

    /// Checks that the file is still as planned; called after the last block.
    pub(super) fn check_unchanged(&self) -> Result<()> {
        match self {
            // The code that reads the file checks it.
            Self::Once(_) => Ok(()),
            Self::Lines(reader) => reader.check_unchanged(),
            Self::Cuts { cutter, .. } => cutter.check_unchanged(),
            Self::Rows { table, .. } => table.cutter.check_unchanged(),
            Self::Batches { source: BatchSource::Parquet(groups, _), .. } => groups.check_unchanged(),
            Self::Batches { source: BatchSource::Arrow(batches), .. } => batches.check_unchanged(),
        }
    }

    pub(super) fn next(&mut self) -> Result<Option<TaskBlock>> {
        match self {
            Self::Once(block) => Ok(block.take()),
            Self::Lines(reader) => Ok(reader.next(TASK_BYTES)?.map(|lines| {
                let source_bytes = match &lines {
                    LinePiece::Lines { bytes, .. } => bytes.len() as u64,
                    LinePiece::Overlong { bytes, .. } => *bytes,
                };
                let input = TaskInput::Lines(lines);
                TaskBlock { held: held(&input), input, member: None, source_bytes }
            })),
            Self::Cuts { cutter, read } => {
                let Some(cut) = cutter.next(TASK_BYTES)? else { return Ok(None) };
                let input = match cut {
                    DocumentCut::Piece(lines) => TaskInput::Lines(lines),
                    DocumentCut::Unclosed { offset, bytes } => TaskInput::UnclosedQuote { offset, bytes },
                    DocumentCut::Broken { offset, reject } => {
                        TaskInput::Defect { mark: (offset > 0).then_some(offset), reject }
                    }
                };
                let member = cutter.take_member_start();
                Ok(Some(TaskBlock { member, ..task_block(input, read, cutter.raw_bytes()) }))
            }
            Self::Rows { table, read } => {
                let Some(input) = table.next()? else { return Ok(None) };
                let member = table.cutter.take_member_start();
                Ok(Some(TaskBlock { member, ..task_block(input, read, table.cutter.raw_bytes()) }))
            }
            Self::Batches { source, read, rest, memory_bytes, columns } => loop {
                if let Some(all) = rest.as_mut().filter(|rows| !rows.is_empty()) {
                    let (rows, bytes) = columns.take(all, TASK_BYTES as u64, TASK_ROWS);
                    let held = bytes.saturating_mul(BYTES_HELD_PER_BYTE);
                    let held = held.saturating_add(std::mem::take(memory_bytes));
                    let input = TaskInput::Batch { columns: Arc::clone(columns), rows };
                    return Ok(Some(TaskBlock { held, ..task_block(input, read, source.raw_bytes()) }));
                }
                match source.next()? {
                    None => return Ok(None),
                    Some(NextRows::Broken { row, reject }) => {
                        return Ok(Some(TaskBlock::defect(Some(row), reject)));
                    }
                    Some(NextRows::Rows(rows)) => {
                        *memory_bytes = rows.memory_bytes();
                        *rest = Some(rows);
                    }
                }
            },
        }
    }
}

/// Creates a block of a stream. `raw_bytes` bytes of the stream were read, `read` of them for earlier blocks.
fn task_block(input: TaskInput, read: &mut u64, raw_bytes: u64) -> TaskBlock {
    let source_bytes = raw_bytes - std::mem::replace(read, raw_bytes);
    TaskBlock { held: held(&input), input, member: None, source_bytes }
}

fn held(input: &TaskInput) -> u64 {
    let bytes = match input {
        TaskInput::Lines(LinePiece::Lines { bytes, .. }) | TaskInput::Rows { bytes, .. } => {
            bytes.len() as u64
        }
        _ => 0,
    };
    bytes.saturating_mul(BYTES_HELD_PER_BYTE)
}
