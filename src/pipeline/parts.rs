//! Conversion divided among processes: plan, parts, merge.
//!
//! All processes share one output directory, where the plan is stored once. Any process can then convert any units of
//! it, and a last one commits. No coordinator is needed: every unit is converted in its own directory, which is renamed
//! when it is complete. Two processes that convert the same unit produce the same bytes, and the first to finish wins.
//! Locks on the directory only improve messages; correctness does not depend on them.

use std::time::Instant;

use serde_json::Value;

use super::images::ImageConversion;
use super::job_file::{self, OpenedJob};
use super::progress::{Phase, Progress};
use super::run::{RunOutcome, commit};
use super::run_units::{RunContext, Units};
use super::selection::{Selection, ranges_of};
use super::source_checks;
use super::stored_job;
use super::text::TextConversion;
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::Manifest;
use crate::numbers::plural;
use crate::options::{RunOptions, SourceSpec};
use crate::printable::{printable, printable_path, shell_word};
use crate::schema::Kind;
use crate::source::io::planned::is_source_change;
use crate::storage::{ObjectUrl, lstat};
use crate::writer::DatasetWriter;
use crate::writer::output::{OutputDir, OutputState, adapt_help, may_be_overtaken};
use crate::writer::stop::{Continuation, Stop, restart};
use crate::writer::units::{CheckLevel, UnitState};
use crate::writer::workers::Workers;

/// Number of ranges of units listed in a message; further ones are counted.
const SHOWN_RANGES: usize = 8;

/// Result of converting a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartOutcome {
    /// Number of units in the part.
    pub units: u32,
    /// Number of units that this process converted. The others were finished before.
    pub converted: u32,
    /// Number of units in the whole plan.
    pub planned: u32,
    /// Whether the dataset was already committed, so that there was nothing to do.
    pub was_committed: bool,
    /// Kind of the conversion.
    pub kind: Kind,
    /// Identity of the plan; `None` if the dataset is committed, because the plan is removed then.
    pub plan: Option<String>,
    /// Digest of the source files of the plan, as in the manifest; `None` if an old dataset is committed, which has none.
    pub listing: Option<String>,
    /// Options of the plan that affect the dataset.
    pub options: Value,
}

impl PartOutcome {
    /// Returns the outcome of a part with nothing to do, because the dataset is committed.
    fn committed(manifest: Manifest) -> Self {
        Self {
            units: 0,
            converted: 0,
            planned: planned_units(&manifest),
            was_committed: true,
            kind: manifest.kind(),
            plan: None,
            listing: manifest.plan.map(|plan| plan.listing),
            options: manifest.options,
        }
    }
}

/// Converts units of the plan stored in `options.out`. `sources` replace those of the plan with the same labels, and must
/// have files of the same names, sizes and modification times.
///
/// # Errors
///
/// [`ErrorKind::Usage`] if there is no plan, or if its sources do not fit the given ones. After
/// [`ErrorKind::NotCommitted`], [`ErrorKind::Io`] and [`ErrorKind::Interrupted`], finished units are kept, and the same call continues.
pub fn run_units(
    selection: &Selection,
    sources: &[SourceSpec],
    options: &RunOptions,
    progress: &Progress,
    stop: &Stop,
) -> Result<PartOutcome> {
    stop.start_writing(Continuation::SamePart);
    convert_units(selection, sources, options, progress, stop)
        .map_err(|error| adapt_help(Continuation::SamePart.after_lock(error), &options.out))
}

fn convert_units(
    selection: &Selection,
    sources: &[SourceSpec],
    options: &RunOptions,
    progress: &Progress,
    stop: &Stop,
) -> Result<PartOutcome> {
    let mut output = OutputDir::join(&options.out, options.scratch.as_deref(), options.existing)?;
    if let Some(manifest) = output.committed()? {
        return Ok(PartOutcome::committed(manifest));
    }
    let work = job_file::work_of(&output)?;
    let (mut opened, mut file) = job_file::open(&work)?;
    if !sources.is_empty() {
        opened.header.replace_sources(sources)?;
        source_checks::refuse_sources(&options.out, &opened.header, &opened.files)?;
    }
    output.share_lock()?;
    let header = opened.header.clone();
    let selected = selection.of(header.units)?;
    let workers = Workers::start(options.threads)?;
    let context = RunContext { workers: &workers, progress, stop };
    let writer = DatasetWriter::new(output, header.planned_units());
    let output = writer.dir();
    let units = Units { writer: &writer, context };
    let count = selected.len() as u32;
    let check = CheckLevel::of(options.existing);
    let todo = units.unfinished(selected.clone(), check)?;
    if output.remote().is_none() {
        let is_finished = |unit: &u32| todo.binary_search(unit).is_err();
        writer.dirs().sync_finished(&selected.into_iter().filter(is_finished).collect::<Vec<_>>())?;
    }
    let converted = todo.len() as u32;
    if !todo.is_empty() {
        if header.reads_stdin() {
            return Err(Error::usage("the conversion reads standard input, which cannot be read again")
                .help(restart(&options.out)));
        }
        let done = match header.schema.kind {
            Kind::Images => {
                units.convert(&stored_job::read::<ImageConversion>(opened, &mut file)?, todo, options)
            }
            Kind::Text => {
                units.convert(&stored_job::read::<TextConversion>(opened, &mut file)?, todo, options)
            }
        };
        if let Err(error) = done {
            if let Some(remote) = output.remote().filter(|_| may_be_overtaken(&error))
                && let Ok(Some(manifest)) = remote.manifest()
            {
                remote.remove_work()?;
                return Ok(PartOutcome::committed(manifest));
            }
            return Err(match error.kind() {
                ErrorKind::Io | ErrorKind::NotCommitted => {
                    with_source_help(error, &header.sources, !sources.is_empty())
                }
                _ => error,
            });
        }
    }
    if let Some(remote) = output.remote()
        && remote.manifest()?.is_some()
    {
        // Another process has converted the same units and committed. This process's copies are useless, and no
        // other process deletes them.
        remote.remove_work()?;
    }
    Ok(PartOutcome {
        units: count,
        converted,
        planned: header.units,
        was_committed: false,
        kind: header.schema.kind,
        plan: Some(header.plan),
        listing: Some(header.listing),
        options: header.options,
    })
}

/// Replaces the help of `error` if a local source of the plan does not exist on this machine, or if a replaced one differs.
fn with_source_help(error: Error, sources: &[SourceSpec], is_replaced: bool) -> Error {
    let is_missing =
        |source: &&SourceSpec| !ObjectUrl::is_url(&source.path) && matches!(lstat(&source.path), Ok(None));
    if let Some(SourceSpec { label, path }) = sources.iter().find(is_missing) {
        let (path, label) = (printable_path(path), printable(label));
        return error.help(format!(
            "there is no {path} on this machine; if the source has another path here, add `source {label}=PATH`"
        ));
    }
    match is_source_change(&error) {
        true if is_replaced => error.help(
            "the files at the given path need the sizes and modification times of those that were planned: copy them with \
             rsync -a or cp -a",
        ),
        true => error.help("do not change the sources before the merge; now, plan again with `overwrite`"),
        false => error,
    }
}

/// Commits the dataset if all units of the plan in `options.out` are finished.
///
/// # Errors
///
/// [`ErrorKind::NotCommitted`] if units are missing or damaged; the message names them. Otherwise, the errors of the
/// commit of a run.
pub fn merge(options: &RunOptions, progress: &Progress, stop: &Stop) -> Result<RunOutcome> {
    stop.start_writing(Continuation::SameMerge);
    commit_units(options, progress, stop)
        .map_err(|error| adapt_help(Continuation::SameMerge.after_lock(error), &options.out))
}

fn commit_units(options: &RunOptions, progress: &Progress, stop: &Stop) -> Result<RunOutcome> {
    let RunOptions { out, existing, .. } = options;
    let scratch = options.scratch.as_deref();
    {
        let output = OutputDir::join(out, scratch, *existing)?;
        match output.committed()? {
            // Nothing is written, so the directory may be read-only.
            Some(manifest) if !output.may_have_work()? => return Ok(RunOutcome::complete(manifest)),
            Some(_) => {}
            // Before anything is created in the directory. Another merge may commit the dataset, and delete its plan, after
            // the first look.
            None => {
                if let Err(error) = job_file::check_output(&output)
                    && output.committed()?.is_none()
                {
                    return Err(error);
                }
            }
        }
    }
    let (dir, state) = OutputDir::open(out, scratch, *existing)?;
    if let OutputState::Committed(manifest) = state {
        // An earlier merge may have died before it removed the working directory.
        dir.remove_work()?;
        return Ok(RunOutcome::complete(*manifest));
    }
    let fetched = match dir.remote() {
        Some(remote) => job_file::fetch(remote, &dir.work()),
        None => Ok(true),
    };
    if !matches!(fetched, Ok(true))
        && let Some(outcome) = committed_meanwhile(&dir)?
    {
        return Ok(outcome);
    }
    fetched?;
    let (OpenedJob { header, files, tokenizer_json }, _) = job_file::open(&dir.work())?;
    progress.planned(header.files, files.bytes());
    let writer = DatasetWriter::new(dir, header.planned_units());
    let workers = Workers::start(options.threads)?;
    let started = Instant::now();
    let mut unfinished = Vec::new();
    let all = (0..header.units).collect();
    for (unit, state) in writer.check(all, CheckLevel::of(*existing), &workers, stop, &|_| {})? {
        if let UnitState::Damaged(why) = state {
            progress.note(format!("unit {unit} has to be converted again, because {why}"));
        }
        unfinished.push(unit);
    }
    progress.end_phase(Phase::Prepare, started);
    if !unfinished.is_empty() {
        if let Some(outcome) = committed_meanwhile(writer.dir())? {
            return Ok(outcome);
        }
        let error = not_finished(&unfinished, header.units);
        return Err(match header.reads_stdin() {
            true => error.help(format!("standard input cannot be read again: {}", restart(out))),
            false => error.help(format!(
                "`dsconvert run {out}` converts them; `dsconvert status {out} --parts N` lists the parts to submit again",
                out = shell_word(out)
            )),
        });
    }
    stop.check()?;
    commit(writer, &header, &files, tokenizer_json.as_deref(), options.max_rejects, progress, stop)
}

/// Returns the outcome if another process has meanwhile committed the dataset in object storage and deleted its plan and
/// units.
fn committed_meanwhile(dir: &OutputDir) -> Result<Option<RunOutcome>> {
    let Some(remote) = dir.remote() else { return Ok(None) };
    let Some(manifest) = remote.manifest()? else { return Ok(None) };
    dir.remove_work()?;
    Ok(Some(RunOutcome::complete(manifest)))
}

fn not_finished(units: &[u32], planned: u32) -> Error {
    let ranges = ranges_of(units);
    let mut shown = ranges.iter().take(SHOWN_RANGES).cloned().collect::<Vec<_>>().join(",");
    if ranges.len() > SHOWN_RANGES {
        shown.push_str(&format!(" and {} more ranges", ranges.len() - SHOWN_RANGES));
    }
    let verb = if units.len() == 1 { "is" } else { "are" };
    Error::new(
        ErrorKind::NotCommitted,
        format!("{} of {} {verb} not finished: {shown}", units.len(), plural(planned.into(), "unit")),
    )
}

pub(super) fn planned_units(manifest: &Manifest) -> u32 {
    manifest.plan.as_ref().map_or(0, |plan| plan.units)
}
