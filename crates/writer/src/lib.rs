//! Writes dsconvert datasets.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

use dsconvert_dataset::{
    error, format, index, manifest, numbers, panics, printable, sample, schema, size, storage, testing,
    threads,
};

pub mod commit;
mod derived_files;
pub mod layout;
pub mod outcome;
pub mod output;
pub mod remote;
pub mod remote_units;
mod removal;
pub mod repair;
pub mod stage;
pub mod stop;
pub mod unit;
pub mod units;
pub mod workers;
