//! Finding records by their length.

use std::ops::Range;

use super::split::Split;
use crate::error::{Error, Result};
use crate::index::{LengthIndex, LengthRun};

impl Split {
    /// The length index, opened when first asked for.
    ///
    /// # Errors
    ///
    /// As [`LengthIndex::open`].
    pub fn length_index(&self) -> Result<&LengthIndex> {
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
            return Err(Error::corrupt("the length index is that of another split").at_path(&common.dir));
        }
        Ok(self.state.lengths.get_or_init(|| index))
    }

    /// The record at `rank` when all are sorted by length, shortest first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`](crate::error::ErrorKind) when there are not so many records, [`ErrorKind::Corrupt`](crate::error::ErrorKind) when the indexes disagree.
    pub fn by_length(&self, rank: u64) -> Result<u64> {
        self.check_range(rank)?;
        let index = self.length_index()?;
        let (record, length) = (index.record_at(rank)?, index.length_at(rank)?);
        self.check_length(record, length..length.saturating_add(1))
    }

    /// The ordinals of all records whose length is in `lengths`: shortest first, records of one length in record order.
    /// An item that is an error is the last.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::error::ErrorKind) when the indexes disagree.
    pub fn bucket(&self, lengths: Range<u64>) -> Result<impl Iterator<Item = Result<u64>> + '_> {
        let index = self.length_index()?;
        let records = index.records_at(index.ranks_of(lengths.clone())?)?;
        Ok(records.map(move |record| self.check_length(record?, lengths.clone())))
    }

    /// The lengths that occur, ascending, and how many records have each.
    ///
    /// # Errors
    ///
    /// As [`Split::length_index`].
    pub fn histogram(&self) -> Result<impl Iterator<Item = Result<LengthRun>> + '_> {
        self.length_index()?.histogram()
    }

    fn check_length(&self, record: u64, lengths: Range<u64>) -> Result<u64> {
        if lengths.contains(&self.length(record)?) {
            return Ok(record);
        }
        let what = "the length index gives it another length than the record index";
        Err(Error::corrupt(what).at_path(&self.state.common.dir).at_row(record))
    }
}
