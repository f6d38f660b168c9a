//! Positions of documents in the sources.

use crate::source::source_file::SourceFile;

/// The position of a document: its section, and the byte offset or row in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DocumentPosition {
    pub(super) section: usize,
    /// Byte offset or row; `None` if the document is the whole file.
    pub(super) mark: Option<u64>,
}

impl DocumentPosition {
    /// Returns the origin of the document at this position in `file`.
    pub(super) fn origin_in(self, file: &SourceFile) -> String {
        match self.mark {
            None => file.origin.clone(),
            // Allocates once; `format!` would grow the string twice.
            Some(mark) => [&file.origin, "#", &mark.to_string()].concat(),
        }
    }
}
