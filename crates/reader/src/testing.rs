//! Small datasets for tests, written with the low-level API only.

// `dataset.rs` is also included by doctests, and by tests and benchmarks outside the crate.

include!("testing/dataset.rs");
