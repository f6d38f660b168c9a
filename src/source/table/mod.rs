//! Tables: Parquet and Arrow files, whose columns have types, and delimited values, which are text. Text, images and
//! metadata in such files are all read through this module.
//!
//! Of a file with typed columns, only the requested columns are read, in batches of consecutive rows. The counts that a
//! file claims are checked before anything is allocated for them. Rows before damage in the middle of a file are kept.

pub mod arrow;
mod cells;
pub mod columns;
pub mod delimited;
pub(crate) mod missing_field;
pub mod number_lists;
pub mod numbers;
mod pages;
pub mod parquet;
pub mod row_scan;
mod rows;
#[cfg(test)]
mod tests;
pub(crate) mod typed_values;

pub use cells::{
    bytes, can_be_json, can_be_json_with_bytes, can_be_text, cell, checked_cell, field_type, fits, is_bytes,
    is_text, json, memory_bytes, text, text_or_bytes, utf8,
};
pub use rows::{NextRows, RowBatch};
