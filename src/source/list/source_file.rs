//! Source files as stored in a plan.

use std::path::PathBuf;

use crate::error::Result;
use crate::options::SourceSpec;
use crate::source::archive::ArchiveKind;
use crate::source::archive::member::ArchiveMember;
use crate::source::archive::tar::is_tar;
use crate::source::io::broken::Broken;
use crate::source::io::compression::Compression;
use crate::source::io::name::portable_name;
use crate::source::io::opened::OpenedFile;
use crate::source::io::planned::PlannedFile;
use crate::source::io::stream::Stream;
use crate::storage::ObjectUrl;

/// One file of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Ordinal of the source.
    pub source: u32,
    /// Path relative to the source; empty if the source itself is a file.
    pub relative: PathBuf,
    /// Origin of the items in the file: the label of the source and the relative path, joined by `/`.
    pub origin: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Modification time, in nanoseconds since 1970; detects changed files.
    pub modified_ns: i128,
    /// Entity tag of an object, if its store provides one; changes with the content.
    pub etag: Option<String>,
    /// Location in an archive; `None` for a file outside archives.
    pub member: Option<Box<ArchiveMember>>,
    /// Ordinal of the field whose value is in this file: it is not an item, but belongs to the item before it in a list.
    pub of_field: Option<u32>,
}

impl SourceFile {
    /// Returns the entry of an item without a file.
    pub fn nothing(relative: PathBuf, origin: String) -> Self {
        Self {
            source: 0,
            relative,
            origin,
            bytes: 0,
            modified_ns: 0,
            etag: None,
            member: None,
            of_field: None,
        }
    }

    /// Returns the path of the file, or of the archive that contains it.
    pub fn path(&self, sources: &[SourceSpec]) -> PathBuf {
        let root = &sources[self.source as usize].path;
        let relative = match &self.member {
            None => self.relative.clone(),
            Some(member) => self.relative.components().take(member.archive_parts as usize).collect(),
        };
        if relative.as_os_str().is_empty() { root.clone() } else { ObjectUrl::file_below(root, &relative) }
    }

    /// Returns the file to open: the file itself, or the archive that contains it. A source that is itself a file may
    /// be a symbolic link; other files only with `follow_symlinks`.
    pub fn planned(&self, sources: &[SourceSpec], follow_symlinks: bool) -> PlannedFile {
        let (bytes, is_named) = match &self.member {
            None => (self.bytes, self.is_named()),
            Some(member) => (member.archive_bytes, member.archive_parts == 0),
        };
        PlannedFile {
            path: self.path(sources),
            bytes,
            modified_ns: self.modified_ns,
            etag: self.etag.clone(),
            follow_symlinks: follow_symlinks || is_named,
        }
    }

    /// Reads the whole file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or has changed, or is damaged in its archive.
    pub fn read(&self, sources: &[SourceSpec], follow_symlinks: bool) -> Result<Vec<u8>, Broken> {
        self.read_opened(sources, follow_symlinks, None)
    }

    /// As [`Self::read`], with `opened` as the result of [`Self::open_ahead`].
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn read_opened(
        &self,
        sources: &[SourceSpec],
        follow_symlinks: bool,
        opened: Option<&OpenedFile>,
    ) -> Result<Vec<u8>, Broken> {
        let planned = self.planned(sources, follow_symlinks);
        match (&self.member, opened) {
            (None, None) => Ok(planned.read()?),
            (None, Some(opened)) => Ok(planned.read_opened(opened)?),
            (Some(member), None) => member.read(&planned),
            (Some(member), Some(opened)) => member.read_opened(opened),
        }
    }

    /// Returns a stream of the decompressed content, with `opened` as the result of [`Self::open_ahead`].
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or has changed. Damage is reported when the stream is read.
    pub fn stream(
        &self,
        sources: &[SourceSpec],
        follow_symlinks: bool,
        opened: Option<OpenedFile>,
        compression: Option<Compression>,
    ) -> Result<Stream> {
        let opened = opened.map_or_else(|| self.planned(sources, follow_symlinks).open(), Ok)?;
        match &self.member {
            None => Stream::of(opened, compression),
            Some(member) => member.stream(opened, compression),
        }
    }

    /// As [`Self::stream`], for callers that read only the start of the file. In object storage, nothing is requested
    /// ahead.
    ///
    /// # Errors
    ///
    /// As [`Self::stream`].
    pub fn stream_start(
        &self,
        sources: &[SourceSpec],
        follow_symlinks: bool,
        compression: Option<Compression>,
    ) -> Result<Stream> {
        let opened = self.planned(sources, follow_symlinks).open()?;
        opened.will_read_little();
        self.stream(sources, follow_symlinks, Some(opened), compression)
    }

    /// Opens a file in object storage and requests its bytes: see [`PlannedFile::open_ahead`].
    pub fn open_ahead(&self, sources: &[SourceSpec], follow_symlinks: bool) -> Option<OpenedFile> {
        let range = self.member.as_ref().map_or(Some(0..self.bytes), |member| member.range())?;
        self.planned(sources, follow_symlinks).open_ahead(range)
    }

    /// Returns the name of the file.
    pub fn name(&self, sources: &[SourceSpec]) -> String {
        let name = match self.is_named() {
            true => self.path(sources).file_name().map(portable_name),
            false => self.relative.file_name().map(portable_name),
        };
        name.unwrap_or_default()
    }

    /// Returns whether the file has the name of a tar file, compressed or not.
    pub fn is_tar(&self, sources: &[SourceSpec]) -> bool {
        // The label of a source may differ from the name of its file.
        let by_path = || self.path(sources).file_name().is_some_and(|name| is_tar(&portable_name(name)));
        self.member.is_none() && (is_tar(&self.origin) || (self.is_named() && by_path()))
    }

    /// Returns the format of the archive that the file is; `None` if it is not an archive.
    pub fn archive_kind(&self, sources: &[SourceSpec]) -> Option<ArchiveKind> {
        ArchiveKind::of_name(&portable_name(self.path(sources).file_name()?))
            .filter(|_| self.member.is_none())
    }

    /// Returns whether the file is itself the source.
    pub fn is_named(&self) -> bool {
        self.relative.as_os_str().is_empty()
    }

    /// Creates a file of the first source, outside of archives.
    #[cfg(test)]
    pub(crate) fn for_test(relative: &str, origin: &str, bytes: u64) -> Self {
        let (relative, origin) = (relative.into(), origin.to_owned());
        Self { source: 0, relative, origin, bytes, modified_ns: 0, etag: None, member: None, of_field: None }
    }
}
