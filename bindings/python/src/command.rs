//! The `dsconvert` command that the wheel installs.

use std::ffi::OsString;

use pyo3::prelude::*;

use crate::error::raise;

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
    py.detach(|| dsconvert::cli::simulate_json(arguments)).map_err(raise)
}
