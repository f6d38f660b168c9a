//! Images: one item per file, found by a walk or named by a list.

mod find;
mod predict;
mod tars;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use self::find::{describe, find, shuffle, tables_help};
pub use self::predict::Prediction;
use self::tars::{TarFeed, TarTask};
use crate::error::{Error, Result};
use crate::options::{OutputOptions, RunOptions, SourceSpec, check_local_sources};
use crate::panics::contained;
use crate::pipeline::conversion::{Conversion, Converting, Feed};
use crate::pipeline::dedup::{Candidate, Dedup, duplicates};
use crate::pipeline::job_file::{JobHeader, JobReader, JobWriter, OpenedJob, StoredJob};
use crate::pipeline::memory::MemoryLimit;
use crate::pipeline::outcome::{Converted, Outcome, Outcomes};
use crate::pipeline::parts::store_plan;
use crate::pipeline::plan::PlanSummary;
use crate::pipeline::progress::{Progress, Stop};
use crate::pipeline::run::{Job, Report, run};
use crate::pipeline::splits_twice;
use crate::pipeline::testing::item_panic_point;
use crate::sample::{Record, Reject, RejectCode, Value};
use crate::schema::{Kind, LABEL, Schema};
use crate::source::PlannedFile;
use crate::source::braces;
use crate::source::files_from::FilesFrom;
use crate::source::labels::{Folders, Layout};
use crate::source::listing::Detail;
use crate::source::metadata::MetadataFile;
use crate::source::walk::{SourceFile, ending};
use crate::source::webdataset::is_tar;
use crate::threads;
use crate::transform::image::{self as transform, DEFAULT_KEPT_BYTES, ImageOptions, ImageTransform, Scratch};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

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
#[derive(Debug, Clone, Serialize, Deserialize)]
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
    /// How images are decoded, changed and encoded.
    pub image: ImageOptions,
    /// What makes an item a duplicate, which is left out.
    pub dedup: Option<Dedup>,
    /// How the records are stored.
    pub output: OutputOptions,
}

/// How the files of the sources are found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Naming {
    /// The sources are walked. Where `metadata.csv`, `.jsonl` or `.parquet` files are beside images, their rows name the
    /// items, as in `ImageFolder` of Hugging Face `datasets`.
    #[default]
    Walk,
    /// The sources are walked, and metadata files are ignored.
    WalkOnly,
    /// A list names them.
    FilesFrom(FilesFrom),
    /// The rows of a table name them.
    Metadata(MetadataFile),
}

impl Naming {
    /// Whether the sources are walked, so that the output must lie apart from them.
    pub fn walks(&self) -> bool {
        matches!(self, Self::Walk | Self::WalkOnly)
    }
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
    /// Whether the files are those of a walk, and not named by a list or by rows.
    walked: bool,
    skipped: u64,
    /// Metadata files whose rows name the items.
    tables: Vec<PathBuf>,
    folders: Folders,
    splits: Vec<String>,
    units: Vec<Range<usize>>,
    schema: Arc<Schema>,
    /// Fields after those that every dataset of images has.
    extra_fields: usize,
    transform: ImageTransform,
}

impl ImagesJob {
    /// Lists the sources and divides them.
    ///
    /// # Errors
    ///
    /// Sources that are missing or cannot be listed; two files with one key; options that contradict each other.
    pub fn plan(mut options: ImagesOptions) -> Result<Self> {
        check_local_sources(&options.sources)?;
        options.sources = braces::expand(&options.sources)?;
        let transform = ImageTransform::new(options.image.clone())?;
        let found = find(&options)?;
        let folders = found.folders(&options)?;
        let described = describe(&options, found.content)?;
        let class_names = found.class_names.or_else(|| folders.class_names.clone());
        let extra_fields = found.fields.len();
        let schema = Schema::images(class_names, found.fields);
        let schema = Arc::new(if found.by_itself { schema.map_err(tables_help)? } else { schema? });
        let (mut files, mut details, skipped) = (found.files, found.details, found.skipped);
        let splits: Vec<String> = match &options.output.split {
            Some(_) if folders.splits.are_given() => return Err(splits_twice(&folders.splits, "labels")),
            Some(spec) => spec.names().map(str::to_owned).collect(),
            None => folders.splits.names.clone(),
        };
        let walked = found.walked;
        if options.dedup.is_some() && walked && files.iter().any(|f| is_tar(&f.origin)) {
            return Err(Error::usage("--dedup compares files, and cannot look into tar files")
                .help("leave --dedup out, or unpack the tar files"));
        }
        if options.output.shuffle {
            shuffle(&mut files, &mut details, options.output.seed ^ SHUFFLE_SALT);
        }
        Ok(Self {
            described,
            units: divide(&files, UNIT_FILES, unit_bytes(&options.output), |f| walked && is_tar(&f.origin)),
            skipped,
            tables: found.tables,
            walked,
            options,
            files,
            details,
            folders,
            splits,
            schema,
            extra_fields,
            transform,
        })
    }

    /// Number of files by what their names end with.
    fn file_types(&self) -> BTreeMap<String, u64> {
        let mut types = BTreeMap::new();
        for file in &self.files {
            *types.entry(ending(&file.origin)).or_default() += 1;
        }
        types
    }

    /// Whether the file is read as a tar file; one that is named as an image is not.
    fn is_tar(&self, file: &SourceFile) -> bool {
        self.walked && is_tar(&file.origin)
    }

    fn planned(&self, file: &SourceFile) -> PlannedFile {
        file.planned(&self.options.sources, self.options.follow_symlinks)
    }

    fn split_of(&self, file: &SourceFile) -> u16 {
        self.split_of_item(file, &file.origin)
    }

    /// Split of the item called `origin` in `file`.
    fn split_of_item(&self, file: &SourceFile, origin: &str) -> u16 {
        let split = match &self.options.output.split {
            Some(spec) => spec.split_of(origin, self.options.output.seed),
            None => self.folders.splits.of(file),
        };
        split as u16
    }
}

/// Source bytes at which a unit is full.
fn unit_bytes(output: &OutputOptions) -> u64 {
    output.unit_bytes.unwrap_or(UNIT_BYTES)
}

/// Cuts the listing into runs of at most `max_files` files and about `max_bytes` bytes; some files stand alone.
fn divide(
    files: &[SourceFile],
    max_files: usize,
    max_bytes: u64,
    alone: impl Fn(&SourceFile) -> bool,
) -> Vec<Range<usize>> {
    let mut units = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (i, file) in files.iter().enumerate() {
        let apart = i > start && (alone(file) || alone(&files[i - 1]));
        if i > start && (apart || i - start == max_files || bytes + file.bytes > max_bytes) {
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
            items: (!self.files.iter().any(|f| self.is_tar(f))).then_some(self.files.len() as u64),
            bytes: self.files.iter().map(|f| f.bytes).sum(),
            skipped: self.skipped,
            units: self.units.len() as u32,
            splits: self.splits.clone(),
            split_by: self.options.output.split.is_none().then_some(self.folders.splits.by),
            split_files: self.options.output.split.is_none().then(|| {
                let mut counts = vec![0; self.splits.len()];
                self.files.iter().for_each(|f| counts[usize::from(self.split_of(f))] += 1);
                counts
            }),
            classes: self.schema.index_of(LABEL).map(|_| self.schema.class_names.clone()),
            metadata: self.tables.clone(),
            fields: {
                let fields = self.schema.fields.iter().rev().take(self.extra_fields).rev();
                fields.map(|field| field.name.clone()).collect()
            },
            warnings: self.folders.warnings.clone(),
        }
    }

    fn run(&self, options: &RunOptions, progress: &Progress, stop: &Stop) -> Result<Report> {
        run(self, &Images::new(self, options), options, progress, stop)
    }

    fn store(&self, options: &RunOptions, progress: &Progress, stop: &Stop) -> Result<u32> {
        store_plan(self, &Images::new(self, options), options, progress, stop)
    }
}

/// What a stored job holds beside its header and listing.
#[derive(Serialize, Deserialize)]
struct StoredImages<'a> {
    options: Cow<'a, ImagesOptions>,
    folders: Cow<'a, Folders>,
    units: Cow<'a, [Range<usize>]>,
    extra_fields: usize,
    /// Number of lines with [`Detail`]s that follow.
    details: usize,
}

impl StoredJob for ImagesJob {
    fn header(&self) -> Result<JobHeader> {
        Ok(JobHeader {
            dsconvert: env!("CARGO_PKG_VERSION").to_owned(),
            plan: String::new(),
            kind: Kind::Images,
            options: self.described.clone(),
            output: self.options.output.clone(),
            sources: self.options.sources.clone(),
            walked: self.options.naming.walks(),
            files: self.files.len() as u64,
            skipped: self.skipped,
            skipped_types: self.file_types(),
            units: self.units.len() as u32,
            unit_bytes: unit_bytes(&self.options.output),
            unit_pieces: UNIT_FILES as u64,
            pack: None,
            tokenizer: None,
            schema: Schema::clone(&self.schema),
            splits: self.splits.clone(),
        })
    }

    fn files(&self) -> &[SourceFile] {
        &self.files
    }

    fn tokenizer_json(&self) -> Option<&[u8]> {
        None
    }

    fn write(&self, file: &mut JobWriter) -> Result<()> {
        file.line(&StoredImages {
            options: Cow::Borrowed(&self.options),
            folders: Cow::Borrowed(&self.folders),
            units: Cow::Borrowed(&self.units),
            extra_fields: self.extra_fields,
            details: self.details.len(),
        })?;
        self.details.iter().try_for_each(|detail| file.line(detail))
    }

    fn read(opened: OpenedJob, file: &mut JobReader) -> Result<Self> {
        let OpenedJob { header, files, .. } = opened;
        let stored: StoredImages<'_> = file.line()?;
        let details = file.lines(stored.details)?;
        let options = ImagesOptions { sources: header.sources, ..stored.options.into_owned() };
        Ok(Self {
            transform: ImageTransform::new(options.image.clone())?,
            walked: options.naming.walks() && details.is_empty(),
            // Only the plan tells of them.
            tables: Vec::new(),
            options,
            described: header.options,
            files,
            details,
            skipped: header.skipped,
            folders: stored.folders.into_owned(),
            splits: header.splits,
            units: stored.units.into_owned(),
            schema: Arc::new(header.schema),
            extra_fields: stored.extra_fields,
        })
    }
}

/// A piece of work.
pub(in crate::pipeline) enum Task {
    /// Files, by ordinal.
    Files(Range<usize>),
    /// Samples of a tar file.
    Tar(TarTask),
}

/// An image with all that is known of it.
struct Item {
    origin: String,
    bytes: Bytes,
    label: Value,
    /// Values of the fields that not every dataset has.
    values: Vec<Value>,
}

/// The running conversion.
pub(super) struct Images<'a> {
    job: &'a ImagesJob,
    pixels: MemoryLimit,
    /// Bytes of buffers that a worker keeps from image to image.
    kept_bytes: usize,
    /// Ordinals of the files that are left out, and of those that stay instead.
    duplicates: OnceLock<BTreeMap<usize, usize>>,
}

impl Conversion for Images<'_> {
    type Task = Task;
    type Scratch = Scratch;

    fn scratch(&self, _idle: &Arc<AtomicUsize>) -> Scratch {
        Scratch::keeping(self.kept_bytes)
    }

    fn prepare(&self, work: &Path, threads: usize, stop: &Stop) -> Result<()> {
        let job = self.job;
        if job.options.dedup.is_some() {
            let whole = |ordinal: &usize| job.details.get(*ordinal).is_none_or(|d| d.defect.is_none());
            let candidate = |ordinal: usize| {
                let file = &job.files[ordinal];
                Candidate { planned: job.planned(file), ordinal }
            };
            let candidates = (0..job.files.len()).filter(whole).map(candidate).collect();
            let found = duplicates(candidates, work, threads, stop)?;
            self.duplicates.get_or_init(|| found);
        }
        Ok(())
    }

    fn open(&self, unit: u32, _careful: bool) -> Result<Box<dyn Feed<Task> + '_>> {
        let range = self.job.units[unit as usize].clone();
        if self.job.is_tar(&self.job.files[range.start]) {
            return Ok(Box::new(TarFeed::open(self.job, range.start)?));
        }
        let tasks = divide(&self.job.files[range.clone()], TASK_FILES, TASK_BYTES, |_| false);
        Ok(Box::new(FileFeed {
            files: &self.job.files[range.clone()],
            start: range.start,
            tasks: tasks.into_iter(),
        }))
    }

    fn convert(&self, task: Task, scratch: &mut Scratch, out: &mut Outcomes) -> Result<Converting> {
        match task {
            Task::Files(files) => self.files(files, scratch, out)?,
            Task::Tar(task) => self.tar(task, scratch, out),
        }
        Ok(Converting::Done)
    }
}

impl<'a> Images<'a> {
    /// Half of the memory is for images under way, a quarter for the buffers that workers keep; the scheduler has the
    /// rest for files and records.
    pub(super) fn new(job: &'a ImagesJob, run: &RunOptions) -> Self {
        let kept = run.memory_bytes / 4 / run.threads.max(1) as u64;
        Self {
            job,
            pixels: MemoryLimit::new(run.memory_bytes / 2),
            kept_bytes: kept.min(DEFAULT_KEPT_BYTES as u64) as usize,
            duplicates: OnceLock::new(),
        }
    }

    fn files(&self, task: Range<usize>, scratch: &mut Scratch, out: &mut Outcomes) -> Result<()> {
        for (ordinal, file) in task.clone().zip(&self.job.files[task]) {
            let detail = self.job.details.get(ordinal);
            if let Some(defect) = detail.and_then(|d| d.defect.as_deref()) {
                let (split, origin) = (self.job.split_of(file), file.origin.clone());
                out.list.push(Outcome::Rejected { split, origin, reject: defect.clone() });
                continue;
            }
            let planned = self.job.planned(file);
            let started = Instant::now();
            let bytes = Bytes::from(planned.read()?);
            out.read(&bytes);
            out.reading += started.elapsed();
            out.source_bytes += file.bytes;
            let name = planned.path.file_name().map(crate::source::portable_name).unwrap_or_default();
            // What is named one by one is an item, whatever it is.
            if detail.is_none()
                && transform::sniff(&bytes).is_none()
                && !transform::has_image_extension(&name)
            {
                out.skipped += 1;
                continue;
            }
            let split = self.job.split_of(file);
            if let Some(&first) = self.duplicates.get().and_then(|found| found.get(&ordinal)) {
                let (origin, of) = (file.origin.clone(), self.job.files[first].origin.clone());
                out.list.push(Outcome::Duplicate { split, origin, of });
                continue;
            }
            let outcome = match self.file(file, detail, split, &bytes, scratch, out) {
                Ok(outcome) => outcome,
                Err(reject) => Outcome::Rejected { split, origin: file.origin.clone(), reject },
            };
            out.list.push(outcome);
        }
        Ok(())
    }

    /// The outcome of a file.
    fn file(
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
        let values = match detail {
            Some(detail) => detail.values.to_vec(),
            // Fields that only samples from tar files have.
            None => vec![Value::Null; self.job.extra_fields],
        };
        let sample = Item { origin: file.origin.clone(), bytes: bytes.clone(), label, values };
        self.image(sample, split, scratch, out)
    }

    /// Converts a large image on a thread of its own. The allocator keeps for each thread what that thread has freed; so
    /// it keeps it for as many threads as there are large images under way, and not for every worker that ever met one.
    fn convert_apart(&self, bytes: &Bytes, scratch: &mut Scratch) -> Result<transform::Outcome, Reject> {
        let apart = std::thread::scope(|scope| {
            let convert = || self.job.transform.convert(bytes, scratch);
            let apart = threads::named("large image").spawn_scoped(scope, convert).ok()?;
            Some(apart.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        // Without a thread to spare, saving memory matters less than going on.
        apart.unwrap_or_else(|| self.job.transform.convert(bytes, scratch))
    }

    /// The outcome of an image with all that is known of it.
    fn image(
        &self,
        sample: Item,
        split: u16,
        scratch: &mut Scratch,
        out: &mut Outcomes,
    ) -> Result<Outcome, Reject> {
        let Item { origin, bytes, label, values: extra } = sample;
        let bytes = &bytes;
        contained(|| {
            item_panic_point(&origin);
            Ok(())
        })?;
        let header = self.job.transform.peek(bytes)?;
        let converted = {
            let _permit = self.pixels.acquire(header.memory_bytes);
            if header.memory_bytes > self.kept_bytes as u64 {
                self.convert_apart(bytes, scratch)?
            } else {
                self.job.transform.convert(bytes, scratch)?
            }
        };
        let image = match converted {
            transform::Outcome::Filtered(reason) => {
                return Ok(Outcome::Filtered { split, origin, reason: reason.name().to_owned() });
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
            Value::Text(origin.as_str().into()),
            Value::Bytes(image.bytes),
            Value::UInt(u64::from(width)),
            Value::UInt(u64::from(height)),
        ];
        if self.job.schema.index_of(LABEL).is_some() {
            values.push(label);
        }
        values.push(Value::Text(origin.as_str().into()));
        values.extend(extra);
        let mut converted = Converted::new(split, Record { values }, u64::from(width) * u64::from(height));
        (converted.width, converted.height) = (width, height);
        converted.check_size()?;
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

impl Feed<Task> for FileFeed<'_> {
    fn next_bytes(&self) -> u64 {
        self.tasks.as_slice().first().map_or(0, |task| self.bytes(task))
    }

    fn next(&mut self) -> Result<Option<(Task, u64)>> {
        Ok(self.tasks.next().map(|task| {
            let bytes = self.bytes(&task);
            (Task::Files(self.start + task.start..self.start + task.end), bytes)
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
        assert_eq!(divide(&files, 3, 6, |_| false), [0..2, 2..4, 4..5, 5..6]);
        assert_eq!(divide(&files, 2, 100, |_| false), [0..2, 2..4, 4..6]);
        assert_eq!(divide(&files, 9, 100, |f| f.bytes > 4), [0..1, 1..4, 4..5, 5..6]);
        assert!(divide(&[], 2, 100, |_| false).is_empty());
    }
}
