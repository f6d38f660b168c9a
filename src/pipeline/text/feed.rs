//! The pieces of a unit's files, in order.

use super::TextJob;
use super::dedup::{Duplicates, DuplicatesReader};
use super::items::Place;
use super::parts::{self, Reader, Step, Work};
use crate::error::Result;
use crate::pipeline::conversion::Feed;

/// A piece of work.
pub(in crate::pipeline) struct Task {
    /// Ordinal of the part.
    pub(super) part: usize,
    pub(super) work: Work,
    /// Start of a compressed member, as in [`Step`].
    pub(super) member: Option<u64>,
    /// Bytes of the file that it stands for.
    pub(super) source_bytes: u64,
    pub(super) careful: bool,
    /// The first one of its unit.
    pub(super) is_first: bool,
    /// Those among its documents, with `--dedup`.
    pub(super) duplicates: Duplicates,
}

/// Pieces of the parts of a unit.
pub(super) struct PartFeed<'a> {
    job: &'a TextJob,
    parts: std::ops::Range<usize>,
    open: Option<(usize, Reader<'a>)>,
    careful: bool,
    is_first: bool,
    duplicates: Option<DuplicatesReader>,
}

impl<'a> PartFeed<'a> {
    pub(super) fn new(
        job: &'a TextJob,
        parts: std::ops::Range<usize>,
        careful: bool,
        duplicates: Option<DuplicatesReader>,
    ) -> Self {
        Self { job, parts, open: None, careful, is_first: true, duplicates }
    }

    fn step(&mut self) -> Result<Option<(usize, Step)>> {
        loop {
            if let Some((part, reader)) = &mut self.open {
                if let Some(step) = reader.next()? {
                    return Ok(Some((*part, step)));
                }
                reader.check_unchanged()?;
                self.open = None;
            }
            let Some(part) = self.parts.next() else { return Ok(None) };
            self.open = Some((part, Reader::open_or_reject(self.job, &self.job.parts[part])?));
        }
    }
}

impl Feed<Task> for PartFeed<'_> {
    fn next_bytes(&self) -> u64 {
        parts::NEXT_BYTES
    }

    fn next(&mut self) -> Result<Option<(Task, u64)>> {
        let Some((part, step)) = self.step()? else { return Ok(None) };
        let duplicates = match &mut self.duplicates {
            Some(reader) => reader.before(Place { part, mark: Some(step.work.end()) })?,
            None => Duplicates::default(),
        };
        let task = Task {
            part,
            work: step.work,
            member: step.member,
            source_bytes: step.source_bytes,
            careful: self.careful,
            is_first: std::mem::take(&mut self.is_first),
            duplicates,
        };
        Ok(Some((task, step.held)))
    }
}
