//! Cache of decoded rows, which all Parquet shards of a process share.
//!
//! Reading one record decodes all rows of its list page, and a loop in random order soon reads their neighbors. Their rows
//! are kept together, as they were decoded: not whole row groups, because a dataset that exceeds the cache would then
//! decode hundreds of pages for each record that it misses.
//!
//! The cache holds up to [`MAX_BYTES`] of memory. The oldest rows leave first: in random order, nothing tells which rows are
//! needed next. Rows of a shard also leave when its reader is dropped. No call waits for the lock, which may be held
//! forever after a fork: rows that cannot be looked up are decoded again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::format::rows::DecodedRows;
use crate::sample::Record;
use crate::schema::Schema;
use crate::storage::briefly;

/// Maximum bytes of memory of the kept rows.
const MAX_BYTES: usize = 256 << 20;

static ROWS: Mutex<KeptRows> = Mutex::new(KeptRows::new(MAX_BYTES));

/// The identity of a reader in the cache. Dropping it removes its rows.
pub(super) struct ReaderId(u64);

/// The place of rows: reader, row group, first row and the schema indices of the decoded columns.
type Place = (u64, usize, usize, Arc<[usize]>);

/// Rows that are adjacent in a row group, in the batches in which they were decoded.
pub(super) struct Rows(Vec<DecodedRows>);

struct KeptRows {
    max_bytes: usize,
    /// Rows, each with its bytes.
    by_place: BTreeMap<Place, (Arc<Rows>, usize)>,
    /// The oldest place first.
    places: VecDeque<Place>,
    bytes: usize,
}

impl ReaderId {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the rows of `group` that start at `starts` and have these columns, as far as they are kept.
    pub(super) fn get(
        &self,
        group: usize,
        starts: impl Iterator<Item = usize>,
        columns: &Arc<[usize]>,
    ) -> Vec<Option<Arc<Rows>>> {
        let rows = briefly(&ROWS);
        let get = |start| {
            let kept = rows.as_ref()?.by_place.get(&(self.0, group, start, Arc::clone(columns)))?;
            Some(Arc::clone(&kept.0))
        };
        starts.map(get).collect()
    }

    /// Keeps the rows of `group` from `start` on.
    pub(super) fn keep(&self, group: usize, start: usize, columns: &Arc<[usize]>, rows: Arc<Rows>) {
        // Memory is counted before and freed after the lock is held.
        let bytes = rows.memory_bytes();
        let place = (self.0, group, start, Arc::clone(columns));
        let _removed = briefly(&ROWS).map(|mut kept| kept.insert(place, rows, bytes));
    }
}

impl Drop for ReaderId {
    fn drop(&mut self) {
        let _removed = briefly(&ROWS).map(|mut kept| kept.remove(self.0));
    }
}

impl Rows {
    pub(super) fn new(batches: Vec<DecodedRows>) -> Self {
        Self(batches)
    }

    /// Returns the record at this distance from the first row; `None` if there are fewer rows.
    pub(super) fn record(&self, schema: &Schema, mut row: usize) -> Option<Result<Record, String>> {
        for batch in &self.0 {
            match row.checked_sub(batch.len) {
                None => return Some(batch.record(schema, row)),
                Some(rest) => row = rest,
            }
        }
        None
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of::<Place>() + self.0.iter().map(DecodedRows::memory_bytes).sum::<usize>()
    }
}

impl KeptRows {
    const fn new(max_bytes: usize) -> Self {
        Self { max_bytes, by_place: BTreeMap::new(), places: VecDeque::new(), bytes: 0 }
    }

    /// Adds rows, and returns those that leave for them. Rows that exceed the cache are not kept.
    fn insert(&mut self, place: Place, rows: Arc<Rows>, bytes: usize) -> Vec<Arc<Rows>> {
        let mut removed = Vec::new();
        if bytes > self.max_bytes || self.by_place.contains_key(&place) {
            return vec![rows];
        }
        while self.bytes > self.max_bytes - bytes {
            let Some(oldest) = self.places.pop_front() else { break };
            if let Some((rows, bytes)) = self.by_place.remove(&oldest) {
                self.bytes -= bytes;
                removed.push(rows);
            }
        }
        self.bytes += bytes;
        self.places.push_back(place.clone());
        self.by_place.insert(place, (rows, bytes));
        removed
    }

    /// Removes and returns the rows of `reader`.
    fn remove(&mut self, reader: u64) -> Vec<Arc<Rows>> {
        self.places.retain(|place| place.0 != reader);
        let mut removed = self.by_place.split_off(&(reader, 0, 0, Arc::default()));
        self.by_place.append(&mut removed.split_off(&(reader + 1, 0, 0, Arc::default())));
        self.bytes -= removed.values().map(|(_, bytes)| bytes).sum::<usize>();
        removed.into_values().map(|(rows, _)| rows).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(reader: u64, start: usize) -> Place {
        (reader, 0, start, Arc::from([0, 1]))
    }

    fn starts(kept: &KeptRows) -> Vec<(u64, usize)> {
        kept.by_place.keys().map(|place| (place.0, place.2)).collect()
    }

    #[test]
    fn the_oldest_rows_leave_and_bytes_are_bounded() {
        let mut kept = KeptRows::new(25);
        let rows = || Arc::new(Rows(Vec::new()));
        assert!(kept.insert(place(1, 0), rows(), 10).is_empty());
        assert!(kept.insert(place(2, 0), rows(), 10).is_empty());
        assert_eq!(kept.insert(place(1, 8), rows(), 10).len(), 1);
        assert_eq!((starts(&kept), kept.bytes), (vec![(1, 8), (2, 0)], 20));
        // Neither larger rows nor the same ones again change anything.
        for (start, bytes) in [(16, 26), (16, usize::MAX), (8, 5)] {
            assert_eq!(kept.insert(place(1, start), rows(), bytes).len(), 1);
        }
        assert_eq!((starts(&kept), kept.bytes, kept.places.len()), (vec![(1, 8), (2, 0)], 20, 2));
        assert_eq!(kept.insert(place(3, 0), rows(), 25).len(), 2);
        assert_eq!((starts(&kept), kept.bytes), (vec![(3, 0)], 25));
    }

    #[test]
    fn the_rows_of_a_reader_leave_with_it() {
        let mut kept = KeptRows::new(100);
        let rows = || Arc::new(Rows(Vec::new()));
        for (reader, start) in [(1, 0), (2, 7), (2, 0), (3, 0)] {
            kept.insert(place(reader, start), rows(), 10);
        }
        assert_eq!(kept.remove(2).len(), 2);
        assert_eq!((starts(&kept), kept.bytes, kept.places.len()), (vec![(1, 0), (3, 0)], 20, 2));
        assert!(kept.remove(9).is_empty());
    }
}
