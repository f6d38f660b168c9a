//! Datasets of which one file is mutated: reading must return the data that was written, or an error.
//!
//! A record is wrong if its values are not those that were written under its ordinal in its split. The same holds for a
//! length, a rank or an image in a batch. A manifest has a digest of its own content: an altered one must not open.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dsconvert::error::Error;
use dsconvert::format::Format;
use dsconvert::manifest::MANIFEST_NAME;
use dsconvert::reader::batch::{BatchOptions, BatchSize};
use dsconvert::reader::loader::{Batch, Column, ImageBatchOptions, Loader, LoaderOptions};
use dsconvert::reader::{Dataset, OpenOptions, Split};
use dsconvert::sample::Value;
use dsconvert::schema::{IMAGE, INPUT_IDS};
use dsconvert::storage::Access;

use super::{Input, Target, Verdict, files, fixture};
use crate::Result;

const KINDS: [&str; 2] = ["images", "text"];

pub(super) struct Datasets {
    root: PathBuf,
    inputs: Vec<Input>,
    /// Content by kind, then by the name of the split.
    written: BTreeMap<&'static str, BTreeMap<String, Written>>,
    /// Input that is altered on the disk.
    altered: Option<usize>,
    cases: u64,
}

/// Content of a split.
struct Written {
    records: Vec<Vec<Value>>,
    lengths: Vec<u64>,
    by_length: Vec<u64>,
}

impl Written {
    fn read(split: &Split) -> Result<Self> {
        let all = 0..split.len();
        Ok(Self {
            records: split.iter().map(|record| Ok(record?.values().to_vec())).collect::<Result<_>>()?,
            lengths: all.clone().map(|i| split.length(i)).collect::<Result<_, _>>()?,
            by_length: all.map(|rank| split.by_length(rank)).collect::<Result<_, _>>()?,
        })
    }
}

impl Datasets {
    pub(super) fn new(format: Format, scratch: &Path) -> Result<Self> {
        let mut inputs = Vec::new();
        let mut written = BTreeMap::new();
        for kind in KINDS {
            let dir = scratch.join(kind);
            for mut file in files(&fixture(&format!("golden/v2/{kind}-{format}")))? {
                let path = dir.join(&file.name);
                std::fs::create_dir_all(path.parent().unwrap_or(&dir))?;
                std::fs::write(path, &file.bytes)?;
                file.name = format!("{kind}/{}", file.name);
                inputs.push(file);
            }
            // Values must not be views of files that will change.
            let dataset = OpenOptions::new().access(Access::Read).open(&dir)?;
            let splits = dataset.splits().map(|split| Ok((split.name().to_owned(), Written::read(&split)?)));
            written.insert(kind, splits.collect::<Result<_>>()?);
        }
        inputs.retain(|input| !input.bytes.is_empty() && !input.name.ends_with("rejects.jsonl"));
        Ok(Self { root: scratch.to_owned(), inputs, written, altered: None, cases: 0 })
    }

    fn write(&self, input: usize, bytes: &[u8]) -> std::io::Result<()> {
        std::fs::write(self.root.join(&self.inputs[input].name), bytes)
    }
}

impl Target for Datasets {
    fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    fn check(&mut self, input: usize, bytes: &[u8]) -> Verdict {
        // Restores the file of the case before, which may have ended in a panic.
        if let Some(altered) = self.altered.replace(input)
            && let Err(e) = self.write(altered, &self.inputs[altered].bytes)
        {
            return Verdict::Wrong(format!("a file of the dataset cannot be restored: {e}"));
        }
        if let Err(e) = self.write(input, bytes) {
            return Verdict::Wrong(format!("a file of the dataset cannot be written: {e}"));
        }
        self.cases += 1;
        let access = if self.cases.is_multiple_of(2) { Access::Map } else { Access::Read };
        let kind = if self.inputs[input].name.starts_with(KINDS[0]) { KINDS[0] } else { KINDS[1] };
        let Ok(dataset) = OpenOptions::new().access(access).open(self.root.join(kind)) else {
            return Verdict::Refused;
        };
        if self.inputs[input].name.ends_with(MANIFEST_NAME) && bytes != self.inputs[input].bytes {
            return Verdict::Wrong("an altered manifest was opened".to_owned());
        }
        match compare(&dataset, &self.written[kind]) {
            Ok(errors) => Verdict::of(errors > 0),
            Err(what) => Verdict::Wrong(what),
        }
    }
}

/// Reads everything in every way and returns the number of read errors. The error describes what is wrong.
fn compare(dataset: &Dataset, written: &BTreeMap<String, Written>) -> Result<u64, String> {
    let mut errors = 0;
    let _ = dataset.describe();
    for split in dataset.splits() {
        if let Some(written) = written.get(split.name()) {
            let mut comparison = Comparison { split: &split, written, errors: 0 };
            comparison.records()?;
            comparison.lengths()?;
            comparison.batches()?;
            errors += comparison.errors;
        }
    }
    Ok(errors)
}

struct Comparison<'a> {
    split: &'a Split,
    written: &'a Written,
    errors: u64,
}

impl Comparison<'_> {
    fn check_equal<T: PartialEq>(
        &mut self,
        what: &str,
        ordinal: u64,
        found: Result<T, Error>,
        expected: Option<&T>,
    ) -> Result<(), String> {
        match found {
            Ok(found) if expected == Some(&found) => Ok(()),
            Ok(_) => Err(format!("{what} {ordinal} of split {} is wrong", self.split.name())),
            Err(_) => {
                self.errors += 1;
                Ok(())
            }
        }
    }

    fn records(&mut self) -> Result<(), String> {
        let (split, records) = (self.split, &self.written.records);
        let count = records.len() as u64;
        if split.len() != count {
            return Err(format!("split {} has {} records", split.name(), split.len()));
        }
        for i in 0..count {
            self.check_equal(
                "record",
                i,
                split.get(i).map(|r| r.values().to_vec()),
                records.get(i as usize),
            )?;
        }
        for (i, record) in (0..).zip(split.iter()) {
            self.check_equal(
                "iterated record",
                i,
                record.map(|r| r.values().to_vec()),
                records.get(i as usize),
            )?;
        }
        let some: Vec<u64> = (0..count).rev().step_by(2).chain(0..count.min(1)).collect();
        match split.get_many(&some) {
            Ok(found) => {
                for (record, i) in found.iter().zip(some) {
                    self.check_equal(
                        "record in a slice",
                        i,
                        Ok(record.values().to_vec()),
                        records.get(i as usize),
                    )?;
                }
            }
            Err(_) => self.errors += 1,
        }
        let last = split.schema().fields.last().map(|field| field.name.clone()).unwrap_or_default();
        match split.select(&[&last]) {
            Ok(selected) => {
                for i in 0..count.min(2) {
                    let expected = records.get(i as usize).and_then(|values| values.last());
                    let found = selected.get(i).map(|r| r.values().to_vec());
                    self.check_equal(
                        "projected record",
                        i,
                        found,
                        expected.map(|v| vec![v.clone()]).as_ref(),
                    )?;
                }
            }
            Err(_) => self.errors += 1,
        }
        Ok(())
    }

    fn lengths(&mut self) -> Result<(), String> {
        let (split, written) = (self.split, self.written);
        for (i, length) in (0..).zip(&written.lengths) {
            self.check_equal("length", i, split.length(i), Some(length))?;
        }
        for (rank, record) in (0..).zip(&written.by_length) {
            self.check_equal("rank", rank, split.by_length(rank), Some(record))?;
        }
        let bucket = split.bucket(0..u64::MAX).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        self.check_equal("bucket", 0, bucket, Some(&written.by_length))?;
        let runs = split.histogram().and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let counted = runs.map(|runs| runs.iter().map(|run| run.count).sum::<u64>());
        self.check_equal("histogram", 0, counted, Some(&(written.lengths.len() as u64)))
    }

    fn batches(&mut self) -> Result<(), String> {
        let image = ImageBatchOptions { decode: false, ..ImageBatchOptions::default() };
        let batches = BatchOptions::new(BatchSize::BatchSize(3));
        let options = LoaderOptions { image, threads: 1, ..LoaderOptions::new(batches) };
        let mut loader = match Loader::new(self.split.clone(), options) {
            Ok(loader) => loader,
            Err(_) => {
                self.errors += 1;
                return Ok(());
            }
        };
        loop {
            match loader.next_batch() {
                Ok(None) => return Ok(()),
                Ok(Some(batch)) => self.batch(&batch)?,
                Err(_) => {
                    self.errors += 1;
                    return Ok(());
                }
            }
        }
    }

    fn batch(&mut self, batch: &Batch) -> Result<(), String> {
        let schema = self.split.schema();
        let column = |name| schema.index_of(name);
        for (row, &ordinal) in batch.records().iter().enumerate() {
            let written = self.written.records.get(ordinal as usize);
            let is_right = if let Some(image) = column(IMAGE)
                && let Some(Column::Bytes(images)) = batch.get(IMAGE)
            {
                let found = images.get(row).and_then(|image| image.clone()).map(Value::Bytes);
                written.and_then(|values| values.get(image)) == found.as_ref()
            } else if let Some(ids) = column(INPUT_IDS) {
                match written.and_then(|values| values.get(ids)) {
                    Some(Value::Ids(ids)) => row_of(batch, row) == Some(ids.iter().map(i64::from).collect()),
                    _ => false,
                }
            } else {
                true
            };
            if !is_right {
                return Err(format!("record {ordinal} in a batch of split {} is wrong", self.split.name()));
            }
        }
        Ok(())
    }
}

/// Returns the ids of a row of a padded batch, without the padding.
fn row_of(batch: &Batch, row: usize) -> Option<Vec<i64>> {
    let ids = batch.array(INPUT_IDS)?.as_slice::<i64>()?;
    let lengths = batch.array("lengths")?.as_slice::<i64>()?;
    let width = ids.len() / lengths.len().max(1);
    let length = usize::try_from(*lengths.get(row)?).ok()?;
    Some(ids.get(row * width..)?.get(..length)?.to_vec())
}
