//! Progress of a run: counters, notes and events for a display.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::events::{Event, EventLevel, Events};
use super::timing::{Activity, Phase, Timing};
use super::units::{ConvertedUnits, UnitResult};

/// Counters that a display polls.
#[derive(Debug, Default)]
pub struct Progress {
    items: AtomicU64,
    source_bytes: AtomicU64,
    records: AtomicU64,
    rejected: AtomicU64,
    total_files: AtomicU64,
    total_bytes: AtomicU64,
    notes: Mutex<Vec<String>>,
    converted: Mutex<ConvertedUnits>,
    pub(super) events: Events,
    pub(super) timing: Timing,
}

/// The counters at one moment.
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

impl Progress {
    /// Creates counters for a run that does not measure [`Self::activity_time`]. Benchmarks use it to show the cost of
    /// measuring.
    pub fn without_activity_times() -> Self {
        Self { timing: Timing::off(), ..Self::default() }
    }

    /// Returns the current counters.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            items: self.items.load(Relaxed),
            source_bytes: self.source_bytes.load(Relaxed),
            records: self.records.load(Relaxed),
            rejected: self.rejected.load(Relaxed),
            total_files: self.total_files.load(Relaxed),
            total_bytes: self.total_bytes.load(Relaxed),
        }
    }

    /// Returns the wall-clock time of `phase`.
    pub fn phase_time(&self, phase: Phase) -> Duration {
        self.timing.phase(phase)
    }

    /// Returns the time spent in `activity`, summed over all threads.
    pub fn activity_time(&self, activity: Activity) -> Duration {
        self.timing.activity(activity)
    }

    /// Returns sums over the units converted so far.
    pub fn converted_units(&self) -> ConvertedUnits {
        self.converted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds a converted unit. `length` is the sum of the lengths of its records.
    pub(super) fn add_converted_unit(&self, result: &UnitResult, length: u64) {
        self.converted.lock().unwrap_or_else(PoisonError::into_inner).add(result, length);
    }

    /// Collects events of `level` from now on, for [`Progress::take_events`].
    pub fn collect_events(&self, level: EventLevel) {
        self.events.set_level(level);
    }

    /// Takes the events that were added since the last call.
    pub fn take_events(&self) -> Vec<Event> {
        self.events.take()
    }

    /// Takes the notes that were added since the last call: messages for the user that do not end the run.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a note for the user: one sentence.
    pub(super) fn note(&self, note: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }

    pub(crate) fn planned(&self, files: u64, bytes: u64) {
        self.total_files.store(files, Relaxed);
        self.total_bytes.store(bytes, Relaxed);
    }

    pub(crate) fn done(&self, items: u64, source_bytes: u64, records: u64, rejected: u64) {
        self.items.fetch_add(items, Relaxed);
        self.source_bytes.fetch_add(source_bytes, Relaxed);
        self.records.fetch_add(records, Relaxed);
        self.rejected.fetch_add(rejected, Relaxed);
    }
}
