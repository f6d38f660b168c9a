//! Summary of a run: throughput, idle time, stalls, queue, workers.

use std::fmt;

use crate::format::{duration, number, percent, time};
use crate::options::Options;
use crate::run::Run;

/// Times that the model waits for data after its first batch.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stalls {
    /// Number of stalls.
    pub count: u64,
    /// Total length.
    pub total_ns: u64,
    /// Mean length.
    pub mean_ns: f64,
    /// Length of the longest stall.
    pub longest_ns: u64,
    /// Mean time between the starts of consecutive stalls; `None` with fewer than two.
    pub period_ns: Option<f64>,
}

/// Queue of finished batches that the model has not taken yet.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Queue {
    /// Time-averaged number of deliverable batches.
    pub mean: f64,
    /// Maximum number of deliverable batches.
    pub most: u64,
    /// Share of the time with no deliverable batch.
    pub empty_share: f64,
    /// Time-averaged number of finished batches held back by a missing earlier batch or a full queue.
    pub held_mean: f64,
}

/// Summary of a [`Run`].
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Number of batches whose step ended.
    pub batches: u64,
    /// Simulated time.
    pub duration_ns: u64,
    /// Share of the time that the model did not compute: waits and transfers.
    pub idle_share: f64,
    /// Share of the time that the model waited for data.
    pub wait_share: f64,
    /// Share of the time spent copying batches to the device.
    pub transfer_share: f64,
    /// Time at which the model took its first batch.
    pub first_batch_ns: Option<u64>,
    /// Share of the time after the first batch that the model waited for data; 1 if there was no batch.
    pub stall_share: f64,
    /// Batches per second over the whole run.
    pub batches_per_second: f64,
    /// Waits for data after the first batch.
    pub stalls: Stalls,
    /// Occupancy of the queue.
    pub queue: Queue,
    /// Share of the time that a worker was loading, averaged over workers.
    pub loading_share: f64,
    /// Maximum batches per second that the workers could load.
    pub loader_limit: f64,
    /// Maximum batches per second that the model could consume.
    pub model_limit: f64,
}

/// Length of the part of `from..to` before `end`. A missing `to` counts as `end`; a missing `from` gives 0.
fn clipped(from: Option<u64>, to: Option<u64>, end: u64) -> u64 {
    from.map_or(0, |from| to.unwrap_or(end).min(end).saturating_sub(from))
}

impl Run {
    /// Summarizes the run.
    pub fn report(&self) -> Report {
        let end = self.end_ns;
        let duration = end.max(1) as f64;
        let (mut computing, mut transferring, mut loading, mut queued, mut held) = (0, 0, 0, 0, 0);
        let mut changes = Vec::new();
        let mut taken = Vec::new();
        for batch in &self.batches {
            loading += clipped(batch.start_ns, batch.done_ns, end);
            held += clipped(batch.done_ns, batch.queued_ns, end);
            queued += clipped(batch.queued_ns, batch.taken_ns, end);
            transferring += clipped(batch.taken_ns, batch.step_ns, end);
            computing += clipped(batch.step_ns, batch.end_ns, end);
            if let Some(at) = batch.queued_ns
                && batch.taken_ns != Some(at)
            {
                changes.push((at, 1));
                changes.extend(batch.taken_ns.map(|at| (at, -1)));
            }
            taken.extend(batch.taken_ns.map(|at| (at, batch.end_ns)));
        }
        taken.sort_unstable();
        let first = taken.first().map(|&(at, _)| at);
        let stalls = stalls(&taken, end);
        let (most, empty) = occupancy(changes, end);
        let waiting = end.saturating_sub(computing + transferring);
        let after_first = end.saturating_sub(first.unwrap_or(0)).max(1) as f64;
        Report {
            batches: self.finished,
            duration_ns: end,
            idle_share: 1.0 - computing as f64 / duration,
            wait_share: waiting as f64 / duration,
            transfer_share: transferring as f64 / duration,
            first_batch_ns: first,
            stall_share: if first.is_some() { stalls.total_ns as f64 / after_first } else { 1.0 },
            batches_per_second: self.finished as f64 * 1e9 / duration,
            stalls,
            queue: Queue {
                mean: queued as f64 / duration,
                most,
                empty_share: empty as f64 / duration,
                held_mean: held as f64 / duration,
            },
            loading_share: loading as f64 / duration / f64::from(self.options.workers),
            loader_limit: loader_limit(&self.options),
            model_limit: model_limit(&self.options),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, name: &str, text: String| writeln!(f, "{name:<14}{text}");
        line(
            f,
            "batches",
            format!(
                "{} in {}, {} batches/s",
                self.batches,
                duration(self.duration_ns),
                number(self.batches_per_second)
            ),
        )?;
        let mut idle = format!("idle {} of the time", percent(self.idle_share));
        if self.transfer_share > 0.0 {
            idle.push_str(&format!(
                ": waiting {}, transferring {}",
                percent(self.wait_share),
                percent(self.transfer_share)
            ));
        }
        line(f, "GPU", idle)?;
        line(
            f,
            "first batch",
            self.first_batch_ns.map_or_else(|| "never".to_owned(), |ns| format!("after {}", time(ns as f64))),
        )?;
        let stalls = &self.stalls;
        let mut text = match stalls.count {
            0 if self.first_batch_ns.is_none() => "none".to_owned(),
            0 => "none after the first batch".to_owned(),
            n => format!("{n}, mean {}, longest {}", time(stalls.mean_ns), time(stalls.longest_ns as f64)),
        };
        if let Some(period) = stalls.period_ns {
            text.push_str(&format!(", one every {}", time(period)));
        }
        line(f, "stalls", text)?;
        let queue = &self.queue;
        let mut text = format!(
            "mean {} batches, max {}, empty {} of the time",
            number(queue.mean),
            queue.most,
            percent(queue.empty_share)
        );
        if queue.held_mean > 0.0005 {
            text.push_str(&format!("; {} more held back", number(queue.held_mean)));
        }
        line(f, "queue", text)?;
        line(
            f,
            "workers",
            format!(
                "loading {} of the time; they could load {} batches/s, the model could consume {}",
                percent(self.loading_share),
                number(self.loader_limit),
                number(self.model_limit)
            ),
        )
    }
}

/// Batches per second that `options.workers` could load if they were never idle. With [`Options::step_core`], the model
/// meanwhile consumes [`model_limit`] on some of their cores.
pub(crate) fn loader_limit(options: &Options) -> f64 {
    let parallel = options.cores.map_or(options.workers, |cores| cores.min(options.workers));
    let parallel = match options.cores.filter(|_| options.step_core) {
        None => f64::from(parallel),
        Some(cores) => {
            let step_cores = model_limit(options) * options.step.drawn_mean_ns() / 1e9;
            f64::from(options.workers).min(f64::from(cores) - step_cores)
        }
    };
    parallel * 1e9 / mean_load_ns(options)
}

/// Mean load time in nanoseconds, including slow runs.
pub(crate) fn mean_load_ns(options: &Options) -> f64 {
    options.load.mean_ns() * options.slow.map_or(1.0, |slow| slow.mean_factor())
}

/// Batches per second that the model could consume if it never waited. With [`Options::step_core`], the workers
/// meanwhile load as many batches on its cores.
pub(crate) fn model_limit(options: &Options) -> f64 {
    let alone = model_alone(options);
    core_limit(options).map_or(alone, |shared| shared.min(alone))
}

/// Batches per second that the model could consume with a core of its own.
pub(crate) fn model_alone(options: &Options) -> f64 {
    1e9 / (options.step.drawn_mean_ns() + options.transfer_ns as f64)
}

/// Batches per second that the cores could load and compute, if workers and model share them.
pub(crate) fn core_limit(options: &Options) -> Option<f64> {
    let cores = options.cores.filter(|_| options.step_core)?;
    Some(f64::from(cores) * 1e9 / (mean_load_ns(options) + options.step.drawn_mean_ns()))
}

/// Computes the waits between the end of a step and the next batch. `taken` lists the times at which batches were taken
/// and at which their steps ended, in order. A wait at the end of the run counts.
fn stalls(taken: &[(u64, Option<u64>)], end: u64) -> Stalls {
    let mut stalls = Stalls::default();
    let (mut first, mut last) = (0, 0);
    for (i, &(_, step_end)) in taken.iter().enumerate() {
        let Some(start) = step_end else { continue };
        let stop = taken.get(i + 1).map_or(end, |&(next, _)| next);
        let length = stop.saturating_sub(start);
        if length == 0 {
            continue;
        }
        if stalls.count == 0 {
            first = start;
        }
        last = start;
        stalls.count += 1;
        stalls.total_ns += length;
        stalls.longest_ns = stalls.longest_ns.max(length);
    }
    if stalls.count > 0 {
        stalls.mean_ns = stalls.total_ns as f64 / stalls.count as f64;
    }
    if stalls.count > 1 {
        stalls.period_ns = Some((last - first) as f64 / (stalls.count - 1) as f64);
    }
    stalls
}

/// Returns the maximum number of queued batches, and the time with an empty queue.
fn occupancy(mut changes: Vec<(u64, i64)>, end: u64) -> (u64, u64) {
    // At equal times, departures come before arrivals: a batch that is taken when it arrives never waits in the queue,
    // and one that waits for room arrives when another is taken.
    changes.sort_unstable();
    let (mut now, mut count, mut most, mut empty) = (0, 0_i64, 0, 0);
    for (at, change) in changes {
        if count == 0 {
            empty += at - now;
        }
        now = at;
        count += change;
        most = most.max(count);
    }
    if count == 0 {
        empty += end - now;
    }
    (most.unsigned_abs(), empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_is_taken_when_it_arrives_was_never_in_the_queue() {
        assert_eq!(occupancy(vec![(10, 1), (10, -1)], 40), (0, 40));
        assert_eq!(occupancy(vec![(10, 1), (20, 1), (20, -1), (30, -1)], 40), (1, 20));
    }
}
