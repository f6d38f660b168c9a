//! Descriptions of datasets and shards as data. `dsconvert inspect` prints them as text or JSON.

use std::collections::BTreeMap;
use std::path::Path;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::format::Format;
use dsconvert_dataset::index::{IndexEntry, LengthSummary};
use dsconvert_dataset::manifest::{Binding, Counts, MANIFEST_NAME, Sources};
use dsconvert_dataset::sample::{Value, length_of, trained};
use dsconvert_dataset::schema::{Kind, Schema, TRAINED};
use dsconvert_dataset::storage::{Access, folder_of, stat};
use serde::Serialize;

use super::batch::runs_of;
use super::{Dataset, ShardFile, Split};

/// Maximum number of buckets of a histogram: as many as fit a terminal.
pub const MAX_HISTOGRAM_BUCKETS: usize = 20;
/// Buckets are equally wide below this many doublings from the shortest to the longest length.
const LINEAR_OCTAVES: u32 = 4;
/// Target number of equally wide buckets; alignment may add one.
const LINEAR_BUCKETS: u64 = 16;

/// The description of a dataset or a shard. In JSON, the key `object` distinguishes them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "object", rename_all = "lowercase")]
pub enum Description {
    /// A dataset.
    Dataset(Box<DatasetDescription>),
    /// One shard.
    Shard(Box<ShardDescription>),
}

/// The description of a dataset.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DatasetDescription {
    /// Kind of the records: images or text.
    pub kind: Kind,
    /// Format of the shards.
    pub format: Format,
    /// Number of records in all splits.
    pub records: u64,
    /// Number of shards in all splits.
    pub shards: u64,
    /// Size of all shards in bytes.
    pub bytes: u64,
    /// Numbers of items by outcome, over all items.
    #[serde(flatten)]
    pub counts: Counts,
    /// Number of rejects by reason code.
    pub reject_codes: BTreeMap<String, u64>,
    /// Counts of noteworthy observations about the content, by name.
    pub notes: BTreeMap<String, u64>,
    /// The splits by name.
    pub splits: BTreeMap<String, SplitDescription>,
    /// Kind, fields and class names.
    pub schema: Schema,
    /// The semantic options of the run.
    pub options: serde_json::Value,
    /// The tokenizer that produced the ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<serde_json::Value>,
    /// The sources that the records were made from.
    pub sources: Sources,
    /// The dataset whose records the fields of this one belong to, if it is a companion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<Binding>,
    /// Hash of options and sources.
    pub fingerprint: String,
    /// Version of dsconvert that wrote the dataset.
    pub dsconvert: String,
    /// Version of the manifest.
    pub manifest_version: u32,
}

/// The description of a split.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SplitDescription {
    /// Number of records.
    pub records: u64,
    /// Number of shards.
    pub shards: u64,
    /// Size of the shards in bytes.
    pub bytes: u64,
    /// Numbers of items by outcome, over the items of this split.
    #[serde(flatten)]
    pub counts: Counts,
    /// Summary statistics of the lengths.
    pub length: LengthSummary,
    /// Histogram of the lengths, in at most [`MAX_HISTOGRAM_BUCKETS`] buckets.
    pub histogram: Vec<HistogramBucket>,
    /// The tokens to train on, if they are marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trained: Option<TrainedSummary>,
}

/// The tokens of records that are marked to be trained on.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TrainedSummary {
    /// Number of tokens to train on.
    pub tokens: u64,
    /// Their share of all tokens.
    pub share: f64,
    /// Number of records without a token to train on.
    pub records_without: u64,
    /// The median of the shares of single records. This and the other percentiles are exact to 0.1%.
    pub share_p50: f64,
    /// The share that 10% of the records do not exceed.
    pub share_p10: f64,
    /// The share that 90% of the records do not exceed.
    pub share_p90: f64,
    /// Number of records by share, in steps of 5%. Those that train on everything are in the last step.
    pub histogram: Vec<u64>,
}

/// Number of distinct shares, to which those of records are rounded down, besides that of everything.
const SHARES: usize = 1000;
/// Number of these per step of the histogram.
const SHARES_PER_STEP: usize = 50;

impl TrainedSummary {
    /// Sums up records, each given by the number of its tokens to train on and of all its tokens.
    fn of(records: impl IntoIterator<Item = Result<(u64, u64)>>) -> Result<Self> {
        let (mut tokens, mut all, mut records_without, mut count) = (0u64, 0u64, 0, 0u64);
        let mut shares = [0u64; SHARES + 1];
        for record in records {
            let (trained, length) = record?;
            tokens = tokens.saturating_add(trained);
            all = all.saturating_add(length);
            records_without += u64::from(trained == 0);
            let share = trained.saturating_mul(SHARES as u64) / length.max(1);
            shares[(share as usize).min(SHARES)] += 1;
            count += 1;
        }
        let percentile = |percent: u64| {
            let (rank, mut seen) = ((count * percent).div_ceil(100).max(1), 0);
            let reaches = |records: &u64| {
                seen += records;
                seen >= rank
            };
            shares.iter().position(reaches).unwrap_or(0) as f64 / SHARES as f64
        };
        let mut histogram: Vec<u64> = shares.chunks(SHARES_PER_STEP).map(|step| step.iter().sum()).collect();
        if let Some(whole) = histogram.pop()
            && let Some(last) = histogram.last_mut()
        {
            *last += whole;
        }
        Ok(Self {
            tokens,
            share: tokens as f64 / all.max(1) as f64,
            records_without,
            share_p50: percentile(50),
            share_p10: percentile(10),
            share_p90: percentile(90),
            histogram,
        })
    }
}

/// The description of a shard.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ShardDescription {
    /// Kind of the records: images or text.
    pub kind: Kind,
    /// Format of the shard.
    pub format: Format,
    /// Number of records.
    pub records: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Summary statistics of the lengths.
    pub length: LengthSummary,
    /// Histogram of the lengths, in at most [`MAX_HISTOGRAM_BUCKETS`] buckets.
    pub histogram: Vec<HistogramBucket>,
    /// The tokens to train on, if they are marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trained: Option<TrainedSummary>,
    /// The schema, as far as it can be inferred from the shard.
    pub schema: Schema,
}

/// A range of lengths and the number of records in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HistogramBucket {
    /// Shortest length in the bucket.
    pub from: u64,
    /// Shortest length in the next bucket.
    pub to: u64,
    /// Number of records.
    pub records: u64,
}

/// Describes the dataset at `path` if it is a directory (or its `manifest.json`), or the shard if it is a file. A shard
/// is read completely; of a dataset, only the manifest and the histograms are read.
///
/// # Errors
///
/// Same as [`Dataset::open`] and [`ShardFile::open`].
pub fn describe(path: impl AsRef<Path>, access: Access) -> Result<Description> {
    let path = path.as_ref();
    let manifest = path.file_name().is_some_and(|name| name == MANIFEST_NAME);
    let is_shard = !manifest && stat(path)?.is_some_and(|meta| meta.is_file());
    let dir = if manifest { Some(folder_of(path)) } else { Some(path).filter(|_| !is_shard) };
    Ok(match dir {
        Some(dir) => {
            Description::Dataset(Box::new(super::OpenOptions::new().access(access).open(dir)?.describe()?))
        }
        None => Description::Shard(Box::new(ShardFile::open(path, access)?.describe()?)),
    })
}

impl Dataset {
    /// Describes the dataset.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](dsconvert_dataset::error::ErrorKind) or `Io` when a histogram cannot be read.
    pub fn describe(&self) -> Result<DatasetDescription> {
        let manifest = self.manifest();
        let splits = self.splits().map(|split| Ok((split.name().to_owned(), split.describe()?)));
        let splits: BTreeMap<String, SplitDescription> = splits.collect::<Result<_>>()?;
        let sum = |of: fn(&SplitDescription) -> u64| splits.values().map(of).fold(0, u64::saturating_add);
        Ok(DatasetDescription {
            kind: manifest.kind(),
            format: manifest.format,
            records: sum(|s| s.records),
            shards: sum(|s| s.shards),
            bytes: sum(|s| s.bytes),
            counts: manifest.counts,
            reject_codes: manifest.reject_codes.clone(),
            notes: manifest.notes.clone(),
            splits,
            schema: manifest.schema.clone(),
            options: manifest.options.clone(),
            tokenizer: manifest.tokenizer.clone(),
            sources: manifest.sources.clone(),
            binding: manifest.binding.clone(),
            fingerprint: manifest.fingerprint.clone(),
            dsconvert: manifest.dsconvert.clone(),
            manifest_version: manifest.manifest_version,
        })
    }
}

impl Split {
    /// Describes the split.
    ///
    /// # Errors
    ///
    /// Same as [`Split::length_index`].
    pub fn describe(&self) -> Result<SplitDescription> {
        let info = self.info().ok_or_else(|| Error::corrupt("the split is missing from the manifest"))?;
        let lengths = self.histogram_index()?;
        let histogram = match self.len().checked_sub(1) {
            Some(last) => {
                let (shortest, longest) = (lengths.length_at(0)?, lengths.length_at(last)?);
                histogram(shortest, longest, |length| lengths.shorter_than(length))?
            }
            None => Vec::new(),
        };
        Ok(SplitDescription {
            records: info.records,
            shards: info.shards,
            bytes: info.bytes,
            counts: info.counts,
            length: info.length,
            histogram,
            trained: self.trained()?,
        })
    }
}

impl Split {
    /// Sums up the tokens to train on, if they are marked. Reads the whole record index.
    ///
    /// # Errors
    ///
    /// Same as [`Split::record_index`].
    pub fn trained(&self) -> Result<Option<TrainedSummary>> {
        let schema = self.schema();
        if schema.masks_field().is_none() {
            return Ok(None);
        }
        let of_entry = |entry: Result<IndexEntry>| {
            entry.map(|entry| (entry.column(schema, TRAINED).unwrap_or(0).into(), entry.length))
        };
        TrainedSummary::of(self.record_index()?.entries(0..self.len())?.map(of_entry)).map(Some)
    }
}

impl ShardFile {
    /// Describes the shard. Reads all its records.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](dsconvert_dataset::error::ErrorKind), with the row of the first record that cannot be
    /// read.
    pub fn describe(&self) -> Result<ShardDescription> {
        let mut runs: BTreeMap<u64, u64> = BTreeMap::new();
        let mut records = 0;
        let mut marked = Vec::new();
        for record in self.records()? {
            let values = record?.into_inner().values;
            let length = length_of(self.schema(), &values)
                .map_err(|what| Error::corrupt(what).at_path(self.path()).at_row(records))?;
            if let Some(Value::Bytes(marks)) = self.schema().masks_field().and_then(|at| values.get(at)) {
                marked.push(Ok((trained(marks) as u64, length)));
            }
            *runs.entry(length).or_default() += 1;
            records += 1;
        }
        let in_order = runs_of(runs.iter().map(|(&length, &count)| (length, count))).map(Ok);
        let length = LengthSummary::from_runs(self.schema().length_unit(), records, in_order)?;
        let shorter_than = |length: u64| Ok(runs.range(..length).map(|(_, count)| count).sum());
        let histogram = match records {
            0 => Vec::new(),
            _ => histogram(length.min, length.max, shorter_than)?,
        };
        Ok(ShardDescription {
            kind: self.schema().kind,
            format: self.format(),
            records,
            bytes: self.bytes(),
            length,
            histogram,
            trained: self.schema().masks_field().map(|_| TrainedSummary::of(marked)).transpose()?,
            schema: self.schema().clone(),
        })
    }
}

/// Returns the buckets from the shortest to the longest length. `shorter_than` returns the number of records below a
/// length.
fn histogram(
    shortest: u64,
    longest: u64,
    mut shorter_than: impl FnMut(u64) -> Result<u64>,
) -> Result<Vec<HistogramBucket>> {
    let mut buckets = Vec::new();
    let mut from = (shortest, 0);
    for to in boundaries(shortest, longest) {
        let before = shorter_than(to)?;
        buckets.push(HistogramBucket { from: from.0, to, records: before.saturating_sub(from.1) });
        from = (to, before);
    }
    Ok(buckets)
}

/// Returns the ends of the buckets: multiples of a power of two when the lengths are similar, otherwise powers of two
/// (or of four, eight, …). The last end is above `longest`.
fn boundaries(shortest: u64, longest: u64) -> Vec<u64> {
    let octaves = longest.max(1).ilog2() - shortest.clamp(1, longest.max(1)).ilog2();
    let width = (longest.saturating_sub(shortest) / LINEAR_BUCKETS)
        .checked_add(1)
        .and_then(u64::checked_next_power_of_two);
    let step = doublings(shortest, longest);
    let mut end = shortest;
    let mut ends = Vec::new();
    while end <= longest && ends.len() < MAX_HISTOGRAM_BUCKETS {
        let next = match width {
            Some(width) if octaves < LINEAR_OCTAVES => {
                (end / width).checked_add(1).and_then(|n| n.checked_mul(width))
            }
            _ => {
                let exponent =
                    end.checked_ilog2().map_or(0, |e| (e / step).saturating_add(1).saturating_mul(step));
                1u64.checked_shl(exponent)
            }
        };
        end = next.unwrap_or(u64::MAX);
        ends.push(end);
        if end == u64::MAX {
            break;
        }
    }
    ends
}

/// Returns how many doublings each bucket spans, so that there are at most [`MAX_HISTOGRAM_BUCKETS`].
fn doublings(shortest: u64, longest: u64) -> u32 {
    let (low, high) = (shortest.max(1).ilog2(), longest.max(1).ilog2());
    let zero = u32::from(shortest == 0);
    let buckets = |step: u32| high / step - low / step + 1 + zero;
    (1..u64::BITS).find(|&step| buckets(step) <= MAX_HISTOGRAM_BUCKETS as u32).unwrap_or(u64::BITS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tests::{all, copy, pristine};

    proptest! {
        #[test]
        fn buckets_are_few_and_hold_every_record(
            lengths in prop::collection::vec(prop_oneof![0u64..70_000, 0u64..40, 60_000u64..70_000, any::<u64>().prop_map(|x| x >> 1)], 1..50),
        ) {
            let (min, max) = (*lengths.iter().min().unwrap(), *lengths.iter().max().unwrap());
            let count = |to| Ok(lengths.iter().filter(|&&l| l < to).count() as u64);
            let buckets = histogram(min, max, count).unwrap();
            prop_assert!((1..=MAX_HISTOGRAM_BUCKETS).contains(&buckets.len()), "{buckets:?}");
            prop_assert_eq!(buckets.iter().map(|b| b.records).sum::<u64>(), lengths.len() as u64);
            prop_assert!(buckets.iter().all(|b| b.from < b.to));
            prop_assert!(buckets.windows(2).all(|w| w[0].to == w[1].from));
            prop_assert!(buckets[0].records > 0 && buckets[buckets.len() - 1].records > 0);
        }
    }

    #[test]
    fn buckets_are_round_numbers() {
        assert_eq!(boundaries(0, 0), [1]);
        assert_eq!(boundaries(0, 3), [1, 2, 3, 4]);
        assert_eq!(boundaries(3, 70), [4, 8, 16, 32, 64, 128]);
        assert_eq!(boundaries(65_536, 65_536), [65_537]);
        assert_eq!(
            boundaries(1000, 1030),
            [1002, 1004, 1006, 1008, 1010, 1012, 1014, 1016, 1018, 1020, 1022, 1024, 1026, 1028, 1030, 1032]
        );
    }

    #[test]
    fn the_description_of_a_dataset_has_its_documented_json_keys() {
        for (format, kind) in all() {
            let description = describe(pristine(format, kind), Access::Map).unwrap();
            let json = serde_json::to_value(&description).unwrap();
            assert_eq!(json["object"], "dataset");
            assert_eq!(
                (json["kind"].as_str(), json["format"].as_str()),
                (Some(kind.name()), Some(format.name()))
            );
            for (name, count) in
                [("found", 29), ("converted", 28), ("filtered", 0), ("duplicates", 0), ("rejected", 1)]
            {
                assert_eq!(json[name], count, "{name}");
            }
            assert_eq!((&json["records"], &json["shards"]), (&28.into(), &4.into()));
            let train = &json["splits"]["train"];
            assert_eq!((&train["records"], &train["shards"]), (&23.into(), &3.into()));
            assert!(train["bytes"].as_u64() > Some(100));
            let length = &train["length"];
            assert_eq!(length["unit"], kind.length_unit().name());
            for name in ["min", "max", "mean", "p50", "p99"] {
                assert!(length[name].is_number(), "{name}");
            }
            let buckets = train["histogram"].as_array().unwrap();
            assert_eq!(buckets.iter().map(|b| b["records"].as_u64().unwrap()).sum::<u64>(), 23);
            assert_eq!(json["splits"]["test"]["histogram"], serde_json::json!([]));
            assert_eq!(json["schema"]["fields"][0]["name"], "key");
            assert_eq!(json["reject_codes"]["empty"], 1);
        }
    }

    #[test]
    fn a_shard_is_described_from_its_content() {
        for (format, kind) in all() {
            let dir = copy(&pristine(format, kind));
            let dataset = Dataset::open(dir.path()).unwrap();
            let entry = dataset.split("validation").unwrap().shards()[0].clone();
            let path = dir.path().join(entry.path());
            let Description::Shard(shard) = describe(&path, Access::Read).unwrap() else {
                panic!("{format}")
            };
            let split = dataset.split("validation").unwrap().describe().unwrap();
            assert_eq!((shard.kind, shard.format), (kind, format));
            assert_eq!((shard.records, shard.bytes), (5, entry.bytes));
            assert_eq!((shard.length, shard.histogram), (split.length, split.histogram));
            let names = |schema: &Schema| schema.fields.iter().map(|f| f.name.clone()).collect::<Vec<_>>();
            assert_eq!(names(&shard.schema), names(dataset.schema()));
            let file = ShardFile::open(&path, Access::Map).unwrap();
            let keys: Vec<String> =
                file.records().unwrap().map(|r| r.unwrap().key().unwrap().to_owned()).collect();
            assert_eq!(keys, ["item-23", "item-24", "item-25", "item-26", "item-27"]);
        }
    }

    #[test]
    fn shares_of_tokens_to_train_on_are_summed_up() {
        let of = |records: &[(u64, u64)]| TrainedSummary::of(records.iter().copied().map(Ok)).unwrap();
        let found = of(&[(0, 10), (1, 10), (5, 10), (10, 10), (20, 20)]);
        assert_eq!((found.tokens, found.share, found.records_without), (36, 0.6, 1));
        assert_eq!((found.share_p10, found.share_p50, found.share_p90), (0.0, 0.5, 1.0));
        let mut expected = vec![0; 20];
        (expected[0], expected[2], expected[10], expected[19]) = (1, 1, 1, 2);
        assert_eq!(found.histogram, expected);
        let none = of(&[]);
        assert_eq!((none.tokens, none.share, none.share_p50, none.histogram), (0, 0.0, 0.0, vec![0; 20]));
    }

    #[test]
    fn other_files_are_not_shards() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.parquet");
        for bytes in ["", "hello", "{\"a\": 1}"] {
            std::fs::write(&path, bytes).unwrap();
            assert!(describe(&path, Access::Map).is_err_and(|e| e.place().path.as_deref() == Some(&path)));
        }
    }
}
