//! A run from its plan to its commit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use super::commit::Commit;
use super::conversion::{Conversion, Cuts};
use super::finished::{Check, UnitDirs, UnitState, difference};
use super::output::{self, OutputDir, Start};
use super::pack::Pack;
use super::plan::{Plan, PlanSummary, differing_option};
use super::progress::{Progress, Stop, resumable};
use super::schedule::{FailedUnits, Schedule, run as run_units};
use super::testing::panic_point;
use super::unit::UnitSink;
use super::workers::on_threads;
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::{Manifest, PlanInfo, Sources};
use crate::options::{Existing, OutputOptions, RunOptions, SourceSpec};
use crate::printable::{printable, printable_path};
use crate::source::walk::SourceFile;
use crate::source::warning::listed;
use crate::storage::{Writeback, sync_dir};

/// A planned conversion: its sources are listed, nothing is written yet.
pub trait Job {
    /// What it would do.
    fn summary(&self) -> PlanSummary;

    /// Does it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] before anything is written; [`ErrorKind::NotCommitted`], [`ErrorKind::Io`] and
    /// [`ErrorKind::Interrupted`] leave what was done for `--resume`.
    fn run(&self, run: &RunOptions, progress: &Progress, stop: &Stop) -> Result<Report>;
}

/// What a run did.
#[derive(Debug)]
pub struct Report {
    /// The committed manifest.
    pub manifest: Manifest,
    /// Nothing had to be done: the dataset was committed before.
    pub was_complete: bool,
    /// Bytes of the texts that became records, when this run committed them.
    pub text_bytes: Option<u64>,
}

/// Refuses an output directory that cannot be used, before the sources are listed.
pub fn check_output(run: &RunOptions, sources: &[SourceSpec]) -> Result<()> {
    output::check(&run.out, run.existing, sources)
}

/// What the common part of a run needs to know of a job.
pub(super) struct Planned<'a> {
    pub sources: &'a [SourceSpec],
    /// The sources are walked, so the output must lie apart from them.
    pub walked: bool,
    pub files: &'a [SourceFile],
    pub skipped: u64,
    /// Files that are no items, by what their names end with, when nothing was found.
    pub skipped_types: BTreeMap<String, u64>,
    pub options: &'a serde_json::Value,
    pub output: &'a OutputOptions,
    /// Source bytes at which a unit is full.
    pub unit_bytes: u64,
    /// Source files, or pieces of divided files, at which a unit is full.
    pub unit_pieces: u64,
    /// Documents are stored in rows.
    pub pack: Option<Pack>,
    pub tokenizer: Option<serde_json::Value>,
    pub tokenizer_json: Option<&'a [u8]>,
}

/// Converts and commits.
pub(super) fn run<C: Conversion>(
    planned: Planned<'_>,
    conversion: &C,
    run: &RunOptions,
    progress: &Progress,
    stop: &Stop,
) -> Result<Report> {
    output::check(&run.out, run.existing, if planned.walked { planned.sources } else { &[] })?;
    let plan = Plan { options: planned.options, units: conversion.units(), files: planned.files };
    let sources = Sources {
        labels: planned.sources.iter().map(|s| s.label.clone()).collect(),
        files: planned.files.len() as u64,
        bytes: planned.files.iter().map(|f| f.bytes).sum(),
        skipped: planned.skipped,
        content: String::new(),
    };
    progress.planned(sources.files, sources.bytes);
    let (dir, start) = OutputDir::open(&run.out, run.existing)?;
    let plan_id = match start {
        Start::Committed(manifest) => {
            return already_committed(dir, *manifest, &plan, &sources, run, progress);
        }
        Start::Begun => {
            plan.check_same(&dir.work())?;
            plan.id()
        }
        Start::Fresh => plan.write(&dir.work())?,
    };
    let dirs = UnitDirs::new(&dir.work());
    dirs.remove_leftovers()?;
    let check = match run.existing {
        Existing::Resume { verify: true } => Check::Hashes,
        _ => Check::Sizes,
    };
    let mut todo = Vec::new();
    let found = check_units(conversion.units(), run.threads.max(1), stop, |unit| {
        dirs.check(unit, &plan_id, dir.path(), check)
    })?;
    for (unit, state) in (0..).zip(found) {
        match state {
            UnitState::Done(done) => {
                let counts = done.counts();
                let records = done.splits.iter().map(|s| s.records).sum();
                progress.done(counts.found, done.source_bytes, records, counts.rejected);
                continue;
            }
            UnitState::Missing => {}
            UnitState::Damaged(why) => {
                progress.note(format!("unit {unit} is converted again, because {why}"));
                dirs.remove(unit)?;
            }
        }
        todo.push(unit);
    }
    if !todo.is_empty() {
        conversion.prepare(&dir.work(), run.threads.max(1), stop)?;
    }
    let cuts = Cuts {
        format: planned.output.format,
        shard_bytes: planned.output.shard_bytes,
        shard_records: planned.output.shard_records,
        shuffle_seed: planned.output.shuffle.then_some(planned.output.seed),
        pack: planned.pack,
    };
    let writeback = Writeback::start();
    let sink = |unit| {
        let (schema, splits) = (conversion.schema(), conversion.splits());
        UnitSink::create(unit, &plan_id, &dirs, &cuts, &writeback, schema, splits)
    };
    let failed = run_units(
        &Schedule {
            conversion,
            threads: run.threads.max(1),
            memory_bytes: run.memory_bytes / 4,
            progress,
            stop,
            sink: &sink,
        },
        todo,
    )?;
    writeback.check()?;
    if let Some(error) = all_failures(failed, conversion.units()) {
        return Err(error);
    }
    let mut text_bytes = 0;
    for unit in 0..conversion.units() {
        text_bytes += dirs.result(unit, &plan_id)?.text_bytes;
    }
    panic_point("commit");
    let looked_at = looked_at(&planned);
    let committed = Commit {
        dir: &dir,
        plan_id: &plan_id,
        units: conversion.units(),
        format: planned.output.format,
        schema: conversion.schema(),
        splits: conversion.splits(),
        options: planned.options,
        tokenizer: planned.tokenizer,
        tokenizer_json: planned.tokenizer_json,
        sources,
        plan: PlanInfo {
            listing: plan.listing(),
            units: conversion.units(),
            unit_bytes: planned.unit_bytes,
            unit_pieces: planned.unit_pieces,
        },
        looked_at,
        max_rejects: run.max_rejects,
        fingerprint: &|content| plan.fingerprint(content),
    }
    .run();
    match committed {
        Ok(manifest) => {
            note_leftovers(progress, dir.remove_work());
            Ok(Report { manifest, was_complete: false, text_bytes: Some(text_bytes) })
        }
        Err(failure) if !failure.worth_resuming => Err(output::also(failure.error, dir.abandon())),
        Err(failure) => Err(resumable(failure.error.never_usage())),
    }
}

/// Whatever happens to the working directory afterwards, the dataset is committed.
fn note_leftovers(progress: &Progress, removed: Result<()>) {
    if let Err(error) = removed {
        progress.note(format!("the dataset is committed, but its working directory is still there: {error}"));
    }
}

/// `: in photos; 3 files were skipped: 2 .pdf, 1 .md`
fn looked_at(planned: &Planned<'_>) -> String {
    let paths: Vec<String> = planned.sources.iter().map(|s| printable_path(&s.path)).collect();
    let mut text = format!(" in {}", listed(paths.into_iter()));
    let skipped: u64 = planned.skipped_types.values().sum();
    if skipped > 0 {
        let mut types: Vec<_> = planned.skipped_types.iter().collect();
        types.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let types = types.into_iter().map(|(ending, count)| format!("{count} {}", printable(ending)));
        text.push_str(&format!("; {skipped} files were skipped: {}", listed(types)));
    }
    text
}

/// The dataset is there: the same command has nothing to do, another one is refused.
fn already_committed(
    dir: OutputDir,
    manifest: Manifest,
    plan: &Plan<'_>,
    sources: &Sources,
    run: &RunOptions,
    progress: &Progress,
) -> Result<Report> {
    let checked = check_committed(&dir, &manifest, plan, sources, run);
    // Whatever is left in it is of no use beside a committed dataset.
    note_leftovers(progress, dir.remove_work());
    checked.map(|()| Report { manifest, was_complete: true, text_bytes: None })
}

/// Refuses a committed dataset that is not that of this command, or of which a file is not what was written.
fn check_committed(
    dir: &OutputDir,
    manifest: &Manifest,
    plan: &Plan<'_>,
    sources: &Sources,
    run: &RunOptions,
) -> Result<()> {
    let refuse = |what: &str| {
        Err(Error::usage(format!("there is a committed dataset already, and {what}"))
            .at_path(dir.path())
            .help("choose another --out, or replace it with --overwrite"))
    };
    if let Some(what) = differing_option(&manifest.options, plan.options) {
        return refuse(&what);
    }
    let now = plan.fingerprint(&manifest.sources.content);
    if now != manifest.fingerprint || sources.labels != manifest.sources.labels {
        return refuse("its sources or the version of dsconvert were others");
    }
    // The run that committed it may have died before its manifest was durable.
    sync_dir(dir.path())?;
    let hashes = matches!(run.existing, Existing::Resume { verify: true });
    for (path, bytes, sha256) in dir.files_of(manifest)? {
        if let Some(why) = difference(&path, bytes, hashes.then_some(&sha256))? {
            return Err(Error::corrupt(format!("the dataset is committed, but this file {why}"))
                .at_path(path)
                .help("restore the file, or convert again with --overwrite"));
        }
    }
    Ok(())
}

/// Checks all units, on several threads, because it may have to read all they consist of.
fn check_units(
    units: u32,
    threads: usize,
    stop: &Stop,
    check: impl Fn(u32) -> Result<UnitState> + Sync,
) -> Result<Vec<UnitState>> {
    let next = AtomicU32::new(0);
    let found = Mutex::new(BTreeMap::new());
    let work = || -> Result<()> {
        loop {
            let unit = next.fetch_add(1, Ordering::Relaxed);
            if unit >= units {
                return Ok(());
            }
            stop.check()?;
            let state = check(unit)?;
            found.lock().unwrap_or_else(PoisonError::into_inner).insert(unit, state);
        }
    };
    on_threads(threads, "checking finished units", stop, &work)?;
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect())
}

fn all_failures(failed: FailedUnits, units: u32) -> Option<Error> {
    let count = failed.len();
    let (_, first) = failed.into_iter().next()?;
    let place = first.place().clone();
    let mut error = Error::new(
        ErrorKind::NotCommitted,
        format!(
            "{count} of {units} units failed, because sources could not be read; the first failure: {first}"
        ),
    )
    .help("the finished units are kept: mend the cause, then run the same command with --resume");
    if let Some(path) = place.path {
        error = error.at_path(path);
    }
    Some(error)
}
