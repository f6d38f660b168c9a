//! Benchmark targets: what to measure.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::batch::{BatchWorker, BenchBatchSize, DeliveredShape};
use super::dataset_source::DatasetSource;
use super::raw_file::RawFile;
use crate::error::{Error, Result};
use crate::reader::Dataset;
use crate::reader::batch::{BatchSize, LengthsInMemory, Padding, padding};
use crate::schema::Kind;
use crate::storage::ObjectUrl;

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
    /// The files of a dataset; those of raw files are in `raw`.
    files: Vec<RawFile>,
    split: Option<String>,
    raw: Option<Box<dyn RawSource>>,
    /// Time taken to find the target.
    found_in: Duration,
}

/// Files that are loaded item by item, without the reader of datasets.
pub trait RawSource: Sync {
    /// Returns the kind of the items.
    fn kind(&self) -> TargetKind;

    /// Returns the number of items.
    fn items(&self) -> u64;

    /// Returns the files.
    fn files(&self) -> &[RawFile];

    /// Returns the name of an item: the path under the folder and, for documents, the offset in the file.
    fn name(&self, item: u64) -> String;

    /// Returns whether items have tokens, which buckets and token budgets need.
    fn has_tokens(&self) -> bool {
        false
    }

    /// Returns runs of items that can only be read in order, each by one thread. `None`: any item can be read at any
    /// time.
    fn streams(&self) -> Option<Vec<Range<u64>>> {
        None
    }

    /// Returns a worker, which loads items on one thread.
    fn worker(&self) -> Box<dyn BatchWorker + '_>;
}

/// A target that threads read from.
pub(super) enum OpenTarget<'a> {
    Raw(&'a dyn RawSource),
    Dataset(DatasetSource),
}

impl OpenTarget<'_> {
    pub(super) fn worker(&self) -> Box<dyn BatchWorker + '_> {
        match self {
            Self::Raw(raw) => raw.worker(),
            Self::Dataset(dataset) => Box::new(dataset.worker()),
        }
    }
}

impl BenchTarget {
    /// Creates a target of the files at `path`.
    pub fn raw(path: &Path, raw: Box<dyn RawSource>) -> Self {
        Self {
            path: path.to_owned(),
            kind: raw.kind(),
            items: raw.items(),
            left_out: 0,
            labels: Vec::new(),
            files: Vec::new(),
            split: None,
            raw: Some(raw),
            found_in: Duration::ZERO,
        }
    }

    /// Sets the time that it took to find the target: listing files, locating documents, reading a manifest.
    #[must_use]
    pub fn found_in(self, time: Duration) -> Self {
        Self { found_in: time, ..self }
    }

    /// Creates a target of the dataset in the directory or at the URL `dir`, or of one split of it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) if there is nothing to measure;
    /// [`ErrorKind::Io`](crate::error::ErrorKind) for a dataset that is not finished.
    pub fn dataset(dir: &Path, split: Option<&str>) -> Result<Self> {
        let dataset = Dataset::open(dir)?;
        if let Some(name) = split {
            dataset.split(name)?;
        }
        let mut files = Vec::new();
        let (mut items, mut left_out) = (0, 0);
        for split in dataset.splits().filter(|s| split.is_none_or(|name| s.name() == name)) {
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
            let what = match split {
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
            files,
            split: split.map(str::to_owned),
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

    /// Returns the time taken to find the target.
    pub(super) fn finding_time(&self) -> Duration {
        self.found_in
    }

    /// Returns the number of images, documents or records.
    pub fn items(&self) -> u64 {
        self.items
    }

    fn all_files(&self) -> &[RawFile] {
        self.raw.as_ref().map_or(&self.files, |raw| raw.files())
    }

    /// Returns the number and the total size of the files.
    pub fn files(&self) -> (u64, u64) {
        let files = self.all_files();
        (files.len() as u64, files.iter().map(|file| file.bytes).sum())
    }

    /// Returns whether the target is a dataset in object storage.
    pub fn is_remote(&self) -> bool {
        ObjectUrl::is_url(&self.path)
    }

    /// Returns the local files of the target: none of a dataset in object storage.
    pub(super) fn local_files(&self) -> &[RawFile] {
        if self.is_remote() { &[] } else { self.all_files() }
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
        self.raw.as_ref().map_or(self.kind == TargetKind::TextDataset, |raw| raw.has_tokens())
    }

    /// Returns whether the target holds compressed text, which can only be read in order.
    pub fn is_compressed(&self) -> bool {
        self.streams().is_some()
    }

    /// Returns runs of items that can only be read in order, each by one thread.
    pub(super) fn streams(&self) -> Option<Vec<Range<u64>>> {
        self.raw.as_ref()?.streams()
    }

    /// Opens the target. Raw files are opened one by one when they are read.
    pub(super) fn open(&self) -> Result<OpenTarget<'_>> {
        Ok(match &self.raw {
            Some(raw) => OpenTarget::Raw(&**raw),
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
                    Ok(DeliveredShape::Tokens { count, .. }) => count,
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
            Some(raw) => Ok((0..self.items).map(|item| raw.name(item)).collect()),
            None => DatasetSource::origins(&self.path, self.split.as_deref()),
        }
    }

    /// Returns the name of an item for messages.
    pub(super) fn name_of(&self, item: u64) -> String {
        let name = self.raw.as_ref().map(|raw| raw.name(item));
        name.filter(|name| !name.is_empty()).unwrap_or_else(|| match self.kind.is_dataset() {
            true => format!("record {item}"),
            false => self.path.to_string_lossy().into_owned(),
        })
    }
}
