//! A run from its plan to its commit.

use super::commit::Commit;
use super::conversion::{Conversion, Cuts};
use super::output::{self, OutputDir, Start};
use super::pack::Pack;
use super::plan::{Plan, PlanSummary, differing_option};
use super::progress::{Progress, Stop, resumable};
use super::schedule::{FailedUnits, Schedule, run as run_units};
use super::testing::panic_point;
use super::unit::{UnitDirs, UnitSink};
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::{Manifest, Sources};
use crate::options::{OutputOptions, RunOptions, SourceSpec};
use crate::source::walk::SourceFile;
use crate::storage::Writeback;

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
    /// Why the working directory could not be removed after the commit. The dataset is whole all the same.
    pub left_behind: Option<Error>,
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
    pub options: &'a serde_json::Value,
    pub output: &'a OutputOptions,
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
        Start::Committed(manifest) => return already_committed(&dir, *manifest, &plan, &sources),
        Start::Begun => {
            plan.check_same(&dir.work())?;
            plan.id()
        }
        Start::Fresh => plan.write(&dir.work())?,
    };
    let dirs = UnitDirs::new(&dir.work());
    dirs.remove_leftovers()?;
    let mut todo = Vec::new();
    for unit in 0..conversion.units() {
        match dirs.result(unit, &plan_id)? {
            Some(done) => {
                let counts = done.counts();
                let records = done.splits.iter().map(|s| s.records).sum();
                progress.done(counts.found, done.source_bytes, records, counts.rejected);
            }
            None => todo.push(unit),
        }
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
        text_bytes += dirs.result(unit, &plan_id)?.map_or(0, |result| result.text_bytes);
    }
    panic_point("commit");
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
        max_rejects: run.max_rejects,
        fingerprint: &|content| plan.fingerprint(content),
    }
    .run();
    match committed {
        Ok(manifest) => {
            let left_behind = dir.remove_work().err();
            Ok(Report { manifest, was_complete: false, text_bytes: Some(text_bytes), left_behind })
        }
        Err(failure) if !failure.worth_resuming => {
            // What the run found is worth more than what became of its remains.
            let _ = dir.abandon();
            Err(failure.error)
        }
        Err(failure) => Err(resumable(failure.error.never_usage())),
    }
}

/// The dataset is there: the same command has nothing to do, another one is refused.
fn already_committed(
    dir: &OutputDir,
    manifest: Manifest,
    plan: &Plan<'_>,
    sources: &Sources,
) -> Result<Report> {
    // Whatever is left in it is of no use beside a committed dataset.
    let left_behind = dir.remove_work().err();
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
    Ok(Report { manifest, was_complete: true, text_bytes: None, left_behind })
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
