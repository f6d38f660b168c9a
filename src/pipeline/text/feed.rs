//! The feed of a unit: pieces of its files, in order.

use std::collections::VecDeque;

use super::TextJob;
use super::duplicates_file::{Duplicates, DuplicatesReader};
use super::part_reader::{self, PartPiece, PartReader};
use super::position::DocumentPosition;
use super::task::TextTask;
use crate::error::Result;
use crate::options::is_remote;
use crate::pipeline::conversion::Feed;
use crate::source::opened::OpenedFile;

/// Limits on the files in object storage that are opened in advance: their number, and the bytes that they may hold.
const FILES_AHEAD: usize = 32;
const BYTES_AHEAD: u64 = 32 << 20;

/// Feed of the pieces of the parts of a unit.
pub(super) struct PartFeed<'a> {
    job: &'a TextJob,
    parts: std::ops::Range<usize>,
    /// Opened files of the next `parts`, with the bytes that they may hold.
    ahead: VecDeque<(Option<OpenedFile>, u64)>,
    open: Option<(usize, PartReader<'a>)>,
    careful: bool,
    is_first: bool,
    duplicates: Option<DuplicatesReader>,
    is_remote: bool,
}

impl<'a> PartFeed<'a> {
    pub(super) fn new(
        job: &'a TextJob,
        parts: std::ops::Range<usize>,
        careful: bool,
        duplicates: Option<DuplicatesReader>,
    ) -> Self {
        let (ahead, is_remote) = (VecDeque::new(), is_remote(&job.sources));
        Self { job, parts, ahead, open: None, careful, is_first: true, duplicates, is_remote }
    }

    fn next_piece(&mut self) -> Result<Option<(usize, PartPiece)>> {
        loop {
            if let Some((part, reader)) = &mut self.open {
                if let Some(piece) = reader.next()? {
                    return Ok(Some((*part, piece)));
                }
                reader.check_unchanged()?;
                self.open = None;
            }
            let opened = self.open_ahead();
            let Some(part) = self.parts.next() else { return Ok(None) };
            self.open = Some((part, PartReader::open_or_reject(self.job, &self.job.parts[part], opened)?));
        }
    }

    /// Returns the opened file of the next part, and opens the files of further parts in advance.
    fn open_ahead(&mut self) -> Option<OpenedFile> {
        if !self.is_remote {
            return None;
        }
        let mut held: u64 = self.ahead.iter().map(|(_, bytes)| bytes).sum();
        while self.ahead.len() < FILES_AHEAD && (held < BYTES_AHEAD || self.ahead.is_empty()) {
            let Some(part) = self.parts.clone().nth(self.ahead.len()) else { break };
            let part = &self.job.parts[part];
            let opened = self.job.open_ahead(part);
            let bytes = if opened.is_some() { part.source_bytes } else { 0 };
            self.ahead.push_back((opened, bytes));
            held = held.saturating_add(bytes);
        }
        self.ahead.pop_front()?.0
    }
}

impl Feed<TextTask> for PartFeed<'_> {
    fn next_bytes(&self) -> u64 {
        part_reader::NEXT_BYTES
    }

    fn next(&mut self) -> Result<Option<(TextTask, u64)>> {
        let Some((part, piece)) = self.next_piece()? else { return Ok(None) };
        let duplicates = match &mut self.duplicates {
            Some(reader) => reader.before(DocumentPosition { part, mark: Some(piece.input.end()) })?,
            None => Duplicates::default(),
        };
        let task = TextTask {
            part,
            input: piece.input,
            member: piece.member,
            source_bytes: piece.source_bytes,
            careful: self.careful,
            is_first: std::mem::take(&mut self.is_first),
            duplicates,
        };
        Ok(Some((task, piece.held)))
    }
}
