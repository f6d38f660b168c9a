//! Options of a conversion of images.

use serde::{Deserialize, Serialize};

use super::image_fields::ImageFields;
use crate::options::{OutputOptions, SourceSpec};
use crate::pipeline::dedup::Dedup;
use crate::source::files_from::FilesFrom;
use crate::source::layout::FolderLayout;
use crate::source::metadata::MetadataFile;
use crate::transform::image::ImageOptions;

/// Options of a conversion of images.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ImagesOptions {
    /// Files and folders. If files are named by a list or by rows, the one folder that the names are relative to.
    pub sources: Vec<SourceSpec>,
    /// How files are found.
    pub input: ImageInput,
    /// Whether symbolic links are followed.
    pub follow_symlinks: bool,
    /// Meaning of the folders.
    pub layout: FolderLayout,
    /// Class names in label order, instead of the sorted folder names.
    pub classes: Option<Vec<String>>,
    /// Columns of tables whose values become lists: all rows that name the same image form one record.
    pub list_fields: Vec<String>,
    /// Further images of samples in tar files.
    pub image_fields: ImageFields,
    /// How images are decoded, changed and encoded.
    pub image: ImageOptions,
    /// Criterion for duplicates, which are excluded.
    pub dedup: Option<Dedup>,
    /// How the records are stored.
    pub output: OutputOptions,
}

/// How the files of the sources are found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageInput {
    /// The sources are walked. If there are `metadata.csv`, `.jsonl` or `.parquet` files next to images, their rows
    /// name the items, as in `ImageFolder` of Hugging Face `datasets`.
    #[default]
    Walk,
    /// The sources are walked, and metadata files are ignored.
    WalkOnly,
    /// A list names the files.
    FilesFrom(FilesFrom),
    /// The rows of a table name the files.
    Metadata(MetadataFile),
}

impl ImageInput {
    /// Returns whether the sources are walked. The output must then not overlap them.
    pub fn walks(&self) -> bool {
        matches!(self, Self::Walk | Self::WalkOnly)
    }
}
