//! Estimate of how much training would gain from faster loading, computed from measured load times.
//!
//! For each number of workers, the simulator replays the load times of batches on one thread against a model with a
//! constant step time. The time per step is the time from the first batch to the end of the run, divided by the number
//! of steps, so the start-up of the workers does not count. Without workers (`num_workers=0`), each step first loads
//! its own batch.
//!
//! *Gain* is the share of the training time that free loading would save: 1 − step time ÷ time per step. Simulated
//! workers share only the cores of this machine. Real workers also share caches, memory bandwidth and the disk, which
//! makes them slower; `dsconvert bench --threads` measures that.

use dsconvert_simulate as sim;
use serde::Serialize;
use sim::{LoadTimes, LoadTrace, Options, STALL_TOLERANCE, Stop};

use crate::error::{Error, Result};
use crate::numbers::{percent, plural, three_digits};

/// Minimum number of steps of a simulation.
const MIN_STEPS: u64 = 2000;
/// Minimum number of steps of a simulation per worker.
const STEPS_PER_WORKER: u64 = 50;
/// A worker count is enough if its throughput is within this share of the best.
const BEST_TOLERANCE: f64 = 0.01;
/// Smallest gain that is printed: a smaller one would be 0.0%.
const LEAST_GAIN: f64 = 0.0005;

const NS_PER_MS: f64 = 1e6;
const MS_PER_HOUR: f64 = 3.6e6;

/// Parameters of a training run.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadspaceOptions {
    /// Time of one step without loading.
    pub step_ms: f64,
    /// Numbers of workers to consider, ascending; 0 loads in the training process.
    pub workers: Vec<u32>,
    /// Batches that each worker loads ahead.
    pub prefetch: u32,
    /// Cores that workers share.
    pub cores: u32,
    /// Steps of a run, to compute hours.
    pub steps: Option<u64>,
}

/// Load times of batches on one worker.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LoadSummary {
    /// Batches that were measured.
    pub batches: usize,
    /// Mean.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 99th percentile, by nearest rank.
    pub p99_ms: f64,
}

/// Outcome of training with one number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WorkerOutcome {
    /// Number of workers; 0 loads in the training process.
    pub workers: u32,
    /// Time per step, including waiting.
    pub ms_per_step: f64,
    /// Share of the training time that free loading would save.
    pub gain: f64,
    /// Hours of a run that free loading would save; `None` without a number of steps.
    pub gain_hours: Option<f64>,
}

/// Outcome of training on one source of data.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadingOutcome {
    /// Path that was measured, or file of load times.
    pub path: String,
    /// Load times of batches.
    pub load: LoadSummary,
    /// Outcomes by number of workers.
    pub workers: Vec<WorkerOutcome>,
    /// The smallest number of workers within 1% of the best.
    pub workers_enough: u32,
    /// Whether more workers are known not to help: a larger number that was simulated does not, there are as many
    /// workers as cores, or there is hardly anything to gain.
    pub more_do_not_help: bool,
    /// Outcome with that number of workers.
    pub best: WorkerOutcome,
}

/// Time that the model spends on padding, if the step time is proportional to the number of padded tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PaddingTime {
    /// Share of padding in random batches.
    pub random: f64,
    /// Share of padding with buckets by length; `None` without a dataset, whose index has the lengths.
    pub bucketed: Option<f64>,
    /// Time per step spent on padding in random batches.
    pub random_ms: f64,
    /// Time per step spent on padding with buckets by length.
    pub bucketed_ms: Option<f64>,
}

/// Estimate of how much training would gain from faster loading.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Headspace {
    /// Time of one step without loading.
    pub step_ms: f64,
    /// Cores that workers share.
    pub cores: u32,
    /// Batches that each worker loads ahead.
    pub prefetch: u32,
    /// Steps of a run, if given.
    pub steps: Option<u64>,
    /// What limits training with the best number of workers: `loading` or `model`.
    pub verdict: &'static str,
    /// The verdict in words.
    pub summary: String,
    /// Outcome of training on the measured data.
    pub loading: LoadingOutcome,
    /// Outcome of training on the dataset it is compared with.
    pub against: Option<LoadingOutcome>,
    /// Time spent on padding, for text.
    pub padding: Option<PaddingTime>,
}

impl PaddingTime {
    /// Computes the times from shares of padding.
    pub fn new(random: f64, bucketed: Option<f64>, step_ms: f64) -> Self {
        Self {
            random,
            bucketed,
            random_ms: random * step_ms,
            bucketed_ms: bucketed.map(|share| share * step_ms),
        }
    }
}

/// Converts an error of the simulator.
pub fn simulator_error(error: sim::Error) -> Error {
    let usage = Error::usage(error.message).of_option(error.option);
    match error.help {
        Some(help) => usage.help(help),
        None => usage,
    }
}

/// Summarizes load times, which must not be empty.
fn summary(trace: &LoadTrace) -> LoadSummary {
    let mut ns = trace.ns().to_vec();
    ns.sort_unstable();
    let rank = |share: f64| ((share * ns.len() as f64).ceil() as usize).max(1) - 1;
    let ms = |share| ns.get(rank(share)).copied().unwrap_or(0) as f64 / NS_PER_MS;
    let mean = ns.iter().map(|&ns| ns as f64).sum::<f64>() / ns.len().max(1) as f64;
    LoadSummary { batches: ns.len(), mean_ms: mean / NS_PER_MS, p50_ms: ms(0.5), p99_ms: ms(0.99) }
}

impl HeadspaceOptions {
    /// Checks every value.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) naming the option.
    pub fn check(&self) -> Result<()> {
        let usage = |option, what: &str| Err(Error::usage(what).of_option(option));
        if self.workers.is_empty() {
            return usage("workers", "at least one worker count is needed");
        }
        if self.cores == 0 {
            return usage("cores", "must be at least 1");
        }
        if self.steps == Some(0) {
            return usage("steps", "must be at least 1");
        }
        // The simulator checks the rest.
        let most = self.workers.iter().max().copied().unwrap_or(1).max(1);
        let trace = LoadTrace::new([1]).map_err(simulator_error)?;
        self.simulation(&trace, most)?.check().map_err(simulator_error)
    }

    fn simulation(&self, trace: &LoadTrace, workers: u32) -> Result<Options> {
        // The load time is a placeholder for the measured ones.
        let options = Options::new(1.0, self.step_ms, 1).map_err(simulator_error)?;
        let slowest = trace.ns().iter().max().copied().unwrap_or(1);
        // Limits the steps so that the run stays within the simulator's maximum even on one core.
        let most = sim::MAX_RUN_NS / 2 / (options.step.mean_ns + slowest).max(1);
        // At least one step for each time, because the reported mean is that of the whole trace.
        let steps = MIN_STEPS
            .max(STEPS_PER_WORKER * u64::from(workers))
            .max(trace.ns().len() as u64)
            .min(most)
            .clamp(1, sim::MAX_BATCHES);
        Ok(Options {
            workers,
            load: LoadTimes::Trace(trace.clone()),
            prefetch: self.prefetch,
            cores: Some(self.cores),
            stop: Stop::Batches(steps),
            ..options
        })
    }

    fn outcome(&self, trace: &LoadTrace, workers: u32) -> Result<WorkerOutcome> {
        let ms_per_step = if workers == 0 {
            self.step_ms + summary(trace).mean_ms
        } else {
            let options = self.simulation(trace, workers)?;
            let report = sim::simulate(&options).map_err(simulator_error)?.report();
            let running = report.duration_ns.saturating_sub(report.first_batch_ns.unwrap_or(0));
            running as f64 / NS_PER_MS / report.batches.max(1) as f64
        };
        let waiting = (ms_per_step - self.step_ms).max(0.0);
        Ok(WorkerOutcome {
            workers,
            ms_per_step,
            gain: waiting / ms_per_step,
            gain_hours: self.steps.map(|steps| steps as f64 * waiting / MS_PER_HOUR),
        })
    }

    fn loading(&self, path: &str, trace: &LoadTrace) -> Result<LoadingOutcome> {
        let workers = self.workers.iter().map(|&n| self.outcome(trace, n)).collect::<Result<Vec<_>>>()?;
        let fastest = workers.iter().map(|w| w.ms_per_step).fold(f64::INFINITY, f64::min);
        let enough = workers.iter().find(|w| w.ms_per_step <= fastest / (1.0 - BEST_TOLERANCE));
        let best = *enough.ok_or_else(|| Error::internal("no worker count was simulated"))?;
        Ok(LoadingOutcome {
            path: path.to_owned(),
            load: summary(trace),
            workers_enough: best.workers,
            more_do_not_help: self.workers.iter().any(|&n| n > best.workers)
                || best.workers >= self.cores
                || best.gain <= STALL_TOLERANCE,
            best,
            workers,
        })
    }
}

/// Formats as `1 worker`, `2 workers` or `loading in the training process`.
fn workers(count: u32) -> String {
    match count {
        0 => "loading in the training process".to_owned(),
        n => plural(n.into(), "worker"),
    }
}

impl Headspace {
    /// Simulates training with `options` and the load times of `loading` and `against`, each given with its name.
    ///
    /// ```
    /// use dsconvert_measure::{Headspace, HeadspaceOptions};
    /// use dsconvert_simulate::LoadTrace;
    ///
    /// let options = HeadspaceOptions {
    ///     step_ms: 200.0,
    ///     workers: vec![1, 2, 4],
    ///     prefetch: 2,
    ///     cores: 4,
    ///     steps: Some(200_000),
    /// };
    /// // Loading a batch takes 460 ms: two workers deliver one every 230 ms.
    /// let trace = LoadTrace::new([460_000_000])?;
    /// let found = Headspace::of(&options, ("photos", &trace), None, None)?;
    /// let two = found.loading.workers[1];
    /// assert!((two.ms_per_step - 230.0).abs() < 1.0 && (two.gain - 0.13).abs() < 0.005);
    /// assert!((two.gain_hours.unwrap_or(0.0) - 1.7).abs() < 0.1);
    /// assert_eq!((found.verdict, found.loading.workers_enough), ("model", 4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If an option is out of range.
    pub fn of(
        options: &HeadspaceOptions,
        loading: (&str, &LoadTrace),
        against: Option<(&str, &LoadTrace)>,
        padding: Option<PaddingTime>,
    ) -> Result<Self> {
        options.check()?;
        let loading = options.loading(loading.0, loading.1)?;
        let against = against.map(|(path, trace)| options.loading(path, trace)).transpose()?;
        let is_loading = loading.best.gain > STALL_TOLERANCE;
        let mut found = Self {
            step_ms: options.step_ms,
            cores: options.cores,
            prefetch: options.prefetch,
            steps: options.steps,
            verdict: if is_loading { "loading" } else { "model" },
            summary: String::new(),
            loading,
            against,
            padding,
        };
        found.summary = if is_loading { found.loading_summary() } else { found.model_summary() };
        Ok(found)
    }

    /// Summarizes training that loading limits.
    fn loading_summary(&self) -> String {
        let best = &self.loading.best;
        let hours = best.gain_hours.map(|hours| format!(", {hours:.1} hours of the run")).unwrap_or_default();
        let mut text = format!(
            "loading is the bottleneck: with {}{}, a step takes {} ms instead of {} ms; free loading would save {}{hours}",
            workers(best.workers),
            if self.loading.more_do_not_help { "" } else { ", the best of this list" },
            three_digits(best.ms_per_step),
            three_digits(self.step_ms),
            percent(best.gain),
        );
        if let Some(against) = &self.against {
            let saved = 1.0 - against.best.ms_per_step / best.ms_per_step;
            let effect = match saved > 0.0 {
                true => format!("{} less", percent(saved)),
                false => "no less".to_owned(),
            };
            text.push_str(&format!(
                "; on {}, it would take {} ms with {}: {effect}",
                against.path,
                three_digits(against.best.ms_per_step),
                workers(against.workers_enough)
            ));
        }
        text
    }

    /// Summarizes training that the model limits.
    fn model_summary(&self) -> String {
        let best = &self.loading.best;
        let gain = match best.gain < LEAST_GAIN {
            true => "less than 0.1%".to_owned(),
            false => format!("only {}", percent(best.gain)),
        };
        let mut text = format!(
            "stop here: optimize the model; with {}, free loading would save {gain}",
            workers(best.workers)
        );
        if let Some(against) = self.against.as_ref().filter(|a| a.workers_enough < best.workers) {
            text.push_str(&format!("; {} needs only {}", against.path, workers(against.workers_enough)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(step_ms: f64, cores: u32) -> HeadspaceOptions {
        HeadspaceOptions { step_ms, workers: vec![0, 1, 2, 4, 8], prefetch: 2, cores, steps: None }
    }

    fn trace(ms: u64) -> LoadTrace {
        LoadTrace::new([ms * 1_000_000]).unwrap()
    }

    #[test]
    fn workers_are_bounded_by_cores() {
        let found = Headspace::of(&options(100.0, 2), ("a", &trace(400)), None, None).unwrap();
        let ms: Vec<f64> = found.loading.workers.iter().map(|w| w.ms_per_step.round()).collect();
        assert_eq!(ms[..3], [500.0, 400.0, 200.0]);
        assert!((ms[3] - 200.0).abs() <= 2.0 && (ms[4] - 200.0).abs() <= 4.0, "{ms:?}");
        assert_eq!((found.verdict, found.loading.workers_enough), ("loading", 2));
        assert!(found.summary.contains("loading is the bottleneck"), "{}", found.summary);
        assert_eq!(found.loading.best.gain_hours, None);
    }

    #[test]
    fn summary_compares_the_dataset_with_the_source() {
        let found =
            Headspace::of(&options(100.0, 2), ("a", &trace(400)), Some(("b", &trace(20))), None).unwrap();
        let against = found.against.as_ref().unwrap();
        assert_eq!((against.workers_enough, against.best.ms_per_step.round()), (1, 100.0));
        assert!(found.summary.contains("on b, it would take 100 ms with 1 worker: 50"), "{}", found.summary);
        let slower =
            Headspace::of(&options(100.0, 2), ("a", &trace(400)), Some(("b", &trace(4000))), None).unwrap();
        assert!(slower.summary.contains("no less"), "{}", slower.summary);
    }

    #[test]
    fn fast_loading_yields_the_verdict_model() {
        let found = Headspace::of(&options(100.0, 4), ("a", &trace(10)), None, None).unwrap();
        assert_eq!((found.verdict, found.loading.workers_enough), ("model", 1));
        assert!(found.summary.starts_with("stop here: optimize the model"), "{}", found.summary);
        assert!(found.summary.ends_with("would save less than 0.1%"), "{}", found.summary);
        assert!((found.loading.workers[0].gain - 10.0 / 110.0).abs() < 1e-9);
    }

    #[test]
    fn more_workers_may_help_at_the_end_of_the_list() {
        let found = |workers: Vec<u32>, cores, ms| {
            let options = HeadspaceOptions { workers, ..options(1.0, cores) };
            Headspace::of(&options, ("a", &trace(ms)), None, None).unwrap()
        };
        // Four workers would remove the wait, but the list ends before.
        for workers in [vec![0], vec![1], vec![1, 2]] {
            let best = found(workers.clone(), 16, 4);
            assert!(!best.loading.more_do_not_help, "{workers:?}");
            assert!(best.summary.contains(", the best of this list, a step takes"), "{}", best.summary);
        }
        // A larger number does not help, the cores are used up, or nothing is left to gain.
        for (workers, cores, ms) in [(vec![4, 8], 16, 4), (vec![1, 2], 2, 4), (vec![4], 16, 4)] {
            let best = found(workers.clone(), cores, ms);
            assert!(best.loading.more_do_not_help, "{workers:?}");
            assert!(!best.summary.contains("list"), "{}", best.summary);
        }
    }

    #[test]
    fn times_have_three_significant_digits() {
        // A step of 1.036 ms is longer than one of 1 ms.
        let load = LoadTrace::new([vec![900_000; 99], vec![4_700_000]].concat()).unwrap();
        let options = HeadspaceOptions { workers: vec![1], ..options(1.0, 1) };
        let found = Headspace::of(&options, ("a", &load), None, None).unwrap();
        assert!(found.summary.contains("a step takes 1.0") && found.summary.contains("instead of 1.00 ms"));
        assert!(!found.summary.contains("1.00 ms instead"), "{}", found.summary);
    }

    #[test]
    fn options_out_of_range_are_rejected() {
        let message = |change: fn(&mut HeadspaceOptions)| {
            let mut options = options(100.0, 4);
            change(&mut options);
            Headspace::of(&options, ("a", &trace(10)), None, None).unwrap_err().to_string()
        };
        assert!(message(|o| o.step_ms = 0.0).starts_with("step_ms: "));
        assert!(message(|o| o.step_ms = f64::NAN).starts_with("step_ms: "));
        assert!(message(|o| o.workers = vec![]).contains("workers"));
        assert!(message(|o| o.workers = vec![1_000_000]).contains("workers"));
        assert!(message(|o| o.cores = 0).contains("cores"));
        assert!(message(|o| o.steps = Some(0)).contains("steps"));
        assert!(message(|o| o.prefetch = 0).contains("prefetch"));
    }
}
