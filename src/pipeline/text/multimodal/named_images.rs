//! The files of images that chats name. They are found when the run is planned, so that they are part of the plan.
//!
//! The files follow the files of the documents in the list of the plan. A path is relative to the folder of the file that names
//! it, and stays inside the source, as for the metadata of images.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dsconvert_writer::outcome::Outcomes;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::chat_images;
use super::image_value::ImageValue;
use crate::error::Result;
use crate::options::{SourceSpec, is_remote};
use crate::pipeline::text::conversion::TextJob;
use crate::pipeline::text::plan;
use crate::sample::{Reject, RejectCode};
use crate::source::io::broken::Broken;
use crate::source::io::planned::PlannedFile;
use crate::source::list::file_list::{FileList, not_in_list};
use crate::source::list::named_files::Resolver;
use crate::source::list::skipped::SkippedTypes;
use crate::source::list::source_file::SourceFile;
use crate::storage::ObjectUrl;

/// What a path of a row leads to.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum NamedFile {
    /// The file of the plan with this ordinal.
    Found(usize),
    Missing(Reject),
}

/// The files that the paths of all chats lead to.
#[derive(Debug, Default)]
pub(in crate::pipeline::text) struct NamedImages(HashMap<u128, NamedFile>);

impl NamedImages {
    /// Returns the lines of a stored job, in an order that does not depend on the hash map.
    pub(in crate::pipeline::text) fn lines(&self) -> Vec<impl Serialize> {
        let mut lines: Vec<_> =
            self.0.iter().map(|(name, file)| (format!("{name:032x}"), file.clone())).collect();
        lines.sort_by(|(a, _), (b, _)| a.cmp(b));
        lines
    }

    /// Reads what [`Self::lines`] returned.
    pub(in crate::pipeline::text) fn of_lines(lines: Vec<StoredLine>) -> Self {
        let read = |StoredLine(name, file): StoredLine| Some((u128::from_str_radix(&name, 16).ok()?, file));
        Self(lines.into_iter().filter_map(read).collect())
    }
}

/// A line of a stored job.
#[derive(Deserialize)]
pub(in crate::pipeline::text) struct StoredLine(String, NamedFile);

/// Returns the identity of a path that a row of `file` has.
fn name_of(file: &SourceFile, path: &str) -> u128 {
    let folder = file.relative.parent().unwrap_or(Path::new(""));
    let name = [folder.as_os_str().as_bytes(), path.as_bytes()].join(&b"\0"[..]);
    xxh3_128_with_seed(&name, file.source.into())
}

/// Returns the folder that the paths of images in `file` stay inside: its source, or the folder of a source that is a file.
fn root_of(file: &SourceFile, sources: &[SourceSpec]) -> Option<PathBuf> {
    let path = &sources.get(file.source as usize)?.path;
    if !file.is_named() {
        return Some(path.clone());
    }
    let folder = path.parent()?;
    Some(if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() })
}

/// Finds the images that the chats of `job` name, adds their files to its plan, and divides its sections into units that
/// count the images.
///
/// # Errors
///
/// If a file cannot be read, or an image cannot be examined.
pub(in crate::pipeline::text) fn plan_files(job: &mut TextJob) -> Result<()> {
    let Some(multimodal) = &job.conversion.multimodal else { return Ok(()) };
    let processor = multimodal.processor.clone();
    let roots = roots(job);
    let mut search = ImageSearch::new(job, &roots);
    let mut weights = Vec::with_capacity(job.conversion.sections.len());
    let (context, mut out) = (job.item_context(), Outcomes::default());
    for section in &job.conversion.sections {
        let file = Arc::new(job.file(section.file)?);
        let mut reader = job.open_section(section, &file, None)?;
        let mut weight = 0u64;
        while let Some(mut block) = reader.next()? {
            while let Some(item) = block.items.next(&context, &mut out)? {
                // The run rejects what cannot be read.
                let Ok(document) = item.document else { continue };
                let Ok(chat) = chat_images::read(&document.text, &processor) else { continue };
                for image in chat.images {
                    if let ImageValue::Path(path) = image {
                        weight = weight.saturating_add(search.find(&file, &path)?);
                    }
                }
            }
        }
        weights.push(weight);
    }
    let ImageSearch { files, names, skipped, .. } = search;
    for (section, weight) in job.conversion.sections.iter_mut().zip(weights) {
        section.image_bytes = weight;
    }
    job.units = plan::group(&job.conversion.sections, job.header.unit_bytes);
    job.header.units = job.units.len() as u32;
    job.summary.units = job.header.units;
    job.header.files = files.len() as u64;
    (job.summary.files, job.summary.bytes) = (job.header.files, files.bytes());
    (job.header.skipped, job.summary.skipped) = (skipped.clone(), skipped);
    job.files = files;
    if let Some(multimodal) = &mut job.conversion.multimodal {
        multimodal.named = NamedImages(names);
    }
    Ok(())
}

/// The search for the files of images.
struct ImageSearch<'a> {
    roots: &'a [SourceSpec],
    resolvers: HashMap<u32, Resolver<'a>>,
    names: HashMap<u128, NamedFile>,
    /// The files of the plan, and those that were found.
    files: FileList,
    /// Ordinals of those that were found, by source and path.
    found: HashMap<(u32, PathBuf), usize>,
    /// Ordinal of the first of them.
    first: usize,
    /// Their sizes.
    sizes: Vec<u64>,
    /// Files of the sources that nothing reads.
    skipped: SkippedTypes,
    is_walked: bool,
    is_remote: bool,
    follow_symlinks: bool,
}

impl<'a> ImageSearch<'a> {
    fn new(job: &TextJob, roots: &'a [SourceSpec]) -> Self {
        let header = &job.header;
        Self {
            roots,
            resolvers: HashMap::new(),
            names: HashMap::new(),
            files: job.files.clone(),
            found: HashMap::new(),
            first: job.files.len(),
            sizes: Vec::new(),
            skipped: header.skipped.clone(),
            is_walked: header.walked,
            is_remote: is_remote(&header.sources),
            follow_symlinks: header.follow_symlinks,
        }
    }

    /// Finds the image that a row of `file` names by `path`. Returns its size; 0 if there is none.
    fn find(&mut self, file: &SourceFile, path: &str) -> Result<u64> {
        let name = name_of(file, path);
        if let Some(known) = self.names.get(&name) {
            return Ok(self.bytes(known));
        }
        let named = match self.resolve(file, path)? {
            (_, Some(reject)) => NamedFile::Missing(reject),
            (image, None) => NamedFile::Found(self.add(file, image)),
        };
        let bytes = self.bytes(&named);
        self.names.insert(name, named);
        Ok(bytes)
    }

    fn bytes(&self, named: &NamedFile) -> u64 {
        match named {
            NamedFile::Found(at) => {
                at.checked_sub(self.first).and_then(|at| self.sizes.get(at)).copied().unwrap_or_default()
            }
            NamedFile::Missing(_) => 0,
        }
    }

    fn resolve(&mut self, file: &SourceFile, path: &str) -> Result<(SourceFile, Option<Reject>)> {
        if self.is_remote || file.member.is_some() {
            let message = "paths of images are read only beside files that are local and not in an archive";
            let nothing = SourceFile::nothing(PathBuf::new(), String::new());
            return Ok((nothing, Some(Reject::new(RejectCode::Unsupported, message))));
        }
        let resolver = match self.resolvers.entry(file.source) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let root = self.roots.get(file.source as usize).ok_or_else(not_in_list)?;
                new.insert(Resolver::new(root, self.follow_symlinks)?)
            }
        };
        let folder = file.relative.parent().unwrap_or(Path::new(""));
        // An absolute path replaces the folder.
        resolver.resolve(folder.join(path).as_os_str().as_bytes())
    }

    /// Adds a file to the plan, and returns its ordinal.
    fn add(&mut self, file: &SourceFile, image: SourceFile) -> usize {
        match self.found.entry((file.source, image.relative.clone())) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.sizes.push(image.bytes);
                if self.is_walked && !file.is_named() {
                    self.skipped.remove(&image.origin);
                }
                self.files.push(&SourceFile { source: file.source, ..image });
                *new.insert(self.files.len() - 1)
            }
        }
    }
}

/// Returns the folders that paths stay inside, one per source.
fn roots(job: &TextJob) -> Vec<SourceSpec> {
    let mut roots = job.header.sources.clone();
    for file in &job.files {
        if let Some(root) = root_of(&file, &job.header.sources)
            && let Some(source) = roots.get_mut(file.source as usize)
        {
            source.path = root;
        }
    }
    roots
}

/// Reads the image that a row of `file` names by `path`.
///
/// # Errors
///
/// [`Broken::Damaged`] if the path leads to no file that may be read; otherwise, if the file has changed or cannot be read.
pub(super) fn read(job: &TextJob, file: &SourceFile, path: &str) -> Result<Vec<u8>, Broken> {
    let named = job.conversion.multimodal.as_ref().and_then(|m| m.named.0.get(&name_of(file, path)));
    let ordinal = match named {
        Some(NamedFile::Found(ordinal)) => *ordinal,
        Some(NamedFile::Missing(reject)) => return Err(reject.clone().into()),
        None => {
            return Err(Reject::new(
                RejectCode::MissingFile,
                "the image was not named when the run was planned",
            )
            .into());
        }
    };
    let image = job.file(ordinal)?;
    let root = root_of(file, &job.header.sources).ok_or_else(not_in_list)?;
    let planned = PlannedFile {
        path: ObjectUrl::file_below(&root, &image.relative),
        bytes: image.bytes,
        modified_ns: image.modified_ns,
        etag: image.etag.clone(),
        follow_symlinks: job.header.follow_symlinks,
    };
    Ok(planned.read()?)
}
