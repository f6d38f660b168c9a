//! The command `dsconvert`, which the wheel carries.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command line `argv`, whose first item is the name of the program, and returns its exit status.
///
/// Conversions watch for SIGINT and SIGTERM themselves: the caller sees to it that Python's own handler does not.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, argv: Vec<OsString>) -> u8 {
    py.detach(|| dsconvert::cli::run(argv))
}
