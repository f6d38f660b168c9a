//! A set of ids, as a bitmap, because it is queried once per token.

/// Ids from here on are in a sorted list, so that the bitmap of a file with huge ids stays small.
const BITS: u32 = 1 << 24;

/// A set of ids.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct IdSet {
    /// One bit per id below [`BITS`].
    words: Vec<u64>,
    /// The other ids, sorted.
    others: Vec<u32>,
}

impl IdSet {
    /// Creates the set of `ids`.
    pub(crate) fn new(ids: &[u32]) -> Self {
        let (mut words, mut others) = (Vec::new(), Vec::new());
        for &id in ids {
            if id >= BITS {
                others.push(id);
                continue;
            }
            let at = id as usize / 64;
            if at >= words.len() {
                words.resize(at + 1, 0u64);
            }
            words[at] |= 1 << (id % 64);
        }
        others.sort_unstable();
        Self { words, others }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty() && self.others.is_empty()
    }

    #[inline]
    pub(crate) fn contains(&self, id: u32) -> bool {
        match self.words.get(id as usize / 64) {
            Some(word) => word >> (id % 64) & 1 == 1,
            None => !self.others.is_empty() && self.others.binary_search(&id).is_ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_huge_ids_are_found() {
        let ids = [3, 64, BITS - 1, BITS, u32::MAX];
        let set = IdSet::new(&ids);
        assert!(ids.iter().all(|&id| set.contains(id)) && !set.is_empty());
        assert!([0, 63, 65, BITS - 2, BITS + 1, u32::MAX - 1].iter().all(|&id| !set.contains(id)));
        assert!(IdSet::new(&[]).is_empty() && !IdSet::new(&[u32::MAX]).is_empty());
        assert!(IdSet::new(&[u32::MAX]).words.is_empty());
    }
}
