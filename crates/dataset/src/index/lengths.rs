//! The length index: the records of a split sorted by length, and the histogram of their lengths.
//!
//! The *rank* of a record is its position when the records are sorted by (length, ordinal). The permutation maps ranks
//! to records; the histogram maps lengths to ranks. With both, selecting a batch of records of similar length takes two
//! lookups and does not read the lengths.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::sort::ExternalSort;
use super::summary::SummaryBuilder;
use super::table::{Geometry, IndexTable, Spec, TableColumn, TableWriter, u64_column};
use super::{IndexFile, LengthSummary, MAX_LENGTH, RecordIndex, Segment};
use crate::error::{Error, ErrorKind, Result, until_error};
use crate::schema::{self, LengthUnit};
use crate::storage::Blob;

/// Column of the permutation.
const RECORD: usize = 0;
/// Columns of the histogram.
const LENGTH: usize = 0;
const COUNT: usize = 1;
const FIRST_RANK: usize = 2;
/// Size of a row: length and ordinal, both big-endian so that rows sort as (length, ordinal).
const ROW_BYTES: usize = 16;

/// Record ordinal of each rank.
const PERMUTATION: Spec =
    Spec { table: "lengths", columns: Cow::Borrowed(&[u64_column("record")]), unit: None, segmented: true };

static HISTOGRAM_COLUMNS: [TableColumn; 3] =
    [u64_column(schema::LENGTH), u64_column("count"), u64_column("first_rank")];

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

/// Sorts the records of a split by length. Memory does not grow with the number of records: lengths are spilled as
/// sorted runs and merged while the index is written.
///
/// ```
/// # use dsconvert_dataset::index::LengthIndexBuilder;
/// # use dsconvert_dataset::schema::LengthUnit;
/// # fn main() -> dsconvert_dataset::error::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let (out, spill_dir) = (dir.path(), dir.path());
/// let mut builder = LengthIndexBuilder::new(spill_dir, 64 << 20);
/// for length in [512, 7, 90] {
///     builder.push(length)?;
/// }
/// let (files, summary) = builder.finish(out, "train", LengthUnit::Tokens)?;
/// assert_eq!(files[0].path, "index/train.lengths-0000.arrow");
/// assert_eq!(files[1].path, "index/train.histogram.arrow");
/// assert_eq!((summary.min, summary.p50, summary.max), (7, 90, 512));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LengthIndexBuilder {
    sort: ExternalSort<ROW_BYTES>,
    total: u64,
    geometry: Geometry,
}

impl LengthIndexBuilder {
    /// Creates a builder that uses about `memory_bytes` and spills into `spill_dir`, like [`ExternalSort::new`]. Each
    /// record takes 16 bytes in memory or on disk.
    pub fn new(spill_dir: impl Into<PathBuf>, memory_bytes: usize) -> Self {
        Self::with_geometry(spill_dir, memory_bytes, Geometry::STANDARD)
    }

    fn with_geometry(spill_dir: impl Into<PathBuf>, memory_bytes: usize, geometry: Geometry) -> Self {
        Self { sort: ExternalSort::new(spill_dir, memory_bytes), total: 0, geometry }
    }

    /// Adds the length of the next record.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) if the lengths add up to more than [`MAX_LENGTH`]; `Io` if they
    /// cannot be spilled.
    pub fn push(&mut self, length: u64) -> Result<()> {
        let total = self.total.checked_add(length).filter(|&total| total <= MAX_LENGTH);
        self.total = total.ok_or_else(|| {
            Error::usage(format!("the lengths of the split add up to more than {MAX_LENGTH}"))
        })?;
        let key = u128::from(length) << 64 | u128::from(self.sort.len());
        self.sort.push(key.to_be_bytes())
    }

    /// Writes the length index of `split` to the dataset directory `out_dir`. The returned list contains the
    /// permutation files in order, followed by the histogram.
    pub fn finish(
        self,
        out_dir: &Path,
        split: &str,
        unit: LengthUnit,
    ) -> Result<(Vec<IndexFile>, LengthSummary)> {
        let mut permutation = TableWriter::create(out_dir, split, PERMUTATION, self.geometry)?;
        let mut histogram = TableWriter::create(out_dir, split, histogram(unit), self.geometry)?;
        let mut summary = SummaryBuilder::new(self.sort.len());
        let mut end_run = |run: LengthRun| {
            histogram.push(&[run.length, run.count, run.first_rank])?;
            summary.push(run)
        };
        let mut current: Option<LengthRun> = None;
        for (rank, row) in (0..).zip(self.sort.finish()?) {
            let key = u128::from_be_bytes(row?);
            let (length, record) = ((key >> 64) as u64, key as u64);
            permutation.push(&[record])?;
            match &mut current {
                Some(run) if run.length == length => run.count += 1,
                _ => {
                    let next = LengthRun { length, count: 1, first_rank: rank };
                    current.replace(next).map_or(Ok(()), &mut end_run)?;
                }
            }
        }
        current.map_or(Ok(()), &mut end_run)?;
        let mut files = permutation.finish()?;
        files.extend(histogram.finish()?);
        Ok((files, summary.finish(unit)))
    }
}

/// The opened length index of one split. Nothing is read ahead, and memory does not grow with the number of records.
#[derive(Debug)]
pub struct LengthIndex {
    permutation: IndexTable,
    histogram: IndexTable,
}

impl LengthIndex {
    /// Opens the permutation, whose files are given in manifest order, and the histogram.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if a file does not match the manifest or the two parts disagree on the number of records;
    /// [`ErrorKind::Unsupported`] if a file has a newer version.
    pub fn open(permutation: Vec<Segment>, histogram: Segment, unit: LengthUnit) -> Result<Self> {
        Self::with_geometry(permutation, histogram, unit, Geometry::STANDARD)
    }

    fn with_geometry(
        permutation: Vec<Segment>,
        histogram_file: Segment,
        unit: LengthUnit,
        geometry: Geometry,
    ) -> Result<Self> {
        let permutation = IndexTable::open(permutation, PERMUTATION, geometry)?;
        let histogram = IndexTable::open(vec![histogram_file], histogram(unit), geometry)?;
        let index = Self { permutation, histogram };
        let counted = match index.histogram.rows.checked_sub(1) {
            Some(last) => {
                let run = index.histogram.row(last).map(to_run)?;
                run.first_rank.checked_add(run.count)
            }
            None => Some(0),
        };
        if counted != Some(index.len()) {
            let what = format!("the histogram does not cover the {} records of the permutation", index.len());
            return Err(index.histogram.corrupt(what));
        }
        Ok(index)
    }

    /// Returns the number of records.
    pub fn len(&self) -> u64 {
        self.permutation.rows
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the files of the permutation in manifest order.
    pub fn permutation_blobs(&self) -> impl Iterator<Item = &Blob> {
        self.permutation.blobs()
    }

    /// Returns the file of the histogram.
    pub fn histogram_blobs(&self) -> impl Iterator<Item = &Blob> {
        self.histogram.blobs()
    }

    /// Returns the record at `rank`: shortest first, records of equal length in record order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`] if there are not that many records.
    pub fn record_at(&self, rank: u64) -> Result<u64> {
        self.check_record(self.permutation.value(rank, RECORD)?)
    }

    /// Iterates over the records at `ranks` in order. Ends after the first error.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`] if there are not that many records.
    pub fn records_at(&self, ranks: Range<u64>) -> Result<impl Iterator<Item = Result<u64>> + '_> {
        let rows = self.permutation.iter(ranks, [RECORD])?;
        Ok(until_error(rows.map(|row| row.and_then(|[record]| self.check_record(record)))))
    }

    /// Returns the length of the record at `rank`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`] if there are not that many records.
    pub fn length_at(&self, rank: u64) -> Result<u64> {
        if rank >= self.len() {
            return Err(Error::new(
                ErrorKind::OutOfRange,
                format!("the number of records is {}", self.len()),
            ));
        }
        // The run before the first one that starts after `rank`.
        let after = self.partition(FIRST_RANK, |first_rank| first_rank <= rank)?;
        let run =
            after.checked_sub(1).ok_or_else(|| self.histogram.corrupt("the first run is missing".into()))?;
        self.histogram.value(run, LENGTH)
    }

    /// Iterates over the distinct lengths in ascending order. Ends after the first error.
    pub fn histogram(&self) -> Result<impl Iterator<Item = Result<LengthRun>> + '_> {
        let rows = self.histogram.iter(0..self.histogram.rows, [LENGTH, COUNT, FIRST_RANK])?;
        Ok(rows.map(|row| row.map(to_run)))
    }

    /// Returns the ranks of the records whose length is in `lengths`.
    pub fn ranks_of(&self, lengths: Range<u64>) -> Result<Range<u64>> {
        let start = self.shorter_than(lengths.start)?;
        let end = self.shorter_than(lengths.end)?;
        Ok(start..end.max(start))
    }

    /// Returns the number of records shorter than `length`, which is also the rank of the first record that is not
    /// shorter.
    pub fn shorter_than(&self, length: u64) -> Result<u64> {
        let run = self.partition(LENGTH, |l| l < length)?;
        if run == self.histogram.rows {
            return Ok(self.len());
        }
        let rank = self.histogram.value(run, FIRST_RANK)?;
        if rank > self.len() {
            return Err(self.histogram.corrupt(format!("run {run} starts after the last record")));
        }
        Ok(rank)
    }

    /// Checks every row against the record index. The histogram must ascend and count all records. Each rank must hold
    /// a record of its length, with records of equal length in record order. Together, these checks prove that the
    /// permutation contains each record once.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] at the first mismatch.
    pub fn verify(&self, records: &RecordIndex) -> Result<()> {
        if records.len() != self.len() {
            let (sorted, indexed) = (self.len(), records.len());
            let what = format!("the permutation has {sorted} records, but the record index has {indexed}");
            return Err(self.permutation.corrupt(what));
        }
        let mut next_rank = 0;
        let mut shortest = 0;
        for run in self.histogram()? {
            let run = run?;
            let end = run.first_rank.checked_add(run.count).filter(|&end| end <= self.len());
            let (true, true, Some(end)) =
                (run.first_rank == next_rank && run.count > 0, run.length >= shortest, end)
            else {
                return Err(self
                    .histogram
                    .corrupt(format!("the run of length {} does not follow the previous run", run.length)));
            };
            self.verify_run(run.length, next_rank..end, records)?;
            next_rank = end;
            shortest = run.length.saturating_add(1);
        }
        if next_rank != self.len() {
            return Err(self.histogram.corrupt(format!("it counts {next_rank} of {} records", self.len())));
        }
        Ok(())
    }

    fn verify_run(&self, length: u64, ranks: Range<u64>, records: &RecordIndex) -> Result<()> {
        let mut first_allowed = 0;
        for (rank, record) in ranks.clone().zip(self.records_at(ranks)?) {
            let record = record?;
            if record < first_allowed || records.length(record)? != length {
                let what = format!(
                    "rank {rank} holds record {record}, which is not the next one of length {length}"
                );
                return Err(self.permutation.corrupt(what));
            }
            first_allowed = record + 1; // below the number of records
        }
        Ok(())
    }

    fn check_record(&self, record: u64) -> Result<u64> {
        if record >= self.len() {
            let what = format!("it refers to record {record}, but there are only {}", self.len());
            return Err(self.permutation.corrupt(what));
        }
        Ok(record)
    }

    /// Counts the histogram rows whose `column` satisfies `before`; all of these must come first.
    fn partition(&self, column: usize, before: impl Fn(u64) -> bool) -> Result<u64> {
        let (mut low, mut high) = (0, self.histogram.rows);
        while low < high {
            let middle = low + (high - low) / 2;
            if before(self.histogram.value(middle, column)?) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}

fn to_run([length, count, first_rank]: [u64; 3]) -> LengthRun {
    LengthRun { length, count, first_rank }
}
