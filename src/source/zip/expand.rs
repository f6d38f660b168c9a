//! Listing of the files in archives as files of a source.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::directory::{Directory, ZipEntry};
use super::member::ZipMember;
use super::{is_zip, stem};
use crate::error::Result;
use crate::options::SourceSpec;
use crate::source::file_list::FileList;
use crate::source::found_files::Listing;
use crate::source::metadata::BESIDE_NAMES;
use crate::source::skipped::SkippedTypes;
use crate::source::source_file::SourceFile;
use crate::source::splits::is_split_name;
use crate::source::{PlannedFile, portable_name};
use crate::transform::image::has_image_extension;

/// A folder that macOS adds to archives.
const MAC_FOLDER: &[u8] = b"__MACOSX";
/// Extensions of images that cannot be decoded. They are listed so that they are rejected, not skipped.
const UNREADABLE: [&str; 3] = ["avif", "heic", "heif"];

/// The files found in an archive.
#[derive(Debug, Default)]
pub struct ExpandedZip {
    /// Files that pass the filter, in the order of their paths.
    pub files: Vec<SourceFile>,
    /// Skipped files: excluded by the filter, hidden, links, or with paths that lead out of the archive.
    pub skipped: SkippedTypes,
    /// Metadata files in the archive, which are not used.
    pub tables: Vec<PathBuf>,
}

/// Lists the files in the archive `file` whose names pass `wanted`. `planned` is the archive to open.
///
/// # Errors
///
/// Returns an error if the archive cannot be read, or its directory is damaged.
pub fn expand(
    file: &SourceFile,
    planned: &PlannedFile,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<ExpandedZip> {
    let mut found = ExpandedZip::default();
    let mut members: Vec<(Vec<u8>, ZipEntry)> = Vec::new();
    for entry in Directory::read(planned)?.entries.into_iter().filter(|entry| !entry.name.ends_with(b"/")) {
        let path = path_of(&entry.name).filter(|_| !entry.is_link);
        let name = portable(path.as_deref().unwrap_or(&entry.name));
        let name = name.rsplit('/').next().unwrap_or_default();
        match path {
            Some(path) if wanted(name) => members.push((path, entry)),
            Some(path) if BESIDE_NAMES.contains(&name) => {
                found.tables.push(planned.path.join(OsStr::from_bytes(&path)));
                found.skipped.add(name);
            }
            _ => found.skipped.add(name),
        }
    }
    members.sort_by(|(a, _), (b, _)| a.cmp(b));
    let paths: Vec<&[u8]> = members.iter().map(|(path, _)| path.as_slice()).collect();
    let archive = planned.path.file_name().map(portable_name).unwrap_or_default();
    let in_root = has_root(&paths, stem(&archive));
    let archive_parts = file.relative.components().count() as u32;
    found.files = members
        .into_iter()
        .map(|(path, entry)| SourceFile {
            source: file.source,
            relative: file.relative.join(Path::new(OsStr::from_bytes(&path))),
            origin: format!("{}/{}", file.origin, portable(&path)),
            bytes: entry.size,
            modified_ns: file.modified_ns,
            etag: file.etag.clone(),
            member: Some(Box::new(ZipMember {
                archive_parts,
                in_root,
                archive_bytes: file.bytes,
                offset: entry.offset,
                compressed: entry.compressed,
                size: entry.size,
                crc: entry.crc,
                method: entry.method,
                is_encrypted: entry.is_encrypted,
            })),
        })
        .collect();
    Ok(found)
}

/// Options for reading the archives of a listing.
pub struct Archives<'a> {
    /// The sources of the listing.
    pub sources: &'a [SourceSpec],
    /// Whether symbolic links are followed.
    pub follow_links: bool,
    /// Whether the name of a file outside archives is that of an item.
    pub is_item: &'a dyn Fn(&SourceFile) -> bool,
    /// Whether the name of a file in an archive is that of an item.
    pub wanted: &'a dyn Fn(&str) -> bool,
}

/// A listing whose archives are replaced by the files in them.
pub struct ExpandedListing {
    /// The files.
    pub listing: Listing,
    /// Metadata files in the archives, which are not used.
    pub tables: Vec<PathBuf>,
    /// Origin of the first archive that was left out.
    pub left_out: Option<String>,
}

impl Archives<'_> {
    /// Replaces zip archives by the files in them. If there are items outside archives, archives found in folders are
    /// left out, because the items may have been unpacked from them.
    ///
    /// # Errors
    ///
    /// Returns an error if an archive cannot be read.
    pub fn expand(&self, listing: Listing) -> Result<ExpandedListing> {
        if !listing.files.iter().any(|file| is_archive(&file, self.sources)) {
            return Ok(ExpandedListing { listing, tables: Vec::new(), left_out: None });
        }
        let has_items = listing.files.iter().any(|file| (self.is_item)(&file));
        let files = FileList::default();
        let mut all = Listing { files, skipped: listing.skipped, unusable: listing.unusable };
        let (mut tables, mut left_out) = (Vec::new(), None);
        for file in &listing.files {
            if !is_archive(&file, self.sources) {
                all.files.push(&file);
            } else if has_items && !file.is_named() {
                all.skipped.add(&file.origin);
                left_out.get_or_insert(file.origin);
            } else {
                let found = expand(&file, &file.planned(self.sources, self.follow_links), self.wanted)?;
                all.files.extend(found.files);
                all.skipped.extend(&found.skipped);
                tables.extend(found.tables);
            }
        }
        Ok(ExpandedListing { listing: all, tables, left_out })
    }
}

/// Returns whether `file` of `sources` is an archive.
pub fn is_archive(file: &SourceFile, sources: &[SourceSpec]) -> bool {
    file.path(sources).file_name().is_some_and(|name| is_zip(&portable_name(name)))
}

/// Returns the path without empty and `.` components; `None` if it leads out of the archive or has a hidden component.
fn path_of(name: &[u8]) -> Option<Vec<u8>> {
    if name.starts_with(b"/") || name.contains(&0) {
        return None;
    }
    let parts: Vec<&[u8]> =
        name.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    // `..` also counts as hidden.
    let is_hidden = |part: &&[u8]| part.starts_with(b".") || *part == MAC_FOLDER;
    (!parts.is_empty() && !parts.iter().any(is_hidden)).then(|| parts.join(&b'/'))
}

fn portable(path: &[u8]) -> String {
    let parts: Vec<String> =
        path.split(|&byte| byte == b'/').map(|part| portable_name(OsStr::from_bytes(part))).collect();
    parts.join("/")
}

/// Returns whether the name of a file in an archive is that of an image, including images that cannot be decoded.
pub fn is_image_name(name: &str) -> bool {
    let is_unreadable = name.rsplit_once('.').is_some_and(|(_, extension)| {
        UNREADABLE.iter().any(|unreadable| extension.eq_ignore_ascii_case(unreadable))
    });
    is_unreadable || has_image_extension(name)
}

/// Returns whether all of `paths` are in one folder without a meaning of its own: it is named like the archive, or it
/// contains only folders and is not named like a split.
fn has_root(paths: &[&[u8]], archive: &str) -> bool {
    let mut roots = BTreeSet::new();
    let mut holds_files = false;
    for path in paths {
        let mut parts = path.split(|&byte| byte == b'/');
        let root = parts.next().filter(|_| parts.next().is_some());
        holds_files |= parts.next().is_none();
        roots.insert(root);
    }
    match roots.into_iter().collect::<Vec<_>>()[..] {
        [Some(root)] => {
            let root = portable_name(OsStr::from_bytes(root));
            root == archive || (!holds_files && !is_split_name(&root))
        }
        _ => false,
    }
}
