//! What a run tells the outside while it runs, and how the outside stops it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::converted_units::ConvertedUnits;
use super::events::{Event, EventLevel, Events};
use super::finished::UnitResult;
use super::timing::{Phase, Stage, Timing};
use crate::error::{Error, ErrorKind, Result};

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

/// What a person can do when a bug has ended a run.
const BUG_HELP: &str = "this is a bug in dsconvert: please report it, with this message and the command; the finished \
                        units are kept, and the same command with --resume goes on";

/// Says in an internal error of a run how to go on; other errors stay as they are.
pub(super) fn resumable(error: Error) -> Error {
    if error.kind() == ErrorKind::Internal { error.help(BUG_HELP) } else { error }
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
    /// Counters of a run that does not measure [`Self::stage_time`]. Benchmarks show with it what measuring costs.
    pub fn without_stage_times() -> Self {
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
    pub fn stage_time(&self, stage: Stage) -> Duration {
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

/// Why a run has to stop before its end: a signal, or a bug. What is done stays done.
#[derive(Debug, Default)]
pub struct Stop {
    signal: AtomicI32,
    bug: OnceLock<String>,
}

impl Stop {
    /// Asks the run to stop because of signal number `signal`. Safe to call in a signal handler.
    pub fn request(&self, signal: i32) {
        self.signal.store(signal, Relaxed);
    }

    /// The signal, when there was one.
    pub fn requested(&self) -> Option<i32> {
        Some(self.signal.load(Relaxed)).filter(|&s| s != 0)
    }

    /// Stops the run because of a bug. Only the first one is kept.
    pub fn report_bug(&self, error: &Error) {
        let _ = self.bug.set(error.to_string());
    }

    /// The bug that was reported, as an error that says how to go on.
    pub fn bug(&self) -> Option<Error> {
        self.bug.get().map(|message| Error::internal(message).help(BUG_HELP))
    }

    /// Whether the run has to stop.
    pub fn is_set(&self) -> bool {
        self.requested().is_some() || self.bug.get().is_some()
    }

    /// Returns why the run has to stop.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`] after a bug, [`ErrorKind::Interrupted`] after a signal.
    pub fn check(&self) -> Result<()> {
        match (self.bug(), self.requested()) {
            (Some(bug), _) => Err(bug),
            (None, None) => Ok(()),
            (None, Some(signal)) => Err(Error::new(ErrorKind::Interrupted(signal), "stopped before the end")
                .help("run the same command with --resume to go on")),
        }
    }
}
