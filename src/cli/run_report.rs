//! `--report`: the run report of a command.

use std::path::{Path, PathBuf};

use super::flags::shown;
use super::{inspect, print};
use crate::error::{Error, Result};
use crate::options::check_local;
use crate::report::RunReport;
use crate::storage::{stat, write_file};

/// `--report` of the commands that convert or commit.
#[derive(Debug, clap::Args)]
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
        let Some(path) = &self.file else { return Ok(()) };
        check_local("report", path)?;
        if let Some(out) = out {
            inspect::check_outside("report", path, out)?;
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !stat(folder)?.is_some_and(|meta| meta.is_dir()) {
            return Err(Error::usage("--report: there is no such folder").at_path(folder));
        }
        if stat(path)?.is_some_and(|meta| meta.is_dir()) {
            return Err(Error::usage("--report names a folder").at_path(path).help("name a file"));
        }
        Ok(())
    }

    /// Writes `report`. A failure is only a warning, because the work is already done; `done` says what it was.
    pub(super) fn write(&self, report: &RunReport, done: &str) {
        if let Some(path) = &self.file
            && let Err(error) = report.to_json().and_then(|json| write_file(path, &json))
        {
            print::warning(format!("{done}, but the run report could not be written: {}", shown(&error)));
        }
    }
}
