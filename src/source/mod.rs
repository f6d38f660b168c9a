//! Sources: their files in a fixed order, and the items in each file.
//!
//! A room uses only those before it: `io` reads bytes, `archive` finds files in files, `list` lists them, `table` reads
//! rows, `names` interprets names, and `items` reads the items.

pub mod archive;
pub mod io;
pub mod items;
pub mod list;
pub mod names;
pub mod table;
