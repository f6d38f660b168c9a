//! Where documents stand.

/// Where a document stands: in which part, and at which byte or row of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) part: usize,
    /// `None` for the whole file.
    pub(super) mark: Option<u64>,
}
