//! Benchmark targets: what to measure, found by its path.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::batch::{BatchWorker, BenchBatchSize};
use super::dataset_source::DatasetSource;
use super::raw_file::RawFile;
use super::raw_images::RawImages;
use super::raw_text::{RawText, unsupported};
use super::target_options::{TargetOptions, directory, is_dataset};
use crate::error::{Error, Result};
use crate::options::SourceSpec;
use crate::reader::Dataset;
use crate::reader::batch::{BatchSize, LengthsInMemory, Padding, padding};
use crate::schema::Kind;
use crate::source::begins_as_image;
use crate::source::text::kind::{FileKind, TextFormat};
use crate::source::walk;
use crate::storage::{ObjectUrl, stat};
use crate::transform::image::{Color, ImageOptions, ImageTransform, has_image_extension};

/// Content and storage of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetKind {
    /// Image files.
    RawImages,
    /// Text files.
    RawText,
    /// A dataset of images.
    ImageDataset,
    /// A dataset of token ids.
    TextDataset,
}

impl TargetKind {
    /// Returns whether the target holds documents rather than images.
    pub fn is_text(self) -> bool {
        matches!(self, Self::RawText | Self::TextDataset)
    }

    /// Returns whether the target is a dataset.
    pub fn is_dataset(self) -> bool {
        matches!(self, Self::ImageDataset | Self::TextDataset)
    }

    /// Describes the kind in words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::RawImages => "image files",
            Self::RawText => "text files",
            Self::ImageDataset => "dataset of images",
            Self::TextDataset => "dataset of token ids",
        }
    }
}

/// A folder of images, a corpus or a dataset that has been found, but not opened.
pub struct BenchTarget {
    path: PathBuf,
    kind: TargetKind,
    items: u64,
    /// Items of the source that the conversion of a dataset left out: rejected, filtered or duplicate.
    left_out: u64,
    /// Labels of the sources of a dataset, with which the names of its items start.
    labels: Vec<String>,
    files: Arc<Vec<RawFile>>,
    split: Option<String>,
    raw: Option<RawSource>,
    /// Time taken to find the target.
    found_in: Duration,
}

enum RawSource {
    Images(RawImages),
    Text(RawText),
}

/// A target that threads read from.
pub(super) enum OpenTarget<'a> {
    Images(&'a RawImages),
    Text(&'a RawText),
    Dataset(DatasetSource),
}

impl OpenTarget<'_> {
    pub(super) fn worker(&self) -> Box<dyn BatchWorker + '_> {
        match self {
            Self::Images(images) => Box::new(images.worker()),
            Self::Text(text) => Box::new(text.worker()),
            Self::Dataset(dataset) => Box::new(dataset.worker()),
        }
    }
}

impl BenchTarget {
    /// Finds the target at `path`: lists files, locates documents, or reads the manifest of a dataset. A URL must be that
    /// of a dataset.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) if there is nothing to measure;
    /// [`ErrorKind::Io`](crate::error::ErrorKind) for a dataset that is not finished.
    pub fn find(path: &Path, options: &TargetOptions) -> Result<Self> {
        let start = Instant::now();
        let target = Self::find_any(path, options)?;
        Ok(Self { found_in: start.elapsed(), ..target })
    }

    fn find_any(path: &Path, options: &TargetOptions) -> Result<Self> {
        if ObjectUrl::is_url(path) {
            return Self::dataset(&directory(path), options).map_err(|error| remote_error(error, path));
        }
        if stat(path)?.is_none() {
            return Err(Error::usage("there is no such file or folder").at_path(path).help(EXPECTED));
        }
        if is_dataset(path)? {
            return Self::dataset(&directory(path), options);
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
            return Self::text(path, files, options);
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
                1 => "its only file is no image, .jsonl or .txt, and there is no manifest.json".to_owned(),
                n => format!(
                    "none of its {n} files is an image, .jsonl or .txt, and there is no manifest.json"
                ),
            };
            return Err(Error::usage(what).at_path(path).help(EXPECTED));
        }
        let image = ImageOptions { color: Color::Rgb, ..options.image.clone().unwrap_or_default() };
        let files = Arc::new(images);
        let raw = RawImages { files: Arc::clone(&files), transform: ImageTransform::delivering(image)? };
        Ok(Self {
            path: path.to_owned(),
            kind: TargetKind::RawImages,
            items: files.len() as u64,
            left_out: 0,
            labels: Vec::new(),
            files,
            split: None,
            raw: Some(RawSource::Images(raw)),
            found_in: Duration::ZERO,
        })
    }

    fn text(path: &Path, files: Vec<RawFile>, options: &TargetOptions) -> Result<Self> {
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
        let files = Arc::new(kept);
        let field =
            options.text_field.clone().unwrap_or_else(|| crate::pipeline::DEFAULT_TEXT_FIELD.to_owned());
        let raw = RawText::find(
            Arc::clone(&files),
            kinds,
            options.documents.clone().unwrap_or_default(),
            field,
            options.tokenizer.clone(),
        )?;
        if raw.places.is_empty() {
            return Err(Error::usage("contains no documents").at_path(path).help(EXPECTED));
        }
        Ok(Self {
            path: path.to_owned(),
            kind: TargetKind::RawText,
            items: raw.places.len() as u64,
            left_out: 0,
            labels: Vec::new(),
            files,
            split: None,
            raw: Some(RawSource::Text(raw)),
            found_in: Duration::ZERO,
        })
    }

    fn dataset(dir: &Path, options: &TargetOptions) -> Result<Self> {
        let dataset = Dataset::open(dir)?;
        if let Some(name) = &options.split {
            dataset.split(name)?;
        }
        let mut files = Vec::new();
        let (mut items, mut left_out) = (0, 0);
        for split in dataset.splits().filter(|s| options.split.as_deref().is_none_or(|name| s.name() == name))
        {
            items += split.len();
            let shards = split.shards().iter().map(|shard| (shard.path(), shard.bytes));
            let info = split.info();
            let index =
                info.iter().flat_map(|info| &info.record_index).map(|file| (file.path.clone(), file.bytes));
            left_out += info.map_or(0, |info| info.counts.found.saturating_sub(info.counts.converted));
            for (name, bytes) in shards.chain(index) {
                files.push(RawFile { path: dir.join(&name), name, bytes });
            }
        }
        if items == 0 {
            let what = match &options.split {
                Some(split) => format!("split {split:?} has no records to read"),
                None => "the dataset has no records to read".to_owned(),
            };
            return Err(Error::usage(what).at_path(dir));
        }
        let kind = match dataset.manifest().kind() {
            Kind::Images => TargetKind::ImageDataset,
            Kind::Text => TargetKind::TextDataset,
        };
        Ok(Self {
            path: dir.to_owned(),
            kind,
            items,
            left_out,
            labels: dataset.manifest().sources.labels.clone(),
            files: Arc::new(files),
            split: options.split.clone(),
            raw: None,
            found_in: Duration::ZERO,
        })
    }

    /// Returns the path of the target.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the kind of the target.
    pub fn kind(&self) -> TargetKind {
        self.kind
    }

    /// Returns the time taken to find the target: listing files, locating documents, reading a manifest.
    pub(super) fn found_in(&self) -> Duration {
        self.found_in
    }

    /// Returns the number of images, documents or records.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Returns the number and the total size of the files.
    pub fn files(&self) -> (u64, u64) {
        (self.files.len() as u64, self.files.iter().map(|file| file.bytes).sum())
    }

    /// Returns whether the target is a dataset in object storage.
    pub fn is_remote(&self) -> bool {
        ObjectUrl::is_url(&self.path)
    }

    /// Returns the local files of the target: none of a dataset in object storage.
    pub(super) fn local_files(&self) -> &[RawFile] {
        if self.is_remote() { &[] } else { &self.files }
    }

    /// Returns the number of items that the conversion of a dataset left out.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns the labels with which the names of items start; none for raw files.
    pub(super) fn labels(&self) -> &[String] {
        &self.labels
    }

    /// Returns whether the items of the target have tokens, which buckets and token budgets need.
    pub fn has_tokens(&self) -> bool {
        match &self.raw {
            Some(RawSource::Text(text)) => text.tokenizer.is_some(),
            _ => self.kind == TargetKind::TextDataset,
        }
    }

    /// Returns whether the target holds compressed text, which can only be read in order.
    pub fn is_compressed(&self) -> bool {
        self.streams().is_some()
    }

    /// Returns runs of items that can only be read in order, each by one thread.
    pub(super) fn streams(&self) -> Option<Vec<std::ops::Range<u64>>> {
        match &self.raw {
            Some(RawSource::Text(text)) => text.streams(),
            _ => None,
        }
    }

    /// Opens the target. Raw files are opened one by one when they are read.
    pub(super) fn open(&self) -> Result<OpenTarget<'_>> {
        Ok(match &self.raw {
            Some(RawSource::Images(images)) => OpenTarget::Images(images),
            Some(RawSource::Text(text)) => OpenTarget::Text(text),
            None => {
                let dataset = DatasetSource::open(&self.path, self.split.as_deref())?;
                if dataset.records() != self.items {
                    return Err(
                        Error::corrupt("the dataset changed while it was measured").at_path(&self.path)
                    );
                }
                OpenTarget::Dataset(dataset)
            }
        })
    }

    /// Returns the number of tokens of each item. Raw text is tokenized for this; documents that cannot be tokenized
    /// count as 0.
    pub(super) fn lengths(&self) -> Result<Vec<u64>> {
        match self.open()? {
            OpenTarget::Dataset(dataset) => dataset.lengths(),
            open => {
                let mut worker = open.worker();
                let length = |item| match worker.shape(item) {
                    Ok(super::batch::DeliveredShape::Tokens { count, .. }) => count,
                    _ => 0,
                };
                Ok((0..self.items).map(length).collect())
            }
        }
    }

    /// Computes the padding of batches of `size` over a text dataset from its lengths; `None` for others.
    ///
    /// # Errors
    ///
    /// If the dataset or its indexes cannot be read.
    pub fn padding(&self, size: BenchBatchSize) -> Result<Option<Padding>> {
        if self.kind != TargetKind::TextDataset {
            return Ok(None);
        }
        let lengths = LengthsInMemory::new(self.lengths()?);
        let size = match size {
            BenchBatchSize::Items(items) => BatchSize::BatchSize(items),
            BenchBatchSize::Tokens(tokens) => BatchSize::MaxTokens(tokens),
        };
        padding(&lengths, size).map(Some)
    }

    /// Returns the identity of each item within the target: the relative path, and the offset in the file.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        match &self.raw {
            Some(RawSource::Images(images)) => {
                Ok(images.files.iter().map(|file| file.name.clone()).collect())
            }
            Some(RawSource::Text(text)) => Ok((0..self.items).map(|item| text.name(item)).collect()),
            None => DatasetSource::origins(&self.path, self.split.as_deref()),
        }
    }

    /// Returns the name of an item for messages.
    pub(super) fn name_of(&self, item: u64) -> String {
        let name = match &self.raw {
            Some(RawSource::Images(images)) => images.files.get(item as usize).map(|file| file.name.clone()),
            Some(RawSource::Text(text)) => Some(text.name(item)),
            None => None,
        };
        name.filter(|name| !name.is_empty()).unwrap_or_else(|| match self.kind.is_dataset() {
            true => format!("record {item}"),
            false => self.path.to_string_lossy().into_owned(),
        })
    }
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
