//! Documents in the files of a corpus: plain text, JSON lines, tables.
//!
//! A file is read from start to end in *pieces* of bounded size, each of whole documents, regardless of its
//! compression. One thread cuts the pieces, and all threads divide them into documents. Documents before damage in the
//! middle of a file are kept.

pub mod columns;
pub mod cut;
pub mod fields;
pub mod kind;
pub mod rows;
mod scan;
pub mod token_row;
