//! Results: reports, medians with their spread, and histograms of latencies.

use serde::{Deserialize, Serialize};

use super::order::ReadOrder;
use super::probe::{Probe, Residency};
use super::round::{BenchBatchSize, Round};
use super::target::TargetKind;
use crate::numbers::{count, plural};

const NS_PER_MS: f64 = 1e6;

/// All results of a [`Bench`](super::Bench).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BenchReport {
    /// The target that is measured, and the one it is compared with.
    pub targets: Vec<TargetReport>,
    /// Size of a batch.
    pub batch: BenchBatchSize,
    /// Number of rounds per measurement.
    pub repeat: usize,
    /// Number of processes.
    pub jobs: usize,
    /// Whether files were dropped from the page cache before each round.
    pub cold: bool,
    /// Results of each measurement.
    pub measurements: Vec<Measurement>,
    /// With two targets: their comparison.
    pub comparison: Vec<Comparison>,
    /// With two targets: number of items that both hold. Only these were read.
    pub paired_items: Option<u64>,
    /// With two targets: number of pairs of items that were loaded from both, and match.
    pub checked_items: Option<u64>,
}

/// Results for one target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TargetReport {
    /// Path of the target.
    pub path: String,
    /// Kind of the target.
    pub kind: TargetKind,
    /// Number of images, documents or records.
    pub items: u64,
    /// Number of files.
    pub files: u64,
    /// Total size of the files.
    pub bytes: u64,
    /// Whether the target is a dataset in object storage: it has no residency and no plain reads.
    pub remote: bool,
    /// Time to list the files, to locate the documents, or to open the dataset.
    pub prepare_ms: f64,
    /// Items that could not be loaded.
    pub failures: Failures,
    /// Throughput of plain reads of the files.
    pub probe: Option<Probe>,
}

/// Items that could not be loaded.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Failures {
    /// Number of distinct items, of which each round records at most 1,000.
    pub count: u64,
    /// Names and reasons of the first failures.
    pub examples: Vec<(String, String)>,
}

/// Percentiles of times, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// Shares of the stages in the time of all batches. They add up to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct StageShares {
    /// Opening files.
    pub open: f64,
    /// Reading.
    pub read: f64,
    /// Decoding.
    pub decode: f64,
    /// Resizing, tokenization.
    pub transform: f64,
    /// Assembling the batch.
    pub collate: f64,
    /// Everything else.
    pub other: f64,
}

/// Throughput of a measurement, compared with plain reads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DeviceFraction {
    /// Bytes per second of plain reads in the order of the measurement.
    pub limit_bytes_per_second: f64,
    /// Bytes per second of the measurement ÷ limit.
    pub fraction: f64,
}

/// One combination of target, order, threads and decoding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measurement {
    /// Ordinal of the target.
    pub target: usize,
    /// Path of the target.
    pub path: String,
    /// Order of the items.
    pub order: ReadOrder,
    /// Threads of each process.
    pub threads: usize,
    /// Whether items were decoded.
    pub decode: bool,
    /// Items delivered, over all rounds.
    pub items: u64,
    /// Batches, over all rounds.
    pub batches: u64,
    /// Seconds of all rounds.
    pub seconds: f64,
    /// Items delivered per second.
    pub items_per_second: Spread,
    /// Stored bytes read per second.
    pub bytes_per_second: Spread,
    /// Token ids delivered per second; `None` without tokens.
    pub tokens_per_second: Option<Spread>,
    /// Times of items.
    pub item_ms: Latency,
    /// Times of batches.
    pub batch_ms: Latency,
    /// Share of each stage in the time.
    pub shares: StageShares,
    /// Share of the delivered elements that is padding; `None` without tokens.
    pub padding: Option<f64>,
    /// Residency before the rounds: the largest of cold rounds, the smallest of others. `None` if unknown.
    pub residency: Option<Residency>,
    /// Comparison with plain reads; `None` without a probe.
    pub device: Option<DeviceFraction>,
    /// Items per second of each round, for computing ratios.
    #[serde(skip)]
    pub(super) round_rates: Vec<f64>,
    /// Times of the batches of all rounds, in nanoseconds.
    #[serde(skip)]
    pub batch_ns: Vec<u64>,
}

/// Comparison of the first target with the second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Order of the items.
    pub order: ReadOrder,
    /// Threads of each process.
    pub threads: usize,
    /// Whether items were decoded.
    pub decode: bool,
    /// Items per second of the first target ÷ those of the second.
    pub speedup: Spread,
}

impl Latency {
    fn of(histogram: &super::LatencyHistogram) -> Self {
        let ms = |share| histogram.percentile(share).unwrap_or(0) as f64 / NS_PER_MS;
        Self { p50: ms(0.5), p99: ms(0.99) }
    }
}

impl StageShares {
    fn of(round: &Round) -> Self {
        let stages = &round.stages;
        // The stages of a batch are part of its time, so the rest is not negative except for rounding.
        let all = round.busy_ns.max(stages.total()).max(1) as f64;
        let share = |ns: u64| ns as f64 / all;
        Self {
            open: share(stages.open),
            read: share(stages.read),
            decode: share(stages.decode),
            transform: share(stages.transform),
            collate: share(stages.collate),
            other: share(round.busy_ns.saturating_sub(stages.total())),
        }
    }

    /// Returns names and values, in the order of loading.
    pub fn named(&self) -> [(&'static str, f64); 6] {
        [
            ("open", self.open),
            ("read", self.read),
            ("decode", self.decode),
            ("transform", self.transform),
            ("collate", self.collate),
            ("other", self.other),
        ]
    }
}

/// Summarizes the rounds of one measurement. Returns `None` if nothing was delivered.
pub(super) fn summarize(
    (target, path): (usize, String),
    (order, threads, decode): (ReadOrder, usize, bool),
    rounds: Vec<Round>,
    residency: Option<Residency>,
) -> Option<Measurement> {
    let rate = |of: fn(&Round) -> f64| Spread::of(rounds.iter().map(|r| of(r) / r.seconds.max(1e-9)));
    let items_per_second = rate(|r| r.items as f64)?;
    let bytes_per_second = rate(|r| r.bytes)?;
    let tokens_per_second = rate(|r| r.tokens as f64);
    let round_rates = rounds.iter().map(|r| r.items as f64 / r.seconds.max(1e-9)).collect();
    let seconds = rounds.iter().map(|r| r.seconds).sum();
    let mut all = Round::default();
    rounds.into_iter().for_each(|round| all.join(round));
    (all.items > 0).then(|| Measurement {
        target,
        path,
        order,
        threads,
        decode,
        items: all.items,
        batches: all.batches,
        seconds,
        items_per_second,
        bytes_per_second,
        tokens_per_second: tokens_per_second.filter(|_| all.padded_tokens > 0),
        item_ms: Latency::of(&all.item_ns),
        batch_ms: Latency::of(&all.batch_hist),
        shares: StageShares::of(&all),
        padding: (all.padded_tokens > 0).then(|| 1.0 - all.tokens as f64 / all.padded_tokens as f64),
        residency,
        device: None,
        round_rates,
        batch_ns: all.batch_ns,
    })
}

impl Measurement {
    /// Formats load times for `dsconvert simulate --load-trace`: one JSON object per batch.
    pub fn trace(&self) -> String {
        use std::fmt::Write;
        let mut text = format!(
            "# load times of {}, {} order, {}\n",
            match self.batch_ns.len() {
                1 => "1 batch".to_owned(),
                many => format!("{} batches", count(many as u64)),
            },
            self.order.name(),
            plural(self.threads as u64, "thread")
        );
        for (batch, ns) in self.batch_ns.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ =
                writeln!(text, "{{\"batch\":{batch},\"load_ms\":{:.6}}}", (*ns).max(1) as f64 / NS_PER_MS);
        }
        text
    }
}

impl BenchReport {
    /// Returns the measurement whose batch times are written as a trace: that of the first target with the fewest
    /// threads, in random order if that was measured.
    pub fn trace_source(&self) -> Option<&Measurement> {
        let first = self.measurements.iter().filter(|m| m.target == 0);
        first.min_by_key(|m| (m.threads, m.order != ReadOrder::Random, !m.decode))
    }
}

/// Median, extremes and relative spread of repeated values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Median; for an even number of values, the mean of the middle two.
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// (Largest − smallest) ÷ median; 0 if the median is 0.
    pub spread: f64,
}

impl Spread {
    /// Returns the spread of `values`, or `None` if there are none. Values that are not finite are left out.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => f64::midpoint(*values.get(middle - 1)?, *values.get(middle)?),
            _ => *values.get(middle)?,
        };
        let spread = if median == 0.0 { 0.0 } else { (max - min) / median };
        Some(Self { median, min, max, spread })
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

    /// Returns the number of durations.
    pub fn len(&self) -> u64 {
        self.total
    }

    /// Returns whether there are no durations.
    pub fn is_empty(&self) -> bool {
        self.total == 0
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

    fn round(items: u64, seconds: f64) -> Round {
        let mut round = Round { items, seconds, batches: 1, busy_ns: 100, ..Round::default() };
        (round.stages.read, round.stages.decode) = (30, 60);
        (round.tokens, round.padded_tokens) = (30, 40);
        round.batch_hist.add(100);
        round.batch_ns.push(100);
        round
    }

    #[test]
    fn rounds_are_summarized() {
        let rounds = vec![round(10, 1.0), round(30, 1.0), round(20, 1.0)];
        let found = summarize((0, "x".into()), (ReadOrder::Random, 1, true), rounds, None).unwrap();
        assert_eq!((found.items, found.batches, found.seconds), (60, 3, 3.0));
        assert_eq!((found.items_per_second.median, found.items_per_second.spread), (20.0, 1.0));
        assert_eq!((found.shares.read, found.shares.decode, found.shares.other), (0.3, 0.6, 0.1));
        assert!((found.shares.named().iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9);
        assert_eq!(found.padding, Some(0.25));
        let trace = dsconvert_simulate::LoadTrace::parse(&found.trace()).unwrap();
        assert_eq!(trace.ns(), [100, 100, 100]);
        assert!(summarize((0, "x".into()), (ReadOrder::Random, 1, true), vec![], None).is_none());
    }

    #[test]
    fn odd_and_even_numbers_of_values_have_a_median() {
        let odd = Spread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!(odd, Spread { median: 2.0, min: 1.0, max: 3.0, spread: 1.0 });
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of([5.0]).unwrap().spread, 0.0);
    }

    #[test]
    fn nothing_and_infinities_have_none() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN, f64::INFINITY]), None);
        assert_eq!(Spread::of([0.0, 0.0]).unwrap().spread, 0.0);
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
        assert_eq!(a.len(), 5);
        let json = serde_json::to_string(&a).unwrap();
        assert_eq!(serde_json::from_str::<LatencyHistogram>(&json).unwrap(), a);
        assert!(serde_json::from_str::<LatencyHistogram>("[[65535,1]]").unwrap().is_empty());
    }
}
