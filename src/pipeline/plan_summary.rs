//! What a plan shows before a run: the sources that were found, and what is decided about them.

use std::path::PathBuf;

use dsconvert_vision::Processor;
use serde::Serialize;

use crate::source::list::skipped::SkippedTypes;
use crate::source::names::layout::SplitBy;
use crate::transform::image::BucketCounts;
use crate::warning::Warning;

/// A dataset whose items are left out, as a plan shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExcludedSummary {
    /// Directory or URL.
    pub path: PathBuf,
    /// Number of its records.
    pub records: u64,
    /// Whether contents are compared rather than keys.
    pub by_content: bool,
}

/// Summary of a planned run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PlanSummary {
    /// Name of the kind of dataset.
    pub kind: &'static str,
    /// Number of source files.
    pub files: u64,
    /// Number of items, if known without reading the files: one per file.
    pub items: Option<u64>,
    /// Bytes of the source files.
    pub bytes: u64,
    /// Files that are left out because of their name or type.
    pub skipped: SkippedTypes,
    /// Number of work units.
    pub units: u32,
    /// Names of the splits.
    pub splits: Vec<String>,
    /// What determines the split of a file; `None`: the hash of each key.
    pub split_by: Option<SplitBy>,
    /// Labels of the sources, if splits are drawn by the hashes of keys, which start with the labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hashed_labels: Vec<String>,
    /// Names of the folders that determine splits, sorted.
    pub split_folders: Vec<String>,
    /// Number of files in each split that are probably items or contain them, if files are assigned to splits as a whole.
    pub split_files: Option<Vec<u64>>,
    /// Names of the classes, if the records have labels.
    pub classes: Option<Vec<String>>,
    /// Why images have no labels, and how they get some. `None` if they have labels or boxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_labels: Option<String>,
    /// Metadata files whose rows name the items.
    pub metadata: Vec<PathBuf>,
    /// Names of the fields from the sources, beyond those of every dataset.
    pub fields: Vec<String>,
    /// Files beside images that hold the values of fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sidecars: Vec<SidecarSummary>,
    /// Additional images of samples in tar files and of rows, each with its type.
    pub image_fields: Vec<String>,
    /// The member or column of the main image, if it is named.
    pub main_image: Option<String>,
    /// Columns of Parquet files with images that are left out.
    pub left_out: Vec<String>,
    /// The images of each bucket, if they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buckets: Option<BucketCounts>,
    /// The processor of the images of chats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vision: Option<Processor>,
    /// Whether duplicates are searched for and left out.
    pub dedup: bool,
    /// The datasets whose items are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<ExcludedSummary>,
    /// Decisions of the plan that may not be intended.
    pub warnings: Vec<Warning>,
}

/// The sidecars of one extension, for summaries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SidecarSummary {
    /// Name of the field.
    pub field: String,
    /// The extension.
    pub extension: String,
    /// Number of images that have such a file.
    pub images: u64,
    /// Number of images that do not.
    pub missing: u64,
    /// Number of images whose file has no bytes.
    pub empty: u64,
    /// Number of files without an image, which are skipped.
    pub unpaired: u64,
    /// Origin of the first of these.
    pub example: Option<String>,
}
