//! The `dsconvert` command that the wheel installs.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;

use crate::error::raise;
use crate::interrupt::detached;

/// Runs the command line `argv`, whose first item is the name of the program, and returns its exit status.
///
/// Conversions handle SIGINT and SIGTERM themselves, so the caller must disable Python's own handler.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, argv: Vec<OsString>) -> u8 {
    py.detach(|| dsconvert::cli::run(argv))
}

/// Runs `dsconvert simulate --json` with `arguments` and returns the JSON.
#[pyfunction]
pub(crate) fn simulate(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<String> {
    // The points of a sweep check for signals like waits for object storage.
    detached(py, true, || dsconvert::cli::simulate_json(arguments))
}

/// Raises an error if a trace of load times must not be written to `path`: the file exists and is no trace, or would be
/// inside a dataset.
#[pyfunction]
pub(crate) fn check_trace_file(path: PathBuf) -> PyResult<()> {
    dsconvert::cli::check_trace_file(&path).map_err(raise)
}
