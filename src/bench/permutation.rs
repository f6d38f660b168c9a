//! A pseudo-random permutation of `0..n` in constant memory.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Rounds of the Feistel network; four make a good permutation.
const ROUNDS: u64 = 4;

/// A pseudo-random bijection of the numbers below `n`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Permutation {
    n: u64,
    /// Bits of each half of the network, whose domain is the next power of four.
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    pub(super) fn new(n: u64, seed: u64) -> Self {
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        Self { n, half_bits: bits.div_ceil(2).max(1), seed }
    }

    /// Returns the image of `i`, which must be below `n`.
    pub(super) fn of(&self, i: u64) -> u64 {
        // Cycle walking: the domain is at most four times `n`.
        let mut found = self.feistel(i);
        while found >= self.n && self.n > 0 {
            found = self.feistel(found);
        }
        found
    }

    /// Applies the Feistel network, a bijection of its domain.
    fn feistel(&self, i: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = ((i >> self.half_bits) & mask, i & mask);
        for round in 0..ROUNDS {
            let mixed =
                xxh3_64_with_seed(&right.to_le_bytes(), self.seed.wrapping_mul(ROUNDS) ^ round) & mask;
            (left, right) = (right, left ^ mixed);
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutations_are_bijections_that_depend_on_the_seed() {
        for n in [1, 2, 3, 5, 16, 17, 1000] {
            let mut found: Vec<u64> = (0..n).map(|i| Permutation::new(n, 7).of(i)).collect();
            found.sort_unstable();
            assert!(found.iter().copied().eq(0..n), "{n}");
        }
        let of = |seed| (0..1000).map(|i| Permutation::new(1000, seed).of(i)).collect::<Vec<_>>();
        assert_ne!(of(1), of(2));
        assert!(of(1).iter().zip(0..).filter(|(a, b)| **a == *b).count() < 10);
    }
}
