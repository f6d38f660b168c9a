//! Tables of typed columns: Parquet and Arrow files. Texts, images and metadata are all read from them here.
//!
//! A file is read in batches of neighbouring rows, and only the columns that are wanted. Counts that a damaged file claims are checked
//! before anything is allocated for them, and damage in the middle of a file keeps what came before.

pub mod arrow;
mod cells;
pub mod parquet;
mod rows;
#[cfg(test)]
mod tests;

pub use cells::{bytes, cell, field_type, is_text, json, text};
pub use rows::{NextRows, RowBatch};
