//! The model's waits for data in a run, and the criterion for loading that keeps up.

use crate::engine::simulate_quietly;
use crate::options::{Options, Stop};
use crate::report::{loader_limit, model_limit};
use crate::run::Run;

/// Maximum share of the time that a model may wait without counting as limited by loading, apart from the start of
/// the run.
pub const STALL_TOLERANCE: f64 = 0.01;

/// Maximum share of the time that a model may wait, including the wait for its first batch, without counting as slow
/// at the start.
pub(crate) const START_TOLERANCE: f64 = 0.1;

/// Minimum share of [`core_limit`](crate::report::core_limit) at which the cores count as busy.
pub(crate) const BUSY_CORES: f64 = 0.95;

/// Number of batches in the long run that verdicts simulate. Its second half gives a stable estimate of the waits.
pub(crate) const LONG_RUN_BATCHES: u64 = 20_000;

/// The times at which the model takes batches and waits for them.
#[derive(Debug)]
pub(crate) struct Waits {
    /// Per batch, in order: the time at which the model took it, and the length of the wait after its step.
    steps: Vec<(u64, u64)>,
    end_ns: u64,
    workers: usize,
    /// When the last worker starts.
    started_ns: u64,
}

impl Waits {
    pub(crate) fn of(run: &Run) -> Self {
        let mut taken: Vec<(u64, Option<u64>)> =
            run.batches.iter().filter_map(|b| Some((b.taken_ns?, b.end_ns))).collect();
        taken.sort_unstable();
        let next = taken.iter().skip(1).map(|&(at, _)| at).chain([run.end_ns]);
        let steps = taken
            .iter()
            .zip(next)
            .map(|(&(at, step_end), next)| (at, next.saturating_sub(step_end.unwrap_or(next))))
            .collect();
        let options = &run.options;
        Self {
            steps,
            end_ns: run.end_ns,
            workers: options.workers as usize,
            started_ns: options.startup_ns + u64::from(options.workers - 1) * options.stagger_ns,
        }
    }

    /// Returns the second half of the steps, and its length. `None` if the run is so short that the second half can
    /// contain batches that the workers loaded first.
    fn late(&self) -> Option<(&[(u64, u64)], f64)> {
        let half = self.steps.len() / 2;
        let late = self.steps.get(half..).filter(|_| half >= self.workers)?;
        let from = late.first().map(|&(at, _)| at).filter(|&at| at >= self.started_ns)?;
        Some((late, self.end_ns.saturating_sub(from).max(1) as f64))
    }

    /// Returns the share of the time that the model waits during the second half of its batches, if the run is long
    /// enough.
    pub(crate) fn late_share(&self) -> Option<f64> {
        let (late, ns) = self.late()?;
        let waits: u64 = late.iter().map(|&(_, wait)| wait).sum();
        Some(waits as f64 / ns)
    }

    /// Returns the batches per second that the model takes during the second half, if the run is long enough.
    pub(crate) fn late_rate(&self) -> Option<f64> {
        self.late().map(|(late, ns)| late.len() as f64 * 1e9 / ns)
    }

    /// Returns when the start of the run ends, and the share of the time that the model waits after it. The start is
    /// the shortest part of the first half that has to be left out for the share to be within the tolerance.
    pub(crate) fn after_start(&self) -> Option<(u64, f64)> {
        let mut waits: u64 = self.steps.iter().map(|&(_, wait)| wait).sum();
        for &(at, wait) in self.steps.iter().take(self.steps.len() / 2 + 1) {
            let share = waits as f64 / self.end_ns.saturating_sub(at).max(1) as f64;
            if share <= STALL_TOLERANCE {
                return Some((at, share));
            }
            waits -= wait;
        }
        None
    }
}

/// Simulates a run of [`LONG_RUN_BATCHES`] with `options`; `None` if it takes longer than the simulator allows.
pub(crate) fn long_run(options: &Options) -> Option<Waits> {
    let options = Options { stop: Stop::Batches(LONG_RUN_BATCHES), ..options.clone() };
    simulate_quietly(&options).ok().map(|run| Waits::of(&run))
}

/// Returns the [`Waits::late_share`] of [`long_run`].
pub(crate) fn long_run_share(options: &Options) -> Option<f64> {
    long_run(options).and_then(|waits| waits.late_share())
}

/// Returns whether the workers can load `share` of the batches that the model can consume.
pub(crate) fn has_capacity(options: &Options, share: f64) -> bool {
    loader_limit(options) >= model_limit(options) * share
}

/// Returns whether `share` is within the tolerance. An unknown share is.
pub(crate) fn is_tolerable(share: Option<f64>) -> bool {
    share.is_none_or(|share| share <= STALL_TOLERANCE)
}
