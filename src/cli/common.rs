//! Arguments that `images` and `text` share: sources, output, limits.

use std::path::PathBuf;

use super::run_report::RunReportArgs;
use super::values::{choice, parse, size, source, threads};
use super::verbosity::VerbosityArgs;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::options::{
    DEFAULT_MEMORY_BYTES, DEFAULT_SEED, Existing, MIN_MEMORY_BYTES, MIN_SHARD_BYTES, MIN_UNIT_BYTES,
    MaxRejects, OutputOptions, ResumeCheck, RunOptions, SourceSpec, SplitSpec,
};

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
    sources: Vec<PathBuf>,

    /// Output directory or prefix in object storage; it must be empty or not exist
    ///
    /// s3://BUCKET/PREFIX, gs://BUCKET/PREFIX and az://CONTAINER/PREFIX write to object storage; credentials come from the
    /// environment. Not needed with --dry-run.
    #[arg(short, long, value_name = "DIR", required_unless_present = "dry_run")]
    pub(super) out: Option<PathBuf>,

    /// Follow symbolic links inside the sources
    #[arg(long)]
    pub(super) follow_symlinks: bool,

    /// Format of the shards
    #[arg(short, long, value_name = "FORMAT", value_parser = choice::<Format>(), default_value = "parquet")]
    #[arg(help_heading = "Output")]
    format: Format,

    /// Maximum size of the records in one shard, before encoding
    #[arg(long, value_name = "SIZE", default_value = "256MiB", help_heading = "Output")]
    shard_bytes: String,

    /// Directory for shards waiting to be uploaded, if --out is in object storage [default: the system's temporary directory]
    ///
    /// It holds the shards that are being written or uploaded. --resume does not need its content.
    #[arg(long, value_name = "DIR", help_heading = "Run")]
    scratch: Option<PathBuf>,

    /// Maximum number of records in one shard
    #[arg(long, value_name = "N", help_heading = "Output")]
    shard_records: Option<u64>,

    /// Source bytes per work unit [default: 2GiB of images, 256MiB of text]
    ///
    /// An interrupted run loses at most the units in progress. Shards never span units.
    #[arg(long, value_name = "SIZE", help_heading = "Output")]
    unit_bytes: Option<String>,

    /// Divide the records into splits, such as train=0.9,validation=0.1
    ///
    /// The split of a record depends only on the hash of its key, so adding files never moves existing records. As in names of
    /// folders, val is the split validation.
    #[arg(long, value_name = "SPLITS", help_heading = "Output")]
    split: Option<String>,

    /// Store the records in a random order that depends on --seed
    #[arg(long, help_heading = "Output")]
    shuffle: bool,

    /// Seed for --shuffle and for the hash of --split [default: 0]
    #[arg(long, value_name = "N", help_heading = "Output")]
    seed: Option<u64>,

    /// Finish an interrupted run in this directory
    ///
    /// Checks the sizes of finished files, and with --resume=verify also the SHA-256 of every finished shard. Damaged files are
    /// converted again. --resume=repair also regenerates damaged files of a complete dataset.
    #[arg(
        long,
        value_name = "CHECK",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "size",
        conflicts_with = "overwrite",
        help_heading = "Run"
    )]
    resume: Option<ResumeArg>,

    /// Replace the dataset in the output directory
    ///
    /// Removes only files that are listed in its manifest.
    #[arg(long, help_heading = "Run")]
    overwrite: bool,

    /// Number of worker threads [default: number of cores]
    #[arg(short = 'j', long, value_name = "N", help_heading = "Run")]
    threads: Option<usize>,

    /// Memory limit for all work in progress
    #[arg(long, value_name = "SIZE", default_value = "1GiB", help_heading = "Run")]
    memory: String,

    /// Commit nothing if more than this number or share of items are rejected
    #[arg(long, value_name = "N|P%", default_value = DEFAULT_MAX_REJECTS, allow_negative_numbers = true, help_heading = "Run")]
    max_rejects: String,

    /// Exit with status 1 if any item was rejected
    #[arg(long, help_heading = "Run")]
    pub(super) strict: bool,

    #[command(flatten, next_help_heading = "Run")]
    pub(super) report: RunReportArgs,

    /// Print what would be done, without writing anything
    #[arg(long, conflicts_with = "run_report", help_heading = "Run")]
    pub(super) dry_run: bool,

    /// With --dry-run: predict the run from a sample of about N items (10 or more), converted in memory
    ///
    /// Predicts records, rejects, tokens, size, shards and time, each with a 95% interval.
    #[arg(long, value_name = "N", requires = "dry_run", help_heading = "Run")]
    pub(super) sample: Option<u64>,

    #[command(flatten, next_help_heading = "Run")]
    pub(super) verbosity: VerbosityArgs,

    /// Whether to only store the plan, as `dsconvert plan` does.
    #[arg(skip)]
    pub(super) plan_only: bool,
}

/// How `--resume` checks finished files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ResumeArg {
    /// Check the sizes of all files
    Size,
    /// Check the SHA-256 of all files
    Verify,
    /// Check the SHA-256 of all files, and regenerate damaged files of a complete dataset
    Repair,
}

impl From<ResumeArg> for ResumeCheck {
    fn from(arg: ResumeArg) -> Self {
        match arg {
            ResumeArg::Size => Self::Sizes,
            ResumeArg::Verify => Self::Hashes,
            ResumeArg::Repair => Self::Repair,
        }
    }
}

impl CommonArgs {
    /// Returns the sources with their labels.
    pub(super) fn sources(&self) -> Result<Vec<SourceSpec>> {
        self.sources.iter().map(|text| source(text)).collect()
    }

    /// Returns whether a complete dataset is repaired. Its manifest stores all options, also those without effect, so these
    /// are accepted.
    pub(super) fn is_repair(&self) -> bool {
        self.resume == Some(ResumeArg::Repair)
    }

    /// Returns the semantic options of the output.
    pub(super) fn output(&self) -> Result<OutputOptions> {
        if self.shard_records == Some(0) {
            return Err(Error::usage("--shard-records 0: a shard holds at least one record"));
        }
        let uses_seed = self.shuffle || self.split.is_some();
        if self.seed.is_some() && !uses_seed && !self.is_repair() {
            return Err(Error::usage("--seed applies only to --shuffle and --split")
                .help("add one of them, or leave out --seed"));
        }
        Ok(OutputOptions {
            format: self.format,
            shard_bytes: size("shard_bytes", &self.shard_bytes, MIN_SHARD_BYTES)?,
            shard_records: self.shard_records,
            unit_bytes: self
                .unit_bytes
                .as_deref()
                .map(|text| size("unit_bytes", text, MIN_UNIT_BYTES))
                .transpose()?,
            split: self.split.as_deref().map(str::parse::<SplitSpec>).transpose()?,
            shuffle: self.shuffle,
            seed: self.seed.unwrap_or(DEFAULT_SEED),
        })
    }

    /// Returns the operational options.
    pub(super) fn run_options(&self) -> Result<RunOptions> {
        Ok(RunOptions {
            // Only a dry run has no output, and it writes nothing.
            out: self.out.clone().unwrap_or_default(),
            scratch: self.scratch.clone(),
            threads: threads(self.threads)?,
            memory_bytes: size("memory", &self.memory, MIN_MEMORY_BYTES)?,
            existing: match (self.resume, self.overwrite) {
                (Some(check), _) => Existing::Resume(check.into()),
                (None, true) => Existing::Overwrite,
                (None, false) => Existing::Refuse,
            },
            max_rejects: parse::<MaxRejects>("max_rejects", &self.max_rejects)?,
        })
    }

    /// Checks before the run starts that the run report can be written.
    pub(super) fn check_report(&self) -> Result<()> {
        if self.plan_only && self.report.is_requested() {
            return Err(Error::usage("--report does not apply to a plan, which converts nothing")
                .help("give it to dsconvert run and dsconvert merge"));
        }
        self.report.check(self.out.as_deref())
    }

    /// Returns the options that a plan does not store, because they apply when the dataset is committed.
    pub(super) fn not_planned(&self) -> Vec<&'static str> {
        let options = [("--max-rejects", self.max_rejects != DEFAULT_MAX_REJECTS), ("--strict", self.strict)];
        options.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option).collect()
    }
}

/// The defaults in the help texts of `--memory` and `--seed` must equal those of the library.
const _: () = assert!(DEFAULT_MEMORY_BYTES == 1 << 30 && DEFAULT_SEED == 0);
