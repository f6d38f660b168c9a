//! A set of byte pairs, as a bitmap.

/// A set of byte pairs, with one bit per pair.
#[derive(Default)]
pub(super) struct BytePairs {
    /// A bitmap of right bytes for each left byte. Empty until the first insertion.
    rights: Vec<[u64; 4]>,
}

impl BytePairs {
    pub(super) fn insert(&mut self, left: u8, right: u8) {
        if self.rights.is_empty() {
            self.rights = vec![[0; 4]; 256];
        }
        self.rights[left as usize][right as usize / 64] |= 1 << (right % 64);
    }

    pub(super) fn contains(&self, left: u8, right: u8) -> bool {
        let rights = self.rights.get(left as usize);
        rights.is_some_and(|rights| rights[right as usize / 64] >> (right % 64) & 1 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_inserted_pairs_are_contained() {
        let mut pairs = BytePairs::default();
        assert!(!pairs.contains(0, 0));
        for (left, right) in [(0, 63), (255, 64), (7, 255)] {
            pairs.insert(left, right);
        }
        let all = (0..=255).flat_map(|left| (0..=255).map(move |right| (left, right)));
        let found: Vec<(u8, u8)> = all.filter(|&(left, right)| pairs.contains(left, right)).collect();
        assert_eq!(found, [(0, 63), (7, 255), (255, 64)]);
    }
}
