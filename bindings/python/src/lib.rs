//! The native half of the Python package `dsconvert`.
//!
//! It stays thin: what is a matter of Python (ranks, epochs, pickling, torch) is written in Python, in
//! `python/dsconvert`; here are the handles on the Rust library, the memory that is lent to numpy, and the errors.
//! Whatever takes time runs without the interpreter's lock.

mod buffer;
mod command;
mod dataset;
mod error;
mod loader;
mod options;
mod plan;
mod record;

use pyo3::prelude::pymodule;

/// The native half of dsconvert. Its classes are used by those of the package, which are what users see.
#[pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    use super::buffer::Buffer;
    #[pymodule_export]
    use super::command::{run_command, simulate};
    #[pymodule_export]
    use super::dataset::{Dataset, Records, Split};
    #[pymodule_export]
    use super::loader::Loader;
    #[pymodule_export]
    use super::plan::{Plan, share};
}
