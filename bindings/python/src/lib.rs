//! The native half of the Python package `dsconvert`.
//!
//! This crate is thin: it wraps the handles of the Rust library, lends memory to numpy, and converts errors to
//! exceptions. Everything specific to Python (ranks, epochs, pickling, torch) is written in Python, in
//! `python/dsconvert`. Long operations release the GIL.

mod add_fields;
mod buffer;
mod columns;
mod command;
mod dataset;
mod error;
mod finisher;
mod given;
mod interrupt;
mod loader;
mod options;
mod plan;
mod processor;
mod record;
mod value;
mod writer;

use pyo3::prelude::pymodule;

/// The version of the package.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The native half of dsconvert. The public classes of the package wrap its classes.
#[pymodule(gil_used = true)]
mod _native {
    use dsconvert::reader::batch::MAX_MICRO_BATCHES;
    use pyo3::prelude::*;

    /// Adds the attributes that are neither functions nor classes.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Loaders decode images, too. The hook is that of this library alone, which has its own copy of std.
        dsconvert::cli::install_panic_hook();
        module.add("__version__", super::VERSION)?;
        module.add("MAX_MICRO_BATCHES", MAX_MICRO_BATCHES)
    }

    #[pymodule_export]
    use super::add_fields::{add_fields, bind_fields};
    #[pymodule_export]
    use super::buffer::Buffer;
    #[pymodule_export]
    use super::command::{check_trace_file, run_command, simulate};
    #[pymodule_export]
    use super::dataset::{Dataset, Records, Split, faster_format};
    #[pymodule_export]
    use super::loader::Loader;
    #[pymodule_export]
    use super::options::option_table;
    #[pymodule_export]
    use super::plan::{Plan, share};
    #[pymodule_export]
    use super::writer::{DatasetWriter, UnitWriter};
}
