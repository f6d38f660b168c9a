//! The files of images that chats name. They are found when the run is planned, so that they are part of the plan.
//!
//! The files follow the files of the documents in the list of the plan. A path is relative to the folder of the file that names
//! it, and stays inside the source, as for the metadata of images.

use std::collections::HashMap;
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
use crate::source::list::file_list::not_in_list;
use crate::source::list::named_files::Resolver;
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
    let sources = job.header.sources.clone();
    let is_remote = is_remote(&sources);
    let mut resolvers: HashMap<u32, Resolver<'_>> = HashMap::new();
    let roots: Vec<SourceSpec> = roots(job)?;
    let (mut names, mut added) = (HashMap::new(), HashMap::new());
    let mut weights = Vec::with_capacity(job.conversion.sections.len());
    let (mut files, first) = (job.files.clone(), job.files.len());
    let mut sizes = Vec::new();
    let (context, mut out) = (job.item_context(), Outcomes::default());
    for section in &job.conversion.sections {
        let file = Arc::new(job.file(section.file)?);
        let mut reader = job.open_section(section, &file, None)?;
        let mut weight = 0u64;
        while let Some(mut block) = reader.next()? {
            while let Some(item) = block.items.next(&context, &mut out)? {
                let Ok(document) = item.document else { continue };
                // The run rejects what cannot be read.
                let Ok(chat) = chat_images::read(&document.text, &processor) else { continue };
                for image in chat.images {
                    let ImageValue::Path(path) = image else { continue };
                    let name = name_of(&file, &path);
                    if !names.contains_key(&name) {
                        let resolver = match resolvers.entry(file.source) {
                            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                            std::collections::hash_map::Entry::Vacant(entry) => {
                                let root = roots.get(file.source as usize).ok_or_else(not_in_list)?;
                                entry.insert(Resolver::new(root, job.header.follow_symlinks)?)
                            }
                        };
                        let found = match (is_remote, &file.member) {
                            (false, None) => resolver.resolve(place(&file, &path).as_os_str().as_bytes())?,
                            _ => {
                                let message = "paths of images are read only beside files that are local and not in an archive";
                                let nothing = SourceFile::nothing(PathBuf::new(), String::new());
                                (nothing, Some(Reject::new(RejectCode::Unsupported, message)))
                            }
                        };
                        let named = match found {
                            (_, Some(reject)) => NamedFile::Missing(reject),
                            (found, None) => {
                                let key = (file.source, found.relative.clone());
                                let ordinal = *added.entry(key).or_insert_with(|| {
                                    sizes.push(found.bytes);
                                    files.push(&SourceFile { source: file.source, ..found });
                                    files.len() - 1
                                });
                                NamedFile::Found(ordinal)
                            }
                        };
                        names.insert(name, named);
                    }
                    if let Some(NamedFile::Found(ordinal)) = names.get(&name) {
                        let bytes = ordinal.checked_sub(first).and_then(|at| sizes.get(at));
                        weight = weight.saturating_add(bytes.copied().unwrap_or_default());
                    }
                }
            }
        }
        weights.push(weight);
    }
    for (section, weight) in job.conversion.sections.iter_mut().zip(weights) {
        section.image_bytes = weight;
    }
    job.units = plan::group(&job.conversion.sections, job.header.unit_bytes);
    job.header.units = job.units.len() as u32;
    job.summary.units = job.header.units;
    job.header.files = files.len() as u64;
    (job.summary.files, job.summary.bytes) = (job.header.files, files.bytes());
    job.files = files;
    if let Some(multimodal) = &mut job.conversion.multimodal {
        multimodal.named = NamedImages(names);
    }
    Ok(())
}

/// Returns the folders that paths stay inside, one per source.
fn roots(job: &TextJob) -> Result<Vec<SourceSpec>> {
    let mut roots = job.header.sources.clone();
    for file in &job.files {
        if let Some(root) = root_of(&file, &job.header.sources)
            && let Some(source) = roots.get_mut(file.source as usize)
        {
            source.path = root;
        }
    }
    Ok(roots)
}

/// Returns a path of a row of `file`, relative to the source.
fn place(file: &SourceFile, path: &str) -> PathBuf {
    let folder = file.relative.parent().unwrap_or(Path::new(""));
    // An absolute path replaces the folder.
    folder.join(path)
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
