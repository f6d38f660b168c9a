//! Names in tables that lead to files of a listing, which may be in archives.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::file_list::{FileList, NearbyFiles};
use super::named_files::{IMAGE_ENDINGS, relative_path, with_ending};
use super::source_file::SourceFile;
use crate::decode::has_image_extension;
use crate::sample::{Reject, RejectCode};
use crate::source::archive::stem;
use crate::source::io::name::portable_name;

/// Resolves names to files of a listing.
pub struct ListedNames<'a> {
    files: NearbyFiles<'a>,
    /// Hashes of the paths with the ordinals of the files, sorted.
    by_path: Vec<(u128, u32)>,
    /// The archives, by source and path relative to it (empty if the archive is the source), each with the innermost folder
    /// that contains all of its images.
    archives: BTreeMap<(u32, PathBuf), PathBuf>,
}

impl<'a> ListedNames<'a> {
    /// Creates a resolver of names to `files`.
    pub fn new(files: &'a FileList) -> Self {
        let mut by_path = Vec::with_capacity(files.len());
        let mut archives: BTreeMap<(u32, PathBuf), PathBuf> = BTreeMap::new();
        for (file, ordinal) in files.iter().zip(0..) {
            by_path.push((hash(file.source, &file.relative), ordinal));
            let Some(member) = file.member.as_ref().filter(|_| has_image_extension(&file.origin)) else {
                continue;
            };
            let Some(folder) = file.relative.parent() else { continue };
            let archive = file.relative.components().take(member.archive_parts as usize).collect();
            let common = archives.entry((file.source, archive)).or_insert_with(|| folder.to_owned());
            while !folder.starts_with(&common) && common.pop() {}
        }
        by_path.sort_unstable();
        Self { files: NearbyFiles::new(files), by_path, archives }
    }

    /// Returns the file that `name` refers to in a table in the folder `folder` of a source, or an empty entry and the
    /// reason why there is no file. `label` is the origin of the folder.
    ///
    /// A name is relative to the folder, or to an archive next to the table, whose name may be part of it.
    pub(in crate::source) fn resolve(
        &mut self,
        source: u32,
        folder: &Path,
        label: &str,
        name: &Path,
    ) -> (SourceFile, Option<Reject>) {
        let missing = |relative: PathBuf, code, message: String| {
            let origin = format!("{label}/{}", portable_name(name.as_os_str()));
            let file = SourceFile { source, ..SourceFile::nothing(relative, origin) };
            (file, Some(Reject::new(code, message)))
        };
        let Some(relative) = relative_path(name) else {
            let message = "the path leads out of the folder it is relative to";
            return missing(PathBuf::new(), RejectCode::UnsafePath, message.to_owned());
        };
        let paths = self.paths(source, folder, &relative);
        let mut found = self.among(source, paths.iter().cloned());
        if found.is_empty() {
            let with_endings =
                paths.iter().flat_map(|path| IMAGE_ENDINGS.map(|ending| with_ending(path, ending)));
            found = self.among(source, with_endings);
        }
        let mut found = found.into_iter();
        match (found.next(), found.next()) {
            (Some(file), None) => (file, None),
            (None, _) => {
                missing(folder.join(relative), RejectCode::MissingFile, "there is no such file".to_owned())
            }
            (Some(one), Some(other)) => {
                let message = format!(
                    "the name fits several files: {:?} and {:?}; write the path from the folder of the table on",
                    one.origin, other.origin
                );
                missing(PathBuf::new(), RejectCode::InvalidValue, message)
            }
        }
    }

    /// Returns the paths that `relative` may mean in a table in `folder`.
    fn paths(&self, source: u32, folder: &Path, relative: &Path) -> BTreeSet<PathBuf> {
        let mut paths = BTreeSet::from([folder.join(relative)]);
        for ((of, archive), common) in &self.archives {
            if *of != source || archive.parent().unwrap_or(Path::new("")) != folder {
                continue;
            }
            let name = archive.file_name().map(portable_name).unwrap_or_default();
            let mut names = vec![relative];
            if !name.is_empty() {
                names.extend(relative.strip_prefix(stem(&name)).ok());
                names.extend(relative.strip_prefix(&name).ok());
            }
            for name in names.into_iter().filter(|name| !name.as_os_str().is_empty()) {
                // Folders around the whole archive may be left out.
                let folders = common.ancestors().take_while(|folder| folder.starts_with(archive));
                paths.extend(folders.map(|folder| folder.join(name)));
            }
        }
        paths
    }

    /// Returns the distinct files with one of `paths`.
    fn among(&mut self, source: u32, paths: impl Iterator<Item = PathBuf>) -> Vec<SourceFile> {
        let mut found: Vec<SourceFile> = Vec::new();
        for path in paths {
            let wanted = hash(source, &path);
            let at = self.by_path.partition_point(|(hash, _)| *hash < wanted);
            let ordinal =
                self.by_path.get(at).filter(|(hash, _)| *hash == wanted).map(|(_, ordinal)| *ordinal);
            if let Some(file) = ordinal.and_then(|ordinal| self.files.get(ordinal as usize)) {
                found.push(file.clone());
            }
        }
        found
    }
}

fn hash(source: u32, path: &Path) -> u128 {
    xxh3_128_with_seed(path.as_os_str().as_bytes(), source.into())
}
