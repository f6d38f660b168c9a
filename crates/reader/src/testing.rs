//! Small datasets for tests, written with the low-level API only.

// In a file of its own because doctests, and tests and benchmarks outside the crate, include it as well.

include!("testing/dataset.rs");

mod in_memory;

pub(crate) use in_memory::{Document, InMemory};
