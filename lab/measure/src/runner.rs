//! Benchmark runner: interleaves the rounds of all measurements.

use std::collections::{BTreeMap, HashMap, btree_map, hash_map};
use std::process::Command;
use std::time::Duration;

use super::batch::BenchBatchSize;
use super::order::{BatchOrder, ItemSet, ReadOrder};
use super::probe::{Probe, Residency, evict};
use super::report::{
    BenchReport, Comparison, DeviceFraction, Failures, Measurement, Spread, TargetReport, summarize,
};
use super::round::{JobRequest, Jobs, Round, RoundSpec};
use super::target::{BenchTarget, OpenTarget};
use super::{order, round};
use crate::error::{Error, Result};
use crate::reader::batch::{MAX_BATCH_RECORDS, MAX_BATCH_TOKENS, Padding};

/// Maximum length of a warm-up.
const WARM_UP_SECONDS: f64 = 0.5;
/// Maximum length of each phase of a probe.
const PROBE_SECONDS: f64 = 1.0;
/// Maximum number of failures to name.
const NAMED_FAILURES: usize = 5;

/// A benchmark of one target, or of two that are compared.
pub struct Bench {
    contenders: Vec<Contender>,
    options: BenchOptions,
    checked: Option<u64>,
}

/// Order, threads and decoding: one measurement of each target.
type Combination = (ReadOrder, usize, bool);

/// The rounds of a measurement, with the residency of the files before each of them.
#[derive(Clone, Default)]
struct MeasuredRounds {
    rounds: Vec<Round>,
    residencies: Vec<Option<Residency>>,
}

impl Bench {
    /// Creates a benchmark of one or two `targets`. Two targets are paired, and checked to deliver the same items.
    ///
    /// # Errors
    ///
    /// If options are out of range, targets cannot be compared, or a target cannot be read in one of the orders.
    pub fn new(targets: Vec<BenchTarget>, options: BenchOptions) -> Result<Self> {
        options.check()?;
        let with_lengths = options.orders.contains(&ReadOrder::Bucketed)
            || matches!(options.batch, BenchBatchSize::Tokens(_));
        let mut lengths = Vec::new();
        for target in &targets {
            if with_lengths && !target.has_tokens() {
                let what = match target.kind.is_text() {
                    true => "buckets and token budgets need a tokenizer",
                    false => "images have no tokens, which buckets and token budgets need",
                };
                return Err(Error::usage(what)
                    .at_path(&target.path)
                    .help("leave out the bucketed order and the token budget"));
            }
            lengths.push(with_lengths.then(|| target.lengths()).transpose()?);
        }
        let (items, checked) = match &targets[..] {
            [a, b] => {
                let (items, checked) = order::pair([a, b])?;
                (items.to_vec(), Some(checked))
            }
            _ => {
                let all = targets.iter().map(|target| ItemSet { count: target.items, subset: None });
                (all.collect(), None)
            }
        };
        let contenders = targets.into_iter().zip(items).zip(lengths);
        let contenders: Vec<Contender> =
            contenders.map(|((target, items), lengths)| Contender { target, items, lengths }).collect();
        // Rejects orders that a target does not support before anything is measured.
        for contender in &contenders {
            for &order in &options.orders {
                contender.order(order, options.batch, 0)?;
            }
        }
        Ok(Self { contenders, options, checked })
    }

    fn combinations(&self) -> Vec<Combination> {
        let BenchOptions { orders, threads, decode, .. } = &self.options;
        let of_order = |&order| {
            let of_threads =
                move |&threads: &usize| decode.iter().map(move |&decode| (order, threads, decode));
            threads.iter().flat_map(of_threads)
        };
        orders.iter().flat_map(of_order).collect()
    }

    /// Returns the seconds that the rounds will take, if they are limited by time.
    pub fn expected_seconds(&self) -> Option<f64> {
        let Effort::Seconds(seconds) = self.options.effort else { return None };
        let measurements = (self.combinations().len() * self.contenders.len()) as f64;
        let warm_up = if self.options.cold { 0.0 } else { WARM_UP_SECONDS.min(seconds) };
        Some(measurements * (self.options.repeat as f64 * seconds + warm_up))
    }

    /// Returns a function that answers the requests of the parent process.
    ///
    /// # Errors
    ///
    /// The function fails if a target cannot be opened, or a thread panics.
    pub fn answer(&self) -> impl FnMut(JobRequest) -> Result<Round> {
        let mut local = LocalRunner { bench: self, open: BTreeMap::new(), orders: HashMap::new() };
        move |request| match request {
            JobRequest::Close => {
                local.open.clear();
                Ok(Round::default())
            }
            JobRequest::Run(spec) => local.run(&spec),
        }
    }

    /// Runs all rounds. With several jobs, `command` starts a child process that answers requests with
    /// [`serve_rounds`](super::serve_rounds).
    ///
    /// # Errors
    ///
    /// If a target cannot be opened, nothing could be loaded, or a child process ended early.
    pub fn run(&self, command: impl FnMut() -> Command) -> Result<BenchReport> {
        let options = &self.options;
        let mut runner = match options.jobs {
            1 => Runner::Local(LocalRunner { bench: self, open: BTreeMap::new(), orders: HashMap::new() }),
            jobs => Runner::Jobs(Jobs::start(jobs, command)?),
        };
        let combinations = self.combinations();
        let count = self.contenders.len();
        // By combination and target.
        let mut measured = vec![vec![MeasuredRounds::default(); count]; combinations.len()];
        // By target: items that could not be loaded, with the reasons.
        let mut failed: Vec<BTreeMap<u64, String>> = vec![BTreeMap::new(); count];
        for repeat in 0..options.repeat {
            for (c, (&combination, measured)) in combinations.iter().zip(&mut measured).enumerate() {
                let turns = self.contenders.iter().zip(measured).zip(&mut failed).enumerate();
                let mut turns: Vec<_> = turns.collect();
                // Targets take turns in going first.
                if (repeat + c) % 2 == 1 {
                    turns.reverse();
                }
                for (target, ((contender, measured), failed)) in turns {
                    if repeat == 0 && !options.cold {
                        self.round(&mut runner, target, combination, None)?;
                    }
                    let residency = self.prepare(&mut runner, contender)?;
                    let mut round = self.round(&mut runner, target, combination, Some(repeat))?;
                    failed.append(&mut round.failed);
                    measured.rounds.push(round);
                    measured.residencies.push(residency);
                }
            }
        }
        let mut measurements = Vec::new();
        for (combination, measured) in combinations.into_iter().zip(measured) {
            let of_targets = self.contenders.iter().zip(measured).zip(&failed).enumerate();
            for (target, ((contender, MeasuredRounds { rounds, residencies }), failed)) in of_targets {
                let residency = weakest_residency(&residencies, options.cold);
                let found = summarize((target, contender.path()), combination, rounds, residency);
                measurements.push(found.ok_or_else(|| contender.nothing_loaded(failed))?);
            }
        }
        let comparison = self.compare(&measurements);
        let mut targets = Vec::new();
        for (target, (contender, failed)) in self.contenders.iter().zip(&failed).enumerate() {
            let of_target = measurements.iter_mut().filter(|m| m.target == target);
            targets.push(self.describe(&mut runner, contender, failed, of_target)?);
        }
        Ok(BenchReport {
            targets,
            batch: options.batch,
            repeat: options.repeat,
            jobs: options.jobs,
            cold: options.cold,
            measurements,
            comparison,
            paired_items: self.checked.and_then(|_| Some(self.contenders.first()?.items.count)),
            checked_items: self.checked,
        })
    }

    /// Returns the padding of the first target that is a text dataset. Compared targets deliver the same tokens.
    ///
    /// # Errors
    ///
    /// Those of [`BenchTarget::padding`].
    pub fn padding(&self) -> Result<Option<Padding>> {
        let found = self.contenders.iter().map(|c| c.target.padding(self.options.batch).transpose());
        found.flatten().next().transpose()
    }

    /// Drops files from the page cache for cold rounds, and returns their residency.
    fn prepare(&self, runner: &mut Runner<'_>, contender: &Contender) -> Result<Option<Residency>> {
        let paths = || contender.target.local_files().iter().map(|file| file.path.as_path());
        if self.options.cold {
            runner.close()?;
            evict(paths());
        }
        Ok(Residency::of(paths()))
    }

    /// Runs a round, or a warm-up round without `repeat`.
    fn round(
        &self,
        runner: &mut Runner<'_>,
        target: usize,
        (order, threads, decode): Combination,
        repeat: Option<usize>,
    ) -> Result<Round> {
        let options = &self.options;
        let (seconds, items) = match (options.effort, repeat) {
            (Effort::Seconds(s), Some(_)) => (Some(s), None),
            (Effort::Items(n), Some(_)) => (None, Some(n.div_ceil(options.jobs as u64))),
            (Effort::Seconds(s), None) => (Some(s.min(WARM_UP_SECONDS)), None),
            (Effort::Items(n), None) => (Some(WARM_UP_SECONDS), Some(n)),
        };
        runner.run(options.jobs, |job| RoundSpec {
            target,
            order,
            threads,
            decode,
            // All targets and processes share the order of a round.
            seed: options.seed.wrapping_add((repeat.map_or(0, |r| r + 1) as u64) << 8),
            job,
            jobs: options.jobs,
            seconds,
            items,
            single_pass: options.cold,
        })
    }

    /// Computes the ratios of rounds that ran directly after each other.
    fn compare(&self, measurements: &[Measurement]) -> Vec<Comparison> {
        let of = |target| measurements.iter().filter(move |m| m.target == target);
        let pairs = of(0).zip(of(1));
        pairs
            .filter_map(|(a, b)| {
                let ratios = a.round_rates.iter().zip(&b.round_rates).map(|(a, b)| a / b);
                let speedup = Spread::of(ratios)?;
                Some(Comparison { order: a.order, threads: a.threads, decode: a.decode, speedup })
            })
            .collect()
    }

    /// Describes a target, probes its device, and completes its `measurements`.
    fn describe<'m>(
        &self,
        runner: &mut Runner<'_>,
        contender: &Contender,
        failed: &BTreeMap<u64, String>,
        measurements: impl Iterator<Item = &'m mut Measurement>,
    ) -> Result<TargetReport> {
        let target = &contender.target;
        let (files, bytes) = target.files();
        let probe = match self.options.probe {
            true => self.probe(runner, contender)?,
            false => None,
        };
        for measurement in measurements {
            measurement.device = probe.as_ref().map(|probe| {
                let limit = match measurement.order {
                    ReadOrder::Sequential => probe.sequential_bytes_per_second,
                    ReadOrder::Random | ReadOrder::Bucketed => probe.random_bytes_per_second,
                };
                let fraction = measurement.bytes_per_second.median / limit.max(1.0);
                DeviceFraction { limit_bytes_per_second: limit, fraction }
            });
        }
        let examples = failed.iter().take(NAMED_FAILURES);
        Ok(TargetReport {
            path: contender.path(),
            kind: target.kind,
            format: target.format,
            items: target.items,
            files,
            bytes,
            remote: target.is_remote(),
            prepare_ms: target.found_in.as_secs_f64() * 1e3,
            failures: Failures {
                count: failed.len() as u64,
                examples: examples.map(|(item, why)| (target.name_of(*item), why.clone())).collect(),
            },
            probe,
        })
    }

    fn probe(&self, runner: &mut Runner<'_>, contender: &Contender) -> Result<Option<Probe>> {
        let threads = self.options.threads.iter().max().copied().unwrap_or(1) * self.options.jobs;
        let seconds = match self.options.effort {
            Effort::Seconds(s) => s.min(PROBE_SECONDS),
            Effort::Items(_) => PROBE_SECONDS / 4.0,
        };
        let target = &contender.target;
        let (_, bytes) = target.files();
        let item_bytes = bytes as f64 / target.items.max(1) as f64;
        let time = Duration::from_secs_f64(seconds);
        let files = target.local_files();
        let prepare = || self.prepare(runner, contender).ok().flatten();
        Probe::run(files, item_bytes, threads.min(MAX_THREADS), time, self.options.cold, prepare)
    }
}

/// Returns the residency that supports the measurement least: the largest of cold rounds, else the smallest.
fn weakest_residency(residencies: &[Option<Residency>], cold: bool) -> Option<Residency> {
    let known: Vec<Residency> = residencies.iter().copied().collect::<Option<_>>()?;
    let by_share = |a: &Residency, b: &Residency| a.share.total_cmp(&b.share);
    if cold { known.into_iter().max_by(by_share) } else { known.into_iter().min_by(by_share) }
}

/// Where rounds run: in this process, or in child processes.
enum Runner<'a> {
    Local(LocalRunner<'a>),
    Jobs(Jobs),
}

impl Runner<'_> {
    fn run(&mut self, jobs: usize, spec: impl Fn(usize) -> RoundSpec) -> Result<Round> {
        match self {
            Self::Local(local) => local.run(&spec(0)),
            Self::Jobs(running) => {
                debug_assert!(jobs > 1);
                running.ask(|job| JobRequest::Run(spec(job)))
            }
        }
    }

    fn close(&mut self) -> Result<()> {
        match self {
            Self::Local(local) => local.open.clear(),
            Self::Jobs(running) => drop(running.ask(|_| JobRequest::Close)?),
        }
        Ok(())
    }
}

/// Runs rounds in this process.
struct LocalRunner<'a> {
    bench: &'a Bench,
    open: BTreeMap<usize, OpenTarget<'a>>,
    /// Orders of batches by target, order and seed.
    orders: HashMap<(usize, ReadOrder, u64), BatchOrder>,
}

impl LocalRunner<'_> {
    fn run(&mut self, spec: &RoundSpec) -> Result<Round> {
        let contenders = &self.bench.contenders;
        let contender = contenders.get(spec.target).ok_or_else(|| Error::usage("there is no such target"))?;
        let open = match self.open.entry(spec.target) {
            btree_map::Entry::Occupied(open) => open.into_mut(),
            btree_map::Entry::Vacant(closed) => closed.insert(contender.target.open()?),
        };
        let key = (spec.target, spec.order, spec.seed);
        // Keeps one order of each kind, because listed batches take memory.
        self.orders.retain(|other, _| *other == key || (other.0, other.1) != (spec.target, spec.order));
        let order = match self.orders.entry(key) {
            hash_map::Entry::Occupied(order) => order.into_mut(),
            hash_map::Entry::Vacant(missing) => {
                missing.insert(contender.order(spec.order, self.bench.options.batch, spec.seed)?)
            }
        };
        round::run(open, order, spec)
    }
}

/// Maximum number of threads.
pub const MAX_THREADS: usize = 1024;
/// Maximum number of processes.
pub const MAX_JOBS: usize = 256;
/// Maximum number of rounds of a measurement.
pub const MAX_REPEAT: usize = 1000;
/// Maximum length of a round, in seconds.
const MAX_SECONDS: f64 = 86_400.0;

/// Length of a round.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Effort {
    /// A number of seconds.
    Seconds(f64),
    /// A number of items, rounded up to whole batches.
    Items(u64),
}

/// What to measure, and for how long.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchOptions {
    /// Orders of the items.
    pub orders: Vec<ReadOrder>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// With decoding, without, or both.
    pub decode: Vec<bool>,
    /// Size of a batch.
    pub batch: BenchBatchSize,
    /// Length of a round.
    pub effort: Effort,
    /// Number of rounds per measurement.
    pub repeat: usize,
    /// Whether files are dropped from the page cache before each round.
    pub cold: bool,
    /// Number of processes.
    pub jobs: usize,
    /// Seed of random orders.
    pub seed: u64,
    /// Whether plain reads are also measured.
    pub probe: bool,
}

impl BenchOptions {
    /// Rejects numbers that are out of range.
    pub(super) fn check(&self) -> Result<()> {
        let in_range = |name: &str, value: u64, max: u64| match value {
            0 => Err(Error::usage(format!("`{name}` must be at least 1"))),
            n if n > max => Err(Error::usage(format!("`{name}` must be at most {max}, not {n}"))),
            _ => Ok(()),
        };
        if self.orders.is_empty() || self.threads.is_empty() || self.decode.is_empty() {
            return Err(
                Error::usage("there is nothing to measure").help("name an order and a number of threads")
            );
        }
        self.threads.iter().try_for_each(|&n| in_range("threads", n as u64, MAX_THREADS as u64))?;
        in_range("jobs", self.jobs as u64, MAX_JOBS as u64)?;
        in_range("repeat", self.repeat as u64, MAX_REPEAT as u64)?;
        match self.batch {
            BenchBatchSize::Items(n) => in_range("batch_size", n, MAX_BATCH_RECORDS)?,
            BenchBatchSize::Tokens(n) => in_range("batch_tokens", n, MAX_BATCH_TOKENS)?,
        }
        match self.effort {
            Effort::Seconds(s) if s > 0.0 && s <= MAX_SECONDS => Ok(()),
            Effort::Seconds(s) => {
                Err(Error::usage(format!("`seconds` must be above 0 and at most {MAX_SECONDS}, not {s}")))
            }
            Effort::Items(n) => in_range("items", n, u64::MAX),
        }
    }
}

/// A target, and what is read of it.
pub(super) struct Contender {
    pub(super) target: BenchTarget,
    pub(super) items: ItemSet,
    /// Lengths of all items of the target, if orders or batches need them.
    pub(super) lengths: Option<Vec<u64>>,
}

impl Contender {
    /// Creates the batches of the target in `order`.
    pub(super) fn order(&self, order: ReadOrder, size: BenchBatchSize, seed: u64) -> Result<BatchOrder> {
        let (lengths, streams) = (self.lengths.as_deref(), self.target.streams());
        BatchOrder::new(self.items.clone(), order, size, seed, lengths, streams.as_deref())
    }

    pub(super) fn path(&self) -> String {
        self.target.path.to_string_lossy().into_owned()
    }

    /// Returns the error for a target of which no item could be loaded.
    pub(super) fn nothing_loaded(&self, failed: &BTreeMap<u64, String>) -> Error {
        let why = match failed.iter().next() {
            Some((item, why)) => format!(": {}: {why}", self.target.name_of(*item)),
            None => String::new(),
        };
        let message = format!("no item could be loaded{why}");
        let is_dataset = self.target.kind.is_dataset();
        let error = if is_dataset { Error::corrupt(message) } else { Error::usage(message) };
        error.at_path(self.path())
    }
}
