//! Iteration over records in order, and read-ahead for it.

use std::iter::FusedIterator;
use std::ops::{Bound, Range, RangeBounds};

use dsconvert_dataset::error::{Error, ErrorKind, Result};
use dsconvert_dataset::format::Format;

use super::record::Record;
use super::split::{ReadAheadLookup, Split};

/// Maximum number of records that are read together.
const BLOCK_RECORDS: u64 = 16_384;
/// Maximum size in bytes (according to the record index) of records that are read together.
const BLOCK_BYTES: u64 = 16 << 20;

/// Iterator over the records of a split, in order. It reads in blocks: at most one row group (Parquet) or record batch
/// (Arrow), or a few megabytes of frames. It holds one block in memory.
///
/// A record that cannot be read yields an error in its position, and the iteration continues. If object storage does not
/// respond, the error stands for no record: the next call reads the same records again. An index that cannot be read
/// ends the iteration.
#[derive(Debug)]
pub struct Records {
    split: Split,
    /// Ordinals that are not read yet.
    rest: Range<u64>,
    block: std::vec::IntoIter<Result<Record>>,
}

impl Records {
    fn new(split: Split, range: Range<u64>) -> Self {
        Self { split, rest: range, block: Vec::new().into_iter() }
    }

    fn fill(&mut self) -> Result<()> {
        let end = block_end(&self.split, self.rest.clone(), BLOCK_BYTES)?;
        let ordinals: Vec<u64> = (self.rest.start..end).collect();
        let dataset = &self.split.state.dataset;
        let block = match dataset.unless_outage(self.split.get_each(&ordinals))? {
            Ok(block) => block,
            // A record cannot be looked up, or its shard cannot be opened.
            Err(_) => {
                ordinals.iter().map(|&i| dataset.unless_outage(self.split.get(i))).collect::<Result<_>>()?
            }
        };
        self.rest.start = end;
        self.block = block.into_iter();
        Ok(())
    }
}

impl Split {
    /// Returns an iterator over all records, in order. Each shard and row group is read once; see [`Records`].
    pub fn iter(&self) -> Records {
        Records::new(self.clone(), 0..self.len())
    }

    /// Returns an iterator over the records whose ordinals are in `range`, in order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`] when the split has fewer records.
    pub fn iter_range(&self, range: impl RangeBounds<u64>) -> Result<Records> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len(),
        };
        if start > end || end > self.len() {
            let what = format!(
                "{start}..{end} is not a range of the {} records of split {:?}",
                self.len(),
                self.name()
            );
            return Err(Error::new(ErrorKind::OutOfRange, what));
        }
        Ok(Records::new(self.clone(), start..end))
    }

    /// Returns the record with the ordinal `record` if it was read ahead, or if it continues a sequence and can be
    /// read. In the latter case, the records after it are read as well, up to `most_bytes`.
    ///
    /// # Errors
    ///
    /// Only if reading the record alone would fail as well, because the store does not respond or the caller was
    /// interrupted.
    pub(super) fn get_ahead(&self, record: u64, most_bytes: u64) -> Result<Option<Record>> {
        if most_bytes == 0 || record >= self.len() {
            return Ok(None);
        }
        match self.read_ahead().look_up(record) {
            ReadAheadLookup::Hit(found) => return Ok(Some(found)),
            ReadAheadLookup::Random => return Ok(None),
            ReadAheadLookup::Sequential => {}
        }
        let read = block_end(self, record..self.len(), most_bytes)
            .and_then(|end| self.get_each(&(record..end).collect::<Vec<u64>>()));
        let Ok(read) = self.state.dataset.unless_outage(read)? else { return Ok(None) };
        // Only the records before the first unreadable one, whose error is returned when it is requested.
        let block: Vec<Record> = read.into_iter().map_while(Result::ok).collect();
        let first = block.first().cloned();
        self.read_ahead().keep(block);
        Ok(first)
    }
}

/// Returns the end of the block that starts with the first of `records` (not empty). A block ends with its row group or
/// record batch, or before it exceeds `most_bytes` or [`BLOCK_RECORDS`]. It has at least one record.
pub(super) fn block_end(split: &Split, records: Range<u64>, most_bytes: u64) -> Result<u64> {
    let start = records.start;
    let most = records.end.min(start.saturating_add(BLOCK_RECORDS));
    let grouped = matches!(split.format(), Format::Parquet | Format::Arrow);
    let mut first = None;
    let mut bytes = 0u64;
    for (ordinal, entry) in (start..).zip(split.unchecked_record_index()?.entries(start..most)?) {
        let entry = entry?;
        let group = (entry.shard, if grouped { entry.placed().group() } else { 0 });
        bytes = bytes.saturating_add(entry.bytes);
        let fits = *first.get_or_insert(group) == group && bytes <= most_bytes;
        if !fits && ordinal > start {
            return Ok(ordinal);
        }
    }
    Ok(most)
}

impl Iterator for Records {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(record) = self.block.next() {
            return Some(record);
        }
        if self.rest.is_empty() {
            return None;
        }
        if let Err(e) = self.fill() {
            if !self.split.state.dataset.is_outage(&e) {
                self.rest.start = self.rest.end;
            }
            return Some(Err(e));
        }
        self.block.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let more = self.rest.end.saturating_sub(self.rest.start);
        match usize::try_from(more).ok().and_then(|more| more.checked_add(self.block.len())) {
            // An index that cannot be read ends the iteration early.
            Some(most) => (self.block.len().min(most), Some(most)),
            None => (self.block.len(), None),
        }
    }
}

impl FusedIterator for Records {}

// Read-ahead for loops that request one record after another.
//
// Reading one record of a Parquet shard decodes a page of each column, and adjacent records share these pages. A
// caller that requests consecutive records will need the following ones, too, so they are decoded together and kept.
// Random access does not trigger read-ahead and pays nothing for it.
//
// The lock is non-blocking (see [`shards`](super::shards)).
