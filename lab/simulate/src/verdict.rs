//! Verdicts: the bottleneck of a run and possible remedies.

use std::fmt;

use crate::bottleneck::Bottleneck;
use crate::format::{number, percent, time};
use crate::options::Options;
use crate::remedies::{Change, Remedies};
use crate::report::{Report, core_limit, loader_limit, mean_load_ns, model_alone, model_limit};
use crate::run::Run;
use crate::waits::{
    BUSY_CORES, LONG_RUN_BATCHES, STALL_TOLERANCE, START_TOLERANCE, Waits, has_capacity, is_tolerable,
    long_run,
};

/// The bottleneck of a run, and remedies found by simulation with the same seed.
///
/// Verdict and remedies have one criterion. Loading keeps up if the model waits for at most [`STALL_TOLERANCE`] of the
/// time, in the second half of the run and in that of a run of 20,000 batches with the same options. A run with the
/// recommended setting therefore has no remedy, apart from waits at its start.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What limits throughput.
    pub bottleneck: Bottleneck,
    /// The number of workers with which loading keeps up; `None` if no number suffices or more are not needed.
    pub workers_needed: Option<u32>,
    /// Required speedup of loading; `None` if it does not help or is not needed.
    pub speedup_needed: Option<f64>,
    /// The prefetch factor (or shared queue) with which loading keeps up, for [`Bottleneck::Uneven`].
    pub prefetch_needed: Option<u32>,
    /// Whether delivery as completed would suffice, for [`Bottleneck::Uneven`].
    pub completed_order_helps: bool,
    /// The verdict in words.
    pub summary: String,
}

/// Measurements on which a verdict is based.
struct Evidence {
    report: Report,
    waits: Waits,
    /// Loader capacity ÷ model capacity.
    ratio: f64,
    /// [`Waits::late_share`] of a long run; `None` if it was not simulated.
    long_share: Option<f64>,
    /// Whether the cores that workers and model share are fully used.
    cores_are_busy: bool,
}

impl Evidence {
    fn of(run: &Run) -> Self {
        let options = &run.options;
        let report = run.report();
        // A run that is long itself needs no other one.
        let is_long = report.batches >= LONG_RUN_BATCHES;
        let needs_long = !is_long && report.first_batch_ns.is_some();
        let long = if needs_long { long_run(options) } else { None };
        let waits = Waits::of(run);
        let rate = long.as_ref().unwrap_or(&waits).late_rate();
        let cores_are_busy = core_limit(options)
            .zip(rate)
            .is_some_and(|(limit, rate)| limit < model_alone(options) && rate >= limit * BUSY_CORES);
        Self {
            waits,
            cores_are_busy,
            // Equal means give equal quotients, so the ratio differs from 1 only if the means differ.
            ratio: loader_limit(options) / model_limit(options),
            long_share: long.and_then(|waits| waits.late_share()),
            report,
        }
    }

    /// Returns whether the model hardly waits after its first batch.
    fn hardly_stalls(&self) -> bool {
        self.report.stall_share <= STALL_TOLERANCE
    }

    /// Returns whether the model hardly waits in the run, including its start.
    fn hardly_waits(&self) -> bool {
        self.hardly_stalls() && self.report.wait_share <= START_TOLERANCE
    }

    fn bottleneck(&self, options: &Options) -> Bottleneck {
        // The capacity is checked too, because prefetched batches can hide a slow loader in a short run.
        let has_capacity =
            has_capacity(options, 1.0 - STALL_TOLERANCE) && self.report.first_batch_ns.is_some();
        let keeps_up = has_capacity && is_tolerable(self.waits.late_share()) && is_tolerable(self.long_share);
        match keeps_up {
            true if !self.hardly_waits() => Bottleneck::Start,
            _ if has_capacity && self.cores_are_busy => Bottleneck::Cores,
            true if self.ratio < 1.1 => Bottleneck::Balanced,
            true => Bottleneck::Model,
            false if self.ratio < 1.0 - 1e-9 || self.report.first_batch_ns.is_none() => Bottleneck::Loading,
            false => Bottleneck::Uneven,
        }
    }
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
        let options = &run.options;
        let evidence = Evidence::of(run);
        let bottleneck = evidence.bottleneck(options);
        let mut verdict = Self {
            bottleneck,
            workers_needed: None,
            speedup_needed: None,
            prefetch_needed: None,
            completed_order_helps: false,
            summary: String::new(),
        };
        if evidence.report.first_batch_ns.is_none() {
            verdict.summary = "no batch arrived before the end of the run; simulate a longer time".to_owned();
            return verdict;
        }
        let ratio = evidence.ratio;
        verdict.summary = match bottleneck {
            Bottleneck::Model => format!(
                "the model is the bottleneck: the workers can load {ratio:.1} times as many batches as it consumes"
            ),
            Bottleneck::Balanced => {
                "balanced: the workers load just as many batches as the model consumes, with no reserve"
                    .to_owned()
            }
            Bottleneck::Start => start_words(&evidence),
            Bottleneck::Cores => core_words(options, &evidence),
            Bottleneck::Loading | Bottleneck::Uneven => {
                let found = Remedies::find(options, bottleneck, evidence.report.stall_share);
                for change in &found.changes {
                    match *change {
                        Change::Workers(n) => verdict.workers_needed = Some(n),
                        Change::Speedup(factor) => verdict.speedup_needed = Some(factor),
                        Change::Prefetch(n) | Change::Queue(n) => verdict.prefetch_needed = Some(n),
                        Change::Completed => verdict.completed_order_helps = true,
                    }
                }
                let mut text = limit_words(options, &evidence, bottleneck);
                text.push_str(&remedy_words(options, &found));
                text
            }
        };
        verdict
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)
    }
}

/// Describes a run that waits only at its start.
fn start_words(evidence: &Evidence) -> String {
    let report = &evidence.report;
    let idle = percent(if evidence.hardly_stalls() { report.wait_share } else { report.stall_share });
    let later = match (evidence.waits.late_share(), evidence.waits.after_start(), evidence.long_share) {
        (Some(_), Some((end, share)), _) => {
            format!("but only {} after the first {}", percent(share), time(end as f64))
        }
        (_, _, Some(share)) => {
            format!("but only {} of a run of {} batches", percent(share), LONG_RUN_BATCHES)
        }
        _ => "in a run that is too short to tell more".to_owned(),
    };
    let reserve = if evidence.ratio < 1.1 {
        "load just as many batches as it consumes, with no reserve".to_owned()
    } else {
        format!("can load {:.1} times as many batches as it consumes", evidence.ratio)
    };
    format!("only the start is slow: the model waits {idle} of the time, {later}; the workers {reserve}")
}

/// Describes a run that is limited by the cores that workers and model share.
fn core_words(options: &Options, evidence: &Evidence) -> String {
    let mut text = format!(
        "the cores are the bottleneck: loading and the model share {}, enough for {} batches/s, and the model alone \
         could consume {}; ",
        core_count(options.cores.unwrap_or(options.workers)),
        number(model_limit(options)),
        number(model_alone(options)),
    );
    if !evidence.hardly_stalls() {
        let idle = percent(evidence.report.stall_share);
        text.push_str(&format!("the model waits {idle} of the time, but more workers would not help; "));
    }
    text.push_str("more cores or less work per batch would help");
    text
}

fn core_count(cores: u32) -> String {
    if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") }
}

/// Describes a run that loading limits.
fn limit_words(options: &Options, evidence: &Evidence, bottleneck: Bottleneck) -> String {
    let idle = percent(evidence.report.stall_share);
    if bottleneck == Bottleneck::Uneven {
        return if evidence.hardly_stalls() {
            format!(
                "uneven loading would be the bottleneck of a longer run: the workers are fast enough on average, \
                 but the model would wait {} of a run of {LONG_RUN_BATCHES} batches",
                percent(evidence.long_share.unwrap_or(evidence.report.stall_share))
            )
        } else {
            format!(
                "uneven loading is the bottleneck: the workers are fast enough on average, \
                 but the model waits {idle} of the time"
            )
        };
    }
    let consumer = match core_limit(options) {
        Some(limit) if limit < model_alone(options) => "the cores that loading and the model share allow",
        _ => "the model could consume",
    };
    format!(
        "{}, because {} {} batches/s and {consumer} {}",
        if evidence.hardly_stalls() {
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
    )
}

/// Describes the remedies, starting with a separator.
fn remedy_words(options: &Options, found: &Remedies) -> String {
    let names: Vec<String> = found.changes.iter().map(|change| change.words(options)).collect();
    let except = if found.start_remains { ", except at the start of the run" } else { "" };
    let mut text = match (names.split_last(), found.best) {
        (None, None) => "; no remedy that was tried would remove it".to_owned(),
        (None, Some((change, share))) => format!(
            "; no remedy that was tried would remove it; {} would reduce it to {}",
            change.words(options),
            percent(share)
        ),
        (Some((last, [])), _) => format!("; {last} would remove it{except}"),
        (Some((last, rest)), _) => format!("; {} or {last} would remove it{except}", rest.join(", ")),
    };
    let needs_workers = !found.changes.iter().any(|change| matches!(change, Change::Workers(_)));
    if needs_workers && let Some(cores) = options.cores.filter(|&cores| cores < model_cores(options)) {
        let shared = core_count(cores);
        text.push_str(&match found.all_cores {
            Some(share) => format!(
                "; {cores} workers would reduce it to {}, and more do not help, because they share {shared}",
                percent(share)
            ),
            None => format!("; more workers do not help, because they share {shared}"),
        });
    }
    text
}

/// Number of cores needed to load as fast as the model consumes.
fn model_cores(options: &Options) -> u32 {
    (mean_load_ns(options) * model_limit(options) / 1e9 - 1e-9).ceil() as u32
}
