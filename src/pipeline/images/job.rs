//! The plan of a conversion of images: its files, units, schema and keys.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use dsconvert_writer::outcome::Outcomes;
use dsconvert_writer::stage::Stages;
use dsconvert_writer::stop::Stop;
use dsconvert_writer::workers::Workers;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::conversion::{ImageConversion, ImagesJob};
use super::convert::ImageWorker;
use super::feed::ImageTask;
use super::find::{find, metadata_help};
use super::found::is_damage;
use super::no_labels::no_labels;
use super::options::ImagesOptions;
use super::repeats::Repeats;
use super::sources::files::{DuplicateFiles, divide};
use crate::error::{Error, Result};
use crate::foreign::{self, ForeignFormat};
use crate::format::check_schema;
use crate::options::check_sources;
use crate::pipeline::exclude::OpenedExclusion;
use crate::pipeline::job::{Conversion, Converting, EngineUse, Feed, Job};
use crate::pipeline::job_file::{JobHeader, JobReader, JobWriter};
use crate::pipeline::memory::{MemoryPool, Shares};
use crate::pipeline::plan_summary::PlanSummary;
use crate::pipeline::shuffle::output_stages;
use crate::pipeline::source_checks::split_names;
use crate::pipeline::split_group::check_type;
use crate::printable::printable_path;
use crate::recipe::ImageFields;
use crate::schema::{
    CROP_TOP_LEFT, Field, FieldType, Kind, LABEL, ORIGINAL_SIZE, RESIZED_SIZE, Schema, TARGET_SIZE,
};
use crate::source::io::planned::begins_as_any_image;
use crate::source::items::metadata::labels::Labels;
use crate::source::items::text::kind::FileKind;
use crate::source::list::detail::Detail;
use crate::source::list::file_list::FileList;
use crate::source::list::skipped::SkippedTypes;
use crate::source::list::source_file::SourceFile;
use crate::source::list::{braces, globs};
use crate::source::names::labels::class_ordinals;
use crate::transform::image::{BucketCounts, ImageTransform, has_image_extension};

/// Maximum number of files per unit. With [`UNIT_BYTES`], a unit takes seconds for thumbnails and minutes for camera
/// files.
pub(super) const UNIT_FILES: usize = 16_384;
/// Default of `--unit-bytes`.
const UNIT_BYTES: u64 = 2 << 30;
/// The fields of bucketed images, which come last, in the order of their values.
const BUCKET_FIELDS: [&str; 4] = [ORIGINAL_SIZE, RESIZED_SIZE, CROP_TOP_LEFT, TARGET_SIZE];
/// Decorrelates the permutation of `--shuffle` from the split hash, which has the same seed.
const SHUFFLE_SALT: u64 = 0x5348_5546_464c_4531;

/// Refuses a field that does not decide the split. `fields` are those with values of their own.
fn check_group(name: &str, fields: &[Field]) -> Result<()> {
    if let Some(field) = fields.iter().find(|field| field.name == name) {
        return check_type(name, field.ty);
    }
    let known: Vec<_> = fields.iter().map(|field| format!("{:?}", field.name)).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(Error::usage(format!("the records have no field {name:?}; there are {known}"))
        .of_option("split_by")
        .help("name a column of `metadata`, or a member or column that is kept"))
}

/// Returns whether the match `name` of a pattern may be or hold images: everything but text.
fn may_be_images(name: &str) -> bool {
    FileKind::of_named(name).is_none_or(|kind| kind.format.is_table())
}

impl Conversion for ImageConversion {
    type Options = ImagesOptions;
    type Task = ImageTask;
    type Scratch = ImageWorker;
    type Duplicates = DuplicateFiles;

    fn plan(mut options: ImagesOptions) -> Result<ImagesJob> {
        check_sources(&options.sources)?;
        options.recipe.check()?;
        options.sources = braces::expand(&options.sources)?;
        let mut skipped = SkippedTypes::default();
        if options.input.walks() {
            let matches = globs::expand(&options.sources, &may_be_images)?;
            (options.sources, skipped) = (matches.sources, matches.skipped);
            let paths = options.sources.iter().map(|source| &*source.path);
            let paths = paths.filter(|path| !has_image_extension(&path.to_string_lossy()));
            foreign::refuse(paths, ForeignFormat::may_hold_images)?;
        }
        if let Some(classes) = &options.recipe.classes {
            class_ordinals(classes)?;
        }
        let transform = ImageTransform::new(options.recipe.image.clone())?;
        let by_content = options.recipe.dedup.is_some();
        let exclude = OpenedExclusion::open(&options.exclude, Kind::Images, by_content)?;
        let mut found = find(&options)?;
        found.skipped.extend(&skipped);
        let items = found.items(&options);
        let mut folders = found.folders(&items, &options)?;
        // Files that are not named like images may still be items.
        let probable = items.iter().count() + found.files.iter().filter(is_damage).count();
        let split_files = options.recipe.output.split.is_none().then(|| folders.splits.count(items.iter()));
        let repeats =
            Repeats::find(&mut folders, &mut found.fields, found.roles.fields.len(), options.recipe.layout);
        let (images, members) = (found.roles.listed(), &found.described_members);
        let described = options.described(found.content, images, &found.sidecars, members, exclude.fact())?;
        exclude.check(&described)?;
        if let (ImageFields::Listed(fields), false) =
            (&options.recipe.image_fields, found.containers.kind().is_some())
        {
            let members = fields.iter().map(|f| f.member.as_str()).collect::<Vec<_>>().join(", ");
            let what = format!(
                "`image_fields` lists members of samples or columns ({members}), but no source is a tar file, a \
                 TFRecord file, or a Parquet or Arrow file with such a column of images"
            );
            return Err(Error::usage(what).help("leave out `image_fields`"));
        }
        if options.recipe.keep_fields.is_some() && found.containers.kind().is_none() {
            let what = "`keep_fields` lists members of samples or columns, but no source is a tar file, a TFRecord file, or a \
                        Parquet or Arrow file with images";
            return Err(Error::usage(what).help(
                "leave out `keep_fields`; it also chooses columns of a table that `metadata FILE` names, and none of those \
                 that `metadata none` ignores",
            ));
        }
        if !options.recipe.list_fields.is_empty() && found.tables.is_empty() {
            let what = "`list_fields` lists columns of a table, but no table describes the images";
            return Err(Error::usage(what).help("give the table with `metadata`, or leave out `list_fields`"));
        }
        if options.recipe.label_field.is_some()
            && found.tables.is_empty()
            && !found.containers.have_label_field()
        {
            let what =
                "`label_field` names a column of a table, but no table describes or contains the images";
            return Err(Error::usage(what).help("give the table with `metadata`, or leave out `label_field`"));
        }
        let ImagesOptions { sources, input, annotations: _, exclude: _, recipe } = options;
        if let Some(name) = &recipe.split_by {
            check_group(name, &found.fields[..found.fields.len() - found.roles.fields.len()])?;
        }
        let class_names = found.class_names.take().or_else(|| folders.class_names.clone());
        let values = found.fields.len() - found.roles.fields.len();
        let fields: Vec<String> = found.fields[..values].iter().map(|field| field.name.clone()).collect();
        let has_labels = class_names.is_some() || !found.box_classes.is_empty();
        let mut summary = PlanSummary {
            no_labels: (!has_labels).then(|| no_labels(&found, &recipe, &sources, &fields)),
            metadata: found.tables,
            fields,
            sidecars: found.sidecars,
            image_fields: found
                .roles
                .fields
                .iter()
                .map(|f| format!("{} ({})", f.name, f.ty.name()))
                .collect(),
            main_image: found.roles.main.clone(),
            left_out: found.left_out,
            dedup: by_content,
            exclude: exclude.summary(),
            warnings: std::mem::take(&mut folders.warnings),
            split_files,
            ..PlanSummary::default()
        };
        if recipe.image.buckets.is_some() {
            found.fields.extend(BUCKET_FIELDS.map(|name| Field::required(name, FieldType::Int32Pair)));
        }
        let schema = Schema::images(class_names, found.fields);
        let mut schema = if found.metadata_by_walk { schema.map_err(metadata_help)? } else { schema? };
        if schema.boxes_field().is_some() && schema.index_of(LABEL).is_none() {
            schema.class_names = found.box_classes;
        }
        check_schema(recipe.output.format, &Arc::new(schema.clone()))?;
        let has_classes = schema.index_of(LABEL).is_some() || !schema.class_names.is_empty();
        summary.classes = has_classes.then(|| schema.class_names.clone());
        let (mut files, mut details) = (found.files, found.details);
        let splits = split_names(&recipe.output, &folders.splits, "labels")?;
        if recipe.output.shuffle {
            shuffle(&mut files, &mut details, recipe.output.seed ^ SHUFFLE_SALT);
        }
        let header = JobHeader {
            options: described,
            output: recipe.output.clone(),
            sources,
            walked: input.walks(),
            follow_symlinks: recipe.follow_symlinks,
            skipped: found.skipped,
            unit_bytes: recipe.output.unit_bytes.unwrap_or(UNIT_BYTES),
            unit_pieces: UNIT_FILES as u64,
            splits,
            exclude: exclude.stored(),
            ..JobHeader::new(schema)
        };
        let conversion = ImageConversion {
            classes: Labels::new(header.schema.class_names.clone(), found.labels_are_ordinals)?,
            transform,
            input,
            recipe,
            details,
            containers: found.containers,
            values,
            roles: found.roles,
            file_fields: found.file_fields,
            repeats,
            folders,
        };
        let is_container = |file: &SourceFile| conversion.containers.hold(file, &header.sources);
        let units = divide(files.iter(), UNIT_FILES, header.unit_bytes, is_container);
        if !files.iter().any(|file| is_container(&file)) {
            summary.items = Some(probable as u64);
        }
        let named_splits = conversion.folders.splits.clone();
        let mut job = Job::new(header, files, units, named_splits, summary, conversion);
        job.check_sample_keys()?;
        let is_part = |file: &SourceFile| file.member.is_some() || job.is_container(file);
        if job.summary.dedup && job.files.iter().any(|file| is_part(&file)) {
            let message = "`dedup` compares whole files, not the contents of tar, Parquet, Arrow, TFRecord or zip files";
            return Err(Error::usage(message).help("leave out `dedup`, or unpack the files"));
        }
        job.decide_buckets()?;
        Ok(job)
    }

    fn write(&self, file: &mut JobWriter) -> Result<()> {
        file.line(self)?;
        file.list(&self.details)
    }

    fn read(_: Option<Vec<u8>>, file: &mut JobReader) -> Result<Self> {
        let conversion: Self = file.line()?;
        conversion.transform.check_features()?;
        Ok(Self { details: file.list()?, ..conversion })
    }

    fn files_of(&self, unit: Range<usize>) -> BTreeSet<usize> {
        unit.collect()
    }

    fn duplicates(
        job: &ImagesJob,
        work: &Path,
        workers: &Workers,
        _: &MemoryPool,
        stop: &Stop,
    ) -> Result<DuplicateFiles> {
        match job.conversion.recipe.dedup {
            Some(_) => job.find_duplicates(work, workers, stop),
            None => Ok(DuplicateFiles::new()),
        }
    }

    fn feed<'a>(
        job: &'a ImagesJob,
        duplicates: &'a DuplicateFiles,
        unit: u32,
        _: EngineUse,
    ) -> Result<Box<dyn Feed<ImageTask> + 'a>> {
        job.feed(job.units[unit as usize].clone(), Some(duplicates))
    }

    fn scratch(_: &ImagesJob, memory: &Shares) -> ImageWorker {
        ImageWorker::new(memory)
    }

    fn convert(
        job: &ImagesJob,
        task: ImageTask,
        worker: &mut ImageWorker,
        out: &mut Outcomes,
    ) -> Result<Converting> {
        match task {
            ImageTask::Files(task) => job.convert_files(task, worker, out)?,
            ImageTask::Container(task) => job.convert_items(task, worker, out),
        }
        Ok(Converting::Done)
    }

    fn stages(job: &ImagesJob, work: &Path) -> Stages {
        output_stages(&job.header.output, work)
    }

    fn buckets(job: &ImagesJob) -> Result<Option<BucketCounts>> {
        job.bucket_counts()
    }
}

/// Shuffles the items, as determined by `seed`. Each keeps the files of its fields.
fn shuffle(files: &mut FileList, details: &mut Vec<Detail>, seed: u64) {
    let detailed = !details.is_empty();
    let missing = files.len() - details.len();
    let all = std::mem::take(details).into_iter().chain(std::iter::repeat_n(Detail::default(), missing));
    let mut items: Vec<Vec<(SourceFile, Detail)>> = Vec::new();
    for (file, detail) in std::mem::take(files).iter().zip(all) {
        match items.last_mut().filter(|_| file.of_field.is_some()) {
            Some(item) => item.push((file, detail)),
            None => items.push(vec![(file, detail)]),
        }
    }
    items.sort_by_cached_key(|item| {
        let origin = item.first().map(|(file, _)| file.origin.clone()).unwrap_or_default();
        (xxh3_64_with_seed(origin.as_bytes(), seed), origin)
    });
    (*files, *details) = items.into_iter().flatten().unzip();
    if !detailed {
        details.clear();
    }
}

/// Separator between the origin of a file and the name of an item in it.
const SEPARATOR: char = '#';

impl ImagesJob {
    /// Refuses two items that may have the same key because one of them is in a container. The names of samples are not
    /// known when a run is planned, so every file is refused that has the key of a possible sample.
    pub(super) fn check_sample_keys(&self) -> Result<()> {
        let containers: HashSet<String> = self
            .files
            .iter()
            .filter(|file| self.is_container(file))
            .map(|file| file.origin.clone())
            .collect();
        if containers.is_empty() {
            return Ok(());
        }
        let has_separator = |file: &SourceFile| {
            file.member.is_none() && file.of_field.is_none() && file.origin.contains(SEPARATOR)
        };
        for file in self.files.iter().filter(has_separator) {
            let container = containers_of(&file.origin)
                .find(|(container, item)| containers.contains(*container) && self.may_share_key(&file, item));
            if let Some((container, _)) = container {
                return Err(self.repeated_key(&file, container));
            }
        }
        Ok(())
    }

    /// Returns whether the key of `file`, or of an item in it, may be the key of an item in another file, whose origin is
    /// followed by `item` in the origin of `file`.
    fn may_share_key(&self, file: &SourceFile, item: &str) -> bool {
        if self.is_container(file) {
            return true;
        }
        let kind = self.conversion.containers.kind();
        let is_name = kind.is_some_and(|kind| kind.may_name_item(item));
        // Without an extension, only the content shows whether it is an image. A file that cannot be read may be one.
        is_name && begins_as_any_image(&self.planned(file)).unwrap_or(true)
    }

    fn repeated_key(&self, file: &SourceFile, container: &str) -> Error {
        let sources = &self.header.sources;
        let path = |file: &SourceFile| printable_path(&file.path(sources));
        let container = self.files.iter().find(|file| file.origin == container);
        let container = container.map(|file| path(&file)).unwrap_or_default();
        let key = match self.is_container(file) {
            true => format!("keys that start with {:?}", format!("{}{SEPARATOR}", file.origin)),
            false => format!("the key {:?}", file.origin),
        };
        Error::usage(format!("{key} may occur twice: for {} and for an item in {container}", path(file)))
            .help("rename the file, or convert it separately: keys must be unique in a dataset")
    }
}

/// Returns the ways to divide `origin` into the origin of a container and the name of an item in it.
fn containers_of(origin: &str) -> impl Iterator<Item = (&str, &str)> {
    origin.match_indices(SEPARATOR).map(|(at, separator)| (&origin[..at], &origin[at + separator.len()..]))
}
