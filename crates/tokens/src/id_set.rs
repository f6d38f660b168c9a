//! A set of ids, as a bitmap, because it is queried once per token.

/// A set of ids, with one bit per id.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct IdSet(Vec<u64>);

impl IdSet {
    /// Creates the set of `ids`. They must be ids of a loaded vocabulary, because the largest determines the size.
    pub(crate) fn new(ids: &[u32]) -> Self {
        let words = ids.iter().max().map_or(0, |&max| max as usize / 64 + 1);
        let mut set = vec![0u64; words];
        for &id in ids {
            if let Some(word) = set.get_mut(id as usize / 64) {
                *word |= 1 << (id % 64);
            }
        }
        Self(set)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, id: u32) -> bool {
        self.0.get(id as usize / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
    }
}
