//! Documents in the files of a corpus: plain text, JSON lines, tables.
//!
//! A file is read from its beginning to its end in *pieces* of bounded size, each of whole documents, whatever the file
//! is compressed with. Pieces are cut by one thread and taken apart by all. Damage in the middle of a file keeps what came
//! before.

pub mod columns;
pub mod cut;
pub mod json;
pub mod kind;
pub mod rows;
mod scan;
