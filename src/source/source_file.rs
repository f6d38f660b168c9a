//! The files of sources, as a plan has them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::compression::Compression;
use super::opened::OpenedFile;
use super::planned::PlannedFile;
use super::stream::{Broken, Stream};
use super::zip::ZipMember;
use crate::error::Result;
use crate::options::SourceSpec;

/// One file of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// Ordinal of the source.
    pub source: u32,
    /// Path under the source; empty when the source is itself a file.
    #[serde(with = "crate::stored_path")]
    pub relative: PathBuf,
    /// Label of the source and relative path, with `/`: the origin of what the file holds.
    pub origin: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of the last change, in nanoseconds since 1970: tells an unchanged file from a changed one.
    pub modified_ns: i128,
    /// Entity tag of an object, where its store has them: changes with the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Where it is in a zip archive; `None` for a file of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<Box<ZipMember>>,
}

impl SourceFile {
    /// Where the file is now, or the archive that it is in.
    pub fn path(&self, sources: &[SourceSpec]) -> PathBuf {
        let root = &sources[self.source as usize].path;
        let relative = match &self.member {
            None => self.relative.clone(),
            Some(member) => self.relative.components().take(member.archive_parts as usize).collect(),
        };
        if relative.as_os_str().is_empty() { root.clone() } else { root.join(relative) }
    }

    /// The file, or the archive that it is in, as it is to be opened. A source that is itself a file may be a link; others only
    /// with `follow_links`.
    pub fn planned(&self, sources: &[SourceSpec], follow_links: bool) -> PlannedFile {
        let (bytes, is_named) = match &self.member {
            None => (self.bytes, self.is_named()),
            Some(member) => (member.archive_bytes, member.archive_parts == 0),
        };
        PlannedFile {
            path: self.path(sources),
            bytes,
            modified_ns: self.modified_ns,
            etag: self.etag.clone(),
            follow_links: follow_links || is_named,
        }
    }

    /// All bytes of the file.
    ///
    /// # Errors
    ///
    /// It cannot be read or has changed; in an archive, it may also be damaged.
    pub fn read(&self, sources: &[SourceSpec], follow_links: bool) -> Result<Vec<u8>, Broken> {
        self.read_opened(sources, follow_links, None)
    }

    /// As [`Self::read`], of the file that [`Self::open_ahead`] has opened.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn read_opened(
        &self,
        sources: &[SourceSpec],
        follow_links: bool,
        opened: Option<&OpenedFile>,
    ) -> Result<Vec<u8>, Broken> {
        let planned = self.planned(sources, follow_links);
        match (&self.member, opened) {
            (None, None) => planned.read().map_err(Broken::Failed),
            (None, Some(opened)) => planned.read_opened(opened).map_err(Broken::Failed),
            (Some(member), None) => member.read(&planned),
            (Some(member), Some(opened)) => member.read_opened(opened),
        }
    }

    /// The content of the file, decompressed, to be read piece by piece; `opened` is what [`Self::open_ahead`] has opened.
    ///
    /// # Errors
    ///
    /// It cannot be read or has changed. Damage shows when the stream is read.
    pub fn stream(
        &self,
        sources: &[SourceSpec],
        follow_links: bool,
        opened: Option<OpenedFile>,
        compression: Option<Compression>,
    ) -> Result<Stream> {
        let opened = opened.map_or_else(|| self.planned(sources, follow_links).open(), Ok)?;
        match &self.member {
            None => Stream::of(opened, compression),
            Some(member) => Stream::of_member(opened, member, compression),
        }
    }

    /// Opens the file and requests its bytes, where waiting for them takes long: see [`PlannedFile::open_ahead`].
    pub fn open_ahead(&self, sources: &[SourceSpec], follow_links: bool) -> Option<OpenedFile> {
        let planned = self.planned(sources, follow_links);
        match &self.member {
            None => planned.open_ahead(),
            Some(member) => member.open_ahead(&planned),
        }
    }

    /// Whether the source was named as a file.
    pub fn is_named(&self) -> bool {
        self.relative.as_os_str().is_empty()
    }
}
