//! Small datasets for tests, written with the lower-level parts only.

// `dataset.rs` is also part of the documentation tests, which are outside of the crate.
extern crate self as dsconvert;

include!("testing/dataset.rs");
