//! Where images come from: files, and one directory for each kind of containers, which hold several images each.

pub(super) mod examples;
pub(super) mod files;
pub(super) mod samples;
pub(super) mod source;
pub(super) mod tables;

use serde::{Deserialize, Serialize};

use self::examples::Examples;
use self::samples::Samples;
use self::source::ImageSource;
use self::tables::Tables;
use crate::options::SourceSpec;
use crate::source::list::source_file::SourceFile;

/// Where the images of a conversion come from. Besides containers, there may be files.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) enum Containers {
    /// Each image is a file.
    #[default]
    None,
    /// Tar files.
    Samples(Samples),
    /// Parquet and Arrow files.
    Tables(Tables),
    /// TFRecord files.
    Examples(Examples),
}

impl Containers {
    /// Returns the kind of the containers; `None` if there are none.
    pub(super) fn kind(&self) -> Option<&dyn ImageSource> {
        match self {
            Self::None => None,
            Self::Samples(samples) => Some(samples),
            Self::Tables(tables) => Some(tables),
            Self::Examples(examples) => Some(examples),
        }
    }

    /// Returns whether `file` is a container, by its name.
    pub(super) fn hold(&self, file: &SourceFile, sources: &[SourceSpec]) -> bool {
        self.kind().is_some_and(|kind| kind.holds(file, sources))
    }

    /// Returns whether an option may name the column with the label.
    pub(super) fn have_label_field(&self) -> bool {
        self.kind().is_some_and(ImageSource::has_label_field)
    }
}
