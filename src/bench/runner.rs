//! Benchmark runner: interleaves the rounds of all measurements.

use std::collections::{BTreeMap, HashMap};
use std::process::Command;
use std::time::Duration;

use super::batch::BenchBatchSize;
use super::jobs::{JobRequest, Jobs};
use super::options::{BenchOptions, Effort, MAX_THREADS};
use super::order::{BatchOrder, ItemSet, ReadOrder};
use super::pairing;
use super::probe::Probe;
use super::report::{
    BenchReport, Comparison, DeviceFraction, Failures, Measurement, TargetReport, summarize,
};
use super::residency::{Residency, evict};
use super::round::{self, Round, RoundSpec};
use super::spread::Spread;
use super::target::{BenchTarget, OpenTarget};
use crate::error::{Error, Result};
use crate::reader::batch::Padding;

/// Maximum length of a warm-up.
const WARM_UP_SECONDS: f64 = 0.5;
/// Maximum length of each phase of a probe.
const PROBE_SECONDS: f64 = 1.0;
/// Maximum number of failures to name.
const NAMED_FAILURES: usize = 5;

/// A benchmark of one target, or of two that are compared.
pub struct Bench {
    targets: Vec<BenchTarget>,
    options: BenchOptions,
    /// Items to read of each target.
    items: Vec<ItemSet>,
    lengths: Vec<Option<Vec<u64>>>,
    checked: Option<u64>,
}

/// Order, threads and decoding: one measurement of each target.
type Combination = (ReadOrder, usize, bool);

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
                let what = match target.kind().is_text() {
                    true => "buckets and token budgets need a tokenizer",
                    false => "images have no tokens, which buckets and token budgets need",
                };
                return Err(Error::usage(what)
                    .at_path(target.path())
                    .help("leave out the bucketed order and the token budget"));
            }
            lengths.push(with_lengths.then(|| target.lengths()).transpose()?);
        }
        let (items, checked) = match &targets[..] {
            [a, b] => {
                let paired = pairing::pair([a, b])?;
                (paired.items.to_vec(), Some(paired.checked))
            }
            _ => {
                let all = targets.iter().map(|target| ItemSet { count: target.items(), subset: None });
                (all.collect(), None)
            }
        };
        let bench = Self { targets, options, items, lengths, checked };
        // Rejects orders that a target does not support before anything is measured.
        for target in 0..bench.targets.len() {
            for &order in &bench.options.orders {
                bench.order(target, order, 0)?;
            }
        }
        Ok(bench)
    }

    fn order(&self, target: usize, order: ReadOrder, seed: u64) -> Result<BatchOrder> {
        let missing = || Error::internal("there is no such target");
        let found = self.targets.get(target).ok_or_else(missing)?;
        let items = self.items.get(target).cloned().ok_or_else(missing)?;
        let lengths = self.lengths.get(target).and_then(Option::as_deref);
        BatchOrder::new(items, order, self.options.batch, seed, lengths, found.streams().as_deref())
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
        let measurements = (self.combinations().len() * self.targets.len()) as f64;
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
        let count = self.targets.len();
        let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); combinations.len() * count];
        let mut residencies: Vec<Vec<Option<Residency>>> = vec![Vec::new(); rounds.len()];
        let mut failed: Vec<BTreeMap<u64, String>> = vec![BTreeMap::new(); count];
        for repeat in 0..options.repeat {
            for (c, &combination) in combinations.iter().enumerate() {
                for turn in 0..count {
                    // Targets take turns in going first.
                    let target = if (repeat + c) % 2 == 0 { turn } else { count - 1 - turn };
                    if repeat == 0 && !options.cold {
                        self.round(&mut runner, target, combination, None)?;
                    }
                    let residency = self.prepare(&mut runner, target)?;
                    let mut round = self.round(&mut runner, target, combination, Some(repeat))?;
                    if let Some(failed) = failed.get_mut(target) {
                        failed.append(&mut round.failed);
                    }
                    let at = c * count + target;
                    rounds.get_mut(at).into_iter().for_each(|rounds| rounds.push(std::mem::take(&mut round)));
                    residencies.get_mut(at).into_iter().for_each(|all| all.push(residency));
                }
            }
        }
        let mut measurements = Vec::new();
        for (at, (rounds, residencies)) in rounds.into_iter().zip(residencies).enumerate() {
            let (target, combination) = (at % count, combinations.get(at / count).copied());
            let Some(combination) = combination else { continue };
            let path = self.path(target);
            let residency = weakest_residency(&residencies, options.cold);
            let found = summarize((target, path), combination, rounds, residency);
            measurements.push(found.ok_or_else(|| self.nothing_loaded(target, failed.get(target)))?);
        }
        let comparison = self.compare(&measurements);
        let mut targets = Vec::new();
        for (target, failed) in failed.into_iter().enumerate() {
            targets.push(self.describe(&mut runner, target, &failed, &mut measurements)?);
        }
        Ok(BenchReport {
            targets,
            batch: options.batch,
            repeat: options.repeat,
            jobs: options.jobs,
            cold: options.cold,
            measurements,
            comparison,
            paired_items: self.checked.and_then(|_| Some(self.items.first()?.count)),
            checked_items: self.checked,
        })
    }

    /// Returns the padding of the first target that is a text dataset. Compared targets deliver the same tokens.
    ///
    /// # Errors
    ///
    /// Those of [`BenchTarget::padding`].
    pub fn padding(&self) -> Result<Option<Padding>> {
        let found = self.targets.iter().map(|target| target.padding(self.options.batch).transpose());
        found.flatten().next().transpose()
    }

    fn path(&self, target: usize) -> String {
        self.targets.get(target).map_or_else(String::new, |t| t.path().to_string_lossy().into_owned())
    }

    /// Returns the error for a target of which no item could be loaded.
    fn nothing_loaded(&self, target: usize, failed: Option<&BTreeMap<u64, String>>) -> Error {
        let first = failed.and_then(|failed| failed.iter().next());
        let why = match (first, self.targets.get(target)) {
            (Some((item, why)), Some(found)) => format!(": {}: {why}", found.name_of(*item)),
            _ => String::new(),
        };
        let message = format!("no item could be loaded{why}");
        let is_dataset = self.targets.get(target).is_some_and(|found| found.kind().is_dataset());
        let error = if is_dataset { Error::corrupt(message) } else { Error::usage(message) };
        error.at_path(self.path(target))
    }

    /// Drops files from the page cache for cold rounds, and returns their residency.
    fn prepare(&self, runner: &mut Runner<'_>, target: usize) -> Result<Option<Residency>> {
        let Some(found) = self.targets.get(target) else { return Ok(None) };
        let paths = || found.local_files().iter().map(|file| file.path.as_path());
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

    /// Describes a target, probes its device, and completes its measurements.
    fn describe(
        &self,
        runner: &mut Runner<'_>,
        target: usize,
        failed: &BTreeMap<u64, String>,
        measurements: &mut [Measurement],
    ) -> Result<TargetReport> {
        let missing = || Error::internal("there is no such target");
        let found = self.targets.get(target).ok_or_else(missing)?;
        let (files, bytes) = found.files();
        let probe = match self.options.probe {
            true => self.probe(runner, target, found)?,
            false => None,
        };
        for measurement in measurements.iter_mut().filter(|m| m.target == target) {
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
            path: self.path(target),
            kind: found.kind(),
            items: found.items(),
            files,
            bytes,
            remote: found.is_remote(),
            prepare_ms: found.found_in().as_secs_f64() * 1e3,
            failures: Failures {
                count: failed.len() as u64,
                examples: examples.map(|(item, why)| (found.name_of(*item), why.clone())).collect(),
            },
            probe,
        })
    }

    fn probe(&self, runner: &mut Runner<'_>, target: usize, found: &BenchTarget) -> Result<Option<Probe>> {
        let threads = self.options.threads.iter().max().copied().unwrap_or(1) * self.options.jobs;
        let seconds = match self.options.effort {
            Effort::Seconds(s) => s.min(PROBE_SECONDS),
            Effort::Items(_) => PROBE_SECONDS / 4.0,
        };
        let (_, bytes) = found.files();
        let item_bytes = bytes as f64 / found.items().max(1) as f64;
        let time = Duration::from_secs_f64(seconds);
        let files = found.local_files();
        let prepare = || self.prepare(runner, target).ok().flatten();
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
        if !self.open.contains_key(&spec.target) {
            let target =
                self.bench.targets.get(spec.target).ok_or_else(|| Error::usage("there is no such target"))?;
            self.open.insert(spec.target, target.open()?);
        }
        let key = (spec.target, spec.order, spec.seed);
        if !self.orders.contains_key(&key) {
            // Keeps one order of each kind, because listed batches take memory.
            self.orders.retain(|(target, order, _), _| (*target, *order) != (spec.target, spec.order));
            self.orders.insert(key, self.bench.order(spec.target, spec.order, spec.seed)?);
        }
        match (self.open.get(&spec.target), self.orders.get(&key)) {
            (Some(open), Some(order)) => round::run(open, order, spec),
            _ => Err(Error::internal("the target of a round is not open")),
        }
    }
}
