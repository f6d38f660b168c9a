//! The plan of a conversion of images: its files, units and schema.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::divide::divide;
use super::find::{find, metadata_help};
use super::image_fields::ImageField;
use super::options::ImagesOptions;
use super::repeats::Repeats;
use super::sidecars::{FileField, SidecarSummary};
use super::tar_fields::MemberField;
use crate::error::{Error, Result};
use crate::format::check_schema;
use crate::options::{OutputOptions, check_sources, is_remote};
use crate::pipeline::source_checks::splits_twice;
use crate::recipe::ImageFields;
use crate::schema::Schema;
use crate::source::PlannedFile;
use crate::source::braces;
use crate::source::file_list::FileList;
use crate::source::image_table::{TableImages, is_image_table};
use crate::source::labels::{Folders, class_ordinals};
use crate::source::named_files::Detail;
use crate::source::opened::OpenedFile;
use crate::source::skipped::SkippedTypes;
use crate::source::source_file::SourceFile;
use crate::transform::image::{ImageTransform, has_image_extension};

/// Maximum number of files per unit. With [`UNIT_BYTES`], a unit takes seconds for thumbnails and minutes for camera
/// files.
pub(super) const UNIT_FILES: usize = 16_384;
/// Default of `--unit-bytes`.
const UNIT_BYTES: u64 = 2 << 30;
/// Decorrelates the permutation of `--shuffle` from the split hash, which has the same seed.
const SHUFFLE_SALT: u64 = 0x5348_5546_464c_4531;

/// A planned conversion of images.
pub struct ImagesJob {
    pub(super) options: ImagesOptions,
    /// Options that affect the dataset, as shown in the manifest.
    pub(super) described: serde_json::Value,
    /// In record order.
    pub(super) files: FileList,
    /// One per file if files are named by a list or by rows, otherwise empty.
    pub(super) details: Vec<Detail>,
    /// Whether the files were found by walking the sources rather than named by a list or by rows.
    pub(super) walked: bool,
    /// Whether Parquet files among the files contain images.
    pub(super) image_tables: bool,
    /// Whether labels in Parquet files are ordinals of classes rather than names.
    pub(super) labels_are_ordinals: bool,
    pub(super) skipped: SkippedTypes,
    /// Metadata files whose rows name the items.
    pub(super) tables: Vec<PathBuf>,
    pub(super) folders: Folders,
    pub(super) splits: Vec<String>,
    /// Number of files per split that may be images, unless splits come from an option.
    pub(super) split_files: Option<Vec<u64>>,
    pub(super) units: Vec<Range<usize>>,
    pub(super) schema: Arc<Schema>,
    /// Number of fields beyond those of every image dataset.
    pub(super) extra_fields: usize,
    /// Additional images of samples and rows. They are the last of the fields.
    pub(super) image_fields: Vec<ImageField>,
    /// The member or column of the main image, if it is named.
    pub(super) main_image: Option<String>,
    /// Members of samples in tar files that become fields. They are the first of the fields.
    pub(super) members: Vec<MemberField>,
    /// Whether the classes of samples in tar files are labels.
    pub(super) labels_in_samples: bool,
    /// The images of the rows of Parquet files.
    pub(super) table_images: Option<TableImages>,
    /// Columns that are left out.
    pub(super) left_out: Vec<String>,
    /// Fields whose values are in files of their own, which follow those of their items.
    pub(super) file_fields: Vec<FileField>,
    pub(super) sidecars: Vec<SidecarSummary>,
    /// The fields from the names of class folders, if there are any.
    pub(super) repeats: Option<Repeats>,
    pub(super) transform: ImageTransform,
}

impl ImagesJob {
    /// Lists the sources and divides them into units.
    ///
    /// # Errors
    ///
    /// Fails if sources are missing or cannot be listed, two files have the same key, or options contradict each other.
    pub fn plan(mut options: ImagesOptions) -> Result<Self> {
        check_sources(&options.sources)?;
        options.recipe.check()?;
        options.sources = braces::expand(&options.sources)?;
        if let Some(classes) = &options.recipe.classes {
            class_ordinals(classes)?;
        }
        let transform = ImageTransform::new(options.recipe.image.clone())?;
        let mut found = find(&options)?;
        let items = found.items(&options);
        let mut folders = found.folders(&items, &options)?;
        let split_files = options.recipe.output.split.is_none().then(|| folders.splits.count(items.iter()));
        let repeats =
            Repeats::find(&mut folders, &mut found.fields, found.roles.fields.len(), options.recipe.layout);
        let (images, members) = (found.roles.listed(), &found.described_members);
        let described = options.described(found.content, images, &found.sidecars, members)?;
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
        let class_names = found.class_names.or_else(|| folders.class_names.clone());
        let extra_fields = found.fields.len();
        let schema = Schema::images(class_names, found.fields);
        let schema = Arc::new(if found.metadata_by_walk { schema.map_err(metadata_help)? } else { schema? });
        check_schema(options.recipe.output.format, &schema)?;
        let (mut files, mut details, skipped) = (found.files, found.details, found.skipped);
        let splits: Vec<String> = match &options.recipe.output.split {
            Some(_) if folders.splits.are_given() => return Err(splits_twice(&folders.splits, "labels")),
            Some(spec) => spec.names().map(str::to_owned).collect(),
            None => folders.splits.names.clone(),
        };
        if options.recipe.output.shuffle {
            shuffle(&mut files, &mut details, options.recipe.output.seed ^ SHUFFLE_SALT);
        }
        let mut job = Self {
            described,
            units: Vec::new(),
            skipped,
            tables: found.tables,
            walked: found.walked,
            image_tables: found.image_tables,
            labels_are_ordinals: found.labels_are_ordinals,
            options,
            files,
            details,
            folders,
            splits,
            split_files,
            schema,
            extra_fields,
            image_fields: found.roles.fields,
            main_image: found.roles.main,
            members: found.members,
            labels_in_samples: found.labels_in_samples,
            table_images: found.table_images,
            left_out: found.left_out,
            file_fields: found.file_fields,
            sidecars: found.sidecars,
            repeats,
            transform,
        };
        job.check_sample_keys()?;
        let is_part = |file: &SourceFile| file.member.is_some() || job.is_container(file);
        if job.options.recipe.dedup.is_some() && job.files.iter().any(|file| is_part(&file)) {
            let message =
                "`dedup` compares whole files, not the contents of tar, Parquet, Arrow or zip files";
            return Err(Error::usage(message).help("leave out `dedup`, or unpack the files"));
        }
        let unit_bytes = unit_bytes(&job.options.recipe.output);
        job.units = divide(job.files.iter(), UNIT_FILES, unit_bytes, |file| job.is_container(file));
        Ok(job)
    }

    /// Returns whether the file holds several items: a tar file, or a Parquet file with images. Files named by a list
    /// or by rows never do.
    pub(super) fn is_container(&self, file: &SourceFile) -> bool {
        let sources = &self.options.sources;
        self.walked && (file.is_tar(sources) || (self.image_tables && is_image_table(file, sources)))
    }

    /// Returns whether a file is an item whatever its content: its name is that of an image, or a list or a row names it.
    pub(super) fn is_item(&self, file: &SourceFile, detail: Option<&Detail>) -> bool {
        detail.is_some() || has_image_extension(&file.name(&self.options.sources))
    }

    /// Returns the file with this ordinal.
    pub(super) fn file(&self, ordinal: usize) -> Result<SourceFile> {
        self.files.get(ordinal).ok_or_else(|| Error::internal("a unit has a file that is not in the plan"))
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

    /// Returns the number of fields beyond those of every image dataset that are not additional images.
    pub(super) fn value_count(&self) -> usize {
        self.extra_fields - self.image_fields.len()
    }

    pub(super) fn planned(&self, file: &SourceFile) -> PlannedFile {
        file.planned(&self.options.sources, self.options.recipe.follow_symlinks)
    }

    /// Requests the bytes of `files` in advance if the sources are in object storage. `first` is the ordinal of the
    /// first file.
    pub(super) fn open_ahead(&self, first: usize, files: &[SourceFile]) -> Vec<Option<OpenedFile>> {
        if !is_remote(&self.options.sources) {
            return Vec::new();
        }
        let is_intact = |ordinal: usize| self.details.get(ordinal).is_none_or(|d| d.defect.is_none());
        let open =
            |file: &SourceFile| file.open_ahead(&self.options.sources, self.options.recipe.follow_symlinks);
        let open = |(ordinal, file)| is_intact(ordinal).then(|| open(file)).flatten();
        (first..).zip(files).map(open).collect()
    }

    pub(super) fn split_of(&self, file: &SourceFile) -> u16 {
        // All records of one image are in the same split.
        self.split_of_item(file, file.file_origin())
    }

    /// Returns the split of the item with this `origin` in `file`.
    pub(super) fn split_of_item(&self, file: &SourceFile, origin: &str) -> u16 {
        let split = match &self.options.recipe.output.split {
            Some(spec) => spec.split_of(origin, self.options.recipe.output.seed),
            None => self.folders.splits.of(file),
        };
        split as u16
    }
}

/// Returns the source bytes at which a unit is full.
pub(super) fn unit_bytes(output: &OutputOptions) -> u64 {
    output.unit_bytes.unwrap_or(UNIT_BYTES)
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
