//! Reader of a length index.

use std::ops::Range;

use super::{LengthRun, PERMUTATION, histogram};
use crate::error::{Error, ErrorKind, Result, until_error};
use crate::index::table::{Geometry, IndexTable};
use crate::index::{RecordIndex, Segment};
use crate::schema::LengthUnit;
use crate::storage::Blob;

const RECORD: usize = 0;
const LENGTH: usize = 0;
const COUNT: usize = 1;
const FIRST_RANK: usize = 2;

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

    pub(super) fn with_geometry(
        permutation: Vec<Segment>,
        histogram_file: Segment,
        unit: LengthUnit,
        geometry: Geometry,
    ) -> Result<Self> {
        let permutation = IndexTable::open(permutation, PERMUTATION, geometry)?;
        let histogram = IndexTable::open(vec![histogram_file], histogram(unit), geometry)?;
        let index = Self { permutation, histogram };
        let counted = match index.histogram.rows().checked_sub(1) {
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
        self.permutation.rows()
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
        let rows = self.histogram.iter(0..self.histogram.rows(), [LENGTH, COUNT, FIRST_RANK])?;
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
        if run == self.histogram.rows() {
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
        let (mut low, mut high) = (0, self.histogram.rows());
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
