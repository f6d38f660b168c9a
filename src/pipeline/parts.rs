//! A conversion divided among processes: plan, parts, merge, status.
//!
//! All processes share one output directory. The plan is stored there once; any process can then convert any units of
//! it, and a last one commits. No coordinator is needed: every unit is converted into a directory of its own and renamed
//! when it is whole. Two processes that convert the same unit produce the same bytes, and the first to finish stays.
//! Locks on the directory only give better messages; nothing depends on them.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::conversion::Conversion;
use super::finished::{Check, UnitDirs, UnitState};
use super::images::{Images, ImagesJob};
use super::job_file::{self, OpenedJob, StoredJob};
use super::output::{self, OutputDir, Start, WORK_NAME};
use super::plan::Plan;
use super::progress::{Progress, Stop};
use super::run::{Report, commit, write_plan};
use super::text::{TextJob, Texts};
use super::units::Units;
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::{MANIFEST_NAME, Manifest};
use crate::options::{Existing, MaxRejects, RunOptions};
use crate::printable::printable_path;
use crate::schema::Kind;
use crate::storage::{DirLock, lstat};

/// Units named in a message before the rest is counted.
const SHOWN_RANGES: usize = 8;

/// The units that one process converts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Selection {
    /// All that are not finished.
    #[default]
    All,
    /// Every `count`-th unit, from unit `part - 1` on: part `part` of `count`, counted from 1. Part and count may differ
    /// from one attempt to the next.
    Part {
        /// From 1 to `count`.
        part: u32,
        /// Number of parts.
        count: u32,
    },
    /// These units.
    Units(Vec<u32>),
}

impl Selection {
    /// Part `i` of `N`, written as `i/N`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] when it is no such pair, or not 1 ≤ `i` ≤ `N`.
    pub fn part(text: &str) -> Result<Self> {
        text.split_once('/')
            .and_then(|(part, count)| Some((part.trim().parse().ok()?, count.trim().parse().ok()?)))
            .filter(|(part, count)| (1..=*count).contains(part))
            .map(|(part, count)| Self::Part { part, count })
            .ok_or_else(|| {
                Error::usage(format!("{text:?} is not a part")).help(
                    "write i/N with 1 ≤ i ≤ N, as 3/40; in a Slurm array: \
                     --part $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT with --array=1-N",
                )
            })
    }

    /// The selected ones of `units` units.
    fn of(&self, units: u32) -> Result<Vec<u32>> {
        match self {
            Self::All => Ok((0..units).collect()),
            Self::Part { part, count } => Ok((part - 1..units).step_by(*count as usize).collect()),
            Self::Units(list) => match list.iter().find(|&&unit| unit >= units) {
                None => Ok(list.clone()),
                Some(unit) => {
                    Err(Error::usage(format!("there is no unit {unit}; the plan has {units} units"))
                        .help("units are counted from 0; `dsconvert status` lists the unfinished ones"))
                }
            },
        }
    }
}

/// Units, written as `3,7-9`.
impl FromStr for Selection {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::usage(format!("{text:?} is not a list of units")).help("write it as 3,7-9");
        let mut units = Vec::new();
        for range in text.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.trim().parse::<u32>().map_err(|_| bad());
            let (first, last) = (number(first)?, number(last)?);
            if first > last || u64::from(last - first) + units.len() as u64 >= 1 << 24 {
                return Err(bad());
            }
            units.extend(first..=last);
        }
        units.sort_unstable();
        units.dedup();
        Ok(Self::Units(units))
    }
}

/// What a process did for its part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartReport {
    /// Units of the part.
    pub units: u32,
    /// Units that this process converted; the others were finished before.
    pub converted: u32,
    /// Units of the whole plan.
    pub planned: u32,
    /// The dataset was committed already, so there was nothing to do.
    pub was_committed: bool,
}

/// How far a planned conversion is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// The dataset is committed.
    pub committed: bool,
    /// Units of the plan.
    pub units: u32,
    /// Finished units.
    pub done: u32,
    /// Units that a process has started and not finished: it is at work, or it died.
    pub started: Vec<u32>,
    /// Units that no process has started.
    pub missing: Vec<u32>,
    /// Source bytes of the plan.
    pub source_bytes: u64,
    /// Source bytes of the finished units.
    pub done_bytes: u64,
    /// Records of the finished units.
    pub records: u64,
    /// Rejected items of the finished units.
    pub rejected: u64,
    /// Source bytes per second, from the first finished unit to the last; `None` before there are two.
    pub bytes_per_second: Option<f64>,
    /// Seconds until all units are finished at this rate.
    pub seconds_left: Option<f64>,
}

impl Status {
    /// The units that are not finished, ascending.
    pub fn unfinished(&self) -> Vec<u32> {
        let mut units: Vec<u32> = self.started.iter().chain(&self.missing).copied().collect();
        units.sort_unstable();
        units
    }

    /// The parts of `count` that have unfinished units, counted from 1: what to submit again.
    pub fn unfinished_parts(&self, count: u32) -> Vec<u32> {
        let mut parts: Vec<u32> = self.unfinished().iter().map(|unit| unit % count.max(1) + 1).collect();
        parts.sort_unstable();
        parts.dedup();
        parts
    }
}

/// Numbers as ranges: `3,7-9`.
pub fn ranges(numbers: &[u32]) -> String {
    ranges_of(numbers).join(",")
}

fn ranges_of(numbers: &[u32]) -> Vec<String> {
    let runs = numbers.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    runs.map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    })
    .collect()
}

/// Stores the plan of `job` in the output directory, and does what must be done once for all units.
pub(super) fn store_plan<J: StoredJob, C: Conversion>(
    job: &J,
    conversion: &C,
    run: &RunOptions,
    progress: &Progress,
    stop: &Stop,
) -> Result<u32> {
    let (header, files) = (job.header()?, job.files());
    output::check(&run.out, run.existing, if header.walked { &header.sources } else { &[] })?;
    let plan = Plan { options: &header.options, units: header.units, files };
    progress.planned(header.files, files.iter().map(|f| f.bytes).sum());
    let (dir, start) = OutputDir::open(&run.out, run.existing)?;
    match start {
        Start::Committed(_) => {
            return Err(Error::usage("there is a committed dataset already")
                .at_path(dir.path())
                .help("choose another --out, or replace it with --overwrite"));
        }
        Start::Begun => {
            plan.check_same(&dir.work())?;
            job_file::store(job, &plan.id(), &dir.work())?;
        }
        Start::Fresh => {
            write_plan(job, &plan, &dir.work())?;
        }
    }
    conversion.prepare(&dir.work(), run.threads.max(1), stop)?;
    Ok(header.units)
}

/// Converts units of the plan that is stored in `options.out`.
///
/// # Errors
///
/// [`ErrorKind::Usage`] when there is no plan; [`ErrorKind::NotCommitted`], [`ErrorKind::Io`] and
/// [`ErrorKind::Interrupted`] leave finished units in place: the same call goes on.
pub fn run_units(
    selection: &Selection,
    options: &RunOptions,
    progress: &Progress,
    stop: &Stop,
) -> Result<PartReport> {
    let out = &options.out;
    if let Some(units) = committed(out)? {
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        return Ok(PartReport { units: 0, converted: 0, planned: units, was_committed: true });
    }
    let work = out.join(WORK_NAME);
    let (opened, mut file) = job_file::open(&work)?;
    let _lock = DirLock::share(&work.join(output::LOCK_NAME))?;
    let header = opened.header.clone();
    let selected = selection.of(header.units)?;
    let dirs = UnitDirs::new(&work);
    let units = Units { header: &header, plan: &header.plan, out, dirs: &dirs };
    let count = selected.len() as u32;
    let check = match options.existing {
        Existing::Resume { verify: true } => Check::Hashes,
        _ => Check::Sizes,
    };
    let todo = units.unfinished(selected, check, options.threads, progress, stop)?;
    let converted = todo.len() as u32;
    if !todo.is_empty() {
        match header.kind {
            Kind::Images => {
                let job = ImagesJob::read(opened, &mut file)?;
                units.convert(&Images::new(&job, options), todo, options, progress, stop)
            }
            Kind::Text => {
                let job = TextJob::read(opened, &mut file)?;
                units.convert(&Texts::new(&job), todo, options, progress, stop)
            }
        }
        .map_err(as_part)?;
    }
    Ok(PartReport { units: count, converted, planned: header.units, was_committed: false })
}

/// The help of a run speaks of `--resume`, which a part does not have.
fn as_part(error: Error) -> Error {
    match error.kind() {
        ErrorKind::NotCommitted | ErrorKind::Interrupted(_) => {
            error.help("the finished units are kept: run the same part again")
        }
        _ => error,
    }
}

/// Commits the dataset, when all units of the plan in `out` are finished.
///
/// # Errors
///
/// [`ErrorKind::NotCommitted`] when units are missing or damaged: the message names them. Otherwise as a run's commit.
pub fn merge(
    out: &Path,
    max_rejects: MaxRejects,
    threads: usize,
    verify: bool,
    progress: &Progress,
    stop: &Stop,
) -> Result<Report> {
    if committed(out)?.is_none() {
        // Refuses a directory without a plan before anything is created in it.
        job_file::open(&out.join(WORK_NAME))?;
    }
    let (dir, start) = OutputDir::open(out, Existing::Resume { verify })?;
    if let Start::Committed(manifest) = start {
        // An earlier merge may have died before it removed what it no longer needed.
        dir.remove_work()?;
        return Ok(Report { manifest: *manifest, was_complete: true, text_bytes: None });
    }
    let (OpenedJob { header, files, tokenizer_json }, _) = job_file::open(&dir.work())?;
    progress.planned(header.files, files.iter().map(|f| f.bytes).sum());
    let dirs = UnitDirs::new(&dir.work());
    let check = if verify { Check::Hashes } else { Check::Sizes };
    let units = Units { header: &header, plan: &header.plan, out, dirs: &dirs };
    let mut unfinished = Vec::new();
    for (unit, state) in units.check((0..header.units).collect(), check, threads, stop)? {
        match state {
            UnitState::Done(_) => {}
            UnitState::Missing => unfinished.push(unit),
            UnitState::Damaged(why) => {
                progress.note(format!("unit {unit} has to be converted again, because {why}"));
                unfinished.push(unit);
            }
        }
    }
    if !unfinished.is_empty() {
        return Err(not_finished(out, &unfinished, header.units));
    }
    stop.check()?;
    commit(dir, &header, &files, &header.plan, tokenizer_json.as_deref(), max_rejects, progress)
}

fn not_finished(out: &Path, units: &[u32], planned: u32) -> Error {
    let ranges = ranges_of(units);
    let mut shown = ranges.iter().take(SHOWN_RANGES).cloned().collect::<Vec<_>>().join(",");
    if ranges.len() > SHOWN_RANGES {
        shown.push_str(&format!(" and {} more ranges", ranges.len() - SHOWN_RANGES));
    }
    let verb = if units.len() == 1 { "is" } else { "are" };
    Error::new(
        ErrorKind::NotCommitted,
        format!("{} of {planned} units {verb} not finished: {shown}", units.len()),
    )
    .help(format!(
        "`dsconvert run {out}` converts them; `dsconvert status {out} --parts N` says which parts to submit again",
        out = printable_path(out)
    ))
}

/// How far the plan in `out` is. Reads the results of finished units, not their shards.
///
/// # Errors
///
/// [`ErrorKind::Usage`] when there is neither a plan nor a dataset.
pub fn status(out: &Path) -> Result<Status> {
    if let Some(units) = committed(out)? {
        let manifest = Manifest::read(out)?;
        return Ok(Status {
            committed: true,
            units: u32::try_from(units).unwrap_or(u32::MAX),
            done: u32::try_from(units).unwrap_or(u32::MAX),
            started: Vec::new(),
            missing: Vec::new(),
            source_bytes: manifest.sources.bytes,
            done_bytes: manifest.sources.bytes,
            records: manifest.splits.values().map(|split| split.records).sum(),
            rejected: manifest.counts.rejected,
            bytes_per_second: None,
            seconds_left: None,
        });
    }
    let work = out.join(WORK_NAME);
    let (OpenedJob { header, files, .. }, _) = job_file::open(&work)?;
    let dirs = UnitDirs::new(&work);
    let mut status = Status {
        committed: false,
        units: header.units,
        done: 0,
        started: Vec::new(),
        missing: Vec::new(),
        source_bytes: files.iter().map(|f| f.bytes).sum(),
        done_bytes: 0,
        records: 0,
        rejected: 0,
        bytes_per_second: None,
        seconds_left: None,
    };
    let mut finished = Finished::default();
    for unit in 0..header.units {
        match dirs.read(unit, &header.plan)? {
            UnitState::Done(result) => {
                status.done += 1;
                status.done_bytes += result.source_bytes;
                status.records += result.splits.iter().map(|split| split.records).sum::<u64>();
                status.rejected += result.counts().rejected;
                finished.add(&dirs.done(unit), result.source_bytes)?;
            }
            _ if dirs.is_started(unit)? => status.started.push(unit),
            _ => status.missing.push(unit),
        }
    }
    status.bytes_per_second = finished.bytes_per_second();
    let left = status.source_bytes.saturating_sub(status.done_bytes);
    status.seconds_left = status.bytes_per_second.map(|rate| left as f64 / rate);
    Ok(status)
}

/// When units were finished.
#[derive(Default)]
struct Finished {
    /// Time of the first one and its bytes, and time of the last one.
    span: Option<(SystemTime, u64, SystemTime)>,
    bytes: u64,
}

impl Finished {
    fn add(&mut self, done: &Path, bytes: u64) -> Result<()> {
        let Some(meta) = lstat(&done.join(super::finished::RESULT_NAME))? else { return Ok(()) };
        let time = meta.modified().map_err(|e| Error::io("look at the unit", done, e))?;
        self.bytes += bytes;
        self.span = Some(match self.span {
            None => (time, bytes, time),
            Some((first, of_first, last)) if time >= first => (first, of_first, last.max(time)),
            Some((_, _, last)) => (time, bytes, last),
        });
        Ok(())
    }

    /// The bytes of the first unit were read before the span began.
    fn bytes_per_second(&self) -> Option<f64> {
        let (first, of_first, last) = self.span?;
        let span = last.duration_since(first).unwrap_or(Duration::ZERO).as_secs_f64();
        let bytes = self.bytes.saturating_sub(of_first);
        (span > 0.0 && bytes > 0).then(|| bytes as f64 / span)
    }
}

/// Number of units of the committed dataset in `out`; `None` when there is none.
fn committed(out: &Path) -> Result<Option<u64>> {
    let path: PathBuf = out.join(MANIFEST_NAME);
    if lstat(&path)?.is_none() {
        return Ok(None);
    }
    let manifest = Manifest::read(out)?;
    Ok(Some(manifest.plan.map_or(0, |plan| u64::from(plan.units))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_in_exactly_one_part() {
        for units in [0, 1, 7, 40] {
            for count in [1, 3, 50] {
                let part = |part| Selection::part(&format!("{part}/{count}")).unwrap().of(units).unwrap();
                let mut all: Vec<u32> = (1..=count).flat_map(part).collect();
                all.sort_unstable();
                assert_eq!(all, (0..units).collect::<Vec<_>>());
            }
        }
        for wrong in ["", "1", "0/3", "4/3", "1/0", "a/b", "-1/3", "1/3/5"] {
            assert!(Selection::part(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lists_of_units_are_read_and_written() {
        let units = |text: &str| match text.parse() {
            Ok(Selection::Units(units)) => Some(units),
            _ => None,
        };
        assert_eq!(units("3,7-9,8"), Some(vec![3, 7, 8, 9]));
        assert_eq!(ranges(&[3, 7, 8, 9]), "3,7-9");
        for wrong in ["", "9-7", "x", "1,,2", "0-4294967295"] {
            assert_eq!(units(wrong), None, "{wrong}");
        }
        assert!(Selection::Units(vec![3]).of(3).is_err());
    }

    #[test]
    fn parts_to_submit_again_are_those_with_unfinished_units() {
        let status = Status {
            committed: false,
            units: 10,
            done: 7,
            started: vec![6],
            missing: vec![1, 9],
            source_bytes: 0,
            done_bytes: 0,
            records: 0,
            rejected: 0,
            bytes_per_second: None,
            seconds_left: None,
        };
        assert_eq!(status.unfinished(), [1, 6, 9]);
        assert_eq!(status.unfinished_parts(4), [2, 3]);
        assert_eq!(status.unfinished_parts(1), [1]);
    }
}
