//! Sections whose blocks are pieces of a stream: whole lines or documents.

use dsconvert_writer::outcome::Outcomes;

use super::source::{
    BYTES_HELD_PER_BYTE, Extent, ItemContext, RejectTask, SectionFile, SectionReader, SingleBlock,
    SourceTask, TaskBlock, TextItem, TextSource, too_long,
};
use crate::error::{Error, Result};
use crate::sample::Reject;
use crate::source::io::broken::Broken;
use crate::source::io::compression::Compression;
use crate::source::io::encoding::is_marked;
use crate::source::io::lines::{LinePiece, LineReader};
use crate::source::items::text::cut::{DocumentCut, DocumentCutter, Rule};
use crate::source::table::delimited::unclosed_quote;

/// What is made of the pieces of a stream.
pub(super) trait Pieces: Send {
    /// Returns the task of a piece that starts at `offset`.
    fn task(&self, offset: u64, bytes: Vec<u8>) -> Box<dyn SourceTask>;

    /// Returns what an item is called in messages.
    fn what(&self) -> &'static str;

    /// Returns the mark of the item at `offset`.
    fn mark(&self, offset: u64) -> Option<u64> {
        Some(offset)
    }
}

/// Opens a section of a file that `rule` divides into pieces.
pub(super) fn open<'a>(
    source: &dyn TextSource,
    mut section: SectionFile<'a>,
    rule: Rule,
    pieces: impl Pieces + 'a,
) -> Result<Box<dyn SectionReader + 'a>, Broken> {
    let max_bytes = section.context.recipe.max_document_bytes;
    let task_bytes = section.task_bytes;
    if let Extent::Lines(bytes) = section.extent.clone() {
        let lines = section.opened.take().map_or_else(|| section.planned.open(), Ok)?;
        let mut head = [0; Compression::SNIFFED_BYTES];
        let read = lines.read_at(&mut head, 0).map_err(|e| Error::io("read", lines.path(), e))?;
        let (compression, is_encoded) = (Compression::sniff(&head[..read]), is_marked(&head[..read]));
        if compression.is_none() && !is_encoded {
            let reader = LineReader::over(lines, bytes, max_bytes)?;
            return Ok(Box::new(LineSection { reader, pieces, max_bytes, task_bytes }));
        }
        // Such a file cannot be divided at line ends: its first section reads all of it.
        if bytes.start > 0 {
            return Ok(SingleBlock::none());
        }
        if let Some(found) = compression {
            lines.check_unchanged()?;
            let block = TaskBlock::damage(None, found.unexpected(), section.file.bytes);
            return Ok(SingleBlock::boxed(block));
        }
        section.opened = Some(lines);
    }
    let cutter = DocumentCutter::new(section.stream(source)?, rule, max_bytes);
    Ok(Box::new(CutSection { cutter, pieces, max_bytes, task_bytes, read: 0 }))
}

/// A range of the lines of a file.
struct LineSection<P> {
    reader: LineReader,
    pieces: P,
    max_bytes: u64,
    task_bytes: usize,
}

impl<P: Pieces> SectionReader for LineSection<P> {
    fn next(&mut self) -> Result<Option<TaskBlock>> {
        Ok(self.reader.next(self.task_bytes)?.map(|piece| {
            let source_bytes = match &piece {
                LinePiece::Lines { bytes, .. } => bytes.len() as u64,
                LinePiece::Overlong { bytes, .. } => *bytes,
            };
            let (items, held) = piece_task(&self.pieces, piece, self.max_bytes);
            TaskBlock { items, member: None, source_bytes, held }
        }))
    }

    fn check_unchanged(&self) -> Result<()> {
        self.reader.check_unchanged()
    }
}

/// A whole file, which is read as a stream.
struct CutSection<P> {
    cutter: DocumentCutter,
    pieces: P,
    max_bytes: u64,
    task_bytes: usize,
    /// Bytes of the file that were read for earlier blocks.
    read: u64,
}

impl<P: Pieces> SectionReader for CutSection<P> {
    fn next(&mut self) -> Result<Option<TaskBlock>> {
        let Some(cut) = self.cutter.next(self.task_bytes)? else { return Ok(None) };
        let (items, held) = match cut {
            DocumentCut::Piece(piece) => piece_task(&self.pieces, piece, self.max_bytes),
            DocumentCut::Unclosed { offset, bytes } => (UnclosedTask::boxed(offset, bytes), 0),
            DocumentCut::Broken { offset, reject } => {
                (RejectTask::damage((offset > 0).then_some(offset), reject), 0)
            }
        };
        Ok(Some(cut_block(items, held, &mut self.cutter, &mut self.read)))
    }

    fn check_unchanged(&self) -> Result<()> {
        self.cutter.check_unchanged()
    }
}

/// Returns the task of a piece, and the bytes that it holds.
pub(super) fn piece_task(
    pieces: &impl Pieces,
    piece: LinePiece,
    max_bytes: u64,
) -> (Box<dyn SourceTask>, u64) {
    match piece {
        LinePiece::Lines { offset, bytes } => {
            let held = (bytes.len() as u64).saturating_mul(BYTES_HELD_PER_BYTE);
            (pieces.task(offset, bytes), held)
        }
        LinePiece::Overlong { offset, bytes } => {
            let reject = too_long(pieces.what(), bytes, max_bytes);
            (RejectTask::boxed(pieces.mark(offset), offset.saturating_add(bytes), reject), 0)
        }
    }
}

/// Returns the block of what `cutter` has cut last. `read` bytes of the file were read for earlier blocks.
pub(super) fn cut_block(
    items: Box<dyn SourceTask>,
    held: u64,
    cutter: &mut DocumentCutter,
    read: &mut u64,
) -> TaskBlock {
    let raw_bytes = cutter.raw_bytes();
    let source_bytes = raw_bytes - std::mem::replace(read, raw_bytes);
    TaskBlock { items, member: cutter.take_member_start(), source_bytes, held }
}

/// A row whose quoted value is never closed: the last bytes of the file are part of it.
pub(super) struct UnclosedTask {
    offset: u64,
    bytes: u64,
    reject: Option<Reject>,
}

impl UnclosedTask {
    pub(super) fn boxed(offset: u64, bytes: u64) -> Box<dyn SourceTask> {
        Box::new(Self { offset, bytes, reject: Some(unclosed_quote(offset, bytes)) })
    }
}

impl SourceTask for UnclosedTask {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }

    fn next(&mut self, _: &ItemContext<'_>, out: &mut Outcomes) -> Result<Option<TextItem<'_>>> {
        let mark = Some(self.offset);
        Ok(self.reject.take().map(|reject| {
            out.count("unclosed_quote_bytes", self.bytes);
            TextItem { mark, document: Err(reject) }
        }))
    }
}
