//! The feed of a unit: blocks of its files, in order.

use std::collections::VecDeque;

use super::TextJob;
use super::duplicates_file::{Duplicates, DuplicatesReader};
use super::position::DocumentPosition;
use super::section_reader::{self, SectionReader, TaskBlock};
use super::task::TextTask;
use crate::error::Result;
use crate::options::is_remote;
use crate::pipeline::job::{EngineUse, Feed};
use crate::source::opened::OpenedFile;

/// Limits on the files in object storage that are opened in advance: their number, and the bytes that they may hold.
const FILES_AHEAD: usize = 32;
const BYTES_AHEAD: u64 = 32 << 20;

/// Feed of the blocks of the sections of a unit.
pub(super) struct SectionFeed<'a> {
    job: &'a TextJob,
    sections: std::ops::Range<usize>,
    /// Opened files of the next `sections`, with the bytes that they may hold.
    ahead: VecDeque<(Option<OpenedFile>, u64)>,
    open: Option<(usize, SectionReader<'a>)>,
    engine: EngineUse,
    is_first: bool,
    duplicates: Option<DuplicatesReader>,
    is_remote: bool,
}

impl<'a> SectionFeed<'a> {
    pub(super) fn new(
        job: &'a TextJob,
        sections: std::ops::Range<usize>,
        engine: EngineUse,
        duplicates: Option<DuplicatesReader>,
    ) -> Self {
        let (ahead, is_remote) = (VecDeque::new(), is_remote(&job.sources));
        Self { job, sections, ahead, open: None, engine, is_first: true, duplicates, is_remote }
    }

    fn next_block(&mut self) -> Result<Option<(usize, TaskBlock)>> {
        loop {
            if let Some((section, reader)) = &mut self.open {
                if let Some(block) = reader.next()? {
                    return Ok(Some((*section, block)));
                }
                reader.check_unchanged()?;
                self.open = None;
            }
            let opened = self.open_ahead();
            let Some(section) = self.sections.next() else { return Ok(None) };
            self.open = Some((
                section,
                SectionReader::open_or_reject(self.job, &self.job.sections[section], opened)?,
            ));
        }
    }

    /// Returns the opened file of the next section, and opens the files of further sections in advance.
    fn open_ahead(&mut self) -> Option<OpenedFile> {
        if !self.is_remote {
            return None;
        }
        let mut held: u64 = self.ahead.iter().map(|(_, bytes)| bytes).sum();
        while self.ahead.len() < FILES_AHEAD && (held < BYTES_AHEAD || self.ahead.is_empty()) {
            let Some(section) = self.sections.clone().nth(self.ahead.len()) else { break };
            let section = &self.job.sections[section];
            let opened = self.job.open_ahead(section);
            let bytes = if opened.is_some() { section.source_bytes } else { 0 };
            self.ahead.push_back((opened, bytes));
            held = held.saturating_add(bytes);
        }
        self.ahead.pop_front()?.0
    }
}

impl Feed<TextTask> for SectionFeed<'_> {
    fn next_bytes(&self) -> u64 {
        self.job.options.recipe.shape().bytes_with_overlap(section_reader::NEXT_BYTES)
    }

    fn next(&mut self) -> Result<Option<(TextTask, u64)>> {
        let Some((section, block)) = self.next_block()? else { return Ok(None) };
        let duplicates = match &mut self.duplicates {
            Some(reader) => reader.before(DocumentPosition { section, mark: Some(block.input.end()) })?,
            None => Duplicates::default(),
        };
        let task = TextTask {
            section,
            input: block.input,
            member: block.member,
            source_bytes: block.source_bytes,
            engine: self.engine,
            is_first: std::mem::take(&mut self.is_first),
            duplicates,
        };
        Ok(Some((task, self.job.options.recipe.shape().bytes_with_overlap(block.held))))
    }
}
