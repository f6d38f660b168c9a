//! The input of a plan: the number of records, their lengths, and their order by length.

use dsconvert_dataset::error::{Error, ErrorKind, Result};
use dsconvert_dataset::index::LengthRun;
use xxhash_rust::xxh3::Xxh3;

/// The lengths of the records of one split.
///
/// The *rank* of a record is its position when the records are sorted by length, those of equal length by ordinal.
pub trait Lengths {
    /// Returns the number of records.
    fn records(&self) -> u64;

    /// Returns the record at `rank`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`] when there are fewer records; [`ErrorKind::Corrupt`] when the index is invalid.
    fn record_at(&self, rank: u64) -> Result<u64>;

    /// Returns the length of the record with the ordinal `record`.
    ///
    /// # Errors
    ///
    /// Same as [`Lengths::record_at`].
    fn length_of(&self, record: u64) -> Result<u64>;

    /// Appends the lengths of `records` to `out`, in that order. After an error, `out` has those before the record that
    /// failed. Sources override it if looking up many at once takes less time.
    ///
    /// # Errors
    ///
    /// Same as [`Lengths::record_at`].
    fn lengths_of(&self, records: &[u64], out: &mut Vec<u64>) -> Result<()> {
        for &record in records {
            out.push(self.length_of(record)?);
        }
        Ok(())
    }

    /// Returns the number of tokens of the record with the ordinal `record` that are to be trained on, from the index: all of
    /// them, unless they are marked.
    ///
    /// # Errors
    ///
    /// Same as [`Lengths::record_at`].
    fn trained_of(&self, record: u64) -> Result<u64> {
        self.length_of(record)
    }

    /// Returns the number of tokens of the longer side of the preference pair with the ordinal `record`, from the index; of other
    /// records, their length.
    ///
    /// # Errors
    ///
    /// Same as [`Lengths::record_at`].
    fn longest_side_of(&self, record: u64) -> Result<u64> {
        self.length_of(record)
    }

    /// Returns the width and height of the record with the ordinal `record`, from the index. `None` if the records are no
    /// images.
    ///
    /// # Errors
    ///
    /// Same as [`Lengths::record_at`].
    fn shape_of(&self, record: u64) -> Result<Option<ImageShape>> {
        let _ = record;
        Ok(None)
    }

    /// Returns how much the record with the ordinal `record` has of the column `name` of the record index, such as `patches`.
    /// `None` if there is no such column.
    ///
    /// # Errors
    ///
    /// Same as [`Lengths::record_at`].
    fn column_of(&self, record: u64, name: &str) -> Result<Option<u64>> {
        let _ = (record, name);
        Ok(None)
    }

    /// Returns the key of the record with the ordinal `record`, for messages. `None` if it has no key or cannot be
    /// read.
    fn key_of(&self, record: u64) -> Option<String> {
        let _ = record;
        None
    }

    /// Returns whether records that exceed a budget can be cut, for messages: those of text, where a loader reads them.
    fn can_be_cut(&self) -> bool {
        false
    }

    /// Returns the distinct lengths in ascending order, each with its number of records. The iterator ends after the
    /// first error.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] when the index is invalid.
    fn runs(&self) -> Result<Runs<'_>>;
}

/// Width and height of an image, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageShape {
    /// Pixels per row.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
}

impl ImageShape {
    pub(super) fn pixels(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }
}

/// The histogram of the lengths, run by run.
pub type Runs<'a> = Box<dyn Iterator<Item = Result<LengthRun>> + 'a>;

impl<L: Lengths + ?Sized> Lengths for &L {
    fn records(&self) -> u64 {
        (**self).records()
    }

    fn record_at(&self, rank: u64) -> Result<u64> {
        (**self).record_at(rank)
    }

    fn length_of(&self, record: u64) -> Result<u64> {
        (**self).length_of(record)
    }

    fn lengths_of(&self, records: &[u64], out: &mut Vec<u64>) -> Result<()> {
        (**self).lengths_of(records, out)
    }

    fn trained_of(&self, record: u64) -> Result<u64> {
        (**self).trained_of(record)
    }

    fn longest_side_of(&self, record: u64) -> Result<u64> {
        (**self).longest_side_of(record)
    }

    fn shape_of(&self, record: u64) -> Result<Option<ImageShape>> {
        (**self).shape_of(record)
    }

    fn column_of(&self, record: u64, name: &str) -> Result<Option<u64>> {
        (**self).column_of(record, name)
    }

    fn key_of(&self, record: u64) -> Option<String> {
        (**self).key_of(record)
    }

    fn can_be_cut(&self) -> bool {
        (**self).can_be_cut()
    }

    fn runs(&self) -> Result<Runs<'_>> {
        (**self).runs()
    }
}

/// Lengths in memory, for callers without a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LengthsInMemory {
    lengths: Vec<u64>,
    /// The record of each rank.
    order: Vec<u64>,
    /// A plan examines them once for each way of cutting them into buckets.
    runs: Vec<LengthRun>,
}

impl LengthsInMemory {
    /// Creates the lengths of records 0, 1, 2, ….
    pub fn new(lengths: Vec<u64>) -> Self {
        let mut order: Vec<u64> = (0..lengths.len() as u64).collect();
        // Stable, so that records of one length keep their order.
        let length = |record: u64| lengths.get(record as usize).copied().unwrap_or(0);
        order.sort_by_key(|&record| length(record));
        let counts = order
            .chunk_by(|&a, &b| length(a) == length(b))
            .map(|same| (same.first().map_or(0, |&record| length(record)), same.len() as u64));
        let runs = runs_of(counts).collect();
        Self { lengths, order, runs }
    }

    /// Returns the XXH3-128 of all lengths, in hexadecimal. It identifies the records as the fingerprint of a dataset does.
    pub fn fingerprint(&self) -> String {
        let mut hash = Xxh3::new();
        self.lengths.iter().for_each(|length| hash.update(&length.to_le_bytes()));
        format!("{:032x}", hash.digest128())
    }
}

impl Lengths for LengthsInMemory {
    fn records(&self) -> u64 {
        self.lengths.len() as u64
    }

    fn record_at(&self, rank: u64) -> Result<u64> {
        look_up(&self.order, rank)
    }

    fn length_of(&self, record: u64) -> Result<u64> {
        look_up(&self.lengths, record)
    }

    fn runs(&self) -> Result<Runs<'_>> {
        Ok(Box::new(self.runs.iter().copied().map(Ok)))
    }
}

/// Returns the runs of a histogram of these lengths, in ascending order, each with its number of records.
pub(crate) fn runs_of(counts: impl IntoIterator<Item = (u64, u64)>) -> impl Iterator<Item = LengthRun> {
    let mut first_rank = 0;
    counts.into_iter().map(move |(length, count)| {
        let run = LengthRun { length, count, first_rank };
        first_rank += count;
        run
    })
}

/// Returns the number `at` of `numbers`, which has one for each record.
pub(crate) fn look_up(numbers: &[u64], at: u64) -> Result<u64> {
    let found = usize::try_from(at).ok().and_then(|at| numbers.get(at)).copied();
    found.ok_or_else(|| no_such_record(numbers.len() as u64, at))
}

/// Returns the error about the ordinal or rank `at` of a source of `records` records.
pub(crate) fn no_such_record(records: u64, at: u64) -> Error {
    Error::new(ErrorKind::OutOfRange, format!("the number of records is {records}")).at_row(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_in_memory_are_ranked() {
        let lengths = LengthsInMemory::new(vec![5, 2, 5, 9]);
        let ranked: Vec<u64> = (0..4).map(|rank| lengths.record_at(rank).unwrap()).collect();
        assert_eq!(ranked, [1, 0, 2, 3]);
        let runs: Vec<LengthRun> = lengths.runs().unwrap().map(Result::unwrap).collect();
        let run = |length, count, first_rank| LengthRun { length, count, first_rank };
        assert_eq!(runs, [run(2, 1, 0), run(5, 2, 1), run(9, 1, 3)]);
        assert_eq!(lengths.length_of(4).unwrap_err().kind(), ErrorKind::OutOfRange);
        assert!(LengthsInMemory::new(vec![]).runs().unwrap().next().is_none());
    }
}
