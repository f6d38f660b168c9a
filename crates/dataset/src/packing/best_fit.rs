//! Best-fit decreasing bin packing: longest piece first, each into the fullest row that still has room.
//!
//! Ding et al., "Fewer Truncations Improve Language Modeling" (2024), proposed it for language models. The algorithm is
//! by Johnson (1973).

use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Packs items of `lengths`, each at least 1 and at most `seq_len`, into rows. Returns the indices into `lengths` for
/// each row, in ascending order.
///
/// The result is deterministic: equal lengths are placed in order, and among equally full rows the first is chosen.
pub(super) fn pack(lengths: &[u64], seq_len: u64) -> Vec<Vec<usize>> {
    let mut longest_first: Vec<usize> = (0..lengths.len()).collect();
    let length = |item: usize| lengths.get(item).copied().unwrap_or(0);
    // Stable sort.
    longest_first.sort_by_key(|&item| Reverse(length(item)));
    let mut rows: Vec<Vec<usize>> = Vec::new();
    // Free space and index of the rows that are not full.
    let mut room: BTreeSet<(u64, usize)> = BTreeSet::new();
    for item in longest_first {
        let needed = length(item);
        let found = room.range((needed, 0)..).next().copied();
        let (free, row) = found.unwrap_or((seq_len, rows.len()));
        match rows.get_mut(row) {
            Some(row) => row.push(item),
            None => rows.push(vec![item]),
        }
        room.remove(&(free, row));
        if free > needed {
            room.insert((free - needed, row));
        }
    }
    for row in &mut rows {
        row.sort_unstable();
    }
    rows
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_known_packing() {
        assert_eq!(pack(&[2, 7, 5, 3, 3, 10], 10), [vec![5], vec![1, 3], vec![0, 2, 4]]);
        assert_eq!(pack(&[], 10), Vec::<Vec<usize>>::new());
    }

    proptest! {
        #[test]
        fn every_item_is_packed_once_and_no_two_rows_could_be_merged(lengths in prop::collection::vec(1u64..30, 0..200)) {
            let rows = pack(&lengths, 30);
            let mut items: Vec<usize> = rows.concat();
            items.sort_unstable();
            prop_assert!(items.into_iter().eq(0..lengths.len()));
            let mut sums: Vec<u64> = rows.iter().map(|row| row.iter().map(|&i| lengths[i]).sum()).collect();
            sums.sort_unstable();
            prop_assert!(sums.iter().all(|&sum| sum <= 30));
            if let [first, second, ..] = sums[..] {
                prop_assert!(first + second > 30, "two rows of {} and {} are left", first, second);
            }
        }
    }
}
