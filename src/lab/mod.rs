//! The loader lab: what `dsconvert bench` and `headspace` measure, found by its path. Only this module names the crates of
//! the lab (`lab/README.md`), and only `cli` needs this module.

mod raw_images;
mod raw_text;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

pub use dsconvert_measure::*;
pub use dsconvert_simulate as simulator;

use self::raw_images::RawImages;
use self::raw_text::{RawText, unsupported};
use crate::error::{Error, Result};
use crate::manifest::{MANIFEST_NAME, Manifest, TOKENIZER_NAME};
use crate::options::SourceSpec;
use crate::reader::Dataset;
use crate::source::io::planned::{begins_as_image, read_file};
use crate::source::items::text::kind::{Documents, FileKind, TextFormat};
use crate::source::list::walk;
use crate::storage::{Location, ObjectUrl, RemoteOptions, folder_of, stat};
use crate::tokenizer_files::stored_tokenizer;
use crate::transform::image::{Color, ImageOptions, ImageTransform, has_image_extension};
use crate::transform::text::{Tokenizer, TokenizerOptions, usage_error};

/// Finds the target at `path`: lists files, locates documents, or reads the manifest of a dataset. A URL must be the URL
/// of a dataset.
///
/// # Errors
///
/// [`ErrorKind::Usage`](crate::error::ErrorKind) if there is nothing to measure;
/// [`ErrorKind::Io`](crate::error::ErrorKind) for a dataset that is not finished.
pub fn find_target(path: &Path, options: &TargetOptions) -> Result<BenchTarget> {
    let start = Instant::now();
    let mut target = find_any(path, options)?;
    target.found_in = start.elapsed();
    Ok(target)
}

fn find_any(path: &Path, options: &TargetOptions) -> Result<BenchTarget> {
    let split = options.split.as_deref();
    if ObjectUrl::is_url(path) {
        return BenchTarget::dataset(&directory(path), split).map_err(|error| remote_error(error, path));
    }
    if stat(path)?.is_none() {
        return Err(Error::usage("there is no such file or folder").at_path(path).help(EXPECTED));
    }
    if is_dataset(path)? {
        return BenchTarget::dataset(&directory(path), split);
    }
    let source = SourceSpec { label: String::new(), path: path.to_owned() };
    let listing = walk::list(std::slice::from_ref(&source), false, &|_| true)?;
    let sources = [source];
    let files = listing.files.iter().map(|file| RawFile {
        path: file.path(&sources),
        name: file.origin.trim_start_matches('/').to_owned(),
        bytes: file.bytes,
    });
    let files: Vec<RawFile> = files.collect();
    let has_image_name =
        |file: &RawFile| file.path.file_name().is_some_and(|n| has_image_extension(&n.to_string_lossy()));
    let text_kind = |file: &RawFile| FileKind::of_name(&file.path.file_name()?.to_string_lossy());
    let (images, texts) = (
        files.iter().filter(|file| has_image_name(file)).count(),
        files.iter().filter(|file| text_kind(file).is_some()).count(),
    );
    if texts > images {
        return text(path, files, options);
    }
    let images: Vec<RawFile> = files
        .into_iter()
        .filter(|file| has_image_name(file) || begins_as_image(&file.path).unwrap_or(false))
        .collect();
    if images.is_empty() {
        let what = match listing.files.len() {
            0 if listing.skipped.count() > 0 => {
                format!("nothing in the folder can be read; skipped: {}", listing.skipped)
            }
            0 => "the folder is empty".to_owned(),
            1 => "its only file is not an image, .jsonl or .txt, and there is no manifest.json".to_owned(),
            n => format!("none of its {n} files is an image, .jsonl or .txt, and there is no manifest.json"),
        };
        return Err(Error::usage(what).at_path(path).help(EXPECTED));
    }
    let image = ImageOptions { color: Color::Rgb, ..options.image.clone().unwrap_or_default() };
    let raw = RawImages { files: images, transform: ImageTransform::delivering(image)? };
    Ok(BenchTarget::raw(path, Box::new(raw)))
}

fn text(path: &Path, files: Vec<RawFile>, options: &TargetOptions) -> Result<BenchTarget> {
    let mut kept = Vec::new();
    let mut kinds = Vec::new();
    for file in files {
        let name = file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match FileKind::of_name(&name) {
            Some(kind) if matches!(kind.format, TextFormat::Text | TextFormat::JsonLines) => {
                kinds.push(kind);
                kept.push(file);
            }
            Some(_) => return Err(unsupported(&file)),
            None => {}
        }
    }
    let field = options.text_field.clone().unwrap_or_else(|| crate::pipeline::DEFAULT_TEXT_FIELD.to_owned());
    let raw = RawText::find(
        kept,
        kinds,
        options.documents.clone().unwrap_or_default(),
        field,
        options.tokenizer.clone(),
    )?;
    if raw.items() == 0 {
        return Err(Error::usage("contains no documents").at_path(path).help(EXPECTED));
    }
    Ok(BenchTarget::raw(path, Box::new(raw)))
}

/// Adds to the error for a URL without a dataset that only datasets can be measured there.
fn remote_error(error: Error, url: &Path) -> Error {
    match error.to_string().contains("this is not a dataset") {
        true => error.at_path(url).help(ONLY_DATASETS),
        false => error,
    }
}

/// Help for a URL without a dataset.
const ONLY_DATASETS: &str =
    "only a dataset can be measured at a URL; download folders of images and text files";
/// Help for a path that cannot be measured.
const EXPECTED: &str = "name a folder of images, .jsonl or .txt files, or the directory of a dataset";

/// Returns the directory or URL of a dataset, which may be named by its manifest.
fn directory(path: &Path) -> PathBuf {
    let is_manifest = path.file_name().is_some_and(|name| name == MANIFEST_NAME);
    if is_manifest { folder_of(path).to_owned() } else { path.to_owned() }
}

/// Returns whether `path` is a dataset, or an unfinished one. A URL must be a dataset.
fn is_dataset(path: &Path) -> Result<bool> {
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
        if self.image.is_none() {
            self.image = option("image").and_then(|json| serde_json::from_value(json).ok());
        }
        if self.text_field.is_none() {
            self.text_field = option("text_field").and_then(|name| Some(name.as_str()?.to_owned()));
        }
        if self.documents.is_none() {
            self.documents = option("documents").and_then(|rule| rule.as_str()?.parse().ok());
        }
        if self.tokenizer.is_none() && manifest.schema.holds_token_ids() {
            let options: TokenizerOptions =
                option("tokenization").and_then(|json| serde_json::from_value(json).ok()).unwrap_or_default();
            let path = directory(dir).join(TOKENIZER_NAME);
            let json = tokenizer_json(&directory(dir))?;
            let tokenizer = Tokenizer::stored(json, options);
            self.tokenizer = Some(Arc::new(tokenizer.map_err(|e| usage_error(e).at_path(&path))?));
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
