//! Targets: what is measured. Datasets are loaded through the reader, raw files by a [`RawSource`].

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::batch::{BatchWorker, BenchBatchSize, DeliveredShape, IdRows, LoadedBatch, Stopwatch};
use crate::decode::{Decoder, Size, SourceRegion, Stored};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::reader::batch::{LengthsInMemory, Padding, padding};
use crate::reader::{Dataset, OpenOptions, Record, Split};
use crate::schema::{Kind, ORIGIN};
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
    /// Path of the target.
    pub path: PathBuf,
    /// Kind of the target.
    pub kind: TargetKind,
    /// Number of images, documents or records.
    pub items: u64,
    /// Items of the source that the conversion of a dataset left out: rejected, filtered or duplicate.
    pub(super) left_out: u64,
    /// Labels of the sources of a dataset, with which the names of its items start; none for raw files.
    pub(super) labels: Vec<String>,
    /// The files of a dataset; those of raw files are in `raw`.
    files: Vec<RawFile>,
    /// Format of the shards of a dataset.
    pub(super) format: Option<Format>,
    split: Option<String>,
    raw: Option<Box<dyn RawSource>>,
    /// Time taken to find the target: listing files, locating documents, reading a manifest.
    pub found_in: Duration,
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
            format: None,
            split: None,
            raw: Some(raw),
            found_in: Duration::ZERO,
        }
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
        let kind = match dataset.schema().kind {
            Kind::Images => TargetKind::ImageDataset,
            Kind::Text => TargetKind::TextDataset,
            Kind::Records => {
                let what = "the dataset holds records of another kind than images and text";
                return Err(Error::usage(what).at_path(dir).help("measure the loader in your own program"));
            }
        };
        Ok(Self {
            path: dir.to_owned(),
            kind,
            items,
            left_out,
            labels: dataset.manifest().sources.labels.clone(),
            files,
            format: Some(dataset.manifest().format),
            split: split.map(str::to_owned),
            raw: None,
            found_in: Duration::ZERO,
        })
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
        padding(&lengths, size.into()).map(Some)
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

/// A file to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawFile {
    /// Where it is.
    pub path: PathBuf,
    /// Path relative to the target, separated by `/`; empty if the target is the file itself.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// Samples per RGB pixel.
const CHANNELS: usize = 3;

/// An open dataset, or one split of it.
pub(super) struct DatasetSource {
    holds_token_ids: bool,
    /// Each split, with the ordinal of its first record among all records.
    splits: Vec<(u64, Split)>,
    raw_channels: Option<usize>,
    /// Mean stored bytes per record: size of the shards ÷ number of records.
    record_bytes: f64,
}

impl DatasetSource {
    pub(super) fn open(dir: &std::path::Path, split: Option<&str>) -> Result<Self> {
        let dataset = Dataset::open(dir)?;
        let found = match split {
            Some(name) => vec![dataset.split(name)?],
            None => dataset.splits().collect(),
        };
        let (mut splits, mut records, mut bytes) = (Vec::new(), 0, 0);
        for split in found {
            let shards = split.shards().iter().map(|shard| shard.bytes);
            bytes += shards.sum::<u64>();
            let first = records;
            records += split.len();
            splits.push((first, split));
        }
        let manifest = dataset.manifest();
        Ok(Self {
            holds_token_ids: manifest.schema.holds_token_ids(),
            splits,
            raw_channels: manifest.raw_channels().map(|n| n as usize),
            record_bytes: bytes as f64 / records.max(1) as f64,
        })
    }

    /// Returns the number of records.
    pub(super) fn records(&self) -> u64 {
        self.splits.last().map_or(0, |(first, split)| first + split.len())
    }

    /// Returns the lengths of all records, in tokens or pixels.
    pub(super) fn lengths(&self) -> Result<Vec<u64>> {
        let mut lengths = Vec::new();
        for (_, split) in &self.splits {
            lengths.extend(split.record_index()?.lengths(0..split.len())?.collect::<Result<Vec<_>>>()?);
        }
        Ok(lengths)
    }

    /// Returns the origins of all records.
    pub(super) fn origins(dir: &std::path::Path, split: Option<&str>) -> Result<Vec<String>> {
        // Verifying checksums would decode all columns of parquet shards, not only this one.
        let dataset = OpenOptions::new().verify_checksums(false).open(dir)?;
        let mut origins = Vec::new();
        for found in dataset.splits().filter(|found| split.is_none_or(|name| found.name() == name)) {
            for record in found.select(&[ORIGIN])?.iter() {
                origins.push(record?.origin().unwrap_or_default().to_owned());
            }
        }
        Ok(origins)
    }

    /// Groups consecutive `items` of the same split, and returns each group as ordinals in that split.
    fn by_split(&self, items: &[u64]) -> Vec<(&Split, Vec<u64>)> {
        let split_of = |item: u64| self.splits.partition_point(|(first, _)| *first <= item).saturating_sub(1);
        let groups = items.chunk_by(|a, b| split_of(*a) == split_of(*b));
        groups
            .filter_map(|group| {
                let (first, split) = self.splits.get(split_of(*group.first()?))?;
                Some((split, group.iter().map(|item| item - first).collect()))
            })
            .collect()
    }

    pub(super) fn worker(&self) -> DatasetWorker<'_> {
        DatasetWorker {
            source: self,
            decoder: Decoder::default(),
            pixels: Vec::new(),
            batch: Vec::new(),
            rows: IdRows::default(),
        }
    }
}

/// Loads records on one thread.
pub(super) struct DatasetWorker<'a> {
    source: &'a DatasetSource,
    decoder: Decoder,
    /// Pixels of the current image.
    pixels: Vec<u8>,
    /// Pixels of the batch.
    batch: Vec<u8>,
    rows: IdRows,
}

impl DatasetWorker<'_> {
    /// Decodes the image of `record` into `self.pixels`, and returns its width and height.
    fn decode(&mut self, record: &Record) -> Result<(u32, u32), String> {
        let (Some(bytes), Some(width), Some(height)) = (record.image(), record.width(), record.height())
        else {
            return Err("has no image".to_owned());
        };
        let size = Size::new(width, height);
        let stored = Stored { bytes, size, raw_channels: self.source.raw_channels };
        let whole = SourceRegion { left: 0.0, top: 0.0, width: width.into(), height: height.into() };
        let samples = usize::try_from(size.pixels()).ok().and_then(|pixels| pixels.checked_mul(CHANNELS));
        self.pixels.resize(samples.ok_or("is too large")?, 0);
        let decoded = self.decoder.decode(stored, whole, size, CHANNELS, &mut self.pixels);
        decoded.map_err(|reject| reject.message)?;
        Ok((width, height))
    }

    /// Loads image records. `records` are ordinals in `split`; `items` are the ordinals among all records.
    fn images(&mut self, split: &Split, records: &[u64], items: &[u64], decode: bool, out: &mut LoadedBatch) {
        let mut lap = Stopwatch::start();
        let found: Vec<Result<Record>> = match split.get_many(records) {
            Ok(found) => found.into_iter().map(Ok).collect(),
            // Reads the records one at a time, to find those that fail.
            Err(_) => records.iter().map(|&record| split.get(record)).collect(),
        };
        let read = lap.ns();
        out.stages.read += read;
        out.shared_ns += read;
        for (record, &item) in found.into_iter().zip(items) {
            let mut own = Stopwatch::start();
            let loaded = record.map_err(|e| e.to_string()).and_then(|record| {
                if !decode {
                    std::hint::black_box(record.image());
                    return Ok(());
                }
                let mut lap = Stopwatch::start();
                let decoded = self.decode(&record);
                out.stages.decode += lap.ns();
                decoded?;
                self.batch.extend_from_slice(&self.pixels);
                out.stages.collate += lap.ns();
                Ok(())
            });
            out.bytes += if loaded.is_ok() { self.source.record_bytes } else { 0.0 };
            out.add(item, own.ns(), loaded);
        }
    }

    /// Reads the ids of text records into the rows.
    fn documents(
        &mut self,
        split: &Split,
        records: &[u64],
        items: &[u64],
        decode: bool,
        out: &mut LoadedBatch,
    ) {
        let mut lap = Stopwatch::start();
        let rows = &mut self.rows;
        let (flat, ends) = (rows.flat.len(), rows.ends.len());
        let copy = |rows: &mut IdRows, ids: crate::sample::Ids<&[u8]>| {
            if decode {
                rows.flat.extend(ids.iter());
                rows.end_document();
            }
        };
        let mut found = vec![Ok(()); records.len()];
        if split.visit_ids(records, |ids| copy(rows, ids)).is_err() {
            rows.flat.truncate(flat);
            rows.ends.truncate(ends);
            // Reads the records one at a time, to find those that fail.
            for (record, found) in records.iter().zip(&mut found) {
                let visited = split.visit_ids(std::slice::from_ref(record), |ids| copy(rows, ids));
                *found = visited.map_err(|e| e.to_string());
            }
        }
        let read = lap.ns();
        out.stages.read += read;
        out.shared_ns += read;
        for (found, &item) in found.into_iter().zip(items) {
            out.bytes += if found.is_ok() { self.source.record_bytes } else { 0.0 };
            out.add(item, 0, found);
        }
    }
}

impl BatchWorker for DatasetWorker<'_> {
    fn load(&mut self, items: &[u64], decode: bool, out: &mut LoadedBatch) {
        self.batch.clear();
        self.rows.clear();
        let mut rest = items;
        for (split, records) in self.source.by_split(items) {
            let (of_split, others) = rest.split_at(records.len().min(rest.len()));
            rest = others;
            match self.source.holds_token_ids {
                false => self.images(split, &records, of_split, decode, out),
                true => self.documents(split, &records, of_split, decode, out),
            }
        }
        if decode && self.source.holds_token_ids {
            let mut lap = Stopwatch::start();
            self.rows.pad(out);
            let padded = lap.ns();
            out.stages.collate += padded;
            out.shared_ns += padded;
        }
        std::hint::black_box(&self.batch);
    }

    fn shape(&mut self, item: u64) -> Result<DeliveredShape, String> {
        let (split, record) = match self.source.by_split(&[item]).pop() {
            Some((split, records)) => (split, records.first().copied().unwrap_or(0)),
            None => return Err(Error::usage("there is no such record").to_string()),
        };
        match self.source.holds_token_ids {
            false => {
                let record = split.get(record).map_err(|e| e.to_string())?;
                self.decode(&record).map(|(width, height)| DeliveredShape::Pixels { width, height })
            }
            true => {
                let mut ids = Vec::new();
                let visited = split.visit_ids(&[record], |found| ids.extend(found.iter()));
                visited.map_err(|e| e.to_string())?;
                Ok(DeliveredShape::of_ids(&ids))
            }
        }
    }
}
