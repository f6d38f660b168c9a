//! Positions of documents in the sources.

/// The position of a document: its section, and the byte offset or row in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DocumentPosition {
    pub(super) section: usize,
    /// Byte offset or row; `None` if the document is the whole file.
    pub(super) mark: Option<u64>,
}
