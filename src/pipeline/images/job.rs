//! The plan of a conversion of images: its files, units, schema and keys.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::convert::ImageWorker;
use super::feed::{DuplicateFiles, ImageTask, divide};
use super::find::{find, is_damage, metadata_help};
use super::image_field_names::MemberField;
use super::image_fields::ImageRoles;
use super::no_labels::no_labels;
use super::options::{ImageInput, ImagesOptions};
use super::sidecars::FileField;
use crate::error::{Error, Result};
use crate::foreign;
use crate::format::check_schema;
use crate::options::{SourceSpec, check_sources, is_remote};
use crate::pipeline::exclude::OpenedExclusion;
use crate::pipeline::job::{Conversion, Converting, EngineUse, Feed, Job};
use crate::pipeline::job_file::{JobHeader, JobReader, JobWriter};
use crate::pipeline::memory::{MemoryPool, Shares};
use crate::pipeline::outcome::Outcomes;
use crate::pipeline::plan::PlanSummary;
use crate::pipeline::predict::{Prediction, SampleRun};
use crate::pipeline::shuffle::output_stages;
use crate::pipeline::source_checks::split_names;
use crate::pipeline::stage::Stages;
use crate::pipeline::stop::Stop;
use crate::pipeline::workers::Workers;
use crate::printable::printable_path;
use crate::recipe::{ImageFields, ImagesRecipe};
use crate::sample::Value;
use crate::schema::{
    CROP_TOP_LEFT, Field, FieldType, Kind, LABEL, ORIGINAL_SIZE, RESIZED_SIZE, Schema, TARGET_SIZE,
};
use crate::source::io::opened::OpenedFile;
use crate::source::io::planned::begins_as_any_image;
use crate::source::items::box_fields::RowBoxesReader;
use crate::source::items::image_table::{TableImages, is_image_table};
use crate::source::items::metadata::labels::Labels;
use crate::source::items::text::kind::{FileKind, TextFormat};
use crate::source::list::detail::Detail;
use crate::source::list::file_list::FileList;
use crate::source::list::skipped::SkippedTypes;
use crate::source::list::source_file::SourceFile;
use crate::source::list::{braces, globs};
use crate::source::names::labels::{Folders, class_ordinals};
use crate::source::names::layout::FolderLayout;
use crate::transform::image::{BucketCounts, ImageTransform, has_image_extension};
use crate::warning::Warning;

/// Maximum number of files per unit. With [`UNIT_BYTES`], a unit takes seconds for thumbnails and minutes for camera
/// files.
pub(super) const UNIT_FILES: usize = 16_384;
/// Default of `--unit-bytes`.
const UNIT_BYTES: u64 = 2 << 30;
/// The fields of bucketed images, which come last, in the order of their values.
const BUCKET_FIELDS: [&str; 4] = [ORIGINAL_SIZE, RESIZED_SIZE, CROP_TOP_LEFT, TARGET_SIZE];
/// Decorrelates the permutation of `--shuffle` from the split hash, which has the same seed.
const SHUFFLE_SALT: u64 = 0x5348_5546_464c_4531;

/// A planned conversion of images.
pub type ImagesJob = Job<ImageConversion>;

/// What only a conversion of images needs of a plan.
#[derive(Serialize, Deserialize)]
pub struct ImageConversion {
    pub(super) input: ImageInput,
    pub(super) recipe: ImagesRecipe,
    /// One per file if files are named by a list or by rows, otherwise empty.
    #[serde(skip)]
    pub(super) details: Vec<Detail>,
    /// Whether the files were found by walking the sources rather than named by a list or by rows.
    pub(super) walked: bool,
    /// Whether Parquet files among the files contain images.
    pub(super) image_tables: bool,
    /// The classes, for labels in Parquet and tar files.
    pub(super) classes: Labels,
    pub(super) folders: Folders,
    /// Number of fields beyond those of every image dataset that are not additional images.
    pub(super) values: usize,
    /// Additional images of samples and rows are the last of the fields.
    pub(super) roles: ImageRoles,
    /// Members of samples in tar files that become fields. They are the first of the fields.
    pub(super) members: Vec<MemberField>,
    /// Whether the classes of samples in tar files are labels.
    pub(super) labels_in_samples: bool,
    /// The images of the rows of Parquet files.
    pub(super) table_images: Option<TableImages>,
    /// The boxes in a column of Parquet files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) row_boxes: Option<RowBoxesReader>,
    /// Fields whose values are in files of their own, which follow those of their items.
    pub(super) file_fields: Vec<FileField>,
    /// The fields from the names of class folders, if there are any.
    pub(super) repeats: Option<Repeats>,
    pub(super) transform: ImageTransform,
}

/// Returns whether the match `name` of a pattern may be or hold images: everything but text.
fn may_be_images(name: &str) -> bool {
    FileKind::of_named(name).is_none_or(|kind| matches!(kind.format, TextFormat::Parquet | TextFormat::Arrow))
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
            foreign::refuse(paths.filter(|path| !has_image_extension(&path.to_string_lossy())))?;
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
        // Files whose name is not that of an image may still be items.
        let probable = items.iter().count() + found.files.iter().filter(is_damage).count();
        let split_files = options.recipe.output.split.is_none().then(|| folders.splits.count(items.iter()));
        let repeats =
            Repeats::find(&mut folders, &mut found.fields, found.roles.fields.len(), options.recipe.layout);
        let (images, members) = (found.roles.listed(), &found.described_members);
        let described = options.described(found.content, images, &found.sidecars, members, exclude.fact())?;
        exclude.check(&described)?;
        if let (ImageFields::Listed(fields), false) = (&options.recipe.image_fields, found.has_containers) {
            let members = fields.iter().map(|f| f.member.as_str()).collect::<Vec<_>>().join(", ");
            let what = format!(
                "`image_fields` lists members of samples or columns ({members}), but no source is a tar file, or a \
                 Parquet or Arrow file with such a column of images"
            );
            return Err(Error::usage(what).help("leave out `image_fields`"));
        }
        if options.recipe.keep_fields.is_some() && !found.has_containers {
            let what = "`keep_fields` lists members of samples or columns, but no source is a tar file, or a Parquet or \
                        Arrow file with images";
            return Err(Error::usage(what).help(
                "leave out `keep_fields`; it also chooses columns of a table that `metadata FILE` names, and none of those \
                 that `metadata none` ignores",
            ));
        }
        if !options.recipe.list_fields.is_empty() && found.tables.is_empty() {
            let what = "`list_fields` lists columns of a table, but no table describes the images";
            return Err(Error::usage(what).help("give the table with `metadata`, or leave out `list_fields`"));
        }
        if options.recipe.label_field.is_some() && found.tables.is_empty() && found.table_images.is_none() {
            let what =
                "`label_field` names a column of a table, but no table describes or contains the images";
            return Err(Error::usage(what).help("give the table with `metadata`, or leave out `label_field`"));
        }
        let ImagesOptions { sources, input, annotations: _, exclude: _, recipe } = options;
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
            walked: found.walked,
            image_tables: found.image_tables,
            values,
            roles: found.roles,
            members: found.members,
            labels_in_samples: found.labels_in_samples,
            table_images: found.table_images,
            row_boxes: found.row_boxes,
            file_fields: found.file_fields,
            repeats,
            folders,
        };
        let is_container = |file: &SourceFile| conversion.is_container(file, &header.sources);
        let units = divide(files.iter(), UNIT_FILES, header.unit_bytes, is_container);
        if !files.iter().any(|file| is_container(&file)) {
            summary.items = Some(probable as u64);
        }
        let named_splits = conversion.folders.splits.clone();
        let mut job = Job::new(header, files, units, named_splits, summary, conversion);
        job.check_sample_keys()?;
        let is_part = |file: &SourceFile| file.member.is_some() || job.is_container(file);
        if job.summary.dedup && job.files.iter().any(|file| is_part(&file)) {
            let message =
                "`dedup` compares whole files, not the contents of tar, Parquet, Arrow or zip files";
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
            ImageTask::Tar(task) => job.convert_tar(task, worker, out),
            ImageTask::Table(task) => job.convert_table(task, worker, out),
        }
        Ok(Converting::Done)
    }

    fn stages(job: &ImagesJob, work: &Path) -> Stages {
        output_stages(&job.header.output, work)
    }

    fn buckets(job: &ImagesJob) -> Result<Option<BucketCounts>> {
        job.bucket_counts()
    }

    fn predict(job: &ImagesJob, items: u64, sample: SampleRun<'_, Self>, stop: &Stop) -> Result<Prediction> {
        job.prediction(items, sample, stop)
    }
}

impl ImageConversion {
    /// Returns whether the file holds several items: a tar file, or a Parquet file with images. Files named by a list
    /// or by rows never do.
    fn is_container(&self, file: &SourceFile, sources: &[SourceSpec]) -> bool {
        self.walked && (file.is_tar(sources) || (self.image_tables && is_image_table(file, sources)))
    }

    /// Returns what a list or a table says about the file with this ordinal.
    pub(super) fn detail(&self, ordinal: usize) -> Option<&Detail> {
        self.details.get(ordinal)
    }
}

impl ImagesJob {
    /// Returns whether the file holds several items: a tar file, or a Parquet file with images.
    pub(super) fn is_container(&self, file: &SourceFile) -> bool {
        self.conversion.is_container(file, &self.header.sources)
    }

    /// Returns whether a file is an item whatever its content: its name is that of an image, or a list or a row names it.
    pub(super) fn is_item(&self, file: &SourceFile, detail: Option<&Detail>) -> bool {
        detail.is_some() || has_image_extension(&file.name(&self.header.sources))
    }

    /// Returns the files that are not those of fields, with their ordinals.
    pub(super) fn items(&self) -> impl Iterator<Item = (usize, SourceFile)> + '_ {
        self.files.iter().enumerate().filter(|(_, file)| file.of_field.is_none())
    }

    /// Returns the item with this ordinal: its file, and those of its fields.
    pub(super) fn item(&self, ordinal: usize) -> Vec<SourceFile> {
        let mut files = self.files.range(ordinal..self.files.len());
        let mut item: Vec<SourceFile> = files.next().into_iter().collect();
        item.extend(files.take_while(|file| file.of_field.is_some()));
        item
    }

    /// Requests the bytes of `files` in advance if the sources are in object storage. `first` is the ordinal of the
    /// first file.
    pub(super) fn open_all_ahead(&self, first: usize, files: &[SourceFile]) -> Vec<Option<OpenedFile>> {
        if !is_remote(&self.header.sources) {
            return Vec::new();
        }
        let is_intact = |ordinal: usize| self.conversion.detail(ordinal).is_none_or(|d| d.defect.is_none());
        let mut is_excluded = false;
        let open = |(ordinal, file): (usize, &SourceFile)| {
            // The files of its fields follow an item.
            if file.of_field.is_none() {
                is_excluded = self.excludes_key(&file.origin);
            }
            (!is_excluded && is_intact(ordinal)).then(|| self.open_ahead(file)).flatten()
        };
        (first..).zip(files).map(open).collect()
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

/// Names of the fields.
const CONCEPT: &str = "concept";
const REPEATS: &str = "repeats";

/// The fields from the names of class folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Repeats {
    /// Position of the first one among the fields that only some datasets have.
    at: usize,
}

impl Repeats {
    /// Adds the fields before the `images` additional images, which are last, if all class folders have such names.
    pub(super) fn find(
        folders: &mut Folders,
        fields: &mut Vec<Field>,
        images: usize,
        layout: FolderLayout,
    ) -> Option<Self> {
        let names = folders.class_names.as_deref().filter(|_| layout == FolderLayout::Auto)?;
        let example = names.first()?.clone();
        if !names.iter().all(|name| number_and_concept(name).is_some()) {
            return None;
        }
        let in_splits = folders.splits.are_folders();
        let message = format!(
            "the class folders are named like {example:?}: their numbers become the field \"repeats\", and their names the \
             field \"concept\""
        );
        let (layout, effect) = match in_splits {
            true => ("splits", "keeps the folders in those of splits as classes only"),
            false => ("labels", "keeps the folders as classes only"),
        };
        let warning = Warning::new("repeat-folders", message).with("example", example);
        folders.warnings.push(warning.with("in_splits", in_splits).remedy("layout", layout, effect));
        let at = fields.len() - images;
        let added =
            [Field::nullable(CONCEPT, FieldType::String), Field::nullable(REPEATS, FieldType::UInt32)];
        fields.splice(at..at, added);
        Some(Self { at })
    }

    /// Sets the values of an image in the folder `class`.
    pub(super) fn set(self, class: Option<&str>, values: &mut [Value]) {
        let Some((repeats, concept)) = class.and_then(number_and_concept) else { return };
        if let Some([name, number]) = values.get_mut(self.at..self.at + 2) {
            *name = Value::Text(concept.into());
            *number = Value::UInt(repeats.into());
        }
    }
}

/// Returns the number and the name of a folder such as `10_cat`.
fn number_and_concept(name: &str) -> Option<(u32, &str)> {
    let (number, concept) = name.split_once('_')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !concept.is_empty()).then_some((number.parse().ok()?, concept))
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

    /// Returns whether the key of `file`, or of an item in it, may be that of an item in another file, whose origin is
    /// followed by `item` in the origin of `file`.
    fn may_share_key(&self, file: &SourceFile, item: &str) -> bool {
        if self.is_container(file) {
            return true;
        }
        let is_name = match self.conversion.image_tables {
            true => item.parse::<u64>().is_ok_and(|row| row.to_string() == item),
            // The name of a sample ends before the first dot of its last component.
            false => !item.is_empty() && !item.rsplit('/').next().unwrap_or_default().contains('.'),
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_have_a_number_and_a_name() {
        for (name, expected) in [
            ("10_cat", Some((10, "cat"))),
            ("3_a red_dog", Some((3, "a red_dog"))),
            ("007_x", Some((7, "x"))),
            ("10", None),
            ("10_", None),
            ("_cat", None),
            ("a1_cat", None),
            ("+1_cat", None),
            ("99999999999_cat", None),
        ] {
            assert_eq!(number_and_concept(name), expected, "{name}");
        }
    }
}
