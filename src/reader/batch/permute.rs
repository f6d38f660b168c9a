//! A keyed permutation of `0..n` that needs no array, so that shuffling a dataset takes no memory and any place of the
//! order is found at once.
//!
//! It is a Feistel network over mixed numbers, walked until it stays in the domain (Black and Rogaway, "Ciphers with
//! Arbitrary Finite Domains", 2002). It is made for statistics, not for secrets.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Rounds of the network: four for each half. Small domains need them, large ones would do with fewer.
const ROUNDS: usize = 8;

/// Increment of the SplitMix64 sequence (Steele, Lea and Flood, 2014), from which the round keys come.
const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// What a permutation is for: orders made for different purposes have nothing to do with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Steps of an epoch, or of one window of it.
    Steps = 1,
    /// Records of a bucket.
    Records = 2,
    /// Blocks of neighbouring records.
    Blocks = 3,
    /// Records inside a group of blocks.
    Group = 4,
    /// Packed rows of a window.
    Rows = 5,
}

/// The key of the permutation with this purpose: XXH3-64 under `seed` of purpose, epoch and part (the bucket, the
/// window, …) as three u64 LE.
pub(super) fn key(seed: u64, purpose: Purpose, epoch: u64, part: u64) -> u64 {
    let mut bytes = [0; 24];
    for (slot, number) in bytes.chunks_exact_mut(8).zip([purpose as u64, epoch, part]) {
        slot.copy_from_slice(&number.to_le_bytes());
    }
    xxh3_64_with_seed(&bytes, seed)
}

/// A bijection of `0..n` chosen by a key.
#[derive(Debug, Clone)]
pub(super) struct Permutation {
    n: u64,
    /// A number `x` is split as `(x / right, x % right)`: `left × right` is `n` or little more.
    left: u64,
    right: u64,
    keys: [u64; ROUNDS],
}

impl Permutation {
    pub(super) fn new(n: u64, key: u64) -> Self {
        let root = n.isqrt();
        let left = if root * root < n { root + 1 } else { root }.max(1);
        let mut keys = [0; ROUNDS];
        let mut state = key;
        for slot in &mut keys {
            state = state.wrapping_add(GOLDEN_GAMMA);
            *slot = mix(state);
        }
        Self { n, left, right: n.div_ceil(left).max(1), keys }
    }

    /// The number at `position`. A position outside the domain stays as it is.
    pub(super) fn at(&self, position: u64) -> u64 {
        if position >= self.n {
            return position;
        }
        // A walk that begins in the domain lies on a cycle through it, so it comes back.
        let mut x = position;
        loop {
            x = self.forward(x);
            if x < self.n {
                return x;
            }
        }
    }

    /// The position of `number`: the inverse of [`Permutation::at`].
    pub(super) fn position_of(&self, number: u64) -> u64 {
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

/// `a + b` modulo `m`, for `a < m` and `b ≤ m`; halves are below 2³³, so nothing overflows.
fn add(a: u64, b: u64, m: u64) -> u64 {
    let sum = a + b;
    if sum >= m { sum - m } else { sum }
}

/// A number below `bound` that depends on `x` and `key`.
fn below(bound: u64, x: u64, key: u64) -> u64 {
    ((u128::from(mix(x.wrapping_add(key))) * u128::from(bound)) >> 64) as u64
}

/// The finaliser of SplitMix64: every bit of the result depends on every bit of `z`.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
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
                prop_assert!(!std::mem::replace(&mut seen[number as usize], true), "{} comes twice", number);
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

    /// The orders of a small domain are about equally likely: 5000 keys, 24 orders, about 208 of each.
    #[test]
    fn small_domains_take_every_order() {
        let mut orders = BTreeMap::<Vec<u64>, u32>::new();
        for seed in 0..5000 {
            let permutation = Permutation::new(4, key(seed, Purpose::Records, 0, 0));
            *orders.entry((0..4).map(|i| permutation.at(i)).collect()).or_default() += 1;
        }
        assert_eq!(orders.len(), 24);
        let (min, max) = (orders.values().min().unwrap(), orders.values().max().unwrap());
        assert!(*min > 140 && *max < 290, "between {min} and {max} of each");
    }

    /// Neighbours are torn apart: in a random order of `n`, two neighbours are on average `n / 3` apart.
    #[test]
    fn neighbours_are_torn_apart() {
        for n in [100, 1000, 65_537, 10_000_000_019] {
            let permutation = Permutation::new(n, key(n, Purpose::Steps, 1, 2));
            let count = n.min(10_000) - 1;
            let distance: f64 =
                (0..count).map(|i| permutation.at(i).abs_diff(permutation.at(i + 1)) as f64).sum();
            let mean = distance / count as f64 / n as f64;
            assert!((0.25..0.42).contains(&mean), "{n}: {mean}");
        }
    }

    /// States of runs in progress depend on this: the test never changes.
    #[test]
    fn the_permutation_never_changes() {
        let permutation = Permutation::new(10, key(7, Purpose::Records, 3, 1));
        let order: Vec<u64> = (0..10).map(|i| permutation.at(i)).collect();
        assert_eq!(order, [7, 0, 9, 2, 6, 3, 1, 8, 4, 5]);
    }
}
