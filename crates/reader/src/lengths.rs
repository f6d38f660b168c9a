//! Lookup of records by length.

use std::ops::Range;

use dsconvert_dataset::error::{Error, Result, until_error};
use dsconvert_dataset::index::{LengthIndex, LengthRun};

use super::split::Split;

impl Split {
    /// Returns the length index. Its files are compared with their checksums on the first call.
    ///
    /// # Errors
    ///
    /// Same as [`LengthIndex::open`]; also [`ErrorKind::Corrupt`](dsconvert_dataset::error::ErrorKind) when a file does
    /// not match its checksum.
    pub fn length_index(&self) -> Result<&LengthIndex> {
        let index = self.histogram_index()?;
        let files = self.info().map_or(&[][..], |s| &s.length_index);
        self.state.dataset.check_files(&self.state.checked.permutation, index.permutation_blobs(), files)?;
        Ok(index)
    }

    /// Returns the length index after comparing only its histogram with the checksum.
    pub(super) fn histogram_index(&self) -> Result<&LengthIndex> {
        let index = self.unchecked_length_index()?;
        let files = self.info().map_or(&[][..], |s| std::slice::from_ref(&s.length_histogram));
        self.state.dataset.check_files(&self.state.checked.histogram, index.histogram_blobs(), files)?;
        Ok(index)
    }

    /// Returns the length index without checking its files, for callers that check them.
    pub(super) fn unchecked_length_index(&self) -> Result<&LengthIndex> {
        if let Some(index) = self.state.lengths.get() {
            return Ok(index);
        }
        let dataset = &self.state.dataset;
        let info = self.info().ok_or_else(|| Error::corrupt("the split is missing from the manifest"))?;
        let unit = dataset.schema.length_unit();
        let files = info.length_index.iter().chain([&info.length_histogram]);
        let index = dataset.read_index(files, || {
            let histogram = dataset.segments(std::slice::from_ref(&info.length_histogram))?.pop();
            let histogram = histogram.ok_or_else(|| Error::corrupt("the manifest lists no histogram"))?;
            LengthIndex::open(dataset.segments(&info.length_index)?, histogram, unit)
        })?;
        if index.len() != self.len() {
            return Err(Error::corrupt("the length index belongs to another split").at_path(dataset.path()));
        }
        Ok(self.state.lengths.get_or_init(|| index))
    }

    /// Returns the record at `rank` when all records are sorted by length, shortest first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`](dsconvert_dataset::error::ErrorKind) when there are fewer records,
    /// [`ErrorKind::Corrupt`](dsconvert_dataset::error::ErrorKind) when the indexes disagree.
    pub fn by_length(&self, rank: u64) -> Result<u64> {
        let record = self.ranked(rank)?;
        let length = self.length_index()?.length_at(rank)?;
        self.check_length(record, length..length.saturating_add(1))
    }

    /// Returns the record at `rank` after comparing it with its neighbors. The order is strict, by length and then by
    /// ordinal, so only the right record fits there: an altered index neither repeats nor omits a record.
    pub(super) fn ranked(&self, rank: u64) -> Result<u64> {
        self.check_range(rank)?;
        let (index, lengths) = (self.length_index()?, self.record_index()?);
        let at = |rank| {
            let record = index.record_at(rank)?;
            Ok((lengths.length(record)?, record))
        };
        let found = at(rank)?;
        let follows = rank == 0 || at(rank - 1)? < found;
        if follows && (rank + 1 == self.len() || found < at(rank + 1)?) {
            return Ok(found.1);
        }
        Err(self.indexes_disagree().at_row(found.1))
    }

    /// Returns the ordinals of all records whose length is in `lengths`: shortest first, records of equal length in
    /// record order. The iterator ends after the first error, because the ordinals after it are unreliable.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](dsconvert_dataset::error::ErrorKind) when the indexes disagree.
    pub fn bucket(&self, lengths: Range<u64>) -> Result<impl Iterator<Item = Result<u64>> + '_> {
        let index = self.length_index()?;
        let records = index.records_at(index.ranks_of(lengths.clone())?)?;
        let mut before = None;
        Ok(until_error(records.map(move |record| {
            let record = record?;
            let found = (self.length(record)?, record);
            if before.replace(found).is_some_and(|before| before >= found) {
                return Err(self.indexes_disagree().at_row(record));
            }
            self.check_length(record, lengths.clone())
        })))
    }

    /// Returns the distinct lengths in ascending order, each with its number of records.
    ///
    /// # Errors
    ///
    /// Same as [`Split::length_index`].
    pub fn histogram(&self) -> Result<impl Iterator<Item = Result<LengthRun>> + '_> {
        self.histogram_index()?.histogram()
    }

    fn check_length(&self, record: u64, lengths: Range<u64>) -> Result<u64> {
        if lengths.contains(&self.length(record)?) {
            return Ok(record);
        }
        Err(self.indexes_disagree().at_row(record))
    }

    fn indexes_disagree(&self) -> Error {
        Error::corrupt("the length index and the record index disagree about the length of the record")
            .at_path(self.state.dataset.path())
            .help("an index was altered; `dsconvert inspect --verify` names it")
    }
}
