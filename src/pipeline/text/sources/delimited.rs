//! Tables of comma-separated or tab-separated values.

use std::sync::Arc;

use bytes::Bytes;
use dsconvert_writer::outcome::Outcomes;

use super::pieces::{Pieces, UnclosedTask, cut_block, piece_task};
use super::source::{
    FieldNames, ItemContext, RejectTask, SectionFile, SectionReader, SourceTask, TASK_BYTES, TaskBlock,
    TextItem, TextSource,
};
use crate::error::Result;
use crate::sample::{Reject, RejectCode};
use crate::source::io::broken::Broken;
use crate::source::io::lines::LinePiece;
use crate::source::items::text::cut::{DocumentCut, DocumentCutter};
use crate::source::items::text::rows::{self, RequestedColumns, TableHeader, TableRows};
use crate::source::table::delimited::Dialect;

/// A table of separated values.
pub(super) struct DelimitedFile(pub(super) Dialect);

impl TextSource for DelimitedFile {
    fn open<'a>(&'static self, mut section: SectionFile<'a>) -> Result<Box<dyn SectionReader + 'a>, Broken> {
        let max_bytes = section.context.recipe.max_document_bytes;
        let wanted = section.context.requested_columns();
        let cutter = DocumentCutter::new(section.stream(self)?, rows::rule(self.0), max_bytes);
        let table = DelimitedTable { cutter, dialect: self.0, wanted, max_bytes, header: None, ended: false };
        Ok(Box::new(DelimitedSection { table, read: 0 }))
    }

    fn field_names(&self) -> FieldNames {
        FieldNames::InHeader(self.0)
    }
}

/// A whole table, which is read as a stream.
struct DelimitedSection<'a> {
    table: DelimitedTable<'a>,
    /// Bytes of the file that were read for earlier blocks.
    read: u64,
}

impl SectionReader for DelimitedSection<'_> {
    fn next(&mut self) -> Result<Option<TaskBlock>> {
        let Some((items, held)) = self.table.next()? else { return Ok(None) };
        Ok(Some(cut_block(items, held, &mut self.table.cutter, &mut self.read)))
    }

    fn check_unchanged(&self) -> Result<()> {
        self.table.cutter.check_unchanged()
    }
}

/// A table of separated values. Its header is read first.
struct DelimitedTable<'a> {
    cutter: DocumentCutter,
    dialect: Dialect,
    wanted: RequestedColumns<'a>,
    max_bytes: u64,
    header: Option<Arc<TableHeader>>,
    ended: bool,
}

impl DelimitedTable<'_> {
    /// Returns the next task, and the bytes that it holds.
    fn next(&mut self) -> Result<Option<(Box<dyn SourceTask>, u64)>> {
        if self.ended {
            return Ok(None);
        }
        let Some(cut) = self.cutter.next(TASK_BYTES)? else { return Ok(None) };
        let damage = |mark, reject| Ok(Some((RejectTask::damage(mark, reject), 0)));
        match (cut, &self.header) {
            (DocumentCut::Piece(piece), Some(header)) => {
                Ok(Some(piece_task(&RowPieces(header), piece, self.max_bytes)))
            }
            (DocumentCut::Piece(LinePiece::Lines { offset, mut bytes }), None) => {
                match TableHeader::read(self.dialect, &bytes, self.wanted) {
                    Ok((header, end)) => {
                        let header = self.header.insert(Arc::new(header));
                        let bytes = bytes.split_off(end);
                        let piece = LinePiece::Lines { offset: offset + end as u64, bytes };
                        Ok(Some(piece_task(&RowPieces(header), piece, self.max_bytes)))
                    }
                    Err(reject) => {
                        self.ended = true;
                        damage(None, reject)
                    }
                }
            }
            (DocumentCut::Piece(LinePiece::Overlong { .. }), None) => {
                self.ended = true;
                let message = "the header line is longer than `max_document_bytes`";
                damage(None, Reject::new(RejectCode::TooLarge, message))
            }
            (DocumentCut::Unclosed { offset, bytes }, _) => Ok(Some((UnclosedTask::boxed(offset, bytes), 0))),
            (DocumentCut::Broken { offset, reject }, header) => {
                damage(header.as_ref().map(|_| offset), reject)
            }
        }
    }
}

/// Pieces with whole rows of a table.
struct RowPieces<'a>(&'a Arc<TableHeader>);

impl Pieces for RowPieces<'_> {
    fn task(&self, offset: u64, bytes: Vec<u8>) -> Box<dyn SourceTask> {
        Box::new(RowsTask { header: Arc::clone(self.0), offset, bytes: bytes.into(), rows: None })
    }

    fn what(&self) -> &'static str {
        "document"
    }
}

/// Rows that follow each other in a table.
struct RowsTask {
    header: Arc<TableHeader>,
    offset: u64,
    bytes: Bytes,
    /// Reader of those that were not yet returned.
    rows: Option<TableRows>,
}

impl SourceTask for RowsTask {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes.len() as u64)
    }

    fn next(&mut self, context: &ItemContext<'_>, out: &mut Outcomes) -> Result<Option<TextItem<'_>>> {
        let Self { header, offset, bytes, rows } = self;
        let rows = rows.get_or_insert_with(|| {
            out.add_content(bytes);
            header.rows(bytes.clone())
        });
        let lossy = context.is_lossy();
        Ok(header.next_row(rows, context.requested_columns(), lossy).map(|row| {
            if row.is_replaced {
                out.note("invalid_utf8_replaced");
            }
            let document =
                row.document.and_then(|found| context.check_length(found.text.len()).map(|()| found));
            TextItem { mark: Some(*offset + row.offset as u64), document }
        }))
    }
}
