//! The files of an archive, as its directory lists them.

use super::member::MemberData;

/// A file in an archive. Folders have no entries.
#[derive(Debug)]
pub(in crate::source) struct ArchiveEntry {
    /// The path as stored.
    pub(in crate::source) name: Vec<u8>,
    /// Size in bytes.
    pub(in crate::source) size: u64,
    /// Location of the content; `None` for links, devices and sparse files, which are not read.
    pub(in crate::source) data: Option<MemberData>,
}

/// The files of an archive, in the order of its directory.
#[derive(Debug)]
pub(in crate::source) struct ArchiveDirectory {
    pub(in crate::source) entries: Vec<ArchiveEntry>,
    /// Description of damage after which no further entry can be found.
    pub(in crate::source) damage: Option<String>,
}
