//! The directory of an archive, whatever its format.

use super::ArchiveKind;
use super::member::MemberData;
use crate::error::Result;
use crate::source::{PlannedFile, tar, zip};

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

impl ArchiveDirectory {
    /// Reads the directory of the archive `planned`.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or is a zip archive with a damaged directory.
    pub(super) fn read(kind: ArchiveKind, planned: &PlannedFile) -> Result<Self> {
        match kind {
            ArchiveKind::Zip => {
                let entries = zip::Directory::read(planned)?.entries;
                Ok(Self { entries: entries.into_iter().filter_map(of_zip).collect(), damage: None })
            }
            ArchiveKind::Tar => tar::read_directory(planned),
        }
    }
}

/// Returns the entry of a zip archive, unless it is a folder.
fn of_zip(entry: zip::ZipEntry) -> Option<ArchiveEntry> {
    let data = MemberData::Zip(zip::ZipMember {
        offset: entry.offset,
        compressed: entry.compressed,
        size: entry.size,
        crc: entry.crc,
        method: entry.method,
        is_encrypted: entry.is_encrypted,
    });
    let data = (!entry.is_link).then_some(data);
    (!entry.name.ends_with(b"/")).then_some(ArchiveEntry { name: entry.name, size: entry.size, data })
}
