//! The images of an archive as files of a source.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::directory::{Directory, ZipEntry};
use super::member::ZipMember;
use super::stem;
use crate::error::Result;
use crate::source::metadata::BESIDE_NAMES;
use crate::source::skipped::SkippedTypes;
use crate::source::splits::is_split_name;
use crate::source::walk::SourceFile;
use crate::source::{PlannedFile, portable_name};
use crate::transform::image::has_image_extension;

/// A folder that macOS adds to archives.
const MAC_FOLDER: &[u8] = b"__MACOSX";
/// Extensions of images that cannot be decoded, and are rejected with a message that says so.
const UNREADABLE: [&str; 3] = ["avif", "heic", "heif"];

/// The files of an archive.
#[derive(Debug, Default)]
pub struct ExpandedZip {
    /// Images, in the order of their paths.
    pub files: Vec<SourceFile>,
    /// Files that are no images, are hidden, are links, or have paths that lead out of the archive.
    pub skipped: SkippedTypes,
    /// Metadata files in the archive, which are not used.
    pub tables: Vec<PathBuf>,
}

/// Lists the images in the archive `file`, which is `planned` for reading.
///
/// # Errors
///
/// The archive cannot be read, or its directory is damaged.
pub fn expand(file: &SourceFile, planned: &PlannedFile) -> Result<ExpandedZip> {
    let mut found = ExpandedZip::default();
    let mut images: Vec<(Vec<u8>, ZipEntry)> = Vec::new();
    for entry in Directory::read(planned)?.entries.into_iter().filter(|entry| !entry.name.ends_with(b"/")) {
        let path = path_of(&entry.name).filter(|_| !entry.is_link);
        let name = portable(path.as_deref().unwrap_or(&entry.name));
        let name = name.rsplit('/').next().unwrap_or_default();
        match path {
            Some(path) if is_image_name(name) => images.push((path, entry)),
            Some(path) if BESIDE_NAMES.contains(&name) => {
                found.tables.push(planned.path.join(OsStr::from_bytes(&path)));
                found.skipped.add(name);
            }
            _ => found.skipped.add(name),
        }
    }
    images.sort_by(|(a, _), (b, _)| a.cmp(b));
    let paths: Vec<&[u8]> = images.iter().map(|(path, _)| path.as_slice()).collect();
    let archive = planned.path.file_name().map(portable_name).unwrap_or_default();
    let in_root = has_root(&paths, stem(&archive));
    let archive_parts = file.relative.components().count() as u32;
    found.files = images
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

/// The path without empty parts; `None` when it leads out of the archive, or a part of it is hidden.
fn path_of(name: &[u8]) -> Option<Vec<u8>> {
    if name.starts_with(b"/") || name.contains(&0) {
        return None;
    }
    let parts: Vec<&[u8]> =
        name.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    // This includes `..`.
    let is_hidden = |part: &&[u8]| part.starts_with(b".") || *part == MAC_FOLDER;
    (!parts.is_empty() && !parts.iter().any(is_hidden)).then(|| parts.join(&b'/'))
}

fn portable(path: &[u8]) -> String {
    let parts: Vec<String> =
        path.split(|&byte| byte == b'/').map(|part| portable_name(OsStr::from_bytes(part))).collect();
    parts.join("/")
}

fn is_image_name(name: &str) -> bool {
    let is_unreadable = name.rsplit_once('.').is_some_and(|(_, extension)| {
        UNREADABLE.iter().any(|unreadable| extension.eq_ignore_ascii_case(unreadable))
    });
    is_unreadable || has_image_extension(name)
}

/// Whether all of `paths` are in one folder that says nothing of them: it is called as the archive, or holds only folders
/// and is not called as a split.
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
