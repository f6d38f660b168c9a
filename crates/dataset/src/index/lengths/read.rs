//! Reading a length index.

use std::ops::Range;

use super::{LengthRun, PERMUTATION, histogram};
use crate::error::{Error, ErrorKind, Result};
use crate::index::table::{Geometry, Table};
use crate::index::{RecordIndex, Segment};
use crate::schema::LengthUnit;
use crate::storage::Blob;

const RECORD: usize = 0;
const LENGTH: usize = 0;
const COUNT: usize = 1;
const FIRST_RANK: usize = 2;

/// The length index of one split, opened. Nothing is read ahead; memory does not grow with the number of records.
#[derive(Debug)]
pub struct LengthIndex {
    permutation: Table,
    histogram: Table,
}

/// A range of lengths and the ranks of the records that have them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Lengths, half-open.
    pub lengths: Range<u64>,
    /// Ranks in the length index, half-open; their number is the number of records.
    pub ranks: Range<u64>,
}

impl LengthIndex {
    /// Opens the files of the permutation, in the order of the manifest, and the histogram.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] when a file is not what the manifest says or the two disagree in the number of records;
    /// [`ErrorKind::Unsupported`] when one is of a newer version.
    pub fn open(permutation: Vec<Segment>, histogram: Segment, unit: LengthUnit) -> Result<Self> {
        Self::with_geometry(permutation, histogram, unit, Geometry::STANDARD)
    }

    pub(super) fn with_geometry(
        permutation: Vec<Segment>,
        histogram_file: Segment,
        unit: LengthUnit,
        geometry: Geometry,
    ) -> Result<Self> {
        let permutation = Table::open(permutation, PERMUTATION, geometry)?;
        let histogram = Table::open(vec![histogram_file], histogram(unit), geometry)?;
        let index = Self { permutation, histogram };
        let counted = match index.distinct_lengths().checked_sub(1) {
            Some(last) => {
                let run = index.run(last)?;
                run.first_rank.checked_add(run.count)
            }
            None => Some(0),
        };
        if counted != Some(index.len()) {
            let what = format!("the histogram does not count the {} records of the permutation", index.len());
            return Err(index.histogram.corrupt(what));
        }
        Ok(index)
    }

    /// Number of records.
    pub fn len(&self) -> u64 {
        self.permutation.rows()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The files of the permutation, in the order of the manifest.
    pub fn permutation_blobs(&self) -> impl Iterator<Item = &Blob> {
        self.permutation.blobs()
    }

    /// The file of the histogram.
    pub fn histogram_blobs(&self) -> impl Iterator<Item = &Blob> {
        self.histogram.blobs()
    }

    /// Number of different lengths.
    pub fn distinct_lengths(&self) -> u64 {
        self.histogram.rows()
    }

    /// The record at `rank`: shortest first, records of one length in record order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`] when there are not so many records.
    pub fn record_at(&self, rank: u64) -> Result<u64> {
        self.check_record(self.permutation.value(rank, RECORD)?)
    }

    /// The records at `ranks`, in order. An item that is an error is the last.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`] when there are not so many records.
    pub fn records_at(&self, ranks: Range<u64>) -> Result<impl Iterator<Item = Result<u64>> + '_> {
        let rows = self.permutation.iter(ranks, [RECORD])?;
        Ok(rows.map(|row| row.and_then(|[record]| self.check_record(record))))
    }

    /// The length of the record at `rank`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`] when there are not so many records.
    pub fn length_at(&self, rank: u64) -> Result<u64> {
        if rank >= self.len() {
            return Err(Error::new(ErrorKind::OutOfRange, format!("there are only {} records", self.len())));
        }
        // The run before the first one that starts behind the rank.
        let behind = self.partition(FIRST_RANK, |first_rank| first_rank <= rank)?;
        let run =
            behind.checked_sub(1).ok_or_else(|| self.histogram.corrupt("the first run is missing".into()))?;
        self.histogram.value(run, LENGTH)
    }

    /// The lengths that occur, ascending. An item that is an error is the last.
    pub fn histogram(&self) -> Result<impl Iterator<Item = Result<LengthRun>> + '_> {
        let rows = self.histogram.iter(0..self.histogram.rows(), [LENGTH, COUNT, FIRST_RANK])?;
        Ok(rows.map(|row| row.map(to_run)))
    }

    /// The ranks of the records whose length is in `lengths`.
    pub fn ranks_of(&self, lengths: Range<u64>) -> Result<Range<u64>> {
        let start = self.shorter_than(lengths.start)?;
        let end = self.shorter_than(lengths.end)?;
        Ok(start..end.max(start))
    }

    /// How many records are shorter than `length`; also the rank of the first that is not.
    pub fn shorter_than(&self, length: u64) -> Result<u64> {
        let run = self.partition(LENGTH, |l| l < length)?;
        if run == self.histogram.rows() {
            return Ok(self.len());
        }
        let rank = self.histogram.value(run, FIRST_RANK)?;
        if rank > self.len() {
            return Err(self.histogram.corrupt(format!("run {run} starts behind the last record")));
        }
        Ok(rank)
    }

    /// Cuts all lengths at `boundaries` (ascending): one bucket below the first, one between each two neighbours, one
    /// from the last on, empty ones included.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] when the boundaries do not ascend.
    pub fn buckets(&self, boundaries: &[u64]) -> Result<Vec<Bucket>> {
        if !boundaries.is_sorted_by(|a, b| a < b) {
            return Err(Error::usage("the boundaries of buckets must ascend"));
        }
        let mut buckets = Vec::with_capacity(boundaries.len() + 1);
        let mut from = (0, 0);
        for &boundary in boundaries {
            let to = (boundary, self.shorter_than(boundary)?.max(from.1));
            buckets.push(Bucket { lengths: from.0..to.0, ranks: from.1..to.1 });
            from = to;
        }
        buckets.push(Bucket { lengths: from.0..u64::MAX, ranks: from.1..self.len() });
        Ok(buckets)
    }

    /// Checks every row against the record index: the histogram ascends and counts all records, and each rank holds a
    /// record of its length, records of one length in record order. Then the permutation has each record once.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] at the first difference.
    pub fn verify(&self, records: &RecordIndex) -> Result<()> {
        if records.len() != self.len() {
            let what = format!("{} records are sorted, the record index has {}", self.len(), records.len());
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
                    .corrupt(format!("the run of length {} is out of place", run.length)));
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
                let what =
                    format!("rank {rank} holds record {record}, which is not the next of length {length}");
                return Err(self.permutation.corrupt(what));
            }
            first_allowed = record + 1; // below the number of records
        }
        Ok(())
    }

    fn run(&self, row: u64) -> Result<LengthRun> {
        self.histogram.row(row).map(to_run)
    }

    fn check_record(&self, record: u64) -> Result<u64> {
        if record >= self.len() {
            return Err(self.permutation.corrupt(format!("it names record {record} of {}", self.len())));
        }
        Ok(record)
    }

    /// Rows of the histogram for whose `column` `before` holds, when all of these come first.
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
