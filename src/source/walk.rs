//! The files of the sources, in a fixed order.
//!
//! Entries of a directory sort by the bytes of their name, a directory as name + `/`. That is the order of full paths,
//! and the one in which object stores list, so it does not depend on the file system. Sources in object storage are listed by
//! `remote`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::compression::Compression;
use super::listing::names_nothing;
use super::opened::OpenedFile;
use super::planned::{PlannedFile, modified_ns};
use super::skipped::SkippedTypes;
use super::stream::{Broken, Stream};
use super::zip::ZipMember;
use super::{portable_name, remote};
use crate::error::{Error, Result};
use crate::options::SourceSpec;
use crate::storage::{ObjectUrl, for_each_entry};

/// Deepest folder nesting that is followed.
const MAX_DEPTH: usize = 256;

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

/// What a walk found.
#[derive(Debug, Default)]
pub struct Listing {
    /// Files that the filter kept, in order: sources as given, files by path.
    pub files: Vec<SourceFile>,
    /// Files left out: not kept by the filter, hidden, links that are not followed, sockets and devices.
    pub skipped: SkippedTypes,
    /// Addresses of objects that were left out because their keys are no paths. They count as skipped.
    pub unusable: Vec<String>,
}

/// Lists the files of all `sources` that `keep` (given the file name) wants. Names that begin with a dot are skipped,
/// except for a source itself.
///
/// # Errors
///
/// A source that is missing, a folder that cannot be listed, a loop of symbolic links.
pub fn list(sources: &[SourceSpec], follow_links: bool, keep: &dyn Fn(&str) -> bool) -> Result<Listing> {
    let mut listing = Listing::default();
    for (ordinal, source) in sources.iter().enumerate() {
        if let Some(url) = ObjectUrl::parse(&source.path)? {
            remote::list(source, &url, ordinal as u32, keep, &mut listing)?;
            continue;
        }
        let meta = std::fs::metadata(&source.path).map_err(|e| {
            let error = match e.kind() {
                ErrorKind::NotFound => Error::usage("there is no such source").at_path(&source.path),
                _ => Error::io("look at the source", &source.path, e),
            };
            error.help("check the path; sources are files or folders")
        })?;
        let mut walk = Walk {
            source: ordinal as u32,
            follow_links,
            keep,
            ancestors: HashSet::new(),
            listing: &mut listing,
        };
        if meta.is_dir() {
            walk.folder(&source.path, Path::new(""), &source.label, &meta, 0)?;
        } else if meta.is_file() {
            walk.file(PathBuf::new(), source.label.clone(), &meta);
        } else {
            return Err(Error::usage(
                "the source is neither a file nor a folder, but a FIFO, socket or device",
            )
            .at_path(&source.path)
            .help("name files or folders; dsconvert text reads standard input when the source is -"));
        }
    }
    Ok(listing)
}

struct Walk<'a> {
    source: u32,
    follow_links: bool,
    keep: &'a dyn Fn(&str) -> bool,
    /// Device and inode of the folders above: meeting one again is a loop of links.
    ancestors: HashSet<(u64, u64)>,
    listing: &'a mut Listing,
}

impl Walk<'_> {
    fn folder(
        &mut self,
        path: &Path,
        relative: &Path,
        origin: &str,
        meta: &Metadata,
        depth: usize,
    ) -> Result<()> {
        let id = (meta.dev(), meta.ino());
        if depth > MAX_DEPTH || !self.ancestors.insert(id) {
            return Err(Error::usage("symbolic links lead in a circle, or folders nest too deeply")
                .at_path(path)
                .help("remove the link, or run without --follow-symlinks"));
        }
        for (name, meta) in self.entries(path)? {
            let text = portable_name(&name);
            let origin = format!("{origin}/{text}");
            let relative = relative.join(&name);
            if meta.is_dir() {
                self.folder(&path.join(&name), &relative, &origin, &meta, depth + 1)?;
            } else if (self.keep)(&text) {
                self.file(relative, origin, &meta);
            } else {
                self.listing.skipped.add(&text);
            }
        }
        self.ancestors.remove(&id);
        Ok(())
    }

    /// The entries of a folder that are files or folders, in order.
    fn entries(&mut self, folder: &Path) -> Result<Vec<(OsString, Metadata)>> {
        let mut entries = Vec::new();
        let fail = |e| Error::io("list the folder", folder, e);
        for_each_entry(folder, fail, |entry| {
            let name = entry.file_name();
            let mut meta = entry.metadata().map_err(|e| Error::io("look at the file", &entry.path(), e))?;
            if meta.file_type().is_symlink() && self.follow_links {
                // A dangling link is skipped like a link that is not followed.
                match std::fs::metadata(entry.path()) {
                    Ok(target) => meta = target,
                    Err(e) if names_nothing(&e) => {}
                    Err(e) => return Err(Error::io("examine the file", &entry.path(), e)),
                }
            }
            if name.as_bytes().starts_with(b".") || !(meta.is_file() || meta.is_dir()) {
                if !meta.is_dir() {
                    self.listing.skipped.add(&portable_name(&name));
                }
            } else {
                entries.push((name, meta));
            }
            Ok(())
        })?;
        entries.sort_by(|(a, am), (b, bm)| {
            let key = |name: &OsString, dir: bool| [name.as_bytes(), if dir { b"/" } else { b"" }].concat();
            key(a, am.is_dir()).cmp(&key(b, bm.is_dir()))
        });
        Ok(entries)
    }

    fn file(&mut self, relative: PathBuf, origin: String, meta: &Metadata) {
        self.listing.files.push(SourceFile {
            source: self.source,
            relative,
            origin,
            bytes: meta.len(),
            modified_ns: modified_ns(meta),
            etag: None,
            member: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(path: &Path) -> SourceSpec {
        SourceSpec { label: "src".into(), path: path.to_owned() }
    }

    fn origins(path: &Path, follow: bool) -> Vec<String> {
        list(&[spec(path)], follow, &|n| n.ends_with("jpg"))
            .unwrap()
            .files
            .into_iter()
            .map(|f| f.origin)
            .collect()
    }

    #[test]
    fn order_is_that_of_full_paths() {
        let dir = tempfile::tempdir().unwrap();
        for file in
            ["a/x.jpg", "a-b/x.jpg", "a.jpg", "b/c/y.jpg", "Z.jpg", ".hidden.jpg", ".git/x.jpg", "notes.txt"]
        {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        let found = origins(dir.path(), false);
        let mut sorted = found.clone();
        sorted.sort();
        assert_eq!(found, sorted);
        assert_eq!(found, ["src/Z.jpg", "src/a-b/x.jpg", "src/a.jpg", "src/a/x.jpg", "src/b/c/y.jpg"]);
        let listing = list(&[spec(dir.path())], false, &|n| n.ends_with("jpg")).unwrap();
        assert_eq!(listing.skipped.count(), 2);
    }

    #[test]
    fn links_are_followed_only_when_asked_and_never_in_circles() {
        let dir = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join("x.jpg"), "x").unwrap();
        std::os::unix::fs::symlink(other.path(), dir.path().join("link")).unwrap();
        assert!(origins(dir.path(), false).is_empty());
        assert_eq!(origins(dir.path(), true), ["src/link/x.jpg"]);
        std::os::unix::fs::symlink(dir.path(), dir.path().join("loop")).unwrap();
        assert!(list(&[spec(dir.path())], true, &|_| true).is_err());
    }
}
