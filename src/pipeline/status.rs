//! Progress of a conversion that several processes share.

use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::job_file::{self, OpenedJob};
use super::parts::planned_units;
use crate::error::{Error, Result};
use crate::options::{Existing, ResumeCheck};
use crate::storage::lstat;
use crate::writer::output::OutputDir;
use crate::writer::stop::Stop;
use crate::writer::units::{RESULT_NAME, UnitDirs, UnitResult, UnitState};
use crate::writer::workers::in_order;

/// Progress of a planned conversion.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Status {
    /// Whether the dataset is committed.
    pub committed: bool,
    /// Number of units in the plan.
    pub units: u32,
    /// Number of finished units.
    pub done: u32,
    /// Units that a process has started but not finished: it is still running, or it died.
    pub started: Vec<u32>,
    /// Units that no process has started.
    pub missing: Vec<u32>,
    /// Source bytes of the plan.
    pub source_bytes: u64,
    /// Source bytes of the finished units.
    pub done_bytes: u64,
    /// Number of records in the finished units.
    pub records: u64,
    /// Number of rejected items in the finished units.
    pub rejected: u64,
    /// Source bytes per second between the first and the last finished unit; `None` before two units are finished.
    pub bytes_per_second: Option<f64>,
    /// Seconds until all units are finished, at this rate.
    pub seconds_left: Option<f64>,
    /// Whether the source is standard input, so that no process can convert the units that are not finished.
    pub reads_stdin: bool,
}

impl Status {
    /// Returns the units that are not finished, ascending.
    pub fn unfinished(&self) -> Vec<u32> {
        let mut units: Vec<u32> = self.started.iter().chain(&self.missing).copied().collect();
        units.sort_unstable();
        units
    }

    /// Returns which of `count` parts have unfinished units and should be submitted again, counted from 1.
    pub fn unfinished_parts(&self, count: u32) -> Vec<u32> {
        let mut parts: Vec<u32> = self.unfinished().iter().map(|unit| unit % count.max(1) + 1).collect();
        parts.sort_unstable();
        parts.dedup();
        parts
    }
}

/// Returns the progress of the plan in `out`. Reads the results of finished units, but not their shards.
///
/// # Errors
///
/// [`ErrorKind::Usage`](crate::error::ErrorKind::Usage) if there is neither a plan nor a dataset.
pub fn status(out: &Path, scratch: Option<&Path>) -> Result<Status> {
    let output = OutputDir::join(out, scratch, Existing::Resume(ResumeCheck::Sizes))?;
    if let Some(manifest) = output.committed()? {
        return Ok(Status {
            committed: true,
            units: planned_units(&manifest),
            done: planned_units(&manifest),
            source_bytes: manifest.sources.bytes,
            done_bytes: manifest.sources.bytes,
            records: manifest.splits.values().map(|split| split.records).sum(),
            rejected: manifest.counts.rejected,
            ..Status::default()
        });
    }
    let work = job_file::work_of(&output)?;
    let (OpenedJob { header, files, .. }, _) = job_file::open(&work)?;
    let dirs = UnitDirs::new(&work);
    let mut status = Status {
        units: header.units,
        source_bytes: files.bytes(),
        reads_stdin: header.reads_stdin(),
        ..Status::default()
    };
    let mut finished = FinishTimes::default();
    if let Some(remote) = output.remote() {
        let results = remote.finished_units(&header.plan, &Stop::default())?;
        for (result, modified_ns) in results.values() {
            status.add(result);
            let modified = u64::try_from(*modified_ns).unwrap_or_default();
            finished.add(SystemTime::UNIX_EPOCH + Duration::from_nanos(modified), result.source_bytes);
        }
        // Units in progress are only visible on the machines that convert them.
        status.missing = (0..header.units).filter(|unit| !results.contains_key(unit)).collect();
        return Ok(status.with_rate(&finished));
    }
    let units: Vec<u32> = (0..header.units).collect();
    let read = |unit: &u32| LocalUnit::read(&dirs, *unit, &header.plan);
    in_order(&units, "reading finished units", &Stop::default(), read, |&unit, state| {
        match state {
            LocalUnit::Done(result, time) => {
                status.add(&result);
                time.into_iter().for_each(|time| finished.add(time, result.source_bytes));
            }
            LocalUnit::Started => status.started.push(unit),
            LocalUnit::Missing => status.missing.push(unit),
        }
        Ok(())
    })?;
    Ok(status.with_rate(&finished))
}

/// State of a unit in a local directory.
enum LocalUnit {
    Missing,
    Started,
    /// Finished, with the time at which it was finished.
    Done(Box<UnitResult>, Option<SystemTime>),
}

impl LocalUnit {
    fn read(dirs: &UnitDirs, unit: u32, plan: &str) -> Result<Self> {
        Ok(match dirs.read(unit, plan)? {
            UnitState::Done(result) => Self::Done(result, finished_at(&dirs.done(unit))?),
            _ if dirs.is_started(unit)? => Self::Started,
            _ => Self::Missing,
        })
    }
}

impl Status {
    fn add(&mut self, result: &UnitResult) {
        self.done += 1;
        self.done_bytes += result.source_bytes;
        self.records += result.splits.iter().map(|split| split.records).sum::<u64>();
        self.rejected += result.counts().rejected;
    }

    fn with_rate(mut self, finished: &FinishTimes) -> Self {
        self.bytes_per_second = finished.bytes_per_second();
        let left = self.source_bytes.saturating_sub(self.done_bytes);
        self.seconds_left = self.bytes_per_second.map(|rate| left as f64 / rate);
        self
    }
}

/// Returns when the unit in the folder `done` was finished.
fn finished_at(done: &Path) -> Result<Option<SystemTime>> {
    let Some(meta) = lstat(&done.join(RESULT_NAME))? else { return Ok(None) };
    meta.modified().map(Some).map_err(|e| Error::io("read the modification time of", done, e))
}

/// Statistics about the times at which units were finished.
#[derive(Default)]
struct FinishTimes {
    /// Time and bytes of the first finished unit, and time of the last one.
    span: Option<(SystemTime, u64, SystemTime)>,
    bytes: u64,
}

impl FinishTimes {
    fn add(&mut self, time: SystemTime, bytes: u64) {
        self.bytes += bytes;
        self.span = Some(match self.span {
            None => (time, bytes, time),
            Some((first, first_bytes, last)) if time >= first => (first, first_bytes, last.max(time)),
            Some((_, _, last)) => (time, bytes, last),
        });
    }

    /// Returns the rate over the span. The bytes of the first unit are excluded, because they were read before the
    /// span.
    fn bytes_per_second(&self) -> Option<f64> {
        let (first, first_bytes, last) = self.span?;
        let span = last.duration_since(first).unwrap_or(Duration::ZERO).as_secs_f64();
        let bytes = self.bytes.saturating_sub(first_bytes);
        (span > 0.0 && bytes > 0).then(|| bytes as f64 / span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_to_submit_again_are_those_with_unfinished_units() {
        let status =
            Status { units: 10, done: 7, started: vec![6], missing: vec![1, 9], ..Status::default() };
        assert_eq!(status.unfinished(), [1, 6, 9]);
        assert_eq!(status.unfinished_parts(4), [2, 3]);
        assert_eq!(status.unfinished_parts(1), [1]);
    }
}
