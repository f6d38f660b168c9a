//! Progress of a run: counters, times, notes and events for a display.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::writer::units::{ConvertedUnits, UnitResult};

/// Maximum number of events that wait to be taken; further ones are counted and dropped.
const MAX_WAITING: usize = 10_000;

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

/// The events that are collected. Each level includes the previous ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventLevel {
    /// No events.
    #[default]
    Nothing,
    /// Finished units.
    Units,
    /// Rejected items.
    Rejects,
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A unit was finished.
    UnitFinished {
        /// Number of the unit, from 0.
        unit: u32,
        /// Number of items in the unit.
        items: u64,
        /// Number of records in the unit.
        records: u64,
        /// Number of rejected items in the unit.
        rejected: u64,
        /// Bytes of the sources that the unit read.
        source_bytes: u64,
        /// Bytes of the shards of the unit.
        shard_bytes: u64,
    },
    /// An item was rejected.
    Rejected {
        /// Origin of the item.
        origin: String,
        /// Reason code.
        code: &'static str,
        /// Human-readable reason.
        message: String,
    },
    /// This many events were dropped, because they were not taken in time.
    Dropped(u64),
}

impl Event {
    /// Returns the event that reports a finished unit.
    pub(super) fn of_unit(unit: &UnitResult) -> Self {
        let counts = unit.counts();
        Self::UnitFinished {
            unit: unit.unit,
            items: counts.found,
            records: unit.splits.iter().map(|split| split.records).sum(),
            rejected: counts.rejected,
            source_bytes: unit.source_bytes,
            shard_bytes: unit.splits.iter().flat_map(|split| &split.shards).map(|shard| shard.bytes).sum(),
        }
    }
}

/// Counters of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Number of items with an outcome.
    pub items: u64,
    /// Source bytes attributed to these items.
    pub source_bytes: u64,
    /// Number of records written.
    pub records: u64,
    /// Number of rejected items.
    pub rejected: u64,
    /// Number of files in the plan.
    pub total_files: u64,
    /// Source bytes in the plan.
    pub total_bytes: u64,
}

/// What a run reports while it runs. A display polls it.
#[derive(Debug, Default)]
pub struct Progress {
    counters: Mutex<Snapshot>,
    /// Nanoseconds of each [`Phase`].
    phases: [AtomicU64; 3],
    /// Nanoseconds of each [`Activity`].
    activities: [AtomicU64; 5],
    notes: Mutex<Vec<String>>,
    converted: Mutex<ConvertedUnits>,
    level: AtomicU8,
    events: Mutex<EventQueue>,
}

/// Events that wait for a display.
#[derive(Debug, Default)]
struct EventQueue {
    events: Vec<Event>,
    dropped: u64,
}

impl Progress {
    /// Returns the current counters.
    pub fn snapshot(&self) -> Snapshot {
        *locked(&self.counters)
    }

    /// Returns the wall-clock time of `phase`.
    pub fn phase_time(&self, phase: Phase) -> Duration {
        Duration::from_nanos(self.phases[phase as usize].load(Relaxed))
    }

    /// Ends `phase`, which started at `since`.
    pub(super) fn end_phase(&self, phase: Phase, since: Instant) {
        self.phases[phase as usize].fetch_add(nanoseconds(since.elapsed()), Relaxed);
    }

    /// Returns the time spent in `activity`, summed over all threads.
    pub fn activity_time(&self, activity: Activity) -> Duration {
        Duration::from_nanos(self.activities[activity as usize].load(Relaxed))
    }

    /// Adds `time` that a thread has spent in `activity`.
    pub(super) fn add_time(&self, activity: Activity, time: Duration) {
        self.activities[activity as usize].fetch_add(nanoseconds(time), Relaxed);
    }

    /// Returns sums over the units converted so far.
    pub fn converted_units(&self) -> ConvertedUnits {
        locked(&self.converted).clone()
    }

    /// Adds a converted unit. `length` is the sum of the lengths of its records.
    pub(super) fn add_converted_unit(&self, result: &UnitResult, length: u64) {
        locked(&self.converted).add(result, length);
    }

    /// Collects events of `level` from now on, for [`Progress::take_events`].
    pub fn collect_events(&self, level: EventLevel) {
        self.level.store(level as u8, Relaxed);
    }

    /// Adds an event of `level`. Calls `event` only if events of this level are collected.
    pub(super) fn add_event(&self, level: EventLevel, event: impl FnOnce() -> Event) {
        if self.level.load(Relaxed) < level as u8 {
            return;
        }
        let mut queue = locked(&self.events);
        if queue.events.len() < MAX_WAITING {
            queue.events.push(event());
        } else {
            queue.dropped += 1;
        }
    }

    /// Takes the events that were added since the last call.
    pub fn take_events(&self) -> Vec<Event> {
        let EventQueue { mut events, dropped } = std::mem::take(&mut *locked(&self.events));
        if dropped > 0 {
            events.push(Event::Dropped(dropped));
        }
        events
    }

    /// Takes the notes that were added since the last call: messages for the user that do not end the run.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.notes))
    }

    /// Adds a note for the user: one sentence.
    pub(super) fn note(&self, note: String) {
        locked(&self.notes).push(note);
    }

    pub(crate) fn planned(&self, files: u64, bytes: u64) {
        let mut counters = locked(&self.counters);
        (counters.total_files, counters.total_bytes) = (files, bytes);
    }

    pub(crate) fn done(&self, items: u64, source_bytes: u64, records: u64, rejected: u64) {
        let mut counters = locked(&self.counters);
        counters.items += items;
        counters.source_bytes += source_bytes;
        counters.records += records;
        counters.rejected += rejected;
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activities_and_phases_are_summed_separately() {
        let progress = Progress::default();
        progress.add_time(Activity::Read, Duration::from_millis(2));
        progress.add_time(Activity::Read, Duration::from_millis(3));
        progress.add_time(Activity::Wait, Duration::from_millis(7));
        assert_eq!(progress.activity_time(Activity::Read), Duration::from_millis(5));
        assert_eq!(progress.activity_time(Activity::Wait), Duration::from_millis(7));
        assert_eq!(progress.activity_time(Activity::Write), Duration::ZERO);
        progress.end_phase(Phase::Commit, Instant::now() - Duration::from_millis(4));
        assert!(progress.phase_time(Phase::Commit) >= Duration::from_millis(4));
        assert_eq!(progress.phase_time(Phase::Convert), Duration::ZERO);
    }

    fn reject(message: &str) -> Event {
        Event::Rejected { origin: "a".to_owned(), code: "empty", message: message.to_owned() }
    }

    #[test]
    fn only_events_of_the_level_are_collected_and_their_number_is_bounded() {
        let progress = Progress::default();
        progress.add_event(EventLevel::Units, || reject("before a level is set"));
        assert_eq!(progress.take_events(), []);
        progress.collect_events(EventLevel::Units);
        progress.add_event(EventLevel::Rejects, || reject("above the level"));
        progress.add_event(EventLevel::Units, || reject("kept"));
        assert_eq!(progress.take_events(), [reject("kept")]);
        (0..MAX_WAITING + 3).for_each(|_| progress.add_event(EventLevel::Units, || reject("many")));
        let taken = progress.take_events();
        assert_eq!((taken.len(), taken.last()), (MAX_WAITING + 1, Some(&Event::Dropped(3))));
        assert_eq!(progress.take_events(), []);
    }
}
