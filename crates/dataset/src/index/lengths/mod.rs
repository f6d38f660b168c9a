//! The length index: the records of a split sorted by length, and the histogram of the lengths.
//!
//! The *rank* of a record is its place when the records are sorted by (length, ordinal). The permutation says which
//! record has a rank; the histogram says which ranks have a length. Together they turn "a batch of records that are
//! about equally long" into two lookups, without reading the lengths.

mod build;
mod read;
#[cfg(test)]
mod tests;

pub use build::LengthIndexBuilder;
pub use read::{Bucket, LengthIndex};

use super::table::{Column, Spec, u64_column};
use crate::schema::{LENGTH, LengthUnit};

/// Record ordinal of each rank.
const PERMUTATION: Spec =
    Spec { table: "lengths", columns: &[u64_column("record")], unit: None, segmented: true };

const HISTOGRAM_COLUMNS: [Column; 3] = [u64_column(LENGTH), u64_column("count"), u64_column("first_rank")];

/// The histogram: one row for each length that occurs, ascending.
fn histogram(unit: LengthUnit) -> Spec {
    Spec { table: "histogram", columns: &HISTOGRAM_COLUMNS, unit: Some(unit), segmented: false }
}

/// The records of one length: a row of the histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LengthRun {
    /// The length.
    pub length: u64,
    /// How many records have it, at least 1.
    pub count: u64,
    /// Rank of the first of them: the number of records that are shorter.
    pub first_rank: u64,
}
