//! Construction of a length index with bounded memory.

use std::path::{Path, PathBuf};

use super::{LengthRun, PERMUTATION, histogram};
use crate::error::{Error, Result};
use crate::index::sort::ExternalSort;
use crate::index::summary::SummaryBuilder;
use crate::index::table::{Geometry, TableWriter};
use crate::index::{IndexFile, LengthSummary, MAX_LENGTH};
use crate::schema::LengthUnit;

/// Size of a row: length and ordinal, both big-endian so that rows sort as (length, ordinal).
const ROW_BYTES: usize = 16;

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

    pub(super) fn with_geometry(
        spill_dir: impl Into<PathBuf>,
        memory_bytes: usize,
        geometry: Geometry,
    ) -> Self {
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
