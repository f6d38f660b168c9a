//! Conversion of the units of a plan: all of them, or the share of one process.

use std::time::Instant;

use super::dedup::{DUPLICATE_PAIRS_HASH_NAME, DUPLICATE_PAIRS_NAME};
use super::exclude::{EXCLUDED_HASH_NAME, EXCLUDED_NAME};
use super::job::{Conversion, Job};
use super::memory::Shares;
use super::progress::{Phase, Progress};
use super::schedule::{FailedUnits, SchedulerContext, run};
use crate::error::{Error, ErrorKind, Result};
use crate::numbers::plural;
use crate::options::RunOptions;
use crate::source::io::planned::is_source_change;
use crate::writer::DatasetWriter;
use crate::writer::remote_units::UPLOADS;
use crate::writer::stop::{Continuation, Stop};
use crate::writer::unit::UnitSink;
use crate::writer::units::{CheckLevel, UnitResult, UnitState};
use crate::writer::workers::Workers;

/// The files that preparation stores, each with the file of its hash, which comes last: it shows that the other file is
/// complete.
const PREPARED: [[&str; 2]; 2] =
    [[EXCLUDED_NAME, EXCLUDED_HASH_NAME], [DUPLICATE_PAIRS_NAME, DUPLICATE_PAIRS_HASH_NAME]];

/// The threads of a run, where it counts its work, and how it is stopped.
#[derive(Clone, Copy)]
pub(super) struct RunContext<'a> {
    pub(super) workers: &'a Workers,
    pub(super) progress: &'a Progress,
    pub(super) stop: &'a Stop,
}

/// The units of a plan, and the run that converts them.
pub(super) struct Units<'a> {
    pub(super) writer: &'a DatasetWriter,
    pub(super) context: RunContext<'a>,
}

impl Units<'_> {
    /// Checks `units` and returns the unfinished ones. Finished units are counted as done; damaged ones are removed.
    pub(super) fn unfinished(&self, units: Vec<u32>, check: CheckLevel) -> Result<Vec<u32>> {
        let RunContext { workers, progress, stop } = self.context;
        let started = Instant::now();
        let mut todo = Vec::new();
        let done = |result: &UnitResult| {
            let counts = result.counts();
            let records = result.splits.iter().map(|s| s.records).sum();
            progress.done(counts.found, result.source_bytes, records, counts.rejected);
        };
        for (unit, state) in self.writer.check(units, check, workers, stop, &done)? {
            if let UnitState::Damaged(why) = state {
                progress.note(format!("unit {unit} is converted again, because {why}"));
                self.writer.remove(unit)?;
            }
            todo.push(unit);
        }
        progress.end_phase(Phase::Prepare, started);
        Ok(todo)
    }

    /// Does the preparation shared by all units, unless another process has done it: finds the items that are left out
    /// as duplicates, or because an excluded dataset has them.
    pub(super) fn prepare<C: Conversion>(&self, job: &Job<C>, memory: &Shares) -> Result<C::Duplicates> {
        let RunContext { workers, stop, .. } = self.context;
        let (work, plan) = (&self.writer.dir().work(), &self.writer.units().plan);
        for [name, hash_name] in PREPARED {
            if let Some(remote) = self.writer.dir().remote()
                && remote.find_planned(work, plan, hash_name)?
            {
                remote.fetch_planned(work, plan, name)?;
            }
        }
        if let Some(items) = job.header.exclude.items(work, workers, stop)? {
            // A repair prepares twice, with the same result.
            let _ = job.excluded.set(items);
        }
        let duplicates = C::duplicates(job, work, workers, &memory.tasks, stop)?;
        if let Some(remote) = self.writer.dir().remote() {
            for names in PREPARED {
                remote.store_planned(work, plan, &names, stop)?;
            }
        }
        Ok(duplicates)
    }

    /// Converts the units in `todo`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotCommitted`] if sources of some units could not be read. The other units are finished.
    pub(super) fn convert<C: Conversion>(
        &self,
        job: &Job<C>,
        todo: Vec<u32>,
        options: &RunOptions,
    ) -> Result<()> {
        let RunContext { workers, progress, stop } = self.context;
        if todo.is_empty() {
            return Ok(());
        }
        let count = todo.len();
        let started = Instant::now();
        let memory = Shares::of(options);
        let duplicates = &self.prepare(job, &memory)?;
        progress.end_phase(Phase::Prepare, started);
        let started = Instant::now();
        let (written, work) = (self.writer.start(), self.writer.dir().work());
        let sink = |unit| UnitSink::create(unit, &written, C::stages(job, &work));
        let uploads = self.writer.dir().remote().map(|_| UPLOADS);
        let failed = run(
            &SchedulerContext { job, duplicates, workers, memory, progress, stop, sink: &sink, uploads },
            todo,
        )?;
        written.check()?;
        progress.end_phase(Phase::Convert, started);
        all_failures(failed, count, &stop.continuation()).map_or(Ok(()), Err)
    }
}

/// Returns the error for units that failed because their sources could not be read.
fn all_failures(failed: FailedUnits, units: usize, continuation: &Continuation) -> Option<Error> {
    let count = failed.len();
    let (_, first) = failed.into_iter().next()?;
    let message = format!("{count} of {} failed; the first failure", plural(units as u64, "unit"));
    let advice = continuation.advice();
    let help = match first.remedy() {
        // No run can use units of the sources as they were.
        Some(help) if is_source_change(&first) => help.to_owned(),
        Some(help) => format!("the finished units are kept: {help}; then {advice}"),
        None => format!("the finished units are kept: fix the cause, then {advice}"),
    };
    Some(Error::new(ErrorKind::NotCommitted, message).help(help).caused_by(first))
}
