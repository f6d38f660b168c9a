//! A conversion divided among processes: plan, parts, merge.
//!
//! All processes share one output directory. The plan is stored there once; any process can then convert any units of
//! it, and a last one commits. No coordinator is needed: every unit is converted into a directory of its own and renamed
//! when it is whole. Two processes that convert the same unit produce the same bytes, and the first to finish stays.
//! Locks on the directory only give better messages; nothing depends on them.

use std::path::Path;

use serde::Serialize;

use super::conversion::Conversion;
use super::finished::{Check, UnitDirs, UnitState};
use super::images::{Images, ImagesJob};
use super::job_file::{self, OpenedJob, StoredJob};
use super::output::{self, OutputDir, Start, WORK_NAME};
use super::progress::{Progress, Stop};
use super::run::{OpenedOutput, OutputState, Report, commit, open_output};
use super::selection::{Selection, ranges_of};
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

/// Stores the plan of `job` in the output directory, and does what must be done once for all units.
pub(super) fn store_plan<J: StoredJob, C: Conversion>(
    job: &J,
    conversion: &C,
    run: &RunOptions,
    progress: &Progress,
    stop: &Stop,
) -> Result<u32> {
    let OpenedOutput { dir, header, state } = open_output(job, run, progress)?;
    match state {
        OutputState::Committed(_) => {
            return Err(Error::usage("there is a committed dataset already")
                .at_path(dir.path())
                .help("choose another --out, or replace it with --overwrite"));
        }
        // The sources may have another path here than where they were planned first.
        OutputState::Planned => job_file::store(job, &header.plan, &dir.work())?,
        OutputState::Empty => {}
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
    if let Some(manifest) = committed(out)? {
        let planned = planned_units(&manifest);
        return Ok(PartReport { units: 0, converted: 0, planned, was_committed: true });
    }
    let work = out.join(WORK_NAME);
    let (opened, mut file) = job_file::open(&work)?;
    let _lock = DirLock::share(&work.join(output::LOCK_NAME))?;
    let header = opened.header.clone();
    let selected = selection.of(header.units)?;
    let dirs = UnitDirs::new(&work);
    let units = Units { header: &header, out, dirs: &dirs };
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
    if lstat(&out.join(MANIFEST_NAME))?.is_none() {
        // Before anything is created in the directory.
        job_file::check_stored(&out.join(WORK_NAME))?;
    }
    let (dir, start) = OutputDir::open(out, Existing::Resume { verify })?;
    if let Start::Committed(manifest) = start {
        // An earlier merge may have died before it removed what it no longer needed.
        dir.remove_work()?;
        return Ok(Report { manifest: *manifest, was_complete: true, totals: None });
    }
    let (OpenedJob { header, files, tokenizer_json }, _) = job_file::open(&dir.work())?;
    progress.planned(header.files, files.iter().map(|f| f.bytes).sum());
    let dirs = UnitDirs::new(&dir.work());
    let check = if verify { Check::Hashes } else { Check::Sizes };
    let units = Units { header: &header, out, dirs: &dirs };
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
    commit(dir, &header, &files, tokenizer_json.as_deref(), max_rejects, progress)
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

/// The manifest of the dataset that is committed in `out`, if one is.
pub(super) fn committed(out: &Path) -> Result<Option<Manifest>> {
    let is_there = lstat(&out.join(MANIFEST_NAME))?.is_some();
    is_there.then(|| Manifest::read(out)).transpose()
}

pub(super) fn planned_units(manifest: &Manifest) -> u32 {
    manifest.plan.as_ref().map_or(0, |plan| plan.units)
}
