//! Small datasets for tests, written with the lower-level parts only.

// `dataset.rs` is also part of the documentation tests and of tests and benchmarks outside of the crate.

include!("testing/dataset.rs");
