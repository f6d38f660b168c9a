//! The command `dsconvert`, which the wheel carries.

use std::ffi::OsString;

use pyo3::prelude::*;

use crate::error::raise;

/// Runs the command line `argv`, whose first item is the name of the program, and returns its exit status.
///
/// Conversions watch for SIGINT and SIGTERM themselves: the caller sees to it that Python's own handler does not.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, argv: Vec<OsString>) -> u8 {
    py.detach(|| dsconvert::cli::run(argv))
}

/// Runs `dsconvert simulate --json` with `arguments` and returns the JSON.
#[pyfunction]
pub(crate) fn simulate(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<String> {
    py.detach(|| dsconvert::cli::simulate_json(arguments)).map_err(raise)
}
