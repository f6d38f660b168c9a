//! `--report`: the run report of a command.

use std::path::{Path, PathBuf};

use super::flags::shown;
use super::output_file::{check_output, is_stdout, write_output};
use super::print;
use super::verbosity::VerbosityArgs;
use crate::error::Result;
use crate::report::RunReport;

/// `--report` of the commands that convert or commit.
#[derive(Debug, Default, clap::Args)]
pub(super) struct RunReportArgs {
    /// Write times, rates and memory of the run to FILE as JSON
    ///
    /// FILE must be outside the output directory. `dsconvert inspect --html PAGE --report FILE` shows it.
    #[arg(id = "run_report", long = "report", value_name = "FILE")]
    file: Option<PathBuf>,
}

impl RunReportArgs {
    /// Returns whether a report is requested.
    pub(super) fn is_requested(&self) -> bool {
        self.file.is_some()
    }

    /// Checks before the run starts that the run report can be written.
    pub(super) fn check(&self, out: Option<&Path>) -> Result<()> {
        self.file.as_deref().map_or(Ok(()), |file| check_output("report", file, out))
    }

    /// Returns whether a summary is printed: not if standard output is only for the report.
    pub(super) fn shows_summary(&self, verbosity: &VerbosityArgs) -> bool {
        !verbosity.is_quiet() && !self.file.as_deref().is_some_and(is_stdout)
    }

    /// Writes `report`. A failure is only a warning, because the work is already done; `done` says what it was.
    pub(super) fn write(&self, report: &RunReport, done: &str) {
        if let Some(path) = &self.file
            && let Err(error) =
                print::unless_closed(report.to_json().and_then(|json| write_output(path, &json)))
        {
            print::warning(format!("{done}, but the run report could not be written: {}", shown(&error)));
        }
    }
}
