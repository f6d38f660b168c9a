//! Best-fit decreasing bin packing: longest piece first, each into the fullest row that still has room.
//!
//! Ding et al., "Fewer Truncations Improve Language Modeling" (2024), proposed it for language models. The algorithm is
//! by Johnson (1973).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The items of each row.
#[derive(Debug, Clone, Default)]
pub(super) struct Rows {
    /// Items, row by row, in ascending order within each row.
    items: Vec<u32>,
    /// The end of each row in `items`.
    ends: Vec<u32>,
}

impl Rows {
    /// Creates the rows of the items that `is_packed` selects, from the row of each item and the number of items of each row.
    /// `items` lends its memory: it has as many items.
    pub(super) fn new(
        is_packed: impl Fn(u32) -> bool,
        row_of: &[u32],
        sizes: &[u32],
        mut items: Vec<u32>,
    ) -> Self {
        // A counting sort by row keeps the items of a row in ascending order.
        let start = |end: &mut u32, size: &u32| Some(std::mem::replace(end, *end + size));
        let mut next: Vec<u32> = sizes.iter().scan(0, start).collect();
        for (item, &row) in (0..).zip(row_of).filter(|(item, _)| is_packed(*item)) {
            if let Some(at) = next.get_mut(row as usize)
                && let Some(slot) = items.get_mut(*at as usize)
            {
                *slot = item;
                *at += 1;
            }
        }
        // Every position has moved from the start to the end of its row.
        Self { items, ends: next }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the items of a row, or `None` if there are not that many rows.
    pub(super) fn get(&self, row: usize) -> Option<&[u32]> {
        let end = *self.ends.get(row)? as usize;
        let start =
            row.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |&start| start as usize);
        self.items.get(start..end)
    }
}

/// Packs the items `0..count`, whose lengths are at most `seq_len`, into rows. Items of length 0 are in no row.
///
/// The result is deterministic: equal lengths are placed in order, and among equally full rows the first is chosen.
/// Memory: 12 bytes per item.
pub(super) fn pack(count: u32, length: impl Fn(u32) -> u64, seq_len: u64) -> Rows {
    let mut longest_first: Vec<u32> = (0..count).filter(|&item| length(item) > 0).collect();
    longest_first.sort_unstable_by_key(|&item| (Reverse(length(item)), item));
    let mut row_of = vec![0u32; count as usize];
    // Number of items of each row.
    let mut sizes: Vec<u32> = Vec::new();
    // Free space and index of the rows that are not full.
    let mut room: BTreeSet<(u64, u32)> = BTreeSet::new();
    for &item in &longest_first {
        let needed = length(item);
        let found = room.range((needed, 0)..).next().copied();
        let (free, row) = found.unwrap_or((seq_len, sizes.len() as u32));
        match sizes.get_mut(row as usize) {
            Some(size) => *size += 1,
            None => sizes.push(1),
        }
        if let Some(slot) = row_of.get_mut(item as usize) {
            *slot = row;
        }
        room.remove(&(free, row));
        if free > needed {
            room.insert((free - needed, row));
        }
    }
    Rows::new(|item| length(item) > 0, &row_of, &sizes, longest_first)
}

/// Returns the number of rows into which `pack` puts items, given as `(length, count)` with distinct lengths from 1 to
/// `seq_len`, the longest first. Takes time and memory for the lengths, not for the items.
pub fn best_fit_rows(longest_first: impl IntoIterator<Item = (u64, u64)>, seq_len: u64) -> u64 {
    let mut rows = 0u64;
    // Number of rows by free space. Full rows are left out.
    let mut room: BTreeMap<u64, u64> = BTreeMap::new();
    for (length, mut count) in longest_first {
        let length = length.clamp(1, seq_len.max(1));
        while count > 0 {
            let found = room.range(length..).next().map(|(&free, &same)| (free, same));
            let (free, same) = found.unwrap_or_else(|| {
                let opened = count.div_ceil((seq_len / length).max(1));
                rows = rows.saturating_add(opened);
                (seq_len, opened)
            });
            room.remove(&free);
            // A row takes items until no more fit, and then the next row with the same free space does.
            let each = (free / length).max(1);
            let filled = same.min(count / each);
            count -= filled * each;
            let mut left = same - filled;
            let mut keep = |free: u64, rows: u64| {
                if free > 0 && rows > 0 {
                    *room.entry(free).or_default() += rows;
                }
            };
            keep(free.saturating_sub(each * length), filled);
            if left > 0 && count > 0 {
                keep(free - count * length, 1);
                (count, left) = (0, left - 1);
            }
            keep(free, left);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packed(lengths: &[u64], seq_len: u64) -> Vec<Vec<usize>> {
        let rows = pack(lengths.len() as u32, |item| lengths[item as usize], seq_len);
        let row = |row| rows.get(row).unwrap().iter().map(|&item| item as usize).collect();
        assert!(rows.get(rows.len()).is_none());
        (0..rows.len()).map(row).collect()
    }

    #[test]
    fn a_known_packing() {
        assert_eq!(packed(&[2, 7, 5, 0, 3, 3, 10], 10), [vec![6], vec![1, 4], vec![0, 2, 5]]);
        assert_eq!(packed(&[], 10), Vec::<Vec<usize>>::new());
    }

    proptest! {
        #[test]
        fn every_item_is_packed_once_and_no_two_rows_could_be_merged(lengths in prop::collection::vec(1u64..30, 0..200)) {
            let rows = packed(&lengths, 30);
            let mut items: Vec<usize> = rows.concat();
            prop_assert!(rows.iter().all(|row| row.is_sorted()));
            items.sort_unstable();
            prop_assert!(items.into_iter().eq(0..lengths.len()));
            let mut sums: Vec<u64> = rows.iter().map(|row| row.iter().map(|&i| lengths[i]).sum()).collect();
            sums.sort_unstable();
            prop_assert!(sums.iter().all(|&sum| sum <= 30));
            if let [first, second, ..] = sums[..] {
                prop_assert!(first + second > 30, "two rows of {} and {} are left", first, second);
            }
        }

        #[test]
        fn rows_are_counted_without_packing(lengths in prop::collection::vec(1u64..40, 0..300), seq_len in 40u64..90) {
            let count = |length| lengths.iter().filter(|&&l| l == length).count() as u64;
            let counted = (1..40).rev().map(|length| (length, count(length)));
            prop_assert_eq!(best_fit_rows(counted, seq_len), packed(&lengths, seq_len).len() as u64);
        }
    }
}
