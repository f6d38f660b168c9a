//! Images: one item per file, found by a walk or named by a list.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::{Error, Result};
use crate::index::check_split_name;
use crate::options::{OutputOptions, RunOptions, SourceSpec};
use crate::pipeline::conversion::{Conversion, Converting, Feed};
use crate::pipeline::memory::MemoryLimit;
use crate::pipeline::outcome::{Converted, Outcome, Outcomes};
use crate::pipeline::plan::PlanSummary;
use crate::pipeline::progress::{Progress, Stop};
use crate::pipeline::run::{Job, Planned, Report, run};
use crate::sample::{Record, Reject, RejectCode, Value};
use crate::schema::{Field, Kind, LABEL, Schema};
use crate::source::files_from::FilesFrom;
use crate::source::labels::{Folders, Layout};
use crate::source::listing::Detail;
use crate::source::metadata::MetadataFile;
use crate::source::read_planned;
use crate::source::walk::{SourceFile, list};
use crate::transform::image::{self as transform, ImageOptions, ImageTransform, Scratch};

/// Files of one unit. With [`UNIT_BYTES`], a unit takes seconds for thumbnails and minutes for camera files.
const UNIT_FILES: usize = 16_384;
/// Default of `--unit-bytes`.
const UNIT_BYTES: u64 = 2 << 30;
/// Files of one task.
const TASK_FILES: usize = 8;
/// Source bytes of one task, unless one file alone has more.
const TASK_BYTES: u64 = 1 << 20;
/// Sets the permutation of `--shuffle` apart from the split hash, which has the same seed.
const SHUFFLE_SALT: u64 = 0x5348_5546_464c_4531;

/// What `dsconvert images` is told.
#[derive(Debug, Clone)]
pub struct ImagesOptions {
    /// Files and folders; the one folder that names are relative to, when files are named one by one.
    pub sources: Vec<SourceSpec>,
    /// How files are found.
    pub naming: Naming,
    /// Whether symbolic links are followed.
    pub follow_symlinks: bool,
    /// What the folders mean.
    pub layout: Layout,
    /// Class names in label order, instead of the sorted folder names.
    pub classes: Option<Vec<String>>,
    /// What becomes of the pixels.
    pub image: ImageOptions,
    /// What becomes of the records.
    pub output: OutputOptions,
}

/// How the files of the sources are found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Naming {
    /// The sources are walked.
    #[default]
    Walk,
    /// A list names them.
    FilesFrom(FilesFrom),
    /// The rows of a table name them.
    Metadata(MetadataFile),
}

/// A planned conversion of images.
pub struct ImagesJob {
    options: ImagesOptions,
    /// Semantic options as the manifest shows them.
    described: serde_json::Value,
    /// In record order.
    files: Vec<SourceFile>,
    /// One per file when files are named one by one, otherwise empty.
    details: Vec<Detail>,
    skipped: u64,
    folders: Folders,
    splits: Vec<String>,
    units: Vec<Range<usize>>,
    schema: Arc<Schema>,
    transform: ImageTransform,
}

impl ImagesJob {
    /// Lists the sources and divides them.
    ///
    /// # Errors
    ///
    /// Sources that are missing or cannot be listed; two files with one key; options that contradict each other.
    pub fn plan(options: ImagesOptions) -> Result<Self> {
        let transform = ImageTransform::new(options.image.clone())?;
        let found = find(&options)?;
        let folders = found.folders(&options)?;
        let described = describe(&options, found.content)?;
        let class_names = found.class_names.or_else(|| folders.class_names.clone());
        let schema = Arc::new(Schema::images(class_names, found.fields)?);
        let (mut files, mut details, skipped) = (found.files, found.details, found.skipped);
        let splits: Vec<String> = match &options.output.split {
            Some(_) if folders.layout == Layout::Splits => {
                return Err(Error::usage("the folders are splits already, and --split asks for others")
                    .help("leave --split out, or say --layout labels"));
            }
            Some(spec) => spec.names().map(str::to_owned).collect(),
            None => folders.splits.clone(),
        };
        for split in &splits {
            check_split_name(split)?;
        }
        if options.output.shuffle {
            shuffle(&mut files, &mut details, options.output.seed ^ SHUFFLE_SALT);
        }
        Ok(Self {
            described,
            units: divide(&files, UNIT_FILES, options.output.unit_bytes.unwrap_or(UNIT_BYTES)),
            skipped,
            options,
            files,
            details,
            folders,
            splits,
            schema,
            transform,
        })
    }

    fn split_of(&self, file: &SourceFile) -> u16 {
        let split = match &self.options.output.split {
            Some(spec) => spec.split_of(&file.origin, self.options.output.seed),
            None => self.folders.split_of(file),
        };
        split as u16
    }
}

/// What the sources hold.
#[derive(Default)]
struct Found {
    files: Vec<SourceFile>,
    /// One per file, or none at all.
    details: Vec<Detail>,
    skipped: u64,
    /// Fields that the details have values for.
    fields: Vec<Field>,
    /// The classes of the labels in the details.
    class_names: Option<Vec<String>>,
    /// Hash of what says all this, beside names.
    content: Option<u128>,
}

impl Found {
    /// What the folders mean. Labels of a table stand in for classes from folders.
    fn folders(&self, options: &ImagesOptions) -> Result<Folders> {
        // What has no safe path stands in no folder either.
        let placed = self.files.iter().filter(|f| self.details.is_empty() || !f.is_named());
        if self.class_names.is_none() {
            return Folders::of(placed, options.layout, options.classes.clone());
        }
        if options.layout == Layout::Labels {
            return Err(Error::usage(
                "the metadata has labels, and --layout labels asks for those of the folders",
            )
            .help("leave --layout out, or rename the column \"label\""));
        }
        let folders = Folders::of(placed.clone(), options.layout, None)?;
        let layout = if folders.layout == Layout::Splits { Layout::Splits } else { Layout::Flat };
        Folders::of(placed, layout, None)
    }
}

fn find(options: &ImagesOptions) -> Result<Found> {
    match &options.naming {
        Naming::Walk => {
            let listing = list(&options.sources, options.follow_symlinks, &|_| true)?;
            crate::pipeline::check_origins(&listing.files, &options.sources)?;
            Ok(Found { files: listing.files, skipped: listing.skipped, ..Found::default() })
        }
        Naming::FilesFrom(from) => {
            let (files, details) = from.list(one_folder(&options.sources)?, options.follow_symlinks)?;
            Ok(Found { files, details, ..Found::default() })
        }
        Naming::Metadata(table) => {
            let source = one_folder(&options.sources)?;
            let found = table.list(source, options.follow_symlinks, options.classes.as_deref())?;
            Ok(Found {
                files: found.files,
                details: found.details,
                skipped: 0,
                fields: found.fields,
                class_names: found.class_names,
                content: Some(found.content),
            })
        }
    }
}

/// The folder that names are relative to.
fn one_folder(sources: &[SourceSpec]) -> Result<&SourceSpec> {
    match sources {
        [one] => Ok(one),
        _ => Err(Error::usage(format!(
            "files that are named are relative to one folder, not to {}",
            sources.len()
        ))
        .help("name one SRC, or none")),
    }
}

/// Puts the files in an order that `seed` decides.
fn shuffle(files: &mut Vec<SourceFile>, details: &mut Vec<Detail>, seed: u64) {
    let detailed = !details.is_empty();
    let missing = files.len() - details.len();
    let all = std::mem::take(details).into_iter().chain(std::iter::repeat_n(Detail::default(), missing));
    let mut pairs: Vec<_> = std::mem::take(files).into_iter().zip(all).collect();
    pairs.sort_by_cached_key(|(f, _)| (xxh3_64_with_seed(f.origin.as_bytes(), seed), f.origin.clone()));
    (*files, *details) = pairs.into_iter().unzip();
    if !detailed {
        details.clear();
    }
}

/// The semantic options, by the names of their flags.
fn describe(options: &ImagesOptions, content: Option<u128>) -> Result<serde_json::Value> {
    let as_json = |value: serde_json::Result<serde_json::Value>| {
        value.map_err(|e| Error::usage("the options cannot be written as JSON").caused_by(e))
    };
    let mut described = json!({
        "layout": options.layout.to_string(),
        "classes": options.classes,
        "follow_symlinks": options.follow_symlinks,
        "image": as_json(serde_json::to_value(&options.image))?,
        "output": as_json(serde_json::to_value(&options.output))?,
    });
    match &options.naming {
        Naming::Walk => {}
        // What the list says stands in the plan, file by file.
        Naming::FilesFrom(_) => described["files_from"] = json!(true),
        Naming::Metadata(table) => {
            let keep = table
                .keep
                .as_ref()
                .map(|keep| keep.iter().map(|k| json!({ "name": k.name, "type": k.ty })).collect::<Vec<_>>());
            described["metadata"] = json!({
                "path_field": table.path_field,
                "keep_fields": keep,
                "content": content.map(|hash| format!("xxh3-128:{hash:032x}")),
            });
        }
    }
    Ok(described)
}

/// Cuts the listing into runs of at most `max_files` files and about `max_bytes` bytes.
fn divide(files: &[SourceFile], max_files: usize, max_bytes: u64) -> Vec<Range<usize>> {
    let mut units = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (i, file) in files.iter().enumerate() {
        if i > start && (i - start == max_files || bytes + file.bytes > max_bytes) {
            units.push(start..i);
            (start, bytes) = (i, 0);
        }
        bytes += file.bytes;
    }
    if start < files.len() {
        units.push(start..files.len());
    }
    units
}

impl Job for ImagesJob {
    fn summary(&self) -> PlanSummary {
        PlanSummary {
            kind: Kind::Images.name(),
            files: self.files.len() as u64,
            items: Some(self.files.len() as u64),
            bytes: self.files.iter().map(|f| f.bytes).sum(),
            skipped: self.skipped,
            units: self.units.len() as u32,
            splits: self.splits.clone(),
            classes: self.schema.index_of(LABEL).map(|_| self.schema.class_names.len()),
        }
    }

    fn run(&self, options: &RunOptions, progress: &Progress, stop: &Stop) -> Result<Report> {
        let planned = Planned {
            sources: &self.options.sources,
            walked: self.options.naming == Naming::Walk,
            files: &self.files,
            skipped: self.skipped,
            options: &self.described,
            output: &self.options.output,
            tokenizer: None,
            tokenizer_json: None,
        };
        // Half of the memory for pixels; the rest holds files, records and buffers of the writers.
        let pixels = MemoryLimit::new(options.memory_bytes / 2);
        run(planned, &Images { job: self, pixels }, options, progress, stop)
    }
}

/// The running conversion.
struct Images<'a> {
    job: &'a ImagesJob,
    pixels: MemoryLimit,
}

impl Conversion for Images<'_> {
    type Task = Range<usize>;
    type Scratch = Scratch;

    fn units(&self) -> u32 {
        self.job.units.len() as u32
    }

    fn splits(&self) -> &[String] {
        &self.job.splits
    }

    fn schema(&self) -> &Arc<Schema> {
        &self.job.schema
    }

    fn scratch(&self) -> Scratch {
        Scratch::new()
    }

    fn open(&self, unit: u32, _careful: bool) -> Result<Box<dyn Feed<Range<usize>> + '_>> {
        let range = self.job.units[unit as usize].clone();
        let tasks = divide(&self.job.files[range.clone()], TASK_FILES, TASK_BYTES);
        Ok(Box::new(FileFeed {
            files: &self.job.files[range.clone()],
            start: range.start,
            tasks: tasks.into_iter(),
        }))
    }

    fn convert(&self, task: Range<usize>, scratch: &mut Scratch, out: &mut Outcomes) -> Result<Converting> {
        for (ordinal, file) in task.clone().zip(&self.job.files[task]) {
            let detail = self.job.details.get(ordinal);
            if let Some(defect) = detail.and_then(|d| d.defect.as_deref()) {
                let (split, origin) = (self.job.split_of(file), file.origin.clone());
                out.list.push(Outcome::Rejected { split, origin, reject: defect.clone() });
                continue;
            }
            let bytes = Bytes::from(read_planned(&file.path(&self.job.options.sources), file.bytes)?);
            out.read(&bytes);
            out.source_bytes += file.bytes;
            let name = file.path(&self.job.options.sources);
            let name = name.file_name().map(crate::source::portable_name).unwrap_or_default();
            // What is named one by one is an item, whatever it is.
            if detail.is_none()
                && transform::sniff(&bytes).is_none()
                && !transform::has_image_extension(&name)
            {
                out.skipped += 1;
                continue;
            }
            let split = self.job.split_of(file);
            let outcome = match self.image(file, detail, split, &bytes, scratch, out) {
                Ok(outcome) => outcome,
                Err(reject) => Outcome::Rejected { split, origin: file.origin.clone(), reject },
            };
            out.list.push(outcome);
        }
        Ok(Converting::Done)
    }
}

impl Images<'_> {
    fn image(
        &self,
        file: &SourceFile,
        detail: Option<&Detail>,
        split: u16,
        bytes: &Bytes,
        scratch: &mut Scratch,
        out: &mut Outcomes,
    ) -> Result<Outcome, Reject> {
        let label = match self.job.folders.label_of(file) {
            Some((class, None)) => {
                return Err(Reject::new(
                    RejectCode::UnknownLabel,
                    format!("the class {class:?} is not in the list of classes"),
                ));
            }
            Some((_, Some(label))) => Value::Int(i64::from(label)),
            None => detail.and_then(|d| d.label).map_or(Value::Null, |label| Value::Int(i64::from(label))),
        };
        let header = self.job.transform.peek(bytes)?;
        let converted = {
            let _permit = self.pixels.acquire(header.memory_bytes);
            self.job.transform.convert(bytes, scratch)?
        };
        let image = match converted {
            transform::Outcome::Filtered(reason) => {
                return Ok(Outcome::Filtered {
                    split,
                    origin: file.origin.clone(),
                    reason: reason.name().to_owned(),
                });
            }
            transform::Outcome::Converted(image) => image,
        };
        if image.passthrough {
            out.note("passed_through");
        }
        if image.lenient {
            out.note("damaged_kept");
        }
        let (width, height) = (image.width, image.height);
        let mut values = vec![
            Value::Text(file.origin.as_str().into()),
            Value::Bytes(image.bytes),
            Value::UInt(u64::from(width)),
            Value::UInt(u64::from(height)),
        ];
        if self.job.schema.index_of(LABEL).is_some() {
            values.push(label);
        }
        values.push(Value::Text(file.origin.as_str().into()));
        values.extend(detail.into_iter().flat_map(|d| d.values.iter().cloned()));
        let mut converted = Converted::new(split, Record { values }, u64::from(width) * u64::from(height));
        (converted.width, converted.height) = (width, height);
        Ok(Outcome::Converted(converted))
    }
}

/// Groups of files.
struct FileFeed<'a> {
    files: &'a [SourceFile],
    /// Where `files` starts in the listing.
    start: usize,
    tasks: std::vec::IntoIter<Range<usize>>,
}

impl FileFeed<'_> {
    /// Bytes that the task holds: its files, and about as much again for the records.
    fn bytes(&self, task: &Range<usize>) -> u64 {
        self.files[task.clone()].iter().map(|f| f.bytes).sum::<u64>() * 2
    }
}

impl Feed<Range<usize>> for FileFeed<'_> {
    fn next_bytes(&self) -> u64 {
        self.tasks.as_slice().first().map_or(0, |task| self.bytes(task))
    }

    fn next(&mut self) -> Result<Option<(Range<usize>, u64)>> {
        Ok(self.tasks.next().map(|task| {
            let bytes = self.bytes(&task);
            (self.start + task.start..self.start + task.end, bytes)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_cover_the_listing_and_respect_both_limits() {
        let files: Vec<_> = [5, 1, 1, 1, 9, 1]
            .into_iter()
            .map(|bytes| SourceFile {
                source: 0,
                relative: "x".into(),
                origin: "x".into(),
                bytes,
                modified_ns: 0,
            })
            .collect();
        assert_eq!(divide(&files, 3, 6), [0..2, 2..4, 4..5, 5..6]);
        assert_eq!(divide(&files, 2, 100), [0..2, 2..4, 4..6]);
        assert!(divide(&[], 2, 100).is_empty());
    }
}
