//! What a conversion of images is told.

use serde::{Deserialize, Serialize};

use super::image_fields::ImageFields;
use crate::options::{OutputOptions, SourceSpec};
use crate::pipeline::dedup::Dedup;
use crate::source::files_from::FilesFrom;
use crate::source::layout::Layout;
use crate::source::metadata::MetadataFile;
use crate::transform::image::ImageOptions;

/// Options of a conversion of images.
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
    /// Columns of tables whose values become lists: rows that name one image give one record.
    pub list_fields: Vec<String>,
    /// Further images of samples in tar files.
    pub image_fields: ImageFields,
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
