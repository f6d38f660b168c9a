//! First-fit decreasing bin packing with two sizes per item: the largest item first, each into the first row that has room for
//! both of its sizes.
//!
//! The size that orders the items is the larger of their two shares of a row (Kou and Markowsky, "Multidimensional bin packing
//! algorithms", 1977).

use std::cmp::Reverse;

use super::best_fit::Rows;

/// The two sizes of an item, or how much of both a row has room for.
pub(super) type Sizes = (u64, u64);

/// Packs the items `0..count`, whose sizes are at most those of `row`, into rows. Items without tokens, the first size, are in
/// no row.
///
/// The result is deterministic: equal items are placed in order. Memory: 24 bytes per item and up to 64 per row.
pub(super) fn pack(count: u32, sizes: impl Fn(u32) -> Sizes, row: Sizes) -> Rows {
    // The shares of a row, multiplied by both sizes of a row.
    let share = |item: u32| {
        let (tokens, other) = sizes(item);
        let of = |size: u64, other_of_row: u64| u128::from(size) * u128::from(other_of_row);
        of(tokens, row.1).max(of(other, row.0))
    };
    let mut largest_first: Vec<u32> = (0..count).filter(|&item| sizes(item).0 > 0).collect();
    largest_first.sort_by_cached_key(|&item| (Reverse(share(item)), item));
    let mut row_of = vec![0u32; count as usize];
    let mut room = Room::default();
    // Number of items of each row.
    let mut counts: Vec<u32> = Vec::new();
    for &item in &largest_first {
        let found = room.take(sizes(item), row);
        match counts.get_mut(found as usize) {
            Some(count) => *count += 1,
            None => counts.push(1),
        }
        if let Some(slot) = row_of.get_mut(item as usize) {
            *slot = found;
        }
    }
    Rows::new(|item| sizes(item).0 > 0, &row_of, &counts, largest_first)
}

/// What each row has room for: a binary tree, in which a node has the largest room of its rows for each of the two sizes.
#[derive(Debug, Default)]
struct Room {
    rows: u32,
    /// The root is node 1, and the children of node `n` are `2n` and `2n + 1`. The leaves are rows, also those that are not open
    /// yet, which have no room.
    nodes: Vec<Sizes>,
}

impl Room {
    /// Takes the first row that has room for an item, or opens the next row, and returns its number.
    fn take(&mut self, item: Sizes, row: Sizes) -> u32 {
        if let Some(leaf) = self.find(item) {
            let left = self.node(leaf);
            self.set(leaf, left.0.saturating_sub(item.0), left.1.saturating_sub(item.1));
            return (leaf - self.leaves()) as u32;
        }
        if self.rows as usize == self.leaves() {
            self.grow();
        }
        let opened = self.rows;
        self.rows += 1;
        let leaf = self.leaves() + opened as usize;
        self.set(leaf, row.0.saturating_sub(item.0), row.1.saturating_sub(item.1));
        opened
    }

    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    fn node(&self, node: usize) -> Sizes {
        self.nodes.get(node).copied().unwrap_or_default()
    }

    /// Returns the first leaf with room for an item. A node may have room for one size in one row, and for the other size in
    /// another, so both of its children are searched.
    fn find(&self, item: Sizes) -> Option<usize> {
        let mut open = vec![1];
        while let Some(node) = open.pop() {
            let room = self.node(node);
            if room.0 < item.0 || room.1 < item.1 || node >= self.nodes.len() {
                continue;
            }
            if node >= self.leaves() {
                return Some(node);
            }
            open.extend([2 * node + 1, 2 * node]);
        }
        None
    }

    fn set(&mut self, leaf: usize, tokens: u64, other: u64) {
        let mut node = leaf;
        let mut room = (tokens, other);
        while let Some(slot) = self.nodes.get_mut(node) {
            *slot = room;
            if node <= 1 {
                break;
            }
            node /= 2;
            let (left, right) = (self.node(2 * node), self.node(2 * node + 1));
            room = (left.0.max(right.0), left.1.max(right.1));
        }
    }

    /// Doubles the number of leaves.
    fn grow(&mut self) {
        let old = std::mem::take(&mut self.nodes);
        let leaves = old.len() / 2;
        self.nodes = vec![(0, 0); (4 * leaves).max(2)];
        let first = self.leaves();
        for (number, room) in old.into_iter().skip(leaves).enumerate() {
            self.set(first + number, room.0, room.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packed(items: &[Sizes], row: Sizes) -> Vec<Vec<usize>> {
        let rows = pack(items.len() as u32, |item| items[item as usize], row);
        let items_of = |row| rows.get(row).unwrap().iter().map(|&item| item as usize).collect();
        assert!(rows.get(rows.len()).is_none());
        (0..rows.len()).map(items_of).collect()
    }

    /// The same algorithm, which examines all rows for each item.
    fn brute_force(items: &[Sizes], row: Sizes) -> Vec<Vec<usize>> {
        let share = |&(a, b): &Sizes| (a * row.1).max(b * row.0);
        let mut order: Vec<usize> = (0..items.len()).filter(|&i| items[i].0 > 0).collect();
        order.sort_by_key(|&i| Reverse(share(&items[i])));
        let mut rows: Vec<(Sizes, Vec<usize>)> = Vec::new();
        for i in order {
            let (a, b) = items[i];
            let fits = |(used, _): &&mut (Sizes, Vec<usize>)| used.0 + a <= row.0 && used.1 + b <= row.1;
            match rows.iter_mut().find(fits) {
                Some((used, found)) => {
                    *used = (used.0 + a, used.1 + b);
                    found.push(i);
                }
                None => rows.push(((a, b), vec![i])),
            }
        }
        let sorted = |(_, mut found): (Sizes, Vec<usize>)| {
            found.sort_unstable();
            found
        };
        rows.into_iter().map(sorted).collect()
    }

    #[test]
    fn a_known_packing() {
        // Three items fill the tokens of a row, and one all patches of another, whose tokens are left for texts.
        let items = [(4, 0), (2, 9), (0, 5), (6, 1), (3, 0), (1, 0)];
        assert_eq!(packed(&items, (10, 9)), [vec![0, 1, 4, 5], vec![3]]);
        assert_eq!(packed(&[], (10, 9)), Vec::<Vec<usize>>::new());
    }

    proptest! {
        #[test]
        fn rows_are_those_of_brute_force(
            items in prop::collection::vec((0u64..=30, prop_oneof![Just(0u64), 0u64..=50]), 0..200),
        ) {
            let row = (30, 50);
            let rows = packed(&items, row);
            prop_assert_eq!(&rows, &brute_force(&items, row));
            for found in &rows {
                prop_assert!(found.iter().map(|&i| items[i].0).sum::<u64>() <= row.0);
                prop_assert!(found.iter().map(|&i| items[i].1).sum::<u64>() <= row.1);
            }
            let mut all = rows.concat();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq((0..items.len()).filter(|&i| items[i].0 > 0)));
        }
    }
}
