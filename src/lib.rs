//! dsconvert turns raw image folders and text corpora, once and offline, into sharded records that training loaders
//! read at the speed of the disk.
//!
//! The tool is the `dsconvert` command; this library is what it is made of. Programs mostly want `reader`.
//!
//! `docs/architecture.md` in the repository shows the flow of data and which module may use which.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "decode")]
pub mod decode;
pub mod error;
pub mod format;
pub mod index;
pub mod manifest;
#[cfg(feature = "text")]
mod masks;
#[cfg(feature = "convert")]
pub mod options;
pub mod packing;
mod panics;
#[cfg(feature = "convert")]
pub mod pipeline;
mod printable;
pub mod reader;
pub mod sample;
pub mod schema;
#[cfg(feature = "convert")]
pub mod source;
pub mod storage;
mod threads;
pub mod transform;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
