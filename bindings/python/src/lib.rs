//! The native half of the Python package `dsconvert`.
//!
//! It stays thin. Everything specific to Python (ranks, epochs, pickling, torch) is written in Python, in
//! `python/dsconvert`. This crate has the handles of the Rust library, the memory lent to numpy, and the errors. Long
//! operations run without the interpreter's lock.

mod buffer;
mod command;
mod dataset;
mod error;
mod given;
mod loader;
mod options;
mod plan;
mod record;

use pyo3::prelude::pymodule;

/// The version of the package.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The native half of dsconvert. The public classes of the package wrap its classes.
#[pymodule(gil_used = true)]
mod _native {
    use pyo3::prelude::*;

    /// Adds everything that is not a function or a class.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", super::VERSION)
    }

    #[pymodule_export]
    use super::buffer::Buffer;
    #[pymodule_export]
    use super::command::{run_command, simulate};
    #[pymodule_export]
    use super::dataset::{Dataset, Records, Split};
    #[pymodule_export]
    use super::loader::Loader;
    #[pymodule_export]
    use super::options::option_table;
    #[pymodule_export]
    use super::plan::{Plan, share};
}
