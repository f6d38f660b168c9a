//! Loads batches from datasets through the reader.

use super::batch::{BatchWorker, DeliveredShape, IdRows, LoadedBatch, Stopwatch};
use crate::decode::{Decoder, Size, SourceRegion, Stored};
use crate::error::{Error, Result};
use crate::reader::{Dataset, OpenOptions, Record, Split};
use crate::schema::{Kind, ORIGIN};

/// Samples per RGB pixel.
const CHANNELS: usize = 3;

/// An open dataset, or one split of it.
pub(super) struct DatasetSource {
    kind: Kind,
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
            kind: manifest.kind(),
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
            match loaded {
                Ok(()) => {
                    out.delivered += 1;
                    out.bytes += self.source.record_bytes;
                    out.item_ns.push(own.ns());
                }
                Err(why) => out.failed.push((item, why)),
            }
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
            match found {
                Ok(()) => {
                    out.delivered += 1;
                    out.bytes += self.source.record_bytes;
                    out.item_ns.push(0);
                }
                Err(why) => out.failed.push((item, why)),
            }
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
            match self.source.kind {
                Kind::Images => self.images(split, &records, of_split, decode, out),
                Kind::Text => self.documents(split, &records, of_split, decode, out),
            }
        }
        if decode && self.source.kind == Kind::Text {
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
        match self.source.kind {
            Kind::Images => {
                let record = split.get(record).map_err(|e| e.to_string())?;
                self.decode(&record).map(|(width, height)| DeliveredShape::Pixels { width, height })
            }
            Kind::Text => {
                let mut ids = Vec::new();
                let visited = split.visit_ids(&[record], |found| ids.extend(found.iter()));
                visited.map_err(|e| e.to_string())?;
                Ok(DeliveredShape::of_ids(&ids))
            }
        }
    }
}
