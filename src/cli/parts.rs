//! `dsconvert plan`, `run`, `merge` and `status`: one conversion shared by several processes or machines.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Subcommand;
use indicatif::{HumanBytes, HumanCount, HumanDuration};

use super::common::{COMMITTED, DEFAULT_MAX_REJECTS, memory_bytes};
use super::progress::with_progress;
use super::run_report::RunReportArgs;
use super::values::{parse, source_of, threads};
use super::verbosity::VerbosityArgs;
use super::{Ending, examples, images, print, signals, summary, text};
use crate::error::{Error, Result};
use crate::numbers::{count, plural};
use crate::options::{Existing, MaxRejects, ResumeCheck, RunOptions, default_memory_bytes};
use crate::pipeline::{PartOutcome, Selection, Status, merge, ranges, run_units, status};
use crate::printable::{printable_path, shell_word};
use crate::report::RunReport;

/// Subcommands of `dsconvert plan`.
#[derive(Debug, Subcommand)]
pub(super) enum PlanCommand {
    /// Plan a conversion of images, with the options of `dsconvert images`
    #[command(after_long_help = examples::PLAN_IMAGES, override_usage = "dsconvert plan images [OPTIONS] --out <DIR> <SRC>...")]
    Images(Box<images::Args>),
    /// Plan a conversion of text, with the options of `dsconvert text`
    #[command(after_long_help = examples::PLAN_TEXT, override_usage = "dsconvert plan text [OPTIONS] --out <DIR> --tokenizer <NAME> <SRC>...")]
    Text(Box<text::Args>),
}

/// Arguments of `dsconvert plan`.
#[derive(Debug, clap::Args)]
pub(super) struct PlanArgs {
    #[command(subcommand)]
    command: PlanCommand,
}

/// Arguments of `dsconvert run`.
#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    /// Directory or URL of the plan
    #[arg(value_name = "DIR")]
    out: PathBuf,

    /// Directory for shards waiting to be uploaded, if DIR is in object storage [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,

    /// Convert part i of N, counted from 1 [default: all units]. N may differ between attempts; finished units are kept
    #[arg(long, value_name = "i/N")]
    part: Option<String>,

    /// Convert these units, counted from 0, such as 3,7-9
    #[arg(long, value_name = "UNITS", conflicts_with = "part")]
    units: Option<String>,

    /// Path of a source on this machine, if it differs from that in the plan (repeatable)
    ///
    /// LABEL is the first part of the keys: by default, the last component of the path that was planned. The files must
    /// have the same names, sizes and modification times, as after `rsync -a`.
    #[arg(long, value_name = "LABEL=PATH")]
    source: Vec<PathBuf>,

    /// Check the SHA-256 of finished shards, not only their sizes
    #[arg(long)]
    verify: bool,

    /// Number of worker threads [default: number of cores]
    #[arg(short = 'j', long, value_name = "N")]
    threads: Option<usize>,

    /// Memory limit for all work in progress [default: 1GiB, or 32MiB per thread if that is more]
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,

    #[command(flatten)]
    report: RunReportArgs,

    #[command(flatten)]
    pub(super) verbosity: VerbosityArgs,
}

/// Arguments of `dsconvert merge`.
#[derive(Debug, clap::Args)]
pub(super) struct MergeArgs {
    /// Directory or URL of a plan with finished units
    #[arg(value_name = "DIR")]
    out: PathBuf,

    /// Directory for shards waiting to be uploaded, if DIR is in object storage [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,

    /// Check the SHA-256 of all shards, not only their sizes
    #[arg(long)]
    verify: bool,

    /// Commit nothing if more than this number or share of items are rejected
    #[arg(long, value_name = "N|P%", default_value = DEFAULT_MAX_REJECTS, allow_negative_numbers = true)]
    max_rejects: String,

    /// Exit with status 1 if any item was rejected
    #[arg(long)]
    strict: bool,

    /// Number of threads that check units [default: number of cores]
    #[arg(short = 'j', long, value_name = "N")]
    threads: Option<usize>,

    #[command(flatten)]
    report: RunReportArgs,

    #[command(flatten)]
    pub(super) verbosity: VerbosityArgs,
}

/// Arguments of `dsconvert status`.
#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// Directory or URL of a plan or a dataset
    #[arg(value_name = "DIR")]
    out: PathBuf,

    /// Directory for a copy of the plan, if DIR is in object storage [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,

    /// List which of N parts have unfinished units, in the form of Slurm's --array option
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    parts: Option<u32>,

    /// Print the status as JSON
    #[arg(long)]
    json: bool,
}

/// Stores a plan.
pub(super) fn plan(args: PlanArgs) -> Result<Ending> {
    match args.command {
        PlanCommand::Images(mut args) => {
            args.run.plan_only = true;
            images::exec(*args)
        }
        PlanCommand::Text(mut args) => {
            args.run.plan_only = true;
            text::exec(*args)
        }
    }
}

fn resume_check(verify: bool) -> ResumeCheck {
    if verify { ResumeCheck::Hashes } else { ResumeCheck::Sizes }
}

/// Names the argument `DIR` in errors of the option `out`, which the commands for parts do not have.
fn of_dir(error: Error) -> Error {
    if error.option() == Some("out") { error.of_option("DIR") } else { error }
}

/// Converts the selected units of a plan.
pub(super) fn run(args: &RunArgs) -> Result<Ending> {
    let stop = signals::watch()?;
    let selection = match (&args.part, &args.units) {
        (Some(part), _) => Selection::part(part).map_err(|e| e.of_option("part"))?,
        (None, Some(units)) => parse::<Selection>("units", units)?,
        (None, None) => Selection::All,
    };
    let threads = threads(args.threads)?;
    let options = RunOptions {
        out: args.out.clone(),
        scratch: args.scratch.clone(),
        threads,
        memory_bytes: memory_bytes(args.memory.as_deref(), threads)?,
        existing: Existing::Resume(resume_check(args.verify)),
        max_rejects: MaxRejects::default(),
    };
    let sources: Vec<_> =
        args.source.iter().map(|source| source_of("source", source)).collect::<Result<_>>()?;
    args.report.check(Some(&args.out))?;
    let started = Instant::now();
    let (outcome, report) = with_progress(None, args.verbosity.level(), &stop, |progress, stop| {
        let outcome = run_units(&selection, &sources, &options, progress, stop).map_err(of_dir)?;
        let report = RunReport::of_part(&outcome, &selection, &options, progress, started.elapsed());
        Ok((outcome, report))
    })?;
    let done = "the units are converted";
    args.report.write(&report, done);
    if args.report.shows_summary(&args.verbosity) {
        let PartOutcome { units, converted, planned, was_committed, .. } = outcome;
        let out = printable_path(&args.out);
        let text = match was_committed {
            true => format!("{out} is already committed: nothing to do\n"),
            false => format!(
                "{} converted, {} finished before, of {} in the plan; {:.1} s\n",
                plural(converted.into(), "unit"),
                count((units - converted).into()),
                count(planned.into()),
                report.seconds.total
            ),
        };
        print::summary(&(text + &summary::times(&report)), done);
    }
    Ok(Ending::Success)
}

/// Commits a plan whose units are all converted.
pub(super) fn commit(args: &MergeArgs) -> Result<Ending> {
    let stop = signals::watch()?;
    let threads = threads(args.threads)?;
    let options = RunOptions {
        out: args.out.clone(),
        scratch: args.scratch.clone(),
        threads,
        // A merge does not convert.
        memory_bytes: default_memory_bytes(threads),
        existing: Existing::Resume(resume_check(args.verify)),
        max_rejects: parse("max_rejects", &args.max_rejects)?,
    };
    args.report.check(Some(&args.out))?;
    let started = Instant::now();
    let (outcome, report) = with_progress(None, args.verbosity.level(), &stop, |progress, stop| {
        let outcome = merge(&options, progress, stop).map_err(of_dir)?;
        let report = RunReport::of_merge(&outcome, &args.out, options.threads, progress, started.elapsed());
        Ok((outcome, report))
    })?;
    args.report.write(&report, COMMITTED);
    if args.report.shows_summary(&args.verbosity) {
        summary::late_warnings(&outcome, &[]).into_iter().for_each(print::warning);
        print::summary(&summary::merged(&outcome, &report, &args.out), COMMITTED);
    }
    let rejects = outcome.manifest.counts.rejected > 0;
    Ok(if args.strict && rejects { Ending::Rejects } else { Ending::Success })
}

/// Shows the progress of a plan.
pub(super) fn show_status(args: &StatusArgs) -> Result<Ending> {
    let status = status(&args.out, args.scratch.as_deref()).map_err(of_dir)?;
    let again = args.parts.map(|count| ranges(&status.unfinished_parts(count)));
    if args.json {
        let fail = |e: serde_json::Error| Error::not_serialized("the status", e);
        let mut json = serde_json::to_value(&status).map_err(fail)?;
        if let Some(again) = again {
            json["submit_again"] = again.into();
        }
        print::json(&json)?;
    } else {
        print::out(&status_text(&status, &args.out, again.as_deref()))?;
    }
    Ok(Ending::Success)
}

fn status_text(status: &Status, out: &Path, again: Option<&str>) -> String {
    if status.committed {
        return format!("{} is committed: {}\n", printable_path(out), plural(status.records, "record"));
    }
    let out = shell_word(out);
    // The size of standard input is unknown.
    let of_all = match status.reads_stdin {
        true => String::new(),
        false => format!(" of {}", HumanBytes(status.source_bytes)),
    };
    let mut text = format!(
        "{} of {} done: {}{of_all}, {}, {} rejected\n",
        HumanCount(status.done.into()),
        plural(status.units.into(), "unit"),
        HumanBytes(status.done_bytes),
        plural(status.records, "record"),
        HumanCount(status.rejected)
    );
    if !status.started.is_empty() {
        text.push_str(&format!("started, not finished: units {}\n", ranges(&status.started)));
    }
    if !status.missing.is_empty() {
        text.push_str(&format!("not started: units {}\n", ranges(&status.missing)));
    }
    if let (Some(rate), Some(left)) = (status.bytes_per_second, status.seconds_left)
        && status.done < status.units
    {
        let left = HumanDuration(std::time::Duration::from_secs_f64(left.min(1e9)));
        text.push_str(&format!("{}/s so far, about {left:#} left\n", HumanBytes(rate as u64)));
    }
    match again {
        Some("") | None if status.done == status.units => {
            text.push_str(&format!("all units are done: dsconvert merge {out}\n"));
        }
        _ if status.reads_stdin => {
            text.push_str("standard input cannot be read again: start again with --overwrite\n");
        }
        Some(again) => text.push_str(&format!("submit again: --array={again}\n")),
        None => text.push_str(&format!("to continue: dsconvert run {out}\n")),
    }
    text
}
