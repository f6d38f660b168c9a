//! The plan of a conversion of images: its files, units and schema.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::convert::Images;
use super::divide::divide;
use super::find::{describe, find, shuffle, tables_help};
use super::options::ImagesOptions;
use crate::error::{Error, Result};
use crate::options::{OutputOptions, RunOptions, check_local_sources};
use crate::pipeline::parts::store_plan;
use crate::pipeline::plan::PlanSummary;
use crate::pipeline::progress::{Progress, Stop};
use crate::pipeline::run::{Job, Report, run};
use crate::pipeline::splits_twice;
use crate::schema::{Kind, LABEL, Schema};
use crate::source::PlannedFile;
use crate::source::braces;
use crate::source::labels::Folders;
use crate::source::listing::Detail;
use crate::source::skipped::SkippedTypes;
use crate::source::walk::SourceFile;
use crate::source::webdataset::is_tar;
use crate::transform::image::ImageTransform;

/// Files of one unit. With [`UNIT_BYTES`], a unit takes seconds for thumbnails and minutes for camera files.
pub(super) const UNIT_FILES: usize = 16_384;
/// Default of `--unit-bytes`.
const UNIT_BYTES: u64 = 2 << 30;
/// Sets the permutation of `--shuffle` apart from the split hash, which has the same seed.
const SHUFFLE_SALT: u64 = 0x5348_5546_464c_4531;

/// A planned conversion of images.
pub struct ImagesJob {
    pub(super) options: ImagesOptions,
    /// Semantic options as the manifest shows them.
    pub(super) described: serde_json::Value,
    /// In record order.
    pub(super) files: Vec<SourceFile>,
    /// One per file when files are named one by one, otherwise empty.
    pub(super) details: Vec<Detail>,
    /// Whether the files are those of a walk, and not named by a list or by rows.
    pub(super) walked: bool,
    pub(super) skipped: SkippedTypes,
    /// Metadata files whose rows name the items.
    pub(super) tables: Vec<PathBuf>,
    pub(super) folders: Folders,
    pub(super) splits: Vec<String>,
    pub(super) units: Vec<Range<usize>>,
    pub(super) schema: Arc<Schema>,
    /// Fields after those that every dataset of images has.
    pub(super) extra_fields: usize,
    pub(super) transform: ImageTransform,
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

    /// Whether the file is read as a tar file; one that is named as an image is not.
    pub(super) fn is_tar(&self, file: &SourceFile) -> bool {
        self.walked && is_tar(&file.origin)
    }

    pub(super) fn planned(&self, file: &SourceFile) -> PlannedFile {
        file.planned(&self.options.sources, self.options.follow_symlinks)
    }

    pub(super) fn split_of(&self, file: &SourceFile) -> u16 {
        self.split_of_item(file, &file.origin)
    }

    /// Split of the item called `origin` in `file`.
    pub(super) fn split_of_item(&self, file: &SourceFile, origin: &str) -> u16 {
        let split = match &self.options.output.split {
            Some(spec) => spec.split_of(origin, self.options.output.seed),
            None => self.folders.splits.of(file),
        };
        split as u16
    }
}

/// Source bytes at which a unit is full.
pub(super) fn unit_bytes(output: &OutputOptions) -> u64 {
    output.unit_bytes.unwrap_or(UNIT_BYTES)
}

impl Job for ImagesJob {
    fn summary(&self) -> PlanSummary {
        PlanSummary {
            kind: Kind::Images.name(),
            files: self.files.len() as u64,
            items: (!self.files.iter().any(|f| self.is_tar(f))).then_some(self.files.len() as u64),
            bytes: self.files.iter().map(|f| f.bytes).sum(),
            skipped: self.skipped.clone(),
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
