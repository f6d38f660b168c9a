//! Listing of the files in archives as files of a source.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::decode::has_image_extension;
use crate::error::Result;
use crate::options::SourceSpec;
use crate::source::archive::directory::{ArchiveDirectory, ArchiveEntry};
use crate::source::archive::member::{ArchiveMember, MemberData};
use crate::source::archive::member_path::{path_of, portable, root_parts};
use crate::source::archive::tar::directory::has_samples;
use crate::source::archive::{ArchiveKind, read_directory, stem};
use crate::source::io::name::portable_name;
use crate::source::io::planned::PlannedFile;
use crate::source::list::listing::Listing;
use crate::source::list::skipped::SkippedTypes;
use crate::source::list::source_file::SourceFile;

/// Extensions of images that cannot be decoded. They are listed so that they are rejected, not skipped.
const UNREADABLE: [&str; 3] = ["avif", "heic", "heif"];

/// The files found in an archive.
#[derive(Debug, Default)]
pub struct ExpandedArchive {
    /// Files that pass the filter, in the order of their paths. Damage to the archive is the last of them.
    pub files: Vec<SourceFile>,
    /// Skipped files: excluded by the filter, hidden, links, replaced by a later file of the same path, or with paths
    /// that lead out of the archive.
    pub skipped: SkippedTypes,
}

/// Lists the files in the archive `file` whose names pass `wanted`, and those that may describe them, whose names pass
/// `beside`. `planned` is the archive to open. Returns `None` for a tar file with samples of several members.
///
/// # Errors
///
/// Returns an error if the archive cannot be read, or its directory is damaged.
pub fn expand(
    file: &SourceFile,
    kind: ArchiveKind,
    planned: &PlannedFile,
    wanted: &dyn Fn(&str) -> bool,
    beside: &dyn Fn(&str) -> bool,
) -> Result<Option<ExpandedArchive>> {
    let ArchiveDirectory { entries, damage } = read_directory(kind, planned)?;
    if kind == ArchiveKind::Tar && has_samples(&entries, wanted) {
        return Ok(None);
    }
    let mut found = ExpandedArchive::default();
    let members = found.members(entries, wanted, beside);
    let items = || members.iter().filter(|member| member.is_item);
    let paths: Vec<&[u8]> = items().map(|member| member.path.as_slice()).collect();
    let archive = planned.path.file_name().map(portable_name).unwrap_or_default();
    let root_parts = root_parts(&paths, stem(&archive));
    let archive_parts = file.relative.components().count() as u32;
    let of_member = |relative: PathBuf, origin: String, bytes: u64, root_parts: u32, data: MemberData| {
        let member = ArchiveMember { archive_parts, root_parts, archive_bytes: file.bytes, data };
        SourceFile { relative, origin, bytes, member: Some(Box::new(member)), ..file.clone() }
    };
    let is_cut_off = |member: &WantedMember| match &member.data {
        MemberData::Tar(member) => member.is_cut_off(planned.bytes),
        MemberData::Zip(_) | MemberData::Damage(_) => false,
    };
    // A file that is cut off is itself the rejected item.
    let damage = damage.filter(|_| !items().any(is_cut_off));
    found.files = members
        .into_iter()
        .map(|WantedMember { path, bytes, data, .. }| {
            let relative = file.relative.join(Path::new(OsStr::from_bytes(&path)));
            of_member(relative, format!("{}/{}", file.origin, portable(&path)), bytes, root_parts, data)
        })
        .collect();
    found.files.extend(damage.map(|why| {
        let data = MemberData::Damage(why);
        of_member(file.relative.clone(), file.origin.clone(), 0, 0, data)
    }));
    Ok(Some(found))
}

/// A file in an archive that passes the filter.
struct WantedMember {
    path: Vec<u8>,
    bytes: u64,
    data: MemberData,
    /// Whether this is an item rather than a file that may describe items.
    is_item: bool,
}

impl ExpandedArchive {
    /// Returns the entries that pass `wanted` or `beside`, in the order of their paths, and counts the others.
    fn members(
        &mut self,
        entries: Vec<ArchiveEntry>,
        wanted: &dyn Fn(&str) -> bool,
        beside: &dyn Fn(&str) -> bool,
    ) -> Vec<WantedMember> {
        let mut members = Vec::new();
        for ArchiveEntry { name, size: bytes, data } in entries {
            let path = path_of(&name).filter(|_| data.is_some());
            let portable = portable(path.as_deref().unwrap_or(&name));
            let last = portable.rsplit('/').next().unwrap_or_default();
            match (path, data) {
                (Some(path), Some(data)) if wanted(last) || matches!(data, MemberData::Damage(_)) => {
                    members.push(WantedMember { path, bytes, data, is_item: true });
                }
                (Some(path), Some(data)) if beside(last) => {
                    members.push(WantedMember { path, bytes, data, is_item: false });
                }
                _ => self.skipped.add(last),
            }
        }
        // The sort is stable: of several files with one path, the last one comes last.
        members.sort_by(|a, b| a.path.cmp(&b.path));
        let mut unique: Vec<WantedMember> = Vec::with_capacity(members.len());
        for member in members {
            match unique.last_mut().filter(|last| last.path == member.path) {
                Some(last) => {
                    self.skipped.add(&portable(&last.path));
                    *last = member;
                }
                None => unique.push(member),
            }
        }
        unique
    }
}

/// Options for reading the archives of a listing.
pub struct Archives<'a> {
    /// The sources of the listing.
    pub sources: &'a [SourceSpec],
    /// Whether symbolic links are followed.
    pub follow_symlinks: bool,
    /// Whether tar files are archives, too.
    pub with_tars: bool,
    /// Returns whether a file outside archives is an item, by its name.
    pub is_item: &'a dyn Fn(&SourceFile) -> bool,
    /// Returns whether a file in an archive is an item, by its name.
    pub wanted: &'a dyn Fn(&str) -> bool,
    /// Returns whether a file in an archive may describe items, by its name.
    pub beside: &'a dyn Fn(&str) -> bool,
}

impl Archives<'_> {
    /// Returns the format of `file`; `None` if it is not an archive.
    fn kind(&self, file: &SourceFile) -> Option<ArchiveKind> {
        file.archive_kind(self.sources).filter(|kind| self.with_tars || *kind == ArchiveKind::Zip)
    }

    /// Replaces archives by the files in them. If there are items outside archives, archives found in folders are left
    /// out, because the items may have been unpacked from them. Returns `None` if there are no archives, or if a tar
    /// file has samples of several members.
    ///
    /// # Errors
    ///
    /// Returns an error if an archive cannot be read.
    pub fn expand(&self, listing: &Listing) -> Result<Option<Listing>> {
        if !listing.files.iter().any(|file| self.kind(&file).is_some()) {
            return Ok(None);
        }
        let has_items = listing.files.iter().any(|file| (self.is_item)(&file));
        let (skipped, unusable) = (listing.skipped.clone(), listing.unusable.clone());
        let mut all = Listing { skipped, unusable, ..Listing::default() };
        for file in &listing.files {
            let Some(kind) = self.kind(&file) else {
                all.files.push(&file);
                continue;
            };
            if has_items && !file.is_named() {
                all.skipped.add(&file.origin);
                all.left_out.get_or_insert(file.origin);
            } else {
                let planned = file.planned(self.sources, self.follow_symlinks);
                let Some(found) = expand(&file, kind, &planned, self.wanted, self.beside)? else {
                    return Ok(None);
                };
                all.files.extend(found.files);
                all.skipped.extend(&found.skipped);
            }
        }
        Ok(Some(all))
    }
}

/// Returns whether a file in an archive is named like an image, including images that cannot be decoded.
pub fn is_image_name(name: &str) -> bool {
    let is_unreadable = name.rsplit_once('.').is_some_and(|(_, extension)| {
        UNREADABLE.iter().any(|unreadable| extension.eq_ignore_ascii_case(unreadable))
    });
    is_unreadable || has_image_extension(name)
}
