//! What a run tells the outside while it runs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::converted_units::ConvertedUnits;
use super::events::{Event, EventLevel, Events};
use super::finished::UnitResult;
use super::timing::{Activity, Phase, Timing};

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
    /// Items with an outcome.
    pub items: u64,
    /// Source bytes that they stand for.
    pub source_bytes: u64,
    /// Records written.
    pub records: u64,
    /// Items rejected.
    pub rejected: u64,
    /// Files in the plan.
    pub total_files: u64,
    /// Source bytes in the plan.
    pub total_bytes: u64,
}

impl Progress {
    /// Counters of a run that does not measure [`Self::activity_time`]. Benchmarks show with it what measuring costs.
    pub fn without_activity_times() -> Self {
        Self { timing: Timing::off(), ..Self::default() }
    }

    /// The counters now.
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

    /// How long `phase` took, on the wall.
    pub fn phase_time(&self, phase: Phase) -> Duration {
        self.timing.phase(phase)
    }

    /// How long all threads together were in `stage`.
    pub fn activity_time(&self, stage: Activity) -> Duration {
        self.timing.stage(stage)
    }

    /// Sums over the units that were converted so far.
    pub fn converted_units(&self) -> ConvertedUnits {
        self.converted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds a unit that was converted, whose records have the lengths `length` in all.
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

    /// Takes the notes that were added since the last call: what a person should hear of, though the run goes on.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a note for a person: one sentence.
    pub(super) fn note(&self, note: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }

    pub(super) fn planned(&self, files: u64, bytes: u64) {
        self.total_files.store(files, Relaxed);
        self.total_bytes.store(bytes, Relaxed);
    }

    pub(super) fn done(&self, items: u64, source_bytes: u64, records: u64, rejected: u64) {
        self.items.fetch_add(items, Relaxed);
        self.source_bytes.fetch_add(source_bytes, Relaxed);
        self.records.fetch_add(records, Relaxed);
        self.rejected.fetch_add(rejected, Relaxed);
    }
}
