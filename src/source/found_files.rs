//! What a walk over sources finds.

use super::file_list::FileList;
use super::skipped::SkippedTypes;

/// What a walk found.
#[derive(Debug, Default)]
pub struct Listing {
    /// Files that the filter kept, in order: sources as given, files by path.
    pub files: FileList,
    /// Files left out: not kept by the filter, hidden, links that are not followed, sockets and devices.
    pub skipped: SkippedTypes,
    /// Addresses of objects that were left out because their keys are no paths. They count as skipped.
    pub unusable: Vec<String>,
}
