//! The order of records in a bucket and of steps in an epoch. Each position of an order is computed independently.

use super::options::Shuffle;
use super::permute::{Permutation, Purpose, key};

/// The seed and epoch that orders depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Epoch {
    pub(super) seed: u64,
    pub(super) epoch: u64,
}

impl Epoch {
    pub(super) fn permutation(self, n: u64, purpose: Purpose, part: u64) -> Permutation {
        Permutation::new(n, key(self.seed, purpose, self.epoch, part))
    }
}

/// An order of the records of a bucket, or of the steps of an epoch.
#[derive(Debug, Clone)]
pub(super) struct Order {
    base: Base,
    /// Pairs of positions that are swapped, last pair first. The order stays a bijection.
    swaps: Vec<(u64, u64)>,
}

#[derive(Debug, Clone)]
enum Base {
    Natural,
    Full(Permutation),
    Blocks(BlockShuffle),
    Windows { epoch: Epoch, n: u64, window: u64 },
}

impl Order {
    /// Returns the order 0, 1, 2, ….
    pub(super) fn natural() -> Self {
        Self { base: Base::Natural, swaps: Vec::new() }
    }

    /// Returns the order of the `n` records of bucket `part`.
    pub(super) fn of_records(shuffle: Shuffle, epoch: Epoch, n: u64, part: u64) -> Self {
        let base = match shuffle {
            Shuffle::None => Base::Natural,
            Shuffle::Full => Base::Full(epoch.permutation(n, Purpose::Records, part)),
            Shuffle::Block { records, group } => Base::Blocks(BlockShuffle::new(epoch, n, records, group)),
        };
        Self { base, swaps: Vec::new() }
    }

    /// Returns a random order of the `n` steps of an epoch, or packed rows of window `part`.
    pub(super) fn random(epoch: Epoch, n: u64, purpose: Purpose, part: u64) -> Self {
        Self { base: Base::Full(epoch.permutation(n, purpose, part)), swaps: Vec::new() }
    }

    /// Returns a random order of `n` steps that keeps the steps of each window of `window` together.
    pub(super) fn of_steps_in_windows(epoch: Epoch, n: u64, window: u64) -> Self {
        Self { base: Base::Windows { epoch, n, window: window.max(1) }, swaps: Vec::new() }
    }

    /// Moves `number` to `position`, in exchange for the number there.
    #[must_use]
    pub(super) fn with(mut self, position: u64, number: u64) -> Self {
        let found = self.position_of(number);
        self.swaps.push((position, found));
        self
    }

    /// Returns the number at `position`.
    pub(super) fn at(&self, position: u64) -> u64 {
        let position = self.swaps.iter().rev().fold(position, |at, &pair| swap(at, pair));
        match &self.base {
            Base::Natural => position,
            Base::Full(permutation) => permutation.at(position),
            Base::Blocks(blocks) => blocks.at(position),
            &Base::Windows { epoch, n, window } => {
                let (start, permutation) = steps_of_window(epoch, n, window, position);
                start + permutation.at(position - start)
            }
        }
    }

    /// Returns the position of `number`.
    pub(super) fn position_of(&self, number: u64) -> u64 {
        let position = match &self.base {
            Base::Natural => number,
            Base::Full(permutation) => permutation.position_of(number),
            Base::Blocks(blocks) => blocks.position_of(number),
            &Base::Windows { epoch, n, window } => {
                let (start, permutation) = steps_of_window(epoch, n, window, number);
                start + permutation.position_of(number - start)
            }
        };
        self.swaps.iter().fold(position, |at, &pair| swap(at, pair))
    }
}

fn swap(at: u64, (a, b): (u64, u64)) -> u64 {
    match at {
        _ if at == a => b,
        _ if at == b => a,
        _ => at,
    }
}

/// Returns the first step of the window that contains `step`, and the order of the window's steps.
fn steps_of_window(epoch: Epoch, n: u64, window: u64, step: u64) -> (u64, Permutation) {
    let index = step / window;
    let start = index * window;
    let count = window.min(n.saturating_sub(start));
    // Part 0 is the order of a whole epoch.
    (start, epoch.permutation(count, Purpose::Steps, index + 1))
}

/// The block shuffle. Whole blocks are permuted, and an incomplete last block stays last. Then groups of blocks are
/// formed, and the records of each group are permuted.
#[derive(Debug, Clone)]
struct BlockShuffle {
    epoch: Epoch,
    n: u64,
    /// Records per block.
    block: u64,
    /// Records per group.
    group: u64,
    /// Order of the whole blocks.
    order: Permutation,
}

impl BlockShuffle {
    fn new(epoch: Epoch, n: u64, block: u64, group: u64) -> Self {
        let block = block.max(1);
        let order = epoch.permutation(n / block, Purpose::Blocks, 0);
        Self { epoch, n, block, group: block.saturating_mul(group.max(1)), order }
    }

    fn at(&self, position: u64) -> u64 {
        let (start, permutation) = self.group_of(position);
        let inside = start + permutation.at(position - start);
        // An incomplete last block is outside the permutation, so it stays last.
        self.order.at(inside / self.block) * self.block + inside % self.block
    }

    fn position_of(&self, number: u64) -> u64 {
        let inside = self.order.position_of(number / self.block) * self.block + number % self.block;
        let (start, permutation) = self.group_of(inside);
        start + permutation.position_of(inside - start)
    }

    fn group_of(&self, position: u64) -> (u64, Permutation) {
        let index = position / self.group;
        let start = index * self.group;
        let count = self.group.min(self.n.saturating_sub(start));
        (start, self.epoch.permutation(count, Purpose::Group, index))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_order(n: u64) -> impl Strategy<Value = Order> {
        (any::<u64>(), any::<u64>(), 1u64..20, 1u64..5, 0..5).prop_map(
            move |(seed, epoch, size, group, which)| {
                let epoch = Epoch { seed, epoch };
                match which {
                    0 => Order::of_records(Shuffle::None, epoch, n, 3),
                    1 => Order::of_records(Shuffle::Full, epoch, n, 3),
                    2 => Order::of_records(Shuffle::Block { records: size, group }, epoch, n, 3),
                    3 => Order::random(epoch, n, Purpose::Steps, 0),
                    _ => Order::of_steps_in_windows(epoch, n, size),
                }
            },
        )
    }

    proptest! {
        #[test]
        fn every_order_is_a_bijection_that_starts_with_the_pinned_numbers(
            (n, order, first, second) in (2u64..300).prop_flat_map(|n| (Just(n), any_order(n), 0..n, 0..n)),
        ) {
            let order = order.with(0, first);
            let order = if first == second { order } else { order.with(1, second) };
            prop_assert_eq!(order.at(0), first);
            prop_assert!(first == second || order.at(1) == second);
            let mut numbers: Vec<u64> = (0..n).map(|position| order.at(position)).collect();
            for (position, &number) in (0..).zip(&numbers) {
                prop_assert_eq!(order.position_of(number), position);
            }
            numbers.sort_unstable();
            prop_assert!(numbers.into_iter().eq(0..n));
        }

        #[test]
        fn a_block_shuffle_reads_few_blocks_at_a_time(seed: u64, n in 1u64..2000) {
            let shuffle = Shuffle::Block { records: 10, group: 4 };
            let order = Order::of_records(shuffle, Epoch { seed, epoch: 0 }, n, 0);
            for start in (0..n).step_by(40) {
                let mut blocks: Vec<u64> = (start..n.min(start + 40)).map(|p| order.at(p) / 10).collect();
                blocks.sort_unstable();
                blocks.dedup();
                prop_assert!(blocks.len() <= 4, "{:?}", blocks);
            }
        }
    }
}
