//! The feed of a unit: blocks of its files, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use super::conversion::{TextConversion, TextJob};
use super::duplicates::{DocumentPosition, Duplicates, DuplicatesReader};
use super::options::TextInput;
use super::plan::{FileSection, TextFile};
use super::sources::source::{
    Extent, NEXT_BYTES, SectionFile, SectionReader, SingleBlock, SourceTask, TaskBlock,
};
use super::sources::{source_of, stdin};
use crate::error::Result;
use crate::options::is_remote;
use crate::pipeline::job::{EngineUse, Feed};
use crate::source::io::broken::Broken;
use crate::source::io::opened::OpenedFile;
use crate::source::list::file_list::FileCursor;
use crate::source::list::source_file::SourceFile;

/// Limits on the files in object storage that are opened in advance: their number, and the bytes that they may hold.
const FILES_AHEAD: usize = 32;
const BYTES_AHEAD: u64 = 32 << 20;

/// Feed of the blocks of the sections of a unit.
pub(super) struct SectionFeed<'a> {
    job: &'a TextJob,
    sections: std::ops::Range<usize>,
    files: FileCursor<'a>,
    /// The first of the next `sections`.
    ahead: VecDeque<NextSection>,
    open: Option<(NextSection, Box<dyn SectionReader + 'a>)>,
    engine: EngineUse,
    is_first: bool,
    duplicates: Option<DuplicatesReader<'a>>,
    /// Files of documents that are kept.
    kept: FileCursor<'a>,
    is_remote: bool,
}

/// A section that is read now or next.
struct NextSection {
    ordinal: usize,
    file: Arc<SourceFile>,
    /// Its file, if its bytes were requested in advance, and the bytes that it may hold.
    opened: Option<OpenedFile>,
    bytes: u64,
}

impl<'a> SectionFeed<'a> {
    pub(super) fn new(
        job: &'a TextJob,
        sections: std::ops::Range<usize>,
        engine: EngineUse,
        duplicates: Option<DuplicatesReader<'a>>,
    ) -> Result<Self> {
        let kept = FileCursor::new(&job.files);
        let files = match job.header.output.shuffle {
            true => {
                let shuffled = job.conversion.sections[sections.clone()].iter().map(|section| section.file);
                FileCursor::of(&job.files, shuffled)?
            }
            false => FileCursor::new(&job.files),
        };
        let (ahead, open, is_first) = (VecDeque::new(), None, true);
        let is_remote = is_remote(&job.header.sources);
        Ok(Self { job, sections, files, ahead, open, engine, is_first, duplicates, kept, is_remote })
    }

    /// Reads the next block, which is one of the open section.
    fn next_block(&mut self) -> Result<Option<TaskBlock>> {
        loop {
            if let Some((_, reader)) = &mut self.open {
                if let Some(block) = reader.next()? {
                    return Ok(Some(block));
                }
                reader.check_unchanged()?;
                self.open = None;
            }
            let Some(mut next) = self.next_section()? else { return Ok(None) };
            let section = &self.job.conversion.sections[next.ordinal];
            let reader = self.job.open_section(section, &next.file, next.opened.take())?;
            self.open = Some((next, reader));
        }
    }

    /// Returns the next section, and opens the files of further sections in advance.
    fn next_section(&mut self) -> Result<Option<NextSection>> {
        let at_most = if self.is_remote { FILES_AHEAD } else { 1 };
        let mut held: u64 = self.ahead.iter().map(|next| next.bytes).sum();
        while self.ahead.len() < at_most && (held < BYTES_AHEAD || self.ahead.is_empty()) {
            let Some(ordinal) = self.sections.next() else { break };
            let section = &self.job.conversion.sections[ordinal];
            let file = self.files.get(section.file)?;
            let opened = self.is_remote.then(|| self.job.open_section_ahead(section, &file)).flatten();
            let bytes = if opened.is_some() { section.source_bytes } else { 0 };
            self.ahead.push_back(NextSection { ordinal, file, opened, bytes });
            held = held.saturating_add(bytes);
        }
        Ok(self.ahead.pop_front())
    }
}

impl Feed<TextTask> for SectionFeed<'_> {
    fn next_bytes(&self) -> u64 {
        self.job.conversion.recipe.shape().bytes_with_overlap(NEXT_BYTES)
    }

    fn next(&mut self) -> Result<Option<(TextTask, u64)>> {
        let Some(block) = self.next_block()? else { return Ok(None) };
        let Some((NextSection { ordinal: section, file, .. }, _)) = &self.open else { return Ok(None) };
        let (section, file) = (*section, Arc::clone(file));
        let TextConversion { recipe, sections, .. } = &self.job.conversion;
        let duplicates = match &mut self.duplicates {
            Some(reader) => {
                let end = DocumentPosition { section, mark: Some(block.items.end()) };
                reader.before(end, |kept| {
                    let file = self.kept.get(sections[kept.section].file)?;
                    Ok(kept.origin_in(&file))
                })?
            }
            None => Duplicates::default(),
        };
        let held = block.held.saturating_add(sections[section].held_by_images(block.source_bytes));
        let task = TextTask {
            engine: self.engine,
            is_first: std::mem::take(&mut self.is_first),
            duplicates,
            ..TextTask::of(block, section, &file)
        };
        Ok(Some((task, recipe.shape().bytes_with_overlap(held))))
    }
}

/// A task of a conversion of text.
pub struct TextTask {
    /// Ordinal of the section.
    pub(super) section: usize,
    pub(super) file: Arc<SourceFile>,
    pub(super) items: Box<dyn SourceTask>,
    /// Start of a compressed member, as in [`TaskBlock`].
    pub(super) member: Option<u64>,
    /// Bytes of the file attributed to the task.
    pub(super) source_bytes: u64,
    pub(super) engine: EngineUse,
    /// Whether it is the first task of its unit.
    pub(super) is_first: bool,
    /// The duplicates among its documents, with `--dedup`.
    pub(super) duplicates: Duplicates,
}

impl TextTask {
    /// Creates the task of a block of `file`, which is in the section with the ordinal `section`.
    pub(super) fn of(block: TaskBlock, section: usize, file: &Arc<SourceFile>) -> Self {
        Self {
            section,
            file: Arc::clone(file),
            items: block.items,
            member: block.member,
            source_bytes: block.source_bytes,
            engine: EngineUse::Selected,
            is_first: false,
            duplicates: Duplicates::default(),
        }
    }
}

impl TextJob {
    /// Opens a section. A section whose content is too damaged to be read becomes one reject. `opened` is its `file`, if
    /// [`Self::open_section_ahead`] has opened it.
    pub(super) fn open_section(
        &self,
        section: &FileSection,
        file: &Arc<SourceFile>,
        opened: Option<OpenedFile>,
    ) -> Result<Box<dyn SectionReader + '_>> {
        let TextConversion { recipe, details, .. } = &self.conversion;
        let TextFile { kind, defect, columns, beside } = &details[section.file];
        if let Some(reject) = defect.clone() {
            return Ok(SingleBlock::boxed(TaskBlock::damage(None, reject, section.source_bytes)));
        }
        let stdin = match self.conversion.input {
            TextInput::Stdin => {
                let read = self.conversion.take_stdin();
                Some(read.map_or_else(|| stdin(*kind, recipe.encoding), Ok)?)
            }
            _ => None,
        };
        let found = source_of(kind.format).open(SectionFile {
            file: Arc::clone(file),
            kind: *kind,
            planned: self.planned(file),
            extent: section.extent.clone(),
            source_bytes: section.source_bytes,
            columns: columns.as_ref(),
            beside: beside.clone(),
            opened,
            stdin,
            context: self.item_context(),
        });
        match found {
            Ok(reader) => Ok(reader),
            Err(Broken::Damaged(reject)) => {
                self.planned(file).open()?.check_unchanged()?;
                Ok(SingleBlock::boxed(TaskBlock::damage(None, reject, 0)))
            }
            Err(Broken::Failed(error)) => Err(error),
        }
    }

    /// Requests the bytes of `section` of `file` in advance, if it is in object storage.
    fn open_section_ahead(&self, section: &FileSection, file: &SourceFile) -> Option<OpenedFile> {
        let TextConversion { details, recipe, .. } = &self.conversion;
        let detail = &details[section.file];
        let is_too_long = self.conversion.is_document(detail) && file.bytes > recipe.max_document_bytes;
        if detail.defect.is_some() || is_too_long {
            return None;
        }
        match &section.extent {
            Extent::Lines(bytes) => self.planned(file).open_ahead(bytes.clone()),
            Extent::Groups(_) => None,
            Extent::Whole => self.open_ahead(file),
        }
    }
}
