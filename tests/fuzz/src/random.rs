//! Random numbers that are the same on every machine.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// SplitMix64 generator.
pub(crate) struct Random(u64);

impl Random {
    /// Creates the generator of one case.
    pub(crate) fn of_case(target: &str, seed: u64, case: u64) -> Self {
        Self(xxh3_64_with_seed(target.as_bytes(), seed) ^ case.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }
}
