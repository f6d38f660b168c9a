//! What a conversion of images needs of a plan.

use serde::{Deserialize, Serialize};

use super::image_fields::ImageRoles;
use super::options::ImageInput;
use super::repeats::Repeats;
use super::sidecars::FileField;
use super::sources::Containers;
use crate::pipeline::job::Job;
use crate::recipe::ImagesRecipe;
use crate::source::items::metadata::labels::Labels;
use crate::source::list::detail::Detail;
use crate::source::list::source_file::SourceFile;
use crate::source::names::labels::Folders;
use crate::transform::image::{ImageTransform, has_image_extension};

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
    /// The containers among the files. Files named by a list or by rows are none.
    pub(super) containers: Containers,
    /// The classes, for labels in containers.
    pub(super) classes: Labels,
    pub(super) folders: Folders,
    /// Number of fields beyond those of every image dataset that are not additional images.
    pub(super) values: usize,
    /// Additional images of samples and rows are the last of the fields.
    pub(super) roles: ImageRoles,
    /// Fields whose values are in files of their own, which follow those of their items.
    pub(super) file_fields: Vec<FileField>,
    /// The fields from the names of class folders, if there are any.
    pub(super) repeats: Option<Repeats>,
    pub(super) transform: ImageTransform,
}

impl ImageConversion {
    /// Returns what a list or a table says about the file with this ordinal.
    pub(super) fn detail(&self, ordinal: usize) -> Option<&Detail> {
        self.details.get(ordinal)
    }
}

impl ImagesJob {
    /// Returns whether the file is a container, which holds several items.
    pub(super) fn is_container(&self, file: &SourceFile) -> bool {
        self.conversion.containers.hold(file, &self.header.sources)
    }

    /// Returns the split of a file that is one item. All records of one image are in the same split.
    pub(super) fn split_of_file(&self, file: &SourceFile) -> u16 {
        self.split_of(file).of(file.file_origin())
    }

    /// Returns whether a file is an item whatever its content: it is named like an image, or a list or a row names it.
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
}
