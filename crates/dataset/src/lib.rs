//! Building blocks of a dsconvert dataset, for both writers and readers.
//!
//! | module | contents |
//! |---|---|
//! | [`schema`] | fields and their types |
//! | [`sample`] | records, values, rejects |
//! | [`mod@format`] | shards in Arrow, Parquet, msgpack and protobuf |
//! | [`index`] | record index, length-sorted index, shard table |
//! | [`manifest`] | the committed manifest |
//! | [`packing`] | packing of documents into rows of equal length |
//! | [`storage`] | atomically written files, directories, locks, memory maps |
//! | [`error`] | the error type of all dsconvert crates |
//!
//! Helpers shared with the other crates: [`foreign`] recognizes data of other tools, [`panics`] contains panics, [`threads`] starts threads where the system may
//! refuse them, [`printable`] escapes file names for display, [`option_names`] finds the options in a message,
//! [`suggest`] finds the name that was probably meant, [`numbers`] formats numbers and lists for messages,
//! [`size`] parses sizes and limits, and [`sampling`] selects samples.
//!
//! Programs that read datasets use `dsconvert-reader`; the converter is `dsconvert`.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod arrow_footer;
pub mod error;
pub mod foreign;
pub mod format;
pub mod index;
pub mod manifest;
pub mod numbers;
pub mod option_names;
pub mod packing;
pub mod panics;
pub mod printable;
pub mod sample;
pub mod sampling;
pub mod schema;
pub mod size;
pub mod storage;
pub mod suggest;
#[doc(hidden)]
pub mod testing;
pub mod threads;
