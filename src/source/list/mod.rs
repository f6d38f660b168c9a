//! Lists of the files of sources: found by a walk or named by patterns, lists and tables, in a fixed order.

pub mod boxes;
pub mod braces;
pub mod detail;
pub mod expand;
pub mod file_list;
pub mod files_from;
pub mod globs;
pub mod listed_names;
pub mod listing;
pub mod named_files;
pub(in crate::source) mod remote;
pub mod skipped;
pub mod source_file;
mod stored_values;
pub mod walk;
