//! The command line: arguments, progress, messages, exit status.
//!
//! Arguments are handled in two stages: clap parses text (`images::Args`, …), and each subcommand converts it to the
//! library's options. Only this module prints: results to standard output, everything else to standard error.

mod add_fields;
mod common;
mod conversion_command;
mod examples;
mod export;
mod flags;
mod generate;
mod hook;
mod images;
mod inspect;
mod lab;
mod lengths;
mod mixture;
mod output_file;
mod parts;
mod print;
mod progress;
mod recipe;
mod run_report;
mod signals;
mod summary;
mod synonyms;
mod table;
mod text;
mod values;
mod verbosity;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::{Error, ErrorKind, Result};
use crate::panics;

/// Exit status of a run that committed with rejects under `--strict`.
const EXIT_REJECTS: u8 = 1;
/// Exit status for invalid usage.
const EXIT_USAGE: u8 = 2;
/// Exit status when nothing was committed, or a verification failed.
const EXIT_FAILED: u8 = 3;
/// The exit status after a signal is this plus the number of the signal.
const EXIT_SIGNAL: u8 = 128;
/// Exit status if nothing was committed because other datasets already have all items.
const EXIT_NOTHING_NEW: u8 = 4;

/// Text that `dsconvert --version` prints after the name, with what a bug report needs. `-V` prints only the version.
/// `build.rs` sets the variables.
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit:   ",
    env!("DSCONVERT_COMMIT"),
    "\nfeatures: ",
    env!("DSCONVERT_FEATURES"),
    "\ntarget:   ",
    env!("DSCONVERT_TARGET"),
);

/// Convert image folders and text corpora, once and offline, into sharded records that training loaders read at the
/// speed of the disk.
#[derive(Debug, Parser)]
#[command(
    name = "dsconvert",
    version,
    long_version = LONG_VERSION,
    max_term_width = 100,
    after_help = "Examples:
  dsconvert images photos --out photos-256 --resize shorter:256
  dsconvert text corpus --out tokens --tokenizer tokenizer.json
  dsconvert inspect photos-256"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Convert folders of images
    #[command(after_long_help = examples::IMAGES, override_usage = "dsconvert images [OPTIONS] --out <DIR> <SRC>...")]
    Images(Box<images::Args>),
    /// Convert text corpora to token ids
    #[command(after_long_help = examples::TEXT, override_usage = "dsconvert text [OPTIONS] --out <DIR> --tokenizer <NAME> <SRC>...")]
    Text(Box<text::Args>),
    /// Plan a conversion for several processes or machines
    #[command(after_long_help = examples::PLAN)]
    Plan(parts::PlanArgs),
    /// Convert a part of a plan
    #[command(after_long_help = examples::RUN)]
    Run(parts::RunArgs),
    /// Commit a plan after all its units are converted
    #[command(after_long_help = examples::MERGE)]
    Merge(parts::MergeArgs),
    /// Show the progress of a plan, and which parts to submit again
    #[command(after_long_help = examples::STATUS)]
    Status(parts::StatusArgs),
    /// Show or verify a dataset or a shard
    #[command(after_long_help = examples::INSPECT)]
    Inspect(Box<inspect::Args>),
    /// Write the records of a dataset as files that other trainers read
    #[command(after_long_help = examples::EXPORT)]
    Export(Box<export::Args>),
    /// Add the columns of a table to the records of a dataset, as a dataset of its own
    #[command(after_long_help = examples::ADD_FIELDS)]
    AddFields(Box<add_fields::Args>),
    /// Print shell completions
    Completions(generate::CompletionArgs),
    /// Write manual pages
    #[command(after_long_help = examples::MAN)]
    Man(generate::ManArgs),
    #[command(flatten)]
    Lab(lab::Command),
}

impl Command {
    /// Returns whether only errors are printed.
    fn is_quiet(&self) -> bool {
        match self {
            Self::Images(args) => args.run.verbosity.is_quiet(),
            Self::Text(args) => args.run.verbosity.is_quiet(),
            Self::Run(args) => args.verbosity.is_quiet(),
            Self::Merge(args) => args.verbosity.is_quiet(),
            Self::Export(args) => args.quiet,
            Self::AddFields(args) => args.quiet,
            _ => false,
        }
    }
}

/// Outcome of a command that ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Success,
    /// Committed with rejects under `--strict`.
    Rejects,
    /// A verification found damage, or files that are not part of the dataset.
    Damaged,
    /// A verification found no damage, but could not read all files.
    NotVerified,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    ExitCode::from(run(std::env::args_os()))
}

/// Installs the panic hook of the command, once per process: panics that are caught print nothing, and those of the AVIF
/// decoder become errors. A program that decodes images and embeds the command calls it first: a hook cannot be replaced
/// once the AVIF decoder has panicked.
pub fn install_panic_hook() {
    hook::install();
}

/// Runs the command line `argv`, whose first item is the name of the program, and returns its exit status. For programs
/// that embed the command, such as the Python package.
pub fn run<I>(argv: I) -> u8
where
    I: IntoIterator<Item: Into<OsString> + Clone>,
{
    hook::install();
    let argv: Vec<OsString> = argv.into_iter().map(Into::into).collect();
    let cli = match Cli::try_parse_from(&argv) {
        Ok(cli) => cli,
        Err(e) if e.use_stderr() => {
            // If printing fails, there is nowhere left to report it.
            let _ = synonyms::with_tip(e, &argv).print();
            return EXIT_USAGE;
        }
        Err(help) => {
            let printed = help.print().and_then(|()| io::stdout().flush());
            return status(printed.map(|()| Ending::Success).map_err(print::failed));
        }
    };
    if !cli.command.is_quiet() {
        crate::storage::objects::on_retries(print::warning_between_redraws);
    }
    let exec = || execute(cli.command);
    status(panics::caught(exec).unwrap_or_else(|panic| Err(panic.into_error("running the command"))))
}

fn execute(command: Command) -> Result<Ending> {
    signals::survive_file_size_limit()?;
    match command {
        Command::Images(args) => images::exec(*args),
        Command::Text(args) => text::exec(*args),
        Command::Plan(args) => parts::plan(args),
        Command::Run(args) => parts::run(&args),
        Command::Merge(args) => parts::commit(&args),
        Command::Status(args) => parts::show_status(&args),
        Command::Inspect(args) => inspect::exec(&args),
        Command::Export(args) => export::exec(&args),
        Command::AddFields(args) => add_fields::exec(&args),
        Command::Completions(args) => generate::completions(&args),
        Command::Man(args) => generate::man(&args),
        Command::Lab(command) => lab::exec(&command),
    }
}

/// Converts the clap error of a command line that was built by a program, not typed by a user.
fn usage_of(error: &clap::Error) -> Error {
    let text = error.render().to_string();
    // The usage lines after the first paragraph are of no use to a program.
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = paragraph.split_whitespace().skip_while(|word| *word == "error:").collect();
    Error::usage(words.join(" "))
}

/// Runs `dsconvert simulate --json` with `arguments` and returns the JSON. For programs that embed the command.
///
/// # Errors
///
/// If the arguments are invalid, or a file cannot be read or written.
pub fn simulate_json<I>(arguments: I) -> Result<String>
where
    I: IntoIterator<Item: Into<OsString>>,
{
    let command = ["dsconvert", "simulate", "--json"].into_iter().map(OsString::from);
    let parsed = Cli::try_parse_from(command.chain(arguments.into_iter().map(Into::into)));
    match parsed.map(|cli| cli.command) {
        Ok(Command::Lab(lab::Command::Simulate(args))) => lab::simulate::output(&args),
        Ok(_) => Err(Error::usage("these are not arguments of `dsconvert simulate`")),
        Err(e) => Err(usage_of(&e)),
    }
}

/// Checks that a trace of load times may be written to `path`, as `--trace` does. For the Python package.
///
/// # Errors
///
/// If the file exists and is not a trace, or would be inside a dataset.
pub fn check_trace_file(path: &Path) -> Result<()> {
    output_file::check_output("trace", path, None)
}

/// Prints the error of a command and returns the exit status.
fn status(result: Result<Ending>) -> u8 {
    match result {
        Ok(Ending::Success) => 0,
        Ok(Ending::Rejects) => EXIT_REJECTS,
        Ok(Ending::Damaged | Ending::NotVerified) => EXIT_FAILED,
        Err(error) => {
            // Commands whose ending is more than what they print return it in spite of a closed pipe.
            if print::is_closed(&error) {
                return 0;
            }
            match error.kind() {
                ErrorKind::NothingNew => {
                    print::progress(&error);
                    error.remedy().into_iter().for_each(|remedy| print::progress(format!("  {remedy}")));
                }
                _ => print::error(&error),
            }
            status_of(error.kind())
        }
    }
}

fn status_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Usage | ErrorKind::OutOfRange => EXIT_USAGE,
        ErrorKind::NothingNew => EXIT_NOTHING_NEW,
        ErrorKind::Interrupted(signal) => EXIT_SIGNAL + u8::try_from(signal).unwrap_or(0),
        _ => EXIT_FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
