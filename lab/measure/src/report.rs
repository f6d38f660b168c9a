//! Results: reports, and medians with their spread.

use serde::Serialize;

use super::batch::{BenchBatchSize, LatencyHistogram};
use super::order::ReadOrder;
use super::probe::{Probe, Residency};
use super::round::Round;
use super::target::TargetKind;
use crate::format::Format;
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
    /// Format of the shards of a dataset.
    pub format: Option<Format>,
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
    fn of(histogram: &LatencyHistogram) -> Self {
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
}
