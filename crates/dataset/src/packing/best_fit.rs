//! Best-fit decreasing: the longest piece first, each into the fullest row that still has room.
//!
//! The idea for language models is that of Ding et al., "Fewer Truncations Improve Language Modeling" (2024); the
//! algorithm is Johnson's (1973).

use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Rows that hold `lengths`, each at most `seq_len` and at least 1: for each row, which of `lengths`, ascending. Equal
/// lengths go in order, among equally full rows into the first, so the result depends on nothing else.
pub(super) fn pack(lengths: &[u64], seq_len: u64) -> Vec<Vec<usize>> {
    let mut longest_first: Vec<usize> = (0..lengths.len()).collect();
    let length = |item: usize| lengths.get(item).copied().unwrap_or(0);
    // Stable.
    longest_first.sort_by_key(|&item| Reverse(length(item)));
    let mut rows: Vec<Vec<usize>> = Vec::new();
    // Rows with room, by how much of it.
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
        fn rows_hold_everything_once_and_no_two_could_be_one(lengths in prop::collection::vec(1u64..30, 0..200)) {
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
