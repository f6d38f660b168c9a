//! Options for reading a target, on its own or like the dataset that it is compared with.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Result;
use crate::manifest::{MANIFEST_NAME, Manifest, TOKENIZER_NAME};
use crate::reader::Dataset;
use crate::schema::Kind;
use crate::source::read_file;
use crate::source::text::kind::Documents;
use crate::storage::{Location, ObjectUrl, RemoteOptions, folder_of, stat};
use crate::tokenizer_files::stored_tokenizer;
use crate::transform::image::ImageOptions;
use crate::transform::text::{Tokenizer, TokenizerOptions, usage_error};

/// Returns the directory or URL of a dataset, which may be named by its manifest.
pub(super) fn directory(path: &Path) -> PathBuf {
    let is_manifest = path.file_name().is_some_and(|name| name == MANIFEST_NAME);
    if is_manifest { folder_of(path).to_owned() } else { path.to_owned() }
}

/// Returns whether `path` is a dataset, or an unfinished one. A URL must be a dataset.
pub(super) fn is_dataset(path: &Path) -> Result<bool> {
    if ObjectUrl::is_url(path) {
        return Ok(true);
    }
    let dir = directory(path);
    let has = |name: &str| stat(&dir.join(name)).map(|found| found.is_some());
    let is_dir = stat(&dir)?.is_some_and(|meta| meta.is_dir());
    Ok(is_dir && (has(MANIFEST_NAME)? || has(".dsconvert")?))
}

/// Options for reading a target.
#[derive(Clone, Default)]
pub struct TargetOptions {
    /// Pixel options of raw images. `None`: images are not transformed, or transformed as in the dataset they are
    /// compared with.
    pub image: Option<ImageOptions>,
    /// Tokenizer of raw text. `None`: text is only parsed, or tokenized as in the dataset it is compared with.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// How plain text is divided into documents. `None`: each file is one, or as in the dataset it is compared with.
    pub documents: Option<Documents>,
    /// Field with the text in raw JSON lines.
    pub text_field: Option<String>,
    /// Split of datasets to read; `None` for all.
    pub split: Option<String>,
}

impl TargetOptions {
    /// Fills in the options that are not set from the dataset at `dir`, so that raw files are delivered as the dataset
    /// delivers them. Does nothing if `dir` is not a dataset.
    ///
    /// # Errors
    ///
    /// If the dataset or its tokenizer cannot be read.
    pub fn like(mut self, dir: &Path) -> Result<Self> {
        if !is_dataset(dir)? {
            return Ok(self);
        }
        let manifest = Manifest::read_at(&Location::new(&directory(dir), &RemoteOptions::default())?)?;
        let option = |name: &str| manifest.options.get(name).cloned();
        match manifest.kind() {
            Kind::Images if self.image.is_none() => {
                self.image = option("image").and_then(|json| serde_json::from_value(json).ok());
            }
            Kind::Text => {
                if self.text_field.is_none() {
                    self.text_field = option("text_field").and_then(|name| Some(name.as_str()?.to_owned()));
                }
                if self.documents.is_none() {
                    self.documents = option("documents").and_then(|rule| rule.as_str()?.parse().ok());
                }
                if self.tokenizer.is_none() {
                    let options: TokenizerOptions = option("tokenization")
                        .and_then(|json| serde_json::from_value(json).ok())
                        .unwrap_or_default();
                    let path = directory(dir).join(TOKENIZER_NAME);
                    let json = tokenizer_json(&directory(dir))?;
                    let tokenizer = Tokenizer::stored(json, options);
                    self.tokenizer = Some(Arc::new(tokenizer.map_err(|e| usage_error(e).at_path(&path))?));
                }
            }
            Kind::Images => {}
        }
        Ok(self)
    }
}

/// Reads the tokenizer of the dataset at `dir`; `None` if it has none.
fn tokenizer_json(dir: &Path) -> Result<Option<Vec<u8>>> {
    if ObjectUrl::is_url(dir) {
        return Ok(stored_tokenizer(&Dataset::open(dir)?)?.map(|json| json.to_vec()));
    }
    let path = dir.join(TOKENIZER_NAME);
    stat(&path)?.map(|_| read_file(&path)).transpose()
}
