//! Tasks of a conversion of text.

use std::sync::Arc;

use super::duplicates_file::Duplicates;
use super::section_reader::TaskInput;
use crate::pipeline::job::EngineUse;
use crate::source::source_file::SourceFile;

/// A task of a conversion of text.
pub struct TextTask {
    /// Ordinal of the section.
    pub(super) section: usize,
    pub(super) file: Arc<SourceFile>,
    pub(super) input: TaskInput,
    /// Start of a compressed member, as in [`TaskBlock`](super::section_reader::TaskBlock).
    pub(super) member: Option<u64>,
    /// Bytes of the file attributed to the task.
    pub(super) source_bytes: u64,
    pub(super) engine: EngineUse,
    /// Whether it is the first task of its unit.
    pub(super) is_first: bool,
    /// The duplicates among its documents, with `--dedup`.
    pub(super) duplicates: Duplicates,
}
