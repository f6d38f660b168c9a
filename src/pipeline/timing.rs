//! Time measurements of a run: atomic sums, with one addition per step of a task.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A phase of a run, measured as wall-clock time. Phases follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Checking finished units and finding duplicates.
    Prepare,
    /// Converting units.
    Convert,
    /// Writing indexes and the manifest.
    Commit,
}

/// An activity of a thread during the conversion, summed over all threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Reading source files and cutting them into items.
    Read,
    /// Turning items into records: decoding, resizing and encoding images, or tokenizing documents.
    Transform,
    /// Encoding records into shards and handing them to the operating system.
    Write,
    /// Making finished shards durable, on a separate thread.
    Sync,
    /// Workers without work.
    Wait,
}

/// The times of a run.
#[derive(Debug, Default)]
pub(super) struct Timing {
    /// Disables the measurement of activities, to benchmark its cost.
    off: bool,
    phases: [AtomicU64; 3],
    activities: [AtomicU64; 5],
}

impl Timing {
    pub(super) fn off() -> Self {
        Self { off: true, ..Self::default() }
    }

    /// Starts to measure an activity.
    pub(super) fn start(&self) -> ActivityTimer {
        ActivityTimer((!self.off).then(Instant::now))
    }

    /// Adds the time since `timer` was started to `activity`.
    pub(super) fn end_activity(&self, activity: Activity, timer: ActivityTimer) {
        self.add(activity, timer.elapsed());
    }

    pub(super) fn add(&self, activity: Activity, time: Duration) {
        if !self.off {
            self.activities[activity as usize].fetch_add(nanoseconds(time), Relaxed);
        }
    }

    /// Ends `phase`, which started at `since`.
    pub(super) fn end_phase(&self, phase: Phase, since: Instant) {
        self.phases[phase as usize].fetch_add(nanoseconds(since.elapsed()), Relaxed);
    }

    pub(super) fn phase(&self, phase: Phase) -> Duration {
        Duration::from_nanos(self.phases[phase as usize].load(Relaxed))
    }

    pub(super) fn activity(&self, activity: Activity) -> Duration {
        Duration::from_nanos(self.activities[activity as usize].load(Relaxed))
    }
}

/// Start time of an activity; `None` if activities are not measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct ActivityTimer(Option<Instant>);

impl ActivityTimer {
    /// Returns the time since the start.
    pub(super) fn elapsed(self) -> Duration {
        self.0.map_or(Duration::ZERO, |started| started.elapsed())
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activities_and_phases_are_summed_separately() {
        let timing = Timing::default();
        timing.add(Activity::Read, Duration::from_millis(2));
        timing.add(Activity::Read, Duration::from_millis(3));
        timing.add(Activity::Wait, Duration::from_millis(7));
        assert_eq!(timing.activity(Activity::Read), Duration::from_millis(5));
        assert_eq!(timing.activity(Activity::Wait), Duration::from_millis(7));
        assert_eq!(timing.activity(Activity::Write), Duration::ZERO);
        let timer = timing.start();
        std::thread::sleep(Duration::from_millis(2));
        timing.end_activity(Activity::Sync, timer);
        assert!(timing.activity(Activity::Sync) >= Duration::from_millis(2));
        timing.end_phase(Phase::Commit, Instant::now() - Duration::from_millis(4));
        assert!(timing.phase(Phase::Commit) >= Duration::from_millis(4));
        assert_eq!(timing.phase(Phase::Convert), Duration::ZERO);
    }

    #[test]
    fn activities_are_not_measured_when_switched_off() {
        let timing = Timing::off();
        let timer = timing.start();
        std::thread::sleep(Duration::from_millis(2));
        timing.end_activity(Activity::Read, timer);
        timing.add(Activity::Read, Duration::from_secs(1));
        assert_eq!((timer.elapsed(), timing.activity(Activity::Read)), (Duration::ZERO, Duration::ZERO));
    }
}
