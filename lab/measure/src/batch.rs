//! Batches: what a thread loads at a time, the workers that load it, and the times that they take.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::numbers::plural;
use crate::reader::batch::BatchSize;

/// Size of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BenchBatchSize {
    /// A fixed number of items.
    Items(u64),
    /// Text: as many documents as fit into this many tokens when padded to the longest.
    Tokens(u64),
}

impl From<BenchBatchSize> for BatchSize {
    fn from(size: BenchBatchSize) -> Self {
        match size {
            BenchBatchSize::Items(items) => Self::BatchSize(items),
            BenchBatchSize::Tokens(tokens) => Self::MaxTokens(tokens),
        }
    }
}

/// Nanoseconds in each stage of loading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageTimes {
    /// Opening files.
    pub open: u64,
    /// Reading bytes or records.
    pub read: u64,
    /// Decoding.
    pub decode: u64,
    /// Resizing, tokenization.
    pub transform: u64,
    /// Assembling the batch.
    pub collate: u64,
}

impl StageTimes {
    /// Sum of all stages.
    pub fn total(&self) -> u64 {
        self.open + self.read + self.decode + self.transform + self.collate
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.open += other.open;
        self.read += other.read;
        self.decode += other.decode;
        self.transform += other.transform;
        self.collate += other.collate;
    }
}

/// Stopwatch for consecutive stages.
#[derive(Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts the stopwatch.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the nanoseconds since the start or the last lap.
    pub fn ns(&mut self) -> u64 {
        let now = Instant::now();
        let ns = now.duration_since(self.0).as_nanos();
        self.0 = now;
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// Times and counts of one loaded batch. Reused from batch to batch.
#[derive(Debug, Default)]
pub struct LoadedBatch {
    /// Time in each stage.
    pub stages: StageTimes,
    /// Time spent on each item alone, in batch order.
    pub item_ns: Vec<u64>,
    /// Time of the work done once per batch.
    pub shared_ns: u64,
    /// Number of items in the batch.
    pub delivered: u64,
    /// Their stored bytes.
    pub bytes: f64,
    /// Their token ids.
    pub tokens: u64,
    /// Rows × width of a batch of ids.
    pub padded_tokens: u64,
    /// Items that could not be loaded, with the reasons.
    pub failed: Vec<(u64, String)>,
}

impl LoadedBatch {
    /// Counts an item that was loaded in `ns`, or notes why it could not be.
    pub fn add(&mut self, item: u64, ns: u64, loaded: Result<(), String>) {
        match loaded {
            Ok(()) => {
                self.delivered += 1;
                self.item_ns.push(ns);
            }
            Err(why) => self.failed.push((item, why)),
        }
    }

    pub(super) fn clear(&mut self) {
        let (mut item_ns, mut failed) = (std::mem::take(&mut self.item_ns), std::mem::take(&mut self.failed));
        item_ns.clear();
        failed.clear();
        *self = Self { item_ns, failed, ..Self::default() };
    }
}

/// Shape of one delivered item. Only targets that deliver equal shapes are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveredShape {
    /// RGB pixels.
    Pixels {
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// Token ids: their count, and the XXH3-128 of the ids as 32-bit integers.
    Tokens {
        /// Number of ids.
        count: u64,
        /// Digest of the ids.
        digest: u128,
    },
}

impl DeliveredShape {
    /// Returns the number and the digest of `ids`.
    pub fn of_ids(ids: &[u32]) -> Self {
        let mut hash = Xxh3::new();
        ids.iter().for_each(|id| hash.update(&id.to_le_bytes()));
        Self::Tokens { count: ids.len() as u64, digest: hash.digest128() }
    }
}

impl std::fmt::Display for DeliveredShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pixels { width, height } => write!(f, "{width}×{height} pixels"),
            Self::Tokens { count, digest } => {
                write!(f, "{} ({:08x}…)", plural(*count, "token"), digest >> 96)
            }
        }
    }
}

/// Loads batches on one thread.
pub trait BatchWorker {
    /// Loads `items` into a batch, with or without decoding.
    fn load(&mut self, items: &[u64], decode: bool, out: &mut LoadedBatch);

    /// Loads one item and returns its shape, or the reason why it cannot be loaded.
    fn shape(&mut self, item: u64) -> Result<DeliveredShape, String>;
}

/// Documents of a batch, padded to the longest: `rows × width` 64-bit ids.
#[derive(Debug, Default)]
pub struct IdRows {
    /// Concatenated ids of all documents.
    pub flat: Vec<u32>,
    /// End of each document in `flat`.
    pub ends: Vec<usize>,
    padded: Vec<i64>,
}

impl IdRows {
    /// Removes all documents.
    pub fn clear(&mut self) {
        self.flat.clear();
        self.ends.clear();
    }

    /// Ends the document whose ids were added to `flat`.
    pub fn end_document(&mut self) {
        self.ends.push(self.flat.len());
    }

    /// Copies the ids to padded rows, and sets the token counts in `out`.
    pub fn pad(&mut self, out: &mut LoadedBatch) {
        let starts = || std::iter::once(0).chain(self.ends.iter().copied());
        let width = starts().zip(&self.ends).map(|(start, end)| end - start).max().unwrap_or(0);
        // Padding is written for every batch, because a loader allocates a new tensor for each.
        self.padded.clear();
        self.padded.resize(self.ends.len() * width, 0);
        if width > 0 {
            for ((start, &end), row) in starts().zip(&self.ends).zip(self.padded.chunks_exact_mut(width)) {
                let ids = self.flat.get(start..end).unwrap_or_default();
                row.iter_mut().zip(ids).for_each(|(to, &id)| *to = i64::from(id));
            }
        }
        std::hint::black_box(&self.padded);
        out.tokens = self.flat.len() as u64;
        out.padded_tokens = self.padded.len() as u64;
    }
}

/// Buckets per octave. A bucket is at most 1/64 as wide as its lower bound.
const PER_OCTAVE: u64 = 64;

/// Histogram of durations, exact to 1.6%. Merging two loses nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u16, u64)>", into = "Vec<(u16, u64)>")]
pub struct LatencyHistogram {
    /// Number of durations per bucket.
    counts: Vec<u64>,
    total: u64,
}

/// Returns the bucket of a duration.
fn bucket(ns: u64) -> usize {
    let Some(octave) = ns.checked_ilog2() else { return 0 };
    let shift = u64::from(octave).saturating_sub(6);
    (shift * PER_OCTAVE + (ns >> shift)) as usize
}

/// Returns the middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * PER_OCTAVE {
        return bucket;
    }
    let shift = bucket / PER_OCTAVE - 1;
    let lower = (bucket - shift * PER_OCTAVE) << shift;
    lower + ((1 << shift) >> 1)
}

impl LatencyHistogram {
    /// Adds a duration.
    pub fn add(&mut self, ns: u64) {
        self.add_many(bucket(ns), 1);
    }

    fn add_many(&mut self, bucket: usize, count: u64) {
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        if let Some(slot) = self.counts.get_mut(bucket) {
            *slot += count;
            self.total += count;
        }
    }

    /// Adds the durations of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, &count) in other.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.add_many(bucket, count);
        }
    }

    /// Returns the nearest-rank percentile for `share` from 0 to 1: the smallest duration that at least this share of
    /// all durations do not exceed. Returns `None` if there are no durations.
    pub fn percentile(&self, share: f64) -> Option<u64> {
        let rank = ((share * self.total as f64).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        self.counts.iter().enumerate().find_map(|(bucket, &count)| {
            seen += count;
            (count > 0 && seen >= rank).then(|| middle(bucket))
        })
    }
}

impl From<Vec<(u16, u64)>> for LatencyHistogram {
    fn from(counts: Vec<(u16, u64)>) -> Self {
        let mut histogram = Self::default();
        // Drops buckets above that of `u64::MAX`.
        for (at, count) in counts.into_iter().filter(|(at, _)| usize::from(*at) <= bucket(u64::MAX)) {
            histogram.add_many(at.into(), count);
        }
        histogram
    }
}

impl From<LatencyHistogram> for Vec<(u16, u64)> {
    fn from(histogram: LatencyHistogram) -> Self {
        let counts = histogram.counts.into_iter().enumerate().filter(|(_, count)| *count > 0);
        counts.filter_map(|(bucket, count)| Some((u16::try_from(bucket).ok()?, count))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_padded_to_the_longest_document() {
        let mut rows = IdRows::default();
        for ids in [&[1u32, 2, 3][..], &[], &[4]] {
            rows.flat.extend_from_slice(ids);
            rows.end_document();
        }
        let mut out = LoadedBatch::default();
        rows.pad(&mut out);
        assert_eq!(rows.padded, [1, 2, 3, 0, 0, 0, 4, 0, 0]);
        assert_eq!((out.tokens, out.padded_tokens), (4, 9));
        rows.clear();
        rows.pad(&mut out);
        assert_eq!((out.tokens, out.padded_tokens), (0, 0));
    }

    #[test]
    fn every_duration_is_near_the_middle_of_its_bucket() {
        let mut ns = 1u64;
        while ns < u64::MAX / 3 {
            for near in [ns - 1, ns, ns + 1, ns / 3 * 4] {
                let found = middle(bucket(near));
                assert!(found.abs_diff(near) as f64 <= near as f64 / 64.0, "{near} {found}");
                assert!(bucket(near) <= bucket(near + 1));
            }
            ns = ns * 3 / 2 + 1;
        }
        assert_eq!(bucket(0), 0);
        assert!(bucket(u64::MAX) < usize::from(u16::MAX));
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let mut histogram = LatencyHistogram::default();
        assert_eq!(histogram.percentile(0.5), None);
        (1..=100).for_each(|ns| histogram.add(ns));
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|p| histogram.percentile(p)), [1, 50, 99, 100].map(Some));
        let mut one = LatencyHistogram::default();
        one.add(7);
        assert_eq!((one.percentile(0.5), one.percentile(0.99)), (Some(7), Some(7)));
    }

    #[test]
    fn merging_and_json_lose_nothing() {
        let (mut a, mut b) = (LatencyHistogram::default(), LatencyHistogram::default());
        [5, 1_000_000, u64::MAX].iter().for_each(|&ns| a.add(ns));
        [5, 80].iter().for_each(|&ns| b.add(ns));
        a.merge(&b);
        assert_eq!(a.total, 5);
        let json = serde_json::to_string(&a).unwrap();
        assert_eq!(serde_json::from_str::<LatencyHistogram>(&json).unwrap(), a);
        assert_eq!(serde_json::from_str::<LatencyHistogram>("[[65535,1]]").unwrap().total, 0);
    }
}
