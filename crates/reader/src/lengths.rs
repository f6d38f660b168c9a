//! Finding records by their length.

use std::ops::Range;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::index::{LengthIndex, LengthRun};

use super::split::Split;

impl Split {
    /// The length index. Its files are compared with their checksums at the first call.
    ///
    /// # Errors
    ///
    /// As [`LengthIndex::open`]; [`ErrorKind::Corrupt`](dsconvert_dataset::error::ErrorKind) also when a file is not the one that was
    /// written.
    pub fn length_index(&self) -> Result<&LengthIndex> {
        let index = self.histogram_index()?;
        let files = self.info().map_or(&[][..], |s| &s.length_index);
        self.state.common.check_files(&self.state.checked.permutation, index.permutation_blobs(), files)?;
        Ok(index)
    }

    /// The length index, of which only the histogram was compared with its checksum.
    pub(super) fn histogram_index(&self) -> Result<&LengthIndex> {
        let index = self.unchecked_length_index()?;
        let files = self.info().map_or(&[][..], |s| std::slice::from_ref(&s.length_histogram));
        self.state.common.check_files(&self.state.checked.histogram, index.histogram_blobs(), files)?;
        Ok(index)
    }

    /// The length index, for callers that check it themselves.
    pub(super) fn unchecked_length_index(&self) -> Result<&LengthIndex> {
        if let Some(index) = self.state.lengths.get() {
            return Ok(index);
        }
        let common = &self.state.common;
        let info = self.info().ok_or_else(|| Error::corrupt("the manifest lost a split"))?;
        let histogram = common.segments(std::slice::from_ref(&info.length_histogram))?.pop();
        let histogram = histogram.ok_or_else(|| Error::corrupt("the manifest names no histogram"))?;
        let unit = common.schema.kind.length_unit();
        let index = LengthIndex::open(common.segments(&info.length_index)?, histogram, unit)?;
        if index.len() != self.len() {
            return Err(Error::corrupt("the length index is that of another split").at_path(common.path()));
        }
        Ok(self.state.lengths.get_or_init(|| index))
    }

    /// The record at `rank` when all are sorted by length, shortest first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`](dsconvert_dataset::error::ErrorKind) when there are not so many records, [`ErrorKind::Corrupt`](dsconvert_dataset::error::ErrorKind) when the indexes disagree.
    pub fn by_length(&self, rank: u64) -> Result<u64> {
        let record = self.ranked(rank)?;
        let length = self.length_index()?.length_at(rank)?;
        self.check_length(record, length..length.saturating_add(1))
    }

    /// The record at `rank`, between those beside it. The order is strict, by length and then by ordinal: no other record
    /// than the right one fits there, so an altered index neither repeats a record nor leaves one out.
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

    /// The ordinals of all records whose length is in `lengths`: shortest first, records of one length in record order.
    /// An item that is an error is the last.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](dsconvert_dataset::error::ErrorKind) when the indexes disagree.
    pub fn bucket(&self, lengths: Range<u64>) -> Result<impl Iterator<Item = Result<u64>> + '_> {
        let index = self.length_index()?;
        let records = index.records_at(index.ranks_of(lengths.clone())?)?;
        let mut before = None;
        Ok(records.map(move |record| {
            let record = record?;
            let found = (self.length(record)?, record);
            if before.replace(found).is_some_and(|before| before >= found) {
                return Err(self.indexes_disagree().at_row(record));
            }
            self.check_length(record, lengths.clone())
        }))
    }

    /// The lengths that occur, ascending, and how many records have each.
    ///
    /// # Errors
    ///
    /// As [`Split::length_index`].
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
        Error::corrupt("the length index has it at another place than its length in the record index")
            .at_path(self.state.common.path())
            .help("an index was altered; `dsconvert inspect --verify` tells which")
    }
}
