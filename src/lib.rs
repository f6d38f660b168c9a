//! dsconvert turns raw image folders and text corpora, once and offline, into sharded records that training loaders
//! read at the speed of the disk.
//!
//! This library is the `dsconvert` command. Its modules have no stable interface, and are hidden. Programs use the crates
//! `dsconvert-reader` and `dsconvert-writer`, which are also here under the names `reader` and `writer`.
//!
//! `docs/explanation/architecture.md` in the repository shows the data flow and the permitted module dependencies.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub use dsconvert_dataset::{error, format, index, manifest, packing, sample, schema, storage, suggest};
pub use dsconvert_reader as reader;
#[cfg(feature = "decode")]
pub use dsconvert_reader::decode;
#[cfg(feature = "convert")]
pub use dsconvert_writer as writer;

#[cfg(feature = "convert")]
use dsconvert_dataset::{foreign, numbers, option_names, panics, printable, sampling, testing, threads};

#[cfg(feature = "convert")]
#[doc(hidden)]
pub mod add_fields;
#[cfg(feature = "convert")]
mod build_id;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
#[cfg(feature = "convert")]
#[doc(hidden)]
pub mod export;
#[cfg(feature = "lab")]
#[doc(hidden)]
pub mod lab;
#[cfg(feature = "convert")]
#[doc(hidden)]
pub mod options;
#[cfg(feature = "convert")]
#[doc(hidden)]
pub mod pipeline;
#[cfg(feature = "convert")]
#[doc(hidden)]
pub mod recipe;
#[cfg(feature = "convert")]
#[doc(hidden)]
pub mod report;
#[cfg(feature = "convert")]
#[doc(hidden)]
pub mod source;
#[cfg(feature = "convert")]
mod stored_path;
#[cfg(feature = "convert")]
#[doc(hidden)]
pub mod tokenizer_files;
#[cfg(feature = "convert")]
#[doc(hidden)]
pub mod transform;
#[cfg(feature = "convert")]
mod warning;

/// Compiles the code examples in the guides as doctests.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../docs/reference/loader.md")]
    struct Loader;
    #[doc = include_str!("../docs/reference/reader.md")]
    struct Reader;
    #[doc = include_str!("../docs/reference/writer.md")]
    struct Writer;
    #[doc = include_str!("../README.md")]
    struct Readme;
}
