//! Arguments that `images` and `text` share: sources, output, limits.

use std::path::{Path, PathBuf};

use super::print;
use super::recipe::Like;
use super::run_report::RunReportArgs;
use super::values::{check_not_folder, parse, source, threads, words};
use super::verbosity::VerbosityArgs;
use crate::error::{Error, Result};
use crate::numbers::plural;
use crate::options::{
    Existing, Form, MIN_MEMORY_BYTES, MaxRejects, OutputOptions, ResumeCheck, RunOptions, Size, SourceSpec,
    check_local, default_memory_bytes, word_values,
};
use crate::printable::printable_path;
use crate::source::list::files_from::FilesFrom;

/// Source argument for standard input.
pub(super) const STDIN: &str = "-";
/// Default of `--max-rejects`.
pub(super) const DEFAULT_MAX_REJECTS: &str = "10%";

/// What is done although something after it failed, in warnings.
pub(super) const COMMITTED: &str = "the dataset is committed";

/// Arguments common to both conversions.
#[derive(Debug, clap::Args)]
pub(super) struct CommonArgs {
    /// Files and folders to convert; LABEL=PATH sets the label of a source
    ///
    /// The label is the first part of every key and origin. The default is the name of the file or folder. If all labels are
    /// names of splits (train=…, validation=…), each source is a split.
    ///
    /// Sources may be in object storage: a prefix or an object such as s3://bucket/photos (also gs:// and az://), or a file on a
    /// web server (https://…).
    #[arg(required = true, value_name = "SRC")]
    pub(super) sources: Vec<PathBuf>,

    /// Output directory or prefix in object storage; it must be empty or not exist
    ///
    /// s3://BUCKET/PREFIX, gs://BUCKET/PREFIX and az://CONTAINER/PREFIX write to object storage; credentials come from the
    /// environment. Not needed with --dry-run.
    #[arg(short, long, value_name = "DIR", required_unless_present = "dry_run")]
    pub(super) out: Option<PathBuf>,

    /// Use the options of DATASET; options given here replace them
    ///
    /// Takes over every option that affects the dataset, with the class names in their order, and the tokenizer unless
    /// --tokenizer is given. Each replaced option is named. `dsconvert inspect DATASET --recipe` prints the options.
    #[arg(long, value_name = "DATASET")]
    pub(super) like: Option<PathBuf>,

    /// Leave out the items that DATASET already has; may be repeated
    ///
    /// An item is left out if a record of DATASET has its key or, with --dedup, the content that would be stored. It is counted as
    /// filtered, with the reason `excluded`.
    #[arg(long, value_name = "DATASET")]
    pub(super) exclude: Vec<PathBuf>,
}

/// Arguments for a list of files.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sources")]
pub(super) struct ListArgs {
    /// Convert the files listed in FILE (or - for standard input), one path per line
    ///
    /// Records are in the order of the list. Paths are relative to SRC; without SRC, to the folder of FILE (for -, to the working
    /// directory).
    #[arg(long, value_name = "FILE|-")]
    pub(super) files_from: Option<PathBuf>,

    /// Paths in --files-from end with a NUL byte, like the output of find -print0
    #[arg(short = '0', long, requires = "files_from")]
    null: bool,
}

impl ListArgs {
    /// Returns the list, if there is one.
    pub(super) fn list(self) -> Result<Option<FilesFrom>> {
        let Some(list) = self.files_from else { return Ok(None) };
        check_local("files_from", &list)?;
        let help = "name a file with one path per line; to convert everything in a folder, name it as SRC";
        check_not_folder("files_from", &list, help)?;
        Ok(Some(FilesFrom { list, null: self.null }))
    }
}

/// Notes that the `dataset` of `--like` was made from a list of files.
pub(super) fn note_list(dataset: &str) {
    print::note(format!(
        "{dataset} was made from a list of files, which it does not contain: the sources are walked; give a list with \
         --files-from"
    ));
}

/// Arguments common to both conversions that do not affect the dataset.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Run")]
pub(super) struct RunArgs {
    /// Directory for shards waiting to be uploaded, if --out is in object storage [default: the system's temporary directory]
    ///
    /// It holds the shards that are being written or uploaded. --resume does not need its content.
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,

    /// Finish an interrupted run in this directory
    ///
    /// Checks the sizes of finished files, and with --resume=verify also the SHA-256 of every finished shard. Damaged files are
    /// converted again. --resume=repair also regenerates damaged files of a complete dataset.
    #[arg(
        long,
        value_name = "CHECK",
        value_parser = words::<ResumeCheck>(),
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "size",
        conflicts_with = "overwrite"
    )]
    resume: Option<ResumeCheck>,

    /// Replace the dataset in the output directory
    ///
    /// Removes only files that are listed in its manifest.
    #[arg(long)]
    overwrite: bool,

    /// Number of worker threads [default: number of cores]
    #[arg(short = 'j', long, value_name = "N")]
    threads: Option<usize>,

    /// Memory limit for all work in progress [default: 1GiB, or 32MiB per thread if that is more]
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,

    /// Commit nothing if more than this number or share of items are rejected
    #[arg(long, value_name = "N|P%", default_value = DEFAULT_MAX_REJECTS, allow_negative_numbers = true)]
    max_rejects: String,

    /// Exit with status 1 if any item was rejected
    #[arg(long)]
    pub(super) strict: bool,

    #[command(flatten)]
    pub(super) report: RunReportArgs,

    /// Print what would be done, without writing anything
    #[arg(long, conflicts_with = "run_report")]
    pub(super) dry_run: bool,

    /// With --dry-run: predict the run from a sample of about N items (10 or more), converted in memory
    ///
    /// Predicts records, rejects, tokens, size, shards and time, each with a 95% interval.
    #[arg(long, value_name = "N", requires = "dry_run")]
    pub(super) sample: Option<u64>,

    #[command(flatten)]
    pub(super) verbosity: VerbosityArgs,

    /// Whether to only store the plan, as `dsconvert plan` does.
    #[arg(skip)]
    pub(super) plan_only: bool,
}

word_values! {
    ResumeCheck {
        Sizes = "size", "Check the sizes of all files";
        Hashes = "verify", "Check the SHA-256 of all files";
        Repair = "repair", "Check the SHA-256 of all files, and regenerate damaged files of a complete dataset";
    }
}

impl CommonArgs {
    /// Notes that the dataset of `--like` left out the items of other datasets, which are not left out here.
    pub(super) fn note_exclude<R>(&self, like: &Like<'_, R>) {
        let count = like.recorded.exclude.len() as u64;
        if count > 0 && self.exclude.is_empty() {
            let (dataset, others) = (printable_path(like.path), plural(count, "other dataset"));
            print::note(format!(
                "{dataset} was made without the items of {others}, which are not left out here; name datasets with --exclude"
            ));
        }
    }

    /// Returns the sources with their labels.
    pub(super) fn sources(&self) -> Result<Vec<SourceSpec>> {
        self.sources.iter().map(|text| source(text)).collect()
    }
}

/// Refuses `--seed` if nothing uses it. `is_given`: the command line has it.
pub(super) fn check_seed(output: &OutputOptions, is_given: bool) -> Result<()> {
    let uses_seed = output.shuffle || output.split.is_some();
    match is_given && !uses_seed {
        true => Err(Error::usage("--seed applies only to --shuffle and --split")
            .help("add one of them, or leave out --seed")),
        false => Ok(()),
    }
}

impl RunArgs {
    /// Returns whether a complete dataset is repaired. Earlier versions accepted and stored options without effect, so a
    /// repair accepts them, too.
    pub(super) fn is_repair(&self) -> bool {
        self.resume == Some(ResumeCheck::Repair)
    }

    /// Returns the arguments that repair a dataset.
    pub(super) fn repair(threads: Option<usize>) -> Self {
        let max_rejects = DEFAULT_MAX_REJECTS.to_owned();
        Self { resume: Some(ResumeCheck::Repair), threads, max_rejects, ..Self::default() }
    }

    /// Returns the operational options of a run into `out`.
    pub(super) fn options(&self, out: Option<&Path>) -> Result<RunOptions> {
        let threads = threads(self.threads)?;
        Ok(RunOptions {
            // Only a dry run has no output, and it writes nothing.
            out: out.map(Path::to_owned).unwrap_or_default(),
            scratch: self.scratch.clone(),
            threads,
            memory_bytes: memory_bytes(self.memory.as_deref(), threads)?,
            existing: match (self.resume, self.overwrite) {
                (Some(check), _) => Existing::Resume(check),
                (None, true) => Existing::Overwrite,
                (None, false) => Existing::Refuse,
            },
            max_rejects: parse::<MaxRejects>("max_rejects", &self.max_rejects)?,
        })
    }

    /// Checks before the run starts that the run report can be written.
    pub(super) fn check_report(&self, out: Option<&Path>) -> Result<()> {
        if self.plan_only && self.report.is_requested() {
            return Err(Error::usage("--report does not apply to a plan, which converts nothing")
                .help("give it to dsconvert run and dsconvert merge"));
        }
        self.report.check(out)
    }

    /// Returns the options that a plan does not store, because they apply when the dataset is committed.
    pub(super) fn not_planned(&self) -> Vec<&'static str> {
        let options = [("--max-rejects", self.max_rejects != DEFAULT_MAX_REJECTS), ("--strict", self.strict)];
        options.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option).collect()
    }
}

/// Returns the value of `--memory` of a run with `threads`. The help texts state the default.
pub(super) fn memory_bytes(memory: Option<&str>, threads: usize) -> Result<u64> {
    match memory {
        Some(text) => Size::<MIN_MEMORY_BYTES>::parse(text).map_err(|e| e.of_option("memory")),
        None => Ok(default_memory_bytes(threads)),
    }
}
