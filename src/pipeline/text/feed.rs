//! The pieces of a unit's files, in order.

use super::{FileKind, Part, TextJob};
use crate::error::Result;
use crate::pipeline::conversion::Feed;
use crate::source::lines::{LineReader, Piece};

/// Source bytes of one task.
const TASK_BYTES: usize = 256 << 10;
/// Bytes held for one source byte: the text, its fields, ids and record.
const BYTES_HELD_PER_BYTE: u64 = 8;
/// A piece of a file.
pub(in crate::pipeline) enum Task {
    Piece { file: usize, piece: Piece },
    Document { file: usize },
}

/// Pieces of the parts of a unit.
pub(super) struct PartFeed<'a> {
    job: &'a TextJob,
    parts: std::slice::Iter<'a, Part>,
    open: Option<(usize, LineReader)>,
    careful: bool,
}

impl<'a> PartFeed<'a> {
    pub(super) fn new(job: &'a TextJob, parts: std::slice::Iter<'a, Part>, careful: bool) -> Self {
        Self { job, parts, open: None, careful }
    }
}

impl Feed<(Task, bool)> for PartFeed<'_> {
    fn next_bytes(&self) -> u64 {
        TASK_BYTES as u64 * BYTES_HELD_PER_BYTE
    }

    fn next(&mut self) -> Result<Option<((Task, bool), u64)>> {
        loop {
            if let Some((file, reader)) = &mut self.open {
                if let Some(piece) = reader.next(TASK_BYTES)? {
                    let bytes = match &piece {
                        Piece::Lines { bytes, .. } => bytes.len() as u64 * BYTES_HELD_PER_BYTE,
                        Piece::Overlong { .. } => 0,
                    };
                    return Ok(Some(((Task::Piece { file: *file, piece }, self.careful), bytes)));
                }
                self.open = None;
            }
            let Some(part) = self.parts.next() else { return Ok(None) };
            let file = &self.job.files[part.file];
            match self.job.kind(part.file) {
                FileKind::Document => {
                    let task = Task::Document { file: part.file };
                    return Ok(Some(((task, self.careful), file.bytes * BYTES_HELD_PER_BYTE)));
                }
                FileKind::JsonLines => {
                    let path = file.path(&self.job.options.sources);
                    let limit = self.job.options.max_document_bytes;
                    self.open =
                        Some((part.file, LineReader::open(&path, file.bytes, part.bytes.clone(), limit)?));
                }
            }
        }
    }
}
