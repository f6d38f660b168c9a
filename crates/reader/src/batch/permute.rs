//! A keyed permutation of `0..n` without an array: a shuffle needs constant memory, and any position is computed
//! directly.
//!
//! Above [`SMALL`], it is a Feistel network over mixed numbers with cycle walking (Black and Rogaway, "Ciphers with
//! Arbitrary Finite Domains", 2002). In a small domain, such a network is biased towards some orders, so small domains
//! are shuffled in a table instead. The permutation is not cryptographically secure.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::split_mix;

/// Rounds of the network: four for each half.
const ROUNDS: usize = 8;

/// Largest domain that is shuffled in a table. Its numbers fit into a byte.
const SMALL: u64 = 256;

/// The purpose of random numbers, such as a permutation. Those with different purposes are unrelated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Purpose {
    /// Steps of an epoch, or of one window of it.
    Steps = 1,
    /// Records of a bucket.
    Records = 2,
    /// Blocks of neighboring records.
    Blocks = 3,
    /// Records inside a group of blocks.
    Group = 4,
    /// Packed rows of a window.
    Rows = 5,
    /// Ways of cutting ranks into buckets.
    Cuttings = 6,
    /// Sources of a mixture.
    Sources = 7,
    /// Crops and flips of an image.
    Images = 0x696d_6167_6573,
    /// Values that are left out.
    Drops = 0x64_726f_7073,
}

/// Returns the seed of source `number` of a mixture. Sources of equal size would otherwise have equal orders.
pub(crate) fn source_seed(seed: u64, number: u64) -> u64 {
    key(seed, Purpose::Sources, 0, number)
}

/// Returns the key of random numbers: the XXH3-64 under `seed` of purpose, epoch and part (the bucket, the window, the
/// record, …) as three u64 LE.
pub(crate) fn key(seed: u64, purpose: Purpose, epoch: u64, part: u64) -> u64 {
    let mut bytes = [0; 24];
    for (slot, number) in bytes.chunks_exact_mut(8).zip([purpose as u64, epoch, part]) {
        slot.copy_from_slice(&number.to_le_bytes());
    }
    xxh3_64_with_seed(&bytes, seed)
}

/// A bijection of `0..n` chosen by a key.
#[derive(Debug, Clone)]
pub(super) enum Permutation {
    Small(SmallPermutation),
    Large(Network),
}

impl Permutation {
    pub(super) fn new(n: u64, key: u64) -> Self {
        if n <= SMALL {
            Permutation::Small(SmallPermutation::new(n, key))
        } else {
            Permutation::Large(Network::new(n, key))
        }
    }

    /// Returns the number at `position`. A position outside the domain is returned unchanged.
    pub(super) fn at(&self, position: u64) -> u64 {
        match self {
            Permutation::Small(table) => look_up(&table.numbers, position),
            Permutation::Large(network) => network.at(position),
        }
    }

    /// Returns the position of `number`: the inverse of [`Permutation::at`].
    pub(super) fn position_of(&self, number: u64) -> u64 {
        match self {
            Permutation::Small(table) => look_up(&table.positions, number),
            Permutation::Large(network) => network.position_of(number),
        }
    }
}

/// A permutation of at most [`SMALL`] numbers and its inverse.
#[derive(Debug, Clone)]
pub(super) struct SmallPermutation {
    numbers: Box<[u8]>,
    positions: Box<[u8]>,
}

impl SmallPermutation {
    /// Shuffles `0..n` (Durstenfeld 1964), so every order is equally likely.
    fn new(n: u64, key: u64) -> Self {
        let mut numbers: Box<[u8]> = (0..n).map(|number| number as u8).collect();
        let mut state = key;
        for i in (1..numbers.len()).rev() {
            numbers.swap(i, scale(split_mix::next(&mut state), i as u64 + 1) as usize);
        }
        let mut positions = numbers.clone();
        for (position, &number) in numbers.iter().enumerate() {
            if let Some(slot) = positions.get_mut(usize::from(number)) {
                *slot = position as u8;
            }
        }
        Self { numbers, positions }
    }
}

fn look_up(table: &[u8], at: u64) -> u64 {
    usize::try_from(at).ok().and_then(|i| table.get(i)).map_or(at, |&found| found.into())
}

/// The Feistel network.
#[derive(Debug, Clone)]
pub(super) struct Network {
    n: u64,
    /// A number `x` is split as `(x / right, x % right)`: `left × right` is `n` or slightly more.
    left: u64,
    right: u64,
    keys: [u64; ROUNDS],
}

impl Network {
    fn new(n: u64, key: u64) -> Self {
        let root = n.isqrt();
        let left = if root * root < n { root + 1 } else { root }.max(1);
        let mut keys = [0; ROUNDS];
        let mut state = key;
        for slot in &mut keys {
            *slot = split_mix::next(&mut state);
        }
        Self { n, left, right: n.div_ceil(left).max(1), keys }
    }

    fn at(&self, position: u64) -> u64 {
        if position >= self.n {
            return position;
        }
        // A walk that starts in the domain is on a cycle through it, so it comes back.
        let mut x = position;
        loop {
            x = self.forward(x);
            if x < self.n {
                return x;
            }
        }
    }

    fn position_of(&self, number: u64) -> u64 {
        if number >= self.n {
            return number;
        }
        let mut x = number;
        loop {
            x = self.backward(x);
            if x < self.n {
                return x;
            }
        }
    }

    fn forward(&self, x: u64) -> u64 {
        let (mut l, mut r) = (x / self.right, x % self.right);
        for pair in self.keys.chunks_exact(2) {
            l = add(l, below(self.left, r, pair[0]), self.left);
            r = add(r, below(self.right, l, pair[1]), self.right);
        }
        l * self.right + r
    }

    fn backward(&self, x: u64) -> u64 {
        let (mut l, mut r) = (x / self.right, x % self.right);
        for pair in self.keys.chunks_exact(2).rev() {
            r = add(r, self.right - below(self.right, l, pair[1]), self.right);
            l = add(l, self.left - below(self.left, r, pair[0]), self.left);
        }
        l * self.right + r
    }
}

/// Returns `a + b` modulo `m`, for `a < m` and `b ≤ m`. Halves are below 2³³, so nothing overflows.
fn add(a: u64, b: u64, m: u64) -> u64 {
    let sum = a + b;
    if sum >= m { sum - m } else { sum }
}

/// Returns a number below `bound` that depends on `x` and `key`.
fn below(bound: u64, x: u64, key: u64) -> u64 {
    scale(split_mix::mix(x.wrapping_add(key)), bound)
}

/// Maps 64 random bits to a number below `bound`.
fn scale(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_domain_is_permuted(n in 0u64..3000, key: u64) {
            let permutation = Permutation::new(n, key);
            let mut seen = vec![false; n as usize];
            for position in 0..n {
                let number = permutation.at(position);
                prop_assert!(!std::mem::replace(&mut seen[number as usize], true), "{} occurs twice", number);
                prop_assert_eq!(permutation.position_of(number), position);
            }
        }

        #[test]
        fn huge_domains_have_an_inverse(n in 1u64.., key: u64, position: u64) {
            let permutation = Permutation::new(n, key);
            let number = permutation.at(position % n);
            prop_assert!(number < n);
            prop_assert_eq!(permutation.position_of(number), position % n);
        }
    }

    /// Returns the chi-square of the orders of `n` numbers under `keys` keys, per degree of freedom. 1 is expected.
    fn chi_square_of_orders(n: u64, keys: u64, each: impl Fn(u64) -> u64) -> f64 {
        let mut orders = BTreeMap::<Vec<u64>, u64>::new();
        for i in 0..keys {
            let permutation = Permutation::new(n, each(i));
            *orders.entry((0..n).map(|i| permutation.at(i)).collect()).or_default() += 1;
        }
        let all = (1..=n).product::<u64>();
        assert_eq!(orders.len() as u64, all);
        let expected = keys as f64 / all as f64;
        orders.values().map(|&count| (count as f64 - expected).powi(2) / expected).sum::<f64>()
            / (all - 1) as f64
    }

    /// All orders of a small domain are equally likely, whichever input of the keys differs. The standard deviation of
    /// the statistic is √(2 ÷ degrees of freedom): 0.05 for the 720 orders of six numbers.
    #[test]
    fn every_order_of_a_small_domain_is_equally_likely() {
        for (n, most) in [(2, 4.0), (3, 2.5), (4, 1.9), (5, 1.4), (6, 1.2)] {
            let by_seed = chi_square_of_orders(n, 72_000, |i| key(i, Purpose::Records, 0, 0));
            let by_epoch = chi_square_of_orders(n, 72_000, |i| key(5, Purpose::Steps, i, 3));
            assert!(by_seed < most && by_epoch < most, "{n}: {by_seed} {by_epoch}");
        }
    }

    /// On both sides of the bound between table and network, every number is equally likely at every position, and so
    /// is every pair at two adjacent positions.
    #[test]
    fn positions_and_neighbors_are_unbiased() {
        for n in [16, SMALL, SMALL + 1, 300] {
            let (mut positions, mut pairs) = (vec![0u64; (n * n) as usize], vec![0u64; (n * n) as usize]);
            let keys = 2_000;
            for seed in 0..keys {
                let permutation = Permutation::new(n, key(seed, Purpose::Records, 0, 0));
                let order: Vec<u64> = (0..n).map(|i| permutation.at(i)).collect();
                (0..n).zip(&order).for_each(|(i, number)| positions[(i * n + number) as usize] += 1);
                order.windows(2).for_each(|pair| pairs[(pair[0] * n + pair[1]) as usize] += 1);
            }
            let chi = |cells: &[u64], skip_diagonal: bool, degrees: f64| {
                let cells = (0..)
                    .zip(cells)
                    .filter(|(i, _)| !skip_diagonal || i / n != i % n)
                    .map(|(_, c)| *c as f64);
                let (count, sum) = cells.clone().fold((0.0, 0.0), |(n, s), c| (n + 1.0, s + c));
                cells.map(|c| (c - sum / count).powi(2) / (sum / count)).sum::<f64>() / degrees
            };
            let n = n as f64;
            let (positions, pairs) =
                (chi(&positions, false, (n - 1.0).powi(2)), chi(&pairs, true, n * (n - 1.0)));
            assert!(positions < 1.3 && pairs < 1.3, "{n}: {positions} {pairs}");
        }
    }

    /// Neighbors are separated: in a random order of `n`, two neighbors are on average `n / 3` apart.
    #[test]
    fn neighbors_are_separated() {
        for n in [100, 1000, 65_537, 10_000_000_019] {
            let permutation = Permutation::new(n, key(n, Purpose::Steps, 1, 2));
            let count = n.min(10_000) - 1;
            let distance: f64 =
                (0..count).map(|i| permutation.at(i).abs_diff(permutation.at(i + 1)) as f64).sum();
            let mean = distance / count as f64 / n as f64;
            assert!((0.25..0.42).contains(&mean), "{n}: {mean}");
        }
    }

    /// States of runs in progress depend on this: it changes only with `ALGORITHM`.
    #[test]
    fn the_permutation_never_changes() {
        let order = |n, count| {
            let permutation = Permutation::new(n, key(7, Purpose::Records, 3, 1));
            (0..count).map(|i| permutation.at(i)).collect::<Vec<u64>>()
        };
        assert_eq!(order(10, 10), [3, 1, 5, 2, 4, 9, 6, 8, 7, 0]);
        assert_eq!(order(1000, 5), [690, 101, 47, 650, 28]);
    }
}
