//! Archives as folders: every image or text file in an archive is a file of the source, read by its offset.
//!
//! When a run is planned, only the directory of an archive is read: the central directory of a zip archive, or the
//! headers in a tar file. Members are read one by one, on the threads that convert them.

pub(in crate::source) mod directory;
pub mod member;
pub(in crate::source) mod member_path;
mod member_reader;
pub mod tar;
#[cfg(test)]
pub(in crate::source) mod testing;
pub mod zip;

use self::directory::ArchiveDirectory;
use crate::error::Result;
use crate::source::io::name::strip_extension;
use crate::source::io::planned::PlannedFile;

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

/// Lists the files of the archive `planned`.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or is a zip archive with a damaged directory.
pub(in crate::source) fn read_directory(
    kind: ArchiveKind,
    planned: &PlannedFile,
) -> Result<ArchiveDirectory> {
    match kind {
        ArchiveKind::Zip => zip::directory::read_directory(planned),
        ArchiveKind::Tar => tar::directory::read_directory(planned),
    }
}
