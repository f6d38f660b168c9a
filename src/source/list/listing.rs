//! What the sources contain.

use super::file_list::FileList;
use super::skipped::SkippedTypes;

/// Files found in sources.
#[derive(Debug, Default)]
pub struct Listing {
    /// Files that pass the filter, in order: sources as given, files by path.
    pub files: FileList,
    /// Skipped files: excluded by the filter, hidden, links that are not followed, sockets and devices.
    pub skipped: SkippedTypes,
    /// URLs of objects that are skipped because their keys are not valid paths. They are also counted in `skipped`.
    pub unusable: Vec<String>,
    /// Origin of the first archive that was left out because of items beside archives.
    pub left_out: Option<String>,
}
