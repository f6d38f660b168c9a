//! Options of a conversion of images.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::image_fields::{ImageField, ImageFields};
use super::sidecars::{SidecarSummary, Sidecars};
use super::tar_fields::MemberField;
use crate::error::{Error, Result};
use crate::options::{OutputOptions, SourceSpec};
use crate::pipeline::dedup::Dedup;
use crate::source::files_from::FilesFrom;
use crate::source::layout::FolderLayout;
use crate::source::metadata::{KeptField, MetadataFile};
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
    /// Images of samples in tar files, and of rows in Parquet files.
    pub image_fields: ImageFields,
    /// Files beside images that hold the values of fields.
    pub sidecars: Sidecars,
    /// Members of samples in tar files, or columns of Parquet files with images, that become fields; `None`: all members of
    /// text, and all columns.
    pub keep_fields: Option<Vec<KeptField>>,
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

    /// Returns the option that names the files, and the path of its list or table; `None` for standard input.
    pub fn table_or_list(&self) -> Option<(&'static str, PathBuf)> {
        match self {
            Self::Walk | Self::WalkOnly => None,
            Self::FilesFrom(from) => from.input(),
            Self::Metadata(table) => Some(("metadata", table.path.clone())),
        }
    }
}

impl ImagesOptions {
    /// Describes the options that affect the dataset, under their library names.
    pub(super) fn describe(
        &self,
        content: Option<u128>,
        image_fields: &[ImageField],
        sidecars: &[SidecarSummary],
        members: &[MemberField],
    ) -> Result<serde_json::Value> {
        let as_json = |value: serde_json::Result<serde_json::Value>| {
            value.map_err(|e| Error::not_serialized("the options", e))
        };
        let mut described = json!({
            "layout": self.layout.to_string(),
            "classes": self.classes,
            "follow_symlinks": self.follow_symlinks,
            "image": as_json(serde_json::to_value(&self.image))?,
            "output": as_json(serde_json::to_value(&self.output))?,
        });
        if let Some(dedup) = self.dedup {
            described["dedup"] = as_json(serde_json::to_value(dedup))?;
        }
        // Omitted if empty, so that the description of datasets without additional images never changes.
        // Those of rows are described by the content of the table.
        if !image_fields.is_empty() && content.is_none() {
            described["image_fields"] = as_json(serde_json::to_value(image_fields))?;
        }
        if !sidecars.is_empty() {
            described["sidecar"] = sidecars.iter().map(|sidecar| sidecar.extension.as_str()).collect();
        }
        // Omitted if samples have no other members than those of all tar files, for the same reason.
        if !members.is_empty() {
            described["keep_fields"] = as_json(serde_json::to_value(members))?;
        }
        if !self.list_fields.is_empty() {
            described["list_fields"] = json!(self.list_fields);
        }
        let content = content.map(|hash| format!("xxh3-128:{hash:032x}"));
        match &self.input {
            ImageInput::Walk | ImageInput::WalkOnly => {
                if content.is_some() {
                    described["metadata"] = json!({ "beside_images": true, "content": content });
                }
            }
            // The list itself is in the plan, file by file.
            ImageInput::FilesFrom(_) => described["files_from"] = json!(true),
            ImageInput::Metadata(table) => {
                let keep = table.keep.as_ref().map(|keep| {
                    keep.iter().map(|k| json!({ "name": k.name, "type": k.ty })).collect::<Vec<_>>()
                });
                described["metadata"] =
                    json!({ "path_field": table.path_field, "keep_fields": keep, "content": content });
            }
        }
        Ok(described)
    }
}
