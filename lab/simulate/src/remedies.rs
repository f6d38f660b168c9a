//! Search for remedies by simulation.

use crate::bottleneck::Bottleneck;
use crate::engine::simulate_quietly;
use crate::format::number;
use crate::options::{MAX_PREFETCH, MAX_QUEUE, MAX_WORKERS, Options, Order, Stop};
use crate::report::{mean_load_ns, model_limit};
use crate::waits::{LONG_RUN_BATCHES, STALL_TOLERANCE, Waits, has_capacity, is_tolerable, long_run_share};

/// Maximum speedup of loading that the search considers.
const MAX_SPEEDUP: f64 = 1024.0;
/// Maximum number of attempts to confirm a remedy in a run that is longer than the runs of the search.
const CONFIRMATIONS: u32 = 8;
/// A setting that was tried is worth mentioning if it reduces the waits to this share of them.
const WORTHWHILE: f64 = 0.9;

/// A changed setting of the loader.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Change {
    Workers(u32),
    /// Load times are divided by this number.
    Speedup(f64),
    Prefetch(u32),
    Queue(u32),
    Completed,
}

impl Change {
    /// Returns `options` with this change.
    fn applied(self, options: &Options) -> Options {
        let options = options.clone();
        match self {
            Self::Workers(workers) => Options { workers, ..options },
            Self::Speedup(factor) => Options { load: options.load.scaled(1.0 / factor), ..options },
            Self::Prefetch(prefetch) => Options { prefetch, ..options },
            Self::Queue(queue) => Options { queue: Some(queue), ..options },
            Self::Completed => Options { order: Order::Completed, ..options },
        }
    }

    /// Returns all options that the change, as the verdict words it, can mean. The first are those of
    /// [`Self::applied`].
    fn readings(self, options: &Options) -> Vec<Options> {
        let applied = self.applied(options);
        match self {
            Self::Workers(workers) if options.stagger_ns > 0 => {
                // The delay between starts is either fixed, or chosen so that all starts take as long as before.
                let spread = options.stagger_ns * u64::from(options.workers);
                let even = Options { stagger_ns: spread / u64::from(workers), ..applied.clone() };
                vec![applied, even]
            }
            Self::Speedup(factor) => {
                // The verdict shows both the factor and a rounded load time.
                let mean = mean_load_ns(options);
                let shown = load_ms(options, factor).parse().map_or(mean, |ms: f64| ms * 1e6);
                vec![applied, Self::Speedup(mean / shown).applied(options)]
            }
            _ => vec![applied],
        }
    }

    /// Describes the change as the subject of a sentence.
    pub(crate) fn words(self, options: &Options) -> String {
        match self {
            Self::Workers(1) => "1 worker".to_owned(),
            Self::Workers(n) => format!("{n} workers"),
            Self::Speedup(factor) => {
                format!("{factor:.2} times faster loading ({} ms per batch)", load_ms(options, factor))
            }
            Self::Prefetch(n) => format!("a prefetch factor of {n}"),
            Self::Queue(n) => format!("a queue of {n}"),
            Self::Completed => "delivery as completed".to_owned(),
        }
    }
}

/// Formats the mean load time that is `factor` times shorter.
fn load_ms(options: &Options, factor: f64) -> String {
    number(mean_load_ns(options) / factor / 1e6)
}

/// Remedies, each of which keeps up in a run with the options of the verdict.
#[derive(Debug, Default)]
pub(crate) struct Remedies {
    pub(crate) changes: Vec<Change>,
    /// Whether the model still waits at the start of the run with one of the changes.
    pub(crate) start_remains: bool,
    /// If there is no change that keeps up: the one that reduces the waits most, and the share that remains.
    pub(crate) best: Option<(Change, f64)>,
    /// If there are fewer workers than cores, and no number of workers keeps up: the share of the time that the model
    /// waits with a worker on each core.
    pub(crate) all_cores: Option<f64>,
}

impl Remedies {
    /// Searches for settings with which loading keeps up. `waits` is the share of the time that the model waits with
    /// `options`.
    pub(crate) fn find(options: &Options, bottleneck: Bottleneck, waits: f64) -> Self {
        let mut search =
            Search { options, is_longer: possible_batches(options) > LONG_RUN_BATCHES, tried: Vec::new() };
        let mut found = Self::default();
        let workers = search.smallest(options.workers + 1, MAX_WORKERS, Change::Workers);
        found.changes.extend(workers);
        found.changes.extend(search.speedup());
        if bottleneck == Bottleneck::Uneven {
            found.changes.extend(if options.order == Order::Pool {
                search.smallest(options.queue_capacity().saturating_add(1), MAX_QUEUE, Change::Queue)
            } else {
                search.smallest(options.prefetch + 1, MAX_PREFETCH, Change::Prefetch)
            });
            if options.order == Order::Pytorch
                && search.holds(Change::Completed)
                && search.is_confirmed(Change::Completed)
            {
                found.changes.push(Change::Completed);
            }
        }
        found.start_remains = found
            .changes
            .iter()
            .any(|&change| search.share_of(change).is_some_and(|share| share > STALL_TOLERANCE));
        if found.changes.is_empty() {
            found.best = search.best().filter(|&(_, share)| share < waits * WORTHWHILE);
        }
        if workers.is_none()
            && let Some(cores) = options.cores.filter(|&cores| cores > options.workers)
        {
            let change = Change::Workers(cores);
            search.runs(change, &change.applied(options));
            found.all_cores = search.share_of(change).filter(|&share| share < waits * WORTHWHILE);
        }
        found
    }
}

/// Returns the number of batches that a run with `options` delivers if the model never waits.
fn possible_batches(options: &Options) -> u64 {
    match options.stop {
        Stop::Batches(batches) => batches,
        Stop::AfterNs(ns) => (ns as f64 / 1e9 * model_limit(options)).ceil() as u64,
    }
}

struct Search<'a> {
    options: &'a Options,
    /// Whether a run with the stop condition of the options is longer than a long run. The search then simulates long
    /// runs only, and the longer run confirms its result.
    is_longer: bool,
    /// Changes that were simulated, and the share of the time that the model waits.
    tried: Vec<(Change, f64)>,
}

impl Search<'_> {
    /// Returns whether loading keeps up with `change`.
    fn holds(&mut self, change: Change) -> bool {
        let options = change.applied(self.options);
        has_capacity(&options, 1.0 - 1e-9)
            && (self.is_longer || self.runs(change, &options))
            && is_tolerable(long_run_share(&options))
    }

    /// Returns whether loading keeps up with `options`, to which `change` is applied, until their stop condition.
    fn runs(&mut self, change: Change, options: &Options) -> bool {
        let Ok(run) = simulate_quietly(options) else { return false };
        let report = run.report();
        self.tried.push((change, report.stall_share));
        report.first_batch_ns.is_some() && is_tolerable(Waits::of(&run).late_share())
    }

    /// Returns whether `change`, which holds, keeps up however it is read, and until the stop condition of the options
    /// if that is later than the end of a long run.
    fn is_confirmed(&mut self, change: Change) -> bool {
        change.readings(self.options).iter().enumerate().all(|(i, options)| {
            let is_known = i == 0 && !self.is_longer;
            is_known || (self.runs(change, options) && is_tolerable(long_run_share(options)))
        })
    }

    /// Returns the share of the time that the model waits with `change`, if it was simulated.
    fn share_of(&self, change: Change) -> Option<f64> {
        self.tried.iter().filter(|(tried, _)| *tried == change).map(|&(_, share)| share).reduce(f64::max)
    }

    /// Returns the change that reduces the waits most: of equally good ones, the first one that was tried.
    fn best(&self) -> Option<(Change, f64)> {
        let least = self.tried.iter().map(|&(_, share)| share).reduce(f64::min)?;
        self.tried.iter().copied().find(|&(_, share)| share <= least + STALL_TOLERANCE / 10.0)
    }

    /// Returns the smallest number in `min..=max` with which `change` holds, found by bisection. If the waits do not
    /// always fall with the number, a smaller one can exist, but the one that is returned holds.
    fn smallest(&mut self, min: u32, max: u32, change: impl Fn(u32) -> Change) -> Option<Change> {
        let (mut low, mut high) = (min, min);
        if min > max {
            return None;
        }
        while !self.holds(change(high)) {
            if high >= max {
                return None;
            }
            low = high + 1;
            high = high.saturating_mul(2).min(max);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if self.holds(change(middle)) { high = middle } else { low = middle + 1 }
        }
        for _ in 0..CONFIRMATIONS {
            if self.is_confirmed(change(high)) {
                return Some(change(high));
            }
            if high == max {
                return None;
            }
            high = (high + (high / 8).max(1)).min(max);
            if !self.holds(change(high)) {
                return None;
            }
        }
        None
    }

    /// Returns the smallest speedup of loading that holds, to within about 1%.
    fn speedup(&mut self) -> Option<Change> {
        let (mut low, mut high) = (1.0, 2.0);
        while !self.holds(Change::Speedup(high)) {
            low = high;
            high *= 2.0;
            if high > MAX_SPEEDUP {
                return None;
            }
        }
        while high / low > 1.005 {
            let middle = (low + high) / 2.0;
            if self.holds(Change::Speedup(middle)) { high = middle } else { low = middle }
        }
        for attempt in 1..=CONFIRMATIONS {
            // The verdict shows two decimals.
            let shown = Change::Speedup((high * 100.0).ceil() / 100.0);
            if self.holds(shown) && self.is_confirmed(shown) {
                return Some(shown);
            }
            high *= 1.0 + 0.01 * f64::from(attempt);
        }
        None
    }
}
