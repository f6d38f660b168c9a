//! Archives as folders: every image or text file in an archive is a file of the source, read by its offset.
//!
//! When a run is planned, only the directory of an archive is read: the central directory of a zip archive, or the
//! headers in a tar file. Members are read one by one, on the threads that convert them.

mod member;
pub(in crate::source) mod member_path;
pub mod tar;
#[cfg(test)]
pub(in crate::source) mod testing;
pub mod zip;

pub use self::member::{ArchiveMember, MemberData};
use crate::error::Result;
use crate::source::io::name::strip_extension;
use crate::source::io::planned::PlannedFile;

/// Maximum size of a file in an archive that is read as a whole, in bytes.
pub(in crate::source) const MAX_MEMBER_BYTES: u64 = 256 << 20;

/// The format of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveKind {
    /// A zip archive.
    Zip,
    /// A tar file without compression.
    Tar,
}

impl ArchiveKind {
    /// Returns the format of an archive called `name`; `None` if it is not the name of an archive.
    pub fn of_name(name: &str) -> Option<Self> {
        divided(name).map(|(_, kind)| kind)
    }
}

/// Returns `name` without the extension of an archive.
pub fn stem(name: &str) -> &str {
    divided(name).map_or(name, |(stem, _)| stem)
}

fn divided(name: &str) -> Option<(&str, ArchiveKind)> {
    let mut extensions = [(".zip", ArchiveKind::Zip), (tar::EXTENSION, ArchiveKind::Tar)].into_iter();
    extensions.find_map(|(extension, kind)| Some((strip_extension(name, extension)?, kind)))
}

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
    pub(in crate::source) fn read(kind: ArchiveKind, planned: &PlannedFile) -> Result<Self> {
        match kind {
            ArchiveKind::Zip => zip::read_directory(planned),
            ArchiveKind::Tar => tar::read_directory(planned),
        }
    }
}
