//! Selection of sample records and files.
//!
//! A sample is the start of a seeded permutation, so that any ordinals are equally likely to be in it together: a simple
//! random sample. Evenly spaced ordinals would be wrong without limit for periodic data: in a dataset that alternates
//! between two kinds of records, all of them may be of one kind. So would one ordinal of each of many adjacent parts: two
//! ordinals of three, as parts of one and of two, always include every third.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Seed of samples that no option selects.
const SEED: u64 = 0;

/// Returns at most `max` ordinals below `records`, ascending, which are always the same.
pub fn sample(records: u64, max: u64) -> Vec<u64> {
    seeded(records, max, SEED)
}

/// Returns at most `max` ordinals below `records`, ascending, chosen by `seed`.
pub fn seeded(records: u64, max: u64, seed: u64) -> Vec<u64> {
    if records <= max {
        return (0..records).collect();
    }
    let order = Permutation::new(records, seed);
    let mut chosen: Vec<u64> = (0..max).map(|i| order.of(i)).collect();
    chosen.sort_unstable();
    chosen
}

/// Rounds of the Feistel network; four make a good permutation.
const ROUNDS: u64 = 4;

/// A pseudo-random bijection of the numbers below `n`.
#[derive(Debug, Clone, Copy)]
pub struct Permutation {
    n: u64,
    /// Bits of each half of the network, whose domain is the next power of four.
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    /// Creates the permutation of the numbers below `n` that `seed` selects.
    pub fn new(n: u64, seed: u64) -> Self {
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        Self { n, half_bits: bits.div_ceil(2).max(1), seed }
    }

    /// Returns the image of `i`, which must be below `n`.
    pub fn of(&self, i: u64) -> u64 {
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
    fn samples_are_ascending_and_in_range() {
        for (records, most) in [(0, 5), (1, 5), (5, 5), (7, 3), (1_000_000, 48), (u64::MAX, 3)] {
            for seed in 0..2 {
                let sample = seeded(records, most, seed);
                assert_eq!(sample.len() as u64, records.min(most));
                assert!(sample.is_sorted_by(|a, b| a < b) && sample.iter().all(|i| *i < records));
            }
        }
        assert_eq!(sample(5, 5), [0, 1, 2, 3, 4]);
        assert_ne!(seeded(1_000_000, 48, 1), seeded(1_000_000, 48, 2));
        assert_eq!(seeded(1_000_000, 48, 1), seeded(1_000_000, 48, 1));
    }

    #[test]
    fn periodic_data_is_represented() {
        // Samples of nearly all records, too: their parts would have two sizes.
        for (records, max) in
            [(1_000_000u64, 10_000u64), (150_000, 100_000), (30_000, 20_000), (100_001, 100_000)]
        {
            let sample = sample(records, max);
            for period in [2, 3, 5, 10, 100, 128] {
                for phase in 0..period.min(3) {
                    let found = sample.iter().filter(|&&i| i % period == phase).count() as f64 / max as f64;
                    let expected = 1.0 / period as f64;
                    // Four and a half standard errors.
                    let unread = 1.0 - max as f64 / records as f64;
                    let error =
                        4.5 * (unread * expected * (1.0 - expected) / max as f64).sqrt() + 1.0 / max as f64;
                    assert!((found - expected).abs() < error, "{records} {max} {period} {phase}: {found}");
                }
            }
        }
    }

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
