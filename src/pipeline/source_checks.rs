//! Checks of the listed sources that images and text share, and that they do not overlap the output.

use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::job_file::JobHeader;
use crate::error::{Error, Result};
use crate::options::{OutputOptions, SourceSpec};
use crate::printable::printable_path;
use crate::source::io::planned::names_nothing;
use crate::source::list::file_list::FileList;
use crate::source::list::named_files::ENCODED_NAMES;
use crate::source::list::source_file::SourceFile;
use crate::source::names::splits::Splits;
use crate::storage::{ObjectUrl, folder_of, real_path};
use crate::writer::output::{OUTPUT, overlap, refuse_overlap};

/// Refuses two files with the same origin: files with the same path in sources with the same label, and files whose names
/// become equal because one of them is not UTF-8 and is percent-encoded.
pub(super) fn check_origins(files: &FileList, sources: &[SourceSpec]) -> Result<()> {
    if sources.len() < 2 && files.iter().all(|file| file.relative.to_str().is_some()) {
        return Ok(());
    }
    let hash = |file: &SourceFile| xxh3_64(file.origin.as_bytes());
    let mut hashes: Vec<u64> = files.iter().map(|file| hash(&file)).collect();
    hashes.sort_unstable();
    let repeated: HashSet<u64> =
        hashes.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    if repeated.is_empty() {
        return Ok(());
    }
    drop(hashes);
    let mut sorted: Vec<_> = files.iter().filter(|file| repeated.contains(&hash(file))).collect();
    sorted.sort_by(|a, b| a.origin.cmp(&b.origin));
    let Some(pair) = sorted.windows(2).find(|pair| pair[0].origin == pair[1].origin) else { return Ok(()) };
    let (a, b) = (&pair[0], &pair[1]);
    let path = |file: &SourceFile| {
        // With the member of an archive.
        let root = &sources[file.source as usize].path;
        let path = if file.is_named() { root.clone() } else { root.join(&file.relative) };
        printable_path(&path).to_string()
    };
    Err(match a.source == b.source {
        true => Error::usage(format!("two files have the key {:?}: {} and {}", a.origin, path(a), path(b)))
            .help(ENCODED_NAMES),
        false => Error::usage(format!(
            "two sources contain a file with the key {:?}: {} and {}",
            a.origin,
            path(a),
            path(b)
        ))
        .help("give one source another label, as LABEL=PATH, or list the path only once"),
    })
}

/// Returns the names of the splits: those of the option `split`, or those that the names of the sources define. The
/// option is refused if there are both; `layout` with the value `other` ignores the names.
pub(super) fn split_names(output: &OutputOptions, named: &Splits, other: &str) -> Result<Vec<String>> {
    let Some(spec) = &output.split else { return Ok(named.names.clone()) };
    if !named.are_given() {
        return Ok(spec.names().map(str::to_owned).collect());
    }
    let names = named.names.join(", ");
    Err(Error::usage(format!(
        "`split` cannot be used: the sources already define the splits {names} {}",
        named.by
    ))
    .help(format!("leave out `split`, or ignore the existing splits with `layout {other}`")))
}

/// Refuses an output directory that overlaps the sources of a job, or contains one of their `files`.
pub(super) fn refuse_sources(out: &Path, header: &JobHeader, files: &FileList) -> Result<()> {
    if header.walked && !ObjectUrl::is_url(out) {
        header.sources.iter().try_for_each(|source| refuse_overlap(out, OUTPUT, &source.path))?;
    }
    refuse_files(out, header, files)
}

/// Refuses an output directory that contains one of the `files` of a job. From sources that do not overlap it, only a
/// list, a table or a followed link leads there.
pub(super) fn refuse_files(out: &Path, header: &JobHeader, files: &FileList) -> Result<()> {
    if ObjectUrl::is_url(out) || (header.walked && !header.follow_symlinks) {
        return Ok(());
    }
    let mut folders = FoldersInside { dir: real_path(out)?, known: HashMap::new() };
    for file in files.iter() {
        let (root, path) = (&header.sources[file.source as usize].path, file.path(&header.sources));
        // A source that is itself a file is not inside a folder of the sources.
        if ObjectUrl::is_url(root) || path == *root {
            continue;
        }
        let is_link = header.follow_symlinks
            && named(&path, std::fs::symlink_metadata(&path))?.is_some_and(|meta| meta.is_symlink());
        let place = if is_link { real_path(&path)? } else { path.clone() };
        if folders.contain(folder_of(&place))? && named(&path, std::fs::metadata(&path))?.is_some() {
            return Err(overlap(out, OUTPUT, &path));
        }
    }
    Ok(())
}

/// Returns the metadata of a file that a list names; `None` if the name leads to no file.
fn named(path: &Path, meta: io::Result<Metadata>) -> Result<Option<Metadata>> {
    match meta {
        Ok(meta) => Ok(Some(meta)),
        Err(e) if names_nothing(&e) => Ok(None),
        Err(e) => Err(Error::io("examine the file", path, e)),
    }
}

/// The folders that are inside a directory or are the directory, as far as they are known.
struct FoldersInside {
    /// The directory, without links.
    dir: PathBuf,
    known: HashMap<PathBuf, bool>,
}

impl FoldersInside {
    fn contain(&mut self, folder: &Path) -> Result<bool> {
        if let Some(&known) = self.known.get(folder) {
            return Ok(known);
        }
        let is_inside = real_path(folder)?.starts_with(&self.dir);
        self.known.insert(folder.to_owned(), is_inside);
        Ok(is_inside)
    }
}
