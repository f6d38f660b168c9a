//! The length index: the records of a split sorted by length, and the histogram of their lengths.
//!
//! The *rank* of a record is its position when the records are sorted by (length, ordinal). The permutation maps ranks
//! to records; the histogram maps lengths to ranks. With both, selecting a batch of records of similar length takes two
//! lookups and does not read the lengths.

mod build;
mod read;
#[cfg(test)]
mod tests;

pub use build::LengthIndexBuilder;
pub use read::LengthIndex;

use std::borrow::Cow;

use super::table::{Spec, TableColumn, u64_column};
use crate::schema::{LENGTH, LengthUnit};

/// Record ordinal of each rank.
const PERMUTATION: Spec =
    Spec { table: "lengths", columns: Cow::Borrowed(&[u64_column("record")]), unit: None, segmented: true };

const HISTOGRAM_COLUMNS: [TableColumn; 3] =
    [u64_column(LENGTH), u64_column("count"), u64_column("first_rank")];

/// Specification of the histogram: one row per distinct length, in ascending order.
fn histogram(unit: LengthUnit) -> Spec {
    Spec {
        table: "histogram",
        columns: Cow::Borrowed(&HISTOGRAM_COLUMNS),
        unit: Some(unit),
        segmented: false,
    }
}

/// All records of one length: a row of the histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LengthRun {
    /// The length.
    pub length: u64,
    /// Number of records with this length, at least 1.
    pub count: u64,
    /// Rank of the first of these records, which equals the number of shorter records.
    pub first_rank: u64,
}
