//! A planned conversion, and the interface between a kind of conversion and everything that is shared by all kinds.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use serde_json::Value;

use super::exclude::{EXCLUDED, ExcludedItems};
use super::job_file::{JobHeader, JobReader, JobWriter};
use super::memory::{MemoryPool, Shares};
use super::plan::PlanSummary;
use crate::error::Result;
use crate::options::SplitSpec;
use crate::source::io::opened::OpenedFile;
use crate::source::io::planned::PlannedFile;
use crate::source::list::file_list::{FileList, not_in_list};
use crate::source::list::source_file::SourceFile;
use crate::source::names::splits::Splits;
use crate::transform::image::BucketCounts;
use crate::writer::outcome::{ItemOutcome, Outcomes};
use crate::writer::stage::Stages;
use crate::writer::stop::Stop;
use crate::writer::workers::Workers;

/// A planned conversion: its sources are listed and divided into units, but nothing is written yet. `C` is what only one
/// kind of conversion has.
pub struct Job<C> {
    pub(super) header: JobHeader,
    /// The source files, in the order of the plan.
    pub(super) files: FileList,
    /// Ranges of files or, for text, of their sections.
    pub(super) units: Vec<Range<usize>>,
    /// The splits that the names of the sources define, unless an option divides the items.
    pub(super) named_splits: Splits,
    /// What the plan shows. Without what planning has found if the job was stored.
    pub(super) summary: PlanSummary,
    pub(super) conversion: C,
    /// The items that are left out because another dataset has them: set before the first unit is converted, if there are
    /// such datasets.
    pub(super) excluded: OnceLock<ExcludedItems>,
}

/// The split of the items of a file.
#[derive(Clone, Copy)]
pub(super) enum ItemSplit<'a> {
    /// The one of the file.
    OfFile(u16),
    /// A hash of the key with the seed determines it.
    ByKey(&'a SplitSpec, u64),
}

impl ItemSplit<'_> {
    /// Returns the split of the item with this key.
    pub(super) fn of(self, key: &str) -> u16 {
        match self {
            Self::OfFile(split) => split,
            Self::ByKey(spec, seed) => spec.split_of(key, seed) as u16,
        }
    }

    /// Returns the split that all items of the file have.
    pub(super) fn of_file(self) -> Option<u16> {
        match self {
            Self::OfFile(split) => Some(split),
            Self::ByKey(..) => None,
        }
    }
}

impl<C: Conversion> Job<C> {
    /// Lists the sources and divides them into units.
    ///
    /// # Errors
    ///
    /// Fails if sources are missing, cannot be listed, or are explicitly named but of an unknown type; if two files have the
    /// same key; if tables lack requested columns; or if options contradict each other.
    pub fn plan(options: C::Options) -> Result<Self> {
        C::plan(options)
    }

    /// Creates a job. What follows from its parts is added to the header and to the summary.
    pub(super) fn new(
        mut header: JobHeader,
        files: FileList,
        units: Vec<Range<usize>>,
        named_splits: Splits,
        summary: PlanSummary,
        conversion: C,
    ) -> Self {
        header.files = files.len() as u64;
        header.units = units.len() as u32;
        let is_named = header.output.split.is_none();
        // Keys from a field do not contain labels.
        let has_labels = !is_named && header.options.get("key_field").is_none_or(Value::is_null);
        let mut hashed_labels: Vec<String> = match has_labels {
            true => header.sources.iter().map(|source| source.label.clone()).collect(),
            false => Vec::new(),
        };
        hashed_labels.dedup();
        let summary = PlanSummary {
            hashed_labels,
            kind: header.schema.kind.name(),
            files: header.files,
            bytes: files.bytes(),
            skipped: header.skipped.clone(),
            units: header.units,
            splits: header.splits.clone(),
            split_by: is_named.then_some(named_splits.by),
            split_folders: if is_named { named_splits.folders.clone() } else { Vec::new() },
            ..summary
        };
        Self { header, files, units, named_splits, summary, conversion, excluded: OnceLock::new() }
    }

    /// Returns what a run would do.
    pub fn summary(&self) -> PlanSummary {
        self.summary.clone()
    }

    /// Counts the images of all aspect-ratio buckets, by reading their headers. `None` without buckets.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read.
    pub fn buckets(&self) -> Result<Option<BucketCounts>> {
        C::buckets(self)
    }

    /// Returns the file with this ordinal.
    pub(super) fn file(&self, ordinal: usize) -> Result<SourceFile> {
        self.files.get(ordinal).ok_or_else(not_in_list)
    }

    /// Returns the files that a unit reads, entirely or in part; none if there is no such unit.
    pub(super) fn files_of_unit(&self, unit: u32) -> Vec<SourceFile> {
        let unit = self.units.get(unit as usize).cloned().unwrap_or_default();
        self.conversion.files_of(unit).into_iter().filter_map(|file| self.files.get(file)).collect()
    }

    pub(super) fn planned(&self, file: &SourceFile) -> PlannedFile {
        file.planned(&self.header.sources, self.header.follow_symlinks)
    }

    /// Returns whether an excluded dataset has the key, and keys are compared.
    pub(super) fn excludes_key(&self, key: &str) -> bool {
        self.excluded.get().is_some_and(|items| items.has_key(key))
    }

    /// Requests the bytes of `file` in advance, if it is in object storage.
    pub(super) fn open_ahead(&self, file: &SourceFile) -> Option<OpenedFile> {
        file.open_ahead(&self.header.sources, self.header.follow_symlinks)
    }

    /// Returns the split of the items of `file`.
    pub(super) fn split_of(&self, file: &SourceFile) -> ItemSplit<'_> {
        let output = &self.header.output;
        match &output.split {
            Some(spec) => ItemSplit::ByKey(spec, output.seed),
            None => ItemSplit::OfFile(self.named_splits.of(file) as u16),
        }
    }
}

/// Returns the outcome of an item that an excluded dataset has, and counts it.
pub(super) fn excluded(origin: &str, split: u16, out: &mut Outcomes) -> ItemOutcome {
    out.note(EXCLUDED);
    ItemOutcome::Filtered { split, origin: origin.to_owned(), reason: EXCLUDED.to_owned() }
}

/// A kind of conversion: provides the tasks of a unit and converts them to outcomes. Outcomes refer to splits by ordinal.
/// A value is what only this kind needs of a plan.
///
/// The outcomes of a unit depend only on the plan and the items. The tasks of a unit are fed in order, converted in any
/// order on any thread, and their outcomes written in the order in which the tasks were fed.
pub trait Conversion: Sized + Send + Sync {
    /// The recipe, where the files come from, and what was loaded for the conversion.
    type Options;
    /// A piece of work that takes about a millisecond to a second.
    type Task: Send;
    /// Buffers and caches of one worker, kept from task to task.
    type Scratch: Send;
    /// The items that are left out as duplicates.
    type Duplicates: Default + Send + Sync;

    /// See [`Job::plan`].
    fn plan(options: Self::Options) -> Result<Job<Self>>;

    /// Writes the value to a stored job.
    fn write(&self, file: &mut JobWriter) -> Result<()>;

    /// Reads what [`Conversion::write`] wrote. `tokenizer_json` is stored beside it.
    fn read(tokenizer_json: Option<Vec<u8>>, file: &mut JobReader) -> Result<Self>;

    /// Returns the bytes of the `tokenizer.json`, if there is one.
    fn tokenizer_json(&self) -> Option<&[u8]> {
        None
    }

    /// Returns the ordinals of the files that a unit reads.
    fn files_of(&self, unit: Range<usize>) -> BTreeSet<usize>;

    /// Finds the duplicates before the first unit, if they are to be left out. `work` is a folder for data that does not
    /// fit in memory, and `memory` the share of tasks.
    fn duplicates(
        job: &Job<Self>,
        work: &Path,
        workers: &Workers,
        memory: &MemoryPool,
        stop: &Stop,
    ) -> Result<Self::Duplicates>;

    /// Opens `unit` and returns its tasks, in order. They are converted with `engine`.
    fn feed<'a>(
        job: &'a Job<Self>,
        duplicates: &'a Self::Duplicates,
        unit: u32,
        engine: EngineUse,
    ) -> Result<Box<dyn Feed<Self::Task> + 'a>>;

    /// Creates the scratch of a worker.
    fn scratch(job: &Job<Self>, memory: &Shares) -> Self::Scratch;

    /// Converts `task`.
    ///
    /// # Errors
    ///
    /// Fails only for reasons other than the bytes of an item; the whole unit fails then.
    fn convert(
        job: &Job<Self>,
        task: Self::Task,
        scratch: &mut Self::Scratch,
        out: &mut Outcomes,
    ) -> Result<Converting>;

    /// Returns the stages that the records of a unit pass through before they are written. `work` is a folder for
    /// temporary files.
    fn stages(job: &Job<Self>, work: &Path) -> Stages;

    /// Counts the images of all buckets. `None` if there are none.
    fn buckets(job: &Job<Self>) -> Result<Option<BucketCounts>> {
        let _ = job;
        Ok(None)
    }
}

/// Result of converting a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Converting {
    /// All outcomes of the task were produced.
    Done,
    /// The unit must be redone from its start with [`EngineUse::Reference`], because the output of a fast engine
    /// differed from the reference.
    RedoUnit,
}

/// The engine that converts a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineUse {
    /// The engine that the options select, which may be a fast one.
    Selected,
    /// The reference engine: an earlier attempt found that the output of the fast engine differs.
    Reference,
}

/// The tasks of one unit, in order.
pub trait Feed<T>: Send {
    /// Returns how many bytes the next task will hold until its outcomes are written, as far as known.
    fn next_bytes(&self) -> u64;

    /// Returns the next task and the bytes it holds; `None` at the end.
    fn next(&mut self) -> Result<Option<(T, u64)>>;
}
