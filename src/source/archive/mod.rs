//! Archives as folders: every image or text file in an archive is a file of the source, read by its offset.
//!
//! When a run is planned, only the directory of an archive is read: the central directory of a zip archive, or the
//! headers in a tar file. Members are read one by one, on the threads that convert them.

mod entry;
mod expand;
pub(super) mod limits;
mod member;
mod member_path;
#[cfg(test)]
pub(in crate::source) mod testing;

pub(super) use self::entry::{ArchiveDirectory, ArchiveEntry};
pub use self::expand::{Archives, ExpandedArchive, ExpandedListing, expand, is_image_name};
pub use self::member::{ArchiveDamage, ArchiveMember, MemberData};
use super::{tar, zip};

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
        if zip::is_zip(name) { Some(Self::Zip) } else { tar::is_plain_tar(name).then_some(Self::Tar) }
    }
}

/// Returns `name` without the extension of an archive.
pub fn stem(name: &str) -> &str {
    match ArchiveKind::of_name(name) {
        Some(ArchiveKind::Zip) => zip::stem(name),
        Some(ArchiveKind::Tar) => tar::stem(name),
        None => name,
    }
}
