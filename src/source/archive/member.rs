//! The location of a file in an archive.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Error;
use crate::sample::RejectCode;
use crate::source::archive::tar::member::TarMember;
use crate::source::archive::zip::member::ZipMember;
use crate::source::io::broken::Broken;
use crate::source::io::compression::Compression;
use crate::source::io::opened::OpenedFile;
use crate::source::io::planned::PlannedFile;
use crate::source::io::stream::Stream;

/// Location of a file in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveMember {
    /// Number of leading components of the relative path that name the archive; 0 if it is the source itself.
    pub archive_parts: u32,
    /// Number of further components that are folders around the whole archive, and neither classes nor splits.
    pub root_parts: u32,
    /// Size of the archive in bytes.
    pub archive_bytes: u64,
    /// Location of the content.
    pub data: MemberData,
}

/// Location of the content of a file in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberData {
    /// In a zip archive.
    Zip(ZipMember),
    /// In a tar file.
    Tar(TarMember),
    /// Not a file: the part of an archive that cannot be read, which is one rejected item. Describes the damage.
    Damage(String),
}

impl ArchiveMember {
    /// Returns whether this is not a file, but the part of an archive that cannot be read.
    pub fn is_damage(&self) -> bool {
        matches!(self.data, MemberData::Damage(_))
    }

    /// Reads the file from the archive `planned`.
    ///
    /// # Errors
    ///
    /// Returns an error if the archive cannot be read or has changed, or if this part of it is damaged.
    pub fn read(&self, planned: &PlannedFile) -> Result<Vec<u8>, Broken> {
        if let MemberData::Zip(member) = &self.data {
            member.check()?;
        }
        self.read_opened(&planned.open()?)
    }

    /// As [`Self::read`], from an archive that is already open.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn read_opened(&self, opened: &OpenedFile) -> Result<Vec<u8>, Broken> {
        match &self.data {
            MemberData::Zip(member) => member.read_opened(opened),
            MemberData::Tar(member) => member.read_opened(opened),
            MemberData::Damage(why) => Err(damaged(why)),
        }
    }

    /// Returns the range of the archive that is read for the file; `None` if it will be rejected.
    pub(in crate::source) fn range(&self) -> Option<Range<u64>> {
        match &self.data {
            MemberData::Zip(member) => member.check().ok().map(|()| member.range(self.archive_bytes)),
            MemberData::Tar(member) => member.small_range(self.archive_bytes).ok(),
            MemberData::Damage(_) => None,
        }
    }

    /// Returns a stream of the decompressed content, from an archive that is already open.
    ///
    /// # Errors
    ///
    /// Returns an error if the archive cannot be read. Damage to the file in it is reported when it is read.
    pub(in crate::source) fn stream(
        &self,
        opened: OpenedFile,
        compression: Option<Compression>,
    ) -> Result<Stream, Error> {
        let file = Arc::new(opened);
        Stream::of_part(&file, self.open(&file), compression)
    }

    /// Opens a reader of the file in an archive that is already open. It reads files of any size, in pieces.
    ///
    /// # Errors
    ///
    /// As [`Self::read`]. Damage to the compressed data is reported when it is read.
    fn open(&self, opened: &Arc<OpenedFile>) -> Result<Box<dyn Read + Send>, Broken> {
        Ok(match &self.data {
            MemberData::Zip(member) => Box::new(member.open(opened)?),
            MemberData::Tar(member) => Box::new(member.open(opened)?),
            MemberData::Damage(why) => return Err(damaged(why)),
        })
    }
}

fn damaged(why: &str) -> Broken {
    Broken::damaged(RejectCode::Truncated, format!("the tar file is broken: {why}"))
}
