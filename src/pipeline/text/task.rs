//! Pieces of work.

use super::duplicates_file::Duplicates;
use super::parts::Work;

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
