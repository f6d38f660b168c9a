//! Options of a conversion of images: its recipe, and where the images come from.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::image_field_names::MemberField;
use crate::error::{Error, Result};
use crate::options::SourceSpec;
use crate::pipeline::plan::SidecarSummary;
use crate::recipe::{ANNOTATIONS, ImageFields, ImagesRecipe, Sidecars, described};
use crate::source::items::metadata::columns::KeptField;
use crate::source::items::metadata::placed::MetadataFile;
use crate::source::list::files_from::FilesFrom;

/// Options of a conversion of images.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ImagesOptions {
    /// Files and folders. If files are named by a list or by rows, the one folder that the names are relative to.
    pub sources: Vec<SourceSpec>,
    /// How files are found.
    pub input: ImageInput,
    /// Files and folders with annotations of the images. The sources are then walked.
    pub annotations: Vec<PathBuf>,
    /// Datasets whose items are left out: directories or URLs.
    pub exclude: Vec<PathBuf>,
    /// Everything else that affects the dataset.
    pub recipe: ImagesRecipe,
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
    /// Returns the option that describes images in folders by other files, if there is one.
    pub(super) fn describing(&self) -> Option<&'static str> {
        let companion = (!self.recipe.companion.is_empty()).then_some("companion");
        (!self.annotations.is_empty()).then_some("annotations").or(companion)
    }

    /// Returns the options as the manifest has them: with what was found in place of `auto`. `content` is the hash of the
    /// metadata or annotations, and `exclude` the fact about excluded datasets.
    pub(super) fn described(
        &self,
        content: Option<u128>,
        image_fields: Vec<MemberField>,
        sidecars: &[SidecarSummary],
        members: &[MemberField],
        exclude: Option<(&'static str, serde_json::Value)>,
    ) -> Result<serde_json::Value> {
        let mut found = self.recipe.clone();
        // Absent if empty, so that the description of datasets without additional images never changes.
        // Those of rows are described by the content of the table, and companions by their patterns.
        found.image_fields = match image_fields.is_empty() || content.is_some() || !found.companion.is_empty()
        {
            true => ImageFields::default(),
            false => ImageFields::Listed(image_fields.into_iter().map(KeptField::from).collect()),
        };
        found.sidecar = match sidecars {
            [] => Sidecars::default(),
            found => Sidecars::Listed(found.iter().map(|sidecar| sidecar.extension.clone()).collect()),
        };
        // Absent if samples have no other members than those of all tar files, for the same reason.
        let kept = members.iter().cloned().map(KeptField::from).collect::<Vec<_>>();
        found.keep_fields = (!kept.is_empty()).then_some(kept);
        let content = content.map(|hash| format!("xxh3-128:{hash:032x}"));
        let mut facts = match &self.input {
            ImageInput::Walk | ImageInput::WalkOnly if !self.annotations.is_empty() => {
                vec![(ANNOTATIONS, json!({ "content": content }))]
            }
            ImageInput::Walk | ImageInput::WalkOnly => content
                .map(|content| ("metadata", json!({ "beside_images": true, "content": content })))
                .into_iter()
                .collect(),
            // The list itself is in the plan, file by file.
            ImageInput::FilesFrom(_) => vec![("files_from", json!(true))],
            ImageInput::Metadata(MetadataFile { path: _, path_field, keep }) => {
                let keep = serde_json::to_value(keep).map_err(|e| Error::not_serialized("the options", e))?;
                let table = json!({ "path_field": path_field, "keep_fields": keep, "content": content });
                vec![("metadata", table)]
            }
        };
        facts.extend(exclude);
        described(&found, facts)
    }
}

impl From<MemberField> for KeptField {
    fn from(MemberField { name, member, ty }: MemberField) -> Self {
        Self { name: Some(name), member, ty: Some(ty) }
    }
}
