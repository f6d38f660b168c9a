//! Verdicts: the bottleneck of a run and possible remedies.

use crate::engine::simulate;
use crate::options::{MAX_PREFETCH, MAX_QUEUE, MAX_WORKERS, Options, Order, Stop};
use crate::report::{Report, loader_limit, mean_load_ns, model_limit};
use crate::run::Run;

/// Maximum share of the time after its first batch that a model may wait without counting as limited by loading.
pub const STALL_TOLERANCE: f64 = 0.01;

/// Maximum number of batches in a run of the search for remedies.
const SEARCH_BATCHES: u64 = 5_000;

/// The part that limits throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// The workers load fewer batches per second than the model consumes.
    Loading,
    /// The workers are fast enough on average, but the model still waits: load times vary, or too few batches are
    /// loaded ahead.
    Uneven,
    /// Loader and model are equally fast, within 10%. The model does not wait, but the loader has no reserve.
    Balanced,
    /// The model does not wait.
    Model,
}

impl Bottleneck {
    /// Returns the name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Uneven => "uneven",
            Self::Balanced => "balanced",
            Self::Model => "model",
        }
    }
}

/// The bottleneck of a run, and remedies found by simulation with the same seed.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What limits throughput.
    pub bottleneck: Bottleneck,
    /// The smallest number of workers with which the model hardly waits; `None` if no number suffices or more are not
    /// needed.
    pub workers_needed: Option<u32>,
    /// Required speedup of loading; `None` if it does not help or is not needed.
    pub speedup_needed: Option<f64>,
    /// The smallest prefetch factor (or shared queue) with which the model hardly waits, for [`Bottleneck::Uneven`].
    pub prefetch_needed: Option<u32>,
    /// Whether delivery as completed would suffice, for [`Bottleneck::Uneven`].
    pub completed_order_helps: bool,
    /// The verdict in words.
    pub summary: String,
}

/// Returns whether loading keeps up: the model hardly waits after its first batch.
fn keeps_up(report: &Report) -> bool {
    report.stall_share <= STALL_TOLERANCE
}

/// Returns whether loading would keep up with `options`, apart from the first batches.
///
/// The loader's capacity must suffice too, because prefetched batches can hide a slow loader in a short run.
fn would_keep_up(options: &Options) -> bool {
    if loader_limit(options) < model_limit(options) * (1.0 - 1e-9) {
        return false;
    }
    let batches = match options.stop {
        Stop::Batches(n) => n.max(4 * u64::from(options.workers)),
        Stop::AfterNs(_) => SEARCH_BATCHES,
    };
    let options = Options { stop: Stop::Batches(batches), ..options.clone() };
    simulate(&options).is_ok_and(|run| late_stall_share(&run) <= STALL_TOLERANCE)
}

/// Share of the time that the model waits during the second half of its batches.
fn late_stall_share(run: &Run) -> f64 {
    let mut taken: Vec<(u64, u64)> =
        run.batches.iter().filter_map(|b| Some((b.taken_ns?, b.end_ns?))).collect();
    taken.sort_unstable();
    let late = &taken[taken.len() / 2..];
    let (Some(first), Some(last)) = (late.first(), late.last()) else { return 1.0 };
    let waits: u64 = late.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].1)).sum();
    waits as f64 / (last.1 - first.0).max(1) as f64
}

impl Verdict {
    /// Finds the bottleneck of `run`, and simulates variants of it to find remedies.
    ///
    /// ```
    /// use dsconvert_simulate::{Bottleneck, Options, Verdict, simulate};
    ///
    /// let run = simulate(&Options::new(2_000.0, 100.0, 7)?)?;
    /// let verdict = Verdict::of(&run);
    /// assert_eq!(verdict.bottleneck, Bottleneck::Loading);
    /// assert_eq!(verdict.workers_needed, Some(20));
    /// # Ok::<(), dsconvert_simulate::Error>(())
    /// ```
    pub fn of(run: &Run) -> Self {
        let report = run.report();
        let options = &run.options;
        // Equal means give equal quotients, so the ratio differs from 1 only if the means differ.
        let ratio = loader_limit(options) / model_limit(options);
        // The ratio is checked too, because prefetched batches can hide a slow loader in a short run.
        let bottleneck = if keeps_up(&report) && ratio >= 1.0 - STALL_TOLERANCE {
            if ratio < 1.1 { Bottleneck::Balanced } else { Bottleneck::Model }
        } else if ratio < 1.0 - 1e-9 || report.first_batch_ns.is_none() {
            Bottleneck::Loading
        } else {
            Bottleneck::Uneven
        };
        let mut verdict = Self {
            bottleneck,
            workers_needed: None,
            speedup_needed: None,
            prefetch_needed: None,
            completed_order_helps: false,
            summary: String::new(),
        };
        if report.first_batch_ns.is_none() {
            verdict.summary = "no batch arrived before the end of the run; simulate a longer time".to_owned();
            return verdict;
        }
        if matches!(bottleneck, Bottleneck::Loading | Bottleneck::Uneven) {
            verdict.search(&search_options(options, &report));
        }
        verdict.summary = verdict.words(options, &report, ratio);
        verdict
    }

    fn search(&mut self, options: &Options) {
        // Keeps the total length of the staggered start, whatever the number of workers.
        let spread = options.stagger_ns * u64::from(options.workers);
        let workers = |n: u32| Options { workers: n, stagger_ns: spread / u64::from(n), ..options.clone() };
        self.workers_needed = smallest(options.workers + 1, MAX_WORKERS, |n| would_keep_up(&workers(n)));
        self.speedup_needed = speedup(options);
        if self.bottleneck == Bottleneck::Uneven {
            self.prefetch_needed = if options.order == Order::Pool {
                let queue = |n: u32| Options { queue: Some(n), ..options.clone() };
                smallest(options.queue_capacity().saturating_add(1), MAX_QUEUE, |n| would_keep_up(&queue(n)))
            } else {
                let prefetch = |n: u32| Options { prefetch: n, ..options.clone() };
                smallest(options.prefetch + 1, MAX_PREFETCH, |n| would_keep_up(&prefetch(n)))
            };
            self.completed_order_helps = options.order == Order::Pytorch
                && would_keep_up(&Options { order: Order::Completed, ..options.clone() });
        }
    }

    fn words(&self, options: &Options, report: &Report, ratio: f64) -> String {
        let idle = percent(report.stall_share);
        let mut text = match self.bottleneck {
            Bottleneck::Model => {
                return format!(
                    "the model is the bottleneck: the workers can load {ratio:.1} times as many batches as it consumes"
                );
            }
            Bottleneck::Balanced => {
                return "balanced: the workers load just as many batches as the model consumes, with no reserve"
                    .to_owned();
            }
            Bottleneck::Loading => format!(
                "{}, because {} {} batches/s and the model could consume {}",
                if keeps_up(report) {
                    "loading would be the bottleneck of a longer run".to_owned()
                } else {
                    format!("loading is the bottleneck: the model waits {idle} of the time")
                },
                if options.workers == 1 {
                    "1 worker loads".to_owned()
                } else {
                    format!("{} workers load", options.workers)
                },
                number(loader_limit(options)),
                number(model_limit(options)),
            ),
            Bottleneck::Uneven => format!(
                "uneven loading is the bottleneck: the workers are fast enough on average, \
                 but the model waits {idle} of the time"
            ),
        };
        let mut remedies = Vec::new();
        if let Some(n) = self.workers_needed {
            remedies.push(format!("{n} workers"));
        }
        if let Some(factor) = self.speedup_needed {
            let load_ms = mean_load_ns(options) / factor / 1e6;
            remedies.push(format!("{factor:.2} times faster loading ({} ms per batch)", number(load_ms)));
        }
        if let Some(n) = self.prefetch_needed {
            remedies.push(match options.order {
                Order::Pool => format!("a queue of {n}"),
                _ => format!("a prefetch factor of {n}"),
            });
        }
        if self.completed_order_helps {
            remedies.push("delivery as completed".to_owned());
        }
        let remedies = match remedies.split_last() {
            None => "; no remedy that was tried would remove it".to_owned(),
            Some((last, [])) => format!("; {last} would remove it"),
            Some((last, rest)) => format!("; {} or {last} would remove it", rest.join(", ")),
        };
        text.push_str(&remedies);
        if self.workers_needed.is_none()
            && let Some(cores) = options.cores.filter(|&cores| cores < model_cores(options))
        {
            text.push_str(&format!(
                "; more workers do not help, because they share {}",
                if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") }
            ));
        }
        text
    }
}

/// Number of cores needed to load as fast as the model consumes.
fn model_cores(options: &Options) -> u32 {
    (mean_load_ns(options) * model_limit(options) / 1e9 - 1e-9).ceil() as u32
}

/// Options of the search: the run is long enough that the delay of the first batches does not dominate.
fn search_options(options: &Options, report: &Report) -> Options {
    let batches = (report.duration_ns as f64 / 1e9 * model_limit(options)).ceil() as u64;
    Options { stop: Stop::Batches(batches.clamp(200, SEARCH_BATCHES)), ..options.clone() }
}

/// Returns the smallest number in `min..=max` for which `works` holds. `works` must be monotonic.
fn smallest(min: u32, max: u32, works: impl Fn(u32) -> bool) -> Option<u32> {
    let (mut low, mut high) = (min, min);
    while !works(high) {
        if high >= max {
            return None;
        }
        low = high + 1;
        high = high.saturating_mul(2).min(max);
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if works(middle) { high = middle } else { low = middle + 1 }
    }
    Some(high)
}

/// Returns the smallest speedup of loading that removes the bottleneck, to within about 1%; `None` if it is above 1024.
fn speedup(options: &Options) -> Option<f64> {
    let works =
        |factor: f64| would_keep_up(&Options { load: options.load.scaled(1.0 / factor), ..options.clone() });
    let (mut low, mut high) = (1.0, 2.0);
    while !works(high) {
        low = high;
        high *= 2.0;
        if high > 1024.0 {
            return None;
        }
    }
    while high / low > 1.005 {
        let middle = (low + high) / 2.0;
        if works(middle) { high = middle } else { low = middle }
    }
    Some((high * 100.0).ceil() / 100.0)
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// Formats a number with three significant digits (four decimals below 1), without trailing zeros.
pub(crate) fn number(x: f64) -> String {
    let digits = if x >= 100.0 {
        0
    } else if x >= 10.0 {
        1
    } else if x >= 1.0 {
        2
    } else {
        4
    };
    let text = format!("{x:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
