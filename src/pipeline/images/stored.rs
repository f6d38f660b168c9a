//! Storage of a planned conversion of images for other processes.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::image_fields::ImageField;
use super::job::{ImagesJob, UNIT_FILES, unit_bytes};
use super::options::ImagesOptions;
use super::repeats::Repeats;
use super::sidecars::FileField;
use super::tar_fields::MemberField;
use crate::build_id::BUILD_ID;
use crate::error::Result;
use crate::pipeline::job_file::{JobHeader, JobReader, JobWriter, OpenedJob, StoredJob};
use crate::schema::{Kind, Schema};
use crate::source::file_list::SourceFiles;
use crate::source::image_table::TableImages;
use crate::source::labels::Folders;
use crate::source::source_file::SourceFile;
use crate::transform::image::ImageTransform;

/// The first line specific to images in a stored job.
#[derive(Serialize, Deserialize)]
struct ImagesLine<'a> {
    options: Cow<'a, ImagesOptions>,
    folders: Cow<'a, Folders>,
    units: Cow<'a, [Range<usize>]>,
    extra_fields: usize,
    image_fields: Cow<'a, [ImageField]>,
    file_fields: Cow<'a, [FileField]>,
    repeats: Option<Repeats>,
    main_image: Option<Cow<'a, str>>,
    members: Cow<'a, [MemberField]>,
    labels_in_samples: bool,
    image_tables: bool,
    table_images: Option<Cow<'a, TableImages>>,
    labels_are_ordinals: bool,
    /// Number of lines with a [`Detail`](crate::source::named_files::Detail) that follow.
    details: usize,
}

impl StoredJob for ImagesJob {
    fn header(&self) -> Result<JobHeader> {
        Ok(JobHeader {
            build: BUILD_ID.to_owned(),
            plan: String::new(),
            listing: String::new(),
            kind: Kind::Images,
            options: self.described.clone(),
            output: self.options.recipe.output.clone(),
            sources: self.options.sources.clone(),
            walked: self.options.input.walks(),
            follow_symlinks: self.options.recipe.follow_symlinks,
            files: self.files.len() as u64,
            skipped: self.skipped.clone(),
            units: self.units.len() as u32,
            unit_bytes: unit_bytes(&self.options.recipe.output),
            unit_pieces: UNIT_FILES as u64,
            tokenizer: None,
            schema: Schema::clone(&self.schema),
            splits: self.splits.clone(),
        })
    }

    fn files(&self) -> SourceFiles<'_> {
        SourceFiles::List(&self.files)
    }

    fn files_of_unit(&self, unit: u32) -> Vec<SourceFile> {
        let files = self.units.get(unit as usize).map(|files| self.files.range(files.clone()));
        files.into_iter().flatten().collect()
    }

    fn tokenizer_json(&self) -> Option<&[u8]> {
        None
    }

    fn write(&self, file: &mut JobWriter) -> Result<()> {
        file.line(&ImagesLine {
            options: Cow::Borrowed(&self.options),
            folders: Cow::Borrowed(&self.folders),
            units: Cow::Borrowed(&self.units),
            extra_fields: self.extra_fields,
            image_fields: Cow::Borrowed(&self.image_fields),
            file_fields: Cow::Borrowed(&self.file_fields),
            repeats: self.repeats,
            main_image: self.main_image.as_deref().map(Cow::Borrowed),
            members: Cow::Borrowed(&self.members),
            labels_in_samples: self.labels_in_samples,
            image_tables: self.image_tables,
            table_images: self.table_images.as_ref().map(Cow::Borrowed),
            labels_are_ordinals: self.labels_are_ordinals,
            details: self.details.len(),
        })?;
        self.details.iter().try_for_each(|detail| file.line(detail))
    }

    fn read(opened: OpenedJob, file: &mut JobReader) -> Result<Self> {
        let OpenedJob { header, files, .. } = opened;
        let stored: ImagesLine<'_> = file.line()?;
        let details = file.lines(stored.details)?;
        let options = ImagesOptions { sources: header.sources, ..stored.options.into_owned() };
        Ok(Self {
            transform: ImageTransform::new(options.recipe.image.clone())?,
            walked: options.input.walks() && details.is_empty(),
            main_image: stored.main_image.map(Cow::into_owned),
            members: stored.members.into_owned(),
            labels_in_samples: stored.labels_in_samples,
            image_tables: stored.image_tables,
            table_images: stored.table_images.map(Cow::into_owned),
            labels_are_ordinals: stored.labels_are_ordinals,
            // These are used only in the summary of the plan.
            tables: Vec::new(),
            sidecars: Vec::new(),
            left_out: Vec::new(),
            split_files: None,
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
            image_fields: stored.image_fields.into_owned(),
            file_fields: stored.file_fields.into_owned(),
            repeats: stored.repeats,
        })
    }
}
