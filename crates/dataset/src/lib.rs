//! The parts of a dsconvert dataset, for writers and readers alike.
//!
//! | module | contents |
//! |---|---|
//! | [`schema`] | fields and their types |
//! | [`sample`] | records, values, rejects |
//! | [`mod@format`] | shards in Arrow, Parquet, msgpack and protobuf |
//! | [`index`] | record index, length-sorted index, shard table |
//! | [`manifest`] | the committed manifest |
//! | [`packing`] | packing of documents into rows of one length |
//! | [`storage`] | whole-or-absent files, directories, locks, memory maps |
//! | [`error`] | the error type of all dsconvert crates |
//!
//! [`panics`], [`threads`] and [`printable`] are what the other crates share besides: contained panics, starting threads
//! where the system may refuse them, and safe printing of file names.
//!
//! Programs that read datasets use `dsconvert-reader`; the converter is `dsconvert`.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod error;
pub mod format;
pub mod index;
pub mod manifest;
pub mod packing;
pub mod panics;
pub mod printable;
pub mod sample;
pub mod schema;
pub mod storage;
pub mod threads;
