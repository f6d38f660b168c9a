//! Writes dsconvert datasets: records in shards of independent units, and an atomic commit.
//!
//! A [`DatasetWriter`] has a number of *units*, such as one per source file. Each is written by one thread, becomes final
//! as a whole, and is never written again: after a crash, [`DatasetWriter::unfinished`] lists the others. The bytes of
//! the dataset depend only on the records of each unit and their order, not on threads, processes or restarts. Nothing
//! is visible to readers before [`DatasetWriter::commit`].
//!
//! # Example
//!
//! `examples/write_and_read.rs` writes a dataset in two units, and reads it back:
//!
//! ```no_run
#![doc = include_str!("../examples/write_and_read.rs")]
//! ```
//!
//! # Several processes
//!
//! One process [opens](DatasetWriter::open) the output, which stores what all units have in common. Then any number of
//! processes [join](DatasetWriter::join) it and write different units. When they have ended, one opens it again with
//! [`Existing::Resume`] and commits. This works in a shared directory and in object storage (`s3://`, `gs://`, `az://`).
//!
//! # The modules
//!
//! `DatasetWriter` and [`UnitWriter`] are all that a program needs. The command `dsconvert` writes through them, too. For its
//! stages, which reorder records, and its threads, which close shards, modules are public but hidden: they have no stable
//! interface.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub use dsconvert_dataset::{error, format, manifest, sample, schema, size};
use dsconvert_dataset::{index, numbers, panics, printable, storage, testing, threads};

#[doc(hidden)]
pub mod commit;
mod derived_files;
#[doc(hidden)]
pub mod layout;
#[doc(hidden)]
pub mod outcome;
#[doc(hidden)]
pub mod output;
#[doc(hidden)]
pub mod remote;
#[doc(hidden)]
pub mod remote_units;
mod removal;
#[doc(hidden)]
pub mod repair;
#[doc(hidden)]
pub mod stage;
#[doc(hidden)]
pub mod stop;
#[doc(hidden)]
pub mod unit;
#[doc(hidden)]
pub mod units;
#[doc(hidden)]
pub mod workers;
mod writer;

pub use derived_files::SORT_BYTES;
pub use layout::{Existing, ResumeCheck};
pub use stop::Stop;
pub use units::UnitResult;
pub use writer::{DatasetWriter, Placement, Provenance, UnitWriter, WriterOptions};
