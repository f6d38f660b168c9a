//! The table of the merges of a model: from a pair of tokens to the rank of their merge.

/// Bits of an id in an entry of the [`PairTable`].
pub(super) const ID_BITS: u32 = 20;
/// Bits of a rank in an entry of the [`PairTable`].
pub(super) const RANK_BITS: u32 = u64::BITS - 2 * ID_BITS;
/// Filter bits per pair.
const FILTER_BITS: usize = 8;
/// Rank of no merge, larger than every rank.
pub(super) const NO_MERGE: u32 = u32::MAX;

/// Map from a pair (left, right) to its rank, by open addressing.
///
/// Most lookups miss, and the table is larger than the L2 cache. So an entry is a single number, and a small filter
/// answers most lookups.
pub(super) struct PairTable {
    /// Left, right and rank, from the highest bit down; [`PairTable::EMPTY`] for an empty slot.
    entries: Vec<u64>,
    shift: u32,
    /// One bit per hash; a pair whose bit is not set is not in the table.
    filter: Vec<u64>,
    filter_shift: u32,
}

impl PairTable {
    /// Entry of an empty slot; no rank has all its bits set.
    const EMPTY: u64 = u64::MAX;

    /// Creates a table in which the rank of a pair is its index in `list`. A later entry for the same pair replaces an
    /// earlier one, as in the reference.
    pub(super) fn new(list: &[(u32, u32)]) -> Self {
        let capacity = (list.len() * 3 / 2 + 2).next_power_of_two();
        let bits = (list.len() * FILTER_BITS).next_power_of_two().max(64);
        let mut table = Self {
            entries: vec![Self::EMPTY; capacity],
            shift: 64 - capacity.trailing_zeros(),
            filter: vec![0; bits / 64],
            filter_shift: 64 - bits.trailing_zeros(),
        };
        for (rank, &(left, right)) in (0..).zip(list) {
            let key = Self::key(left, right);
            let hash = Self::hash(key);
            let bit = (hash >> table.filter_shift) as usize;
            table.filter[bit / 64] |= 1 << (bit % 64);
            let mut at = (hash >> table.shift) as usize;
            while table.entries[at] != Self::EMPTY && table.entries[at] >> RANK_BITS != key {
                at = (at + 1) & (capacity - 1);
            }
            table.entries[at] = key << RANK_BITS | rank;
        }
        table
    }

    #[inline(always)]
    fn key(left: u32, right: u32) -> u64 {
        u64::from(left) << ID_BITS | u64::from(right)
    }

    #[inline(always)]
    fn hash(key: u64) -> u64 {
        key.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xc2b2_ae3d_27d4_eb4f)
    }

    /// Returns the rank of a pair, or [`NO_MERGE`].
    #[inline(always)]
    pub(super) fn get(&self, left: u32, right: u32) -> u32 {
        let key = Self::key(left, right);
        let hash = Self::hash(key);
        let bit = (hash >> self.filter_shift) as usize;
        if self.filter[bit / 64] >> (bit % 64) & 1 == 0 {
            return NO_MERGE;
        }
        let mut at = (hash >> self.shift) as usize;
        loop {
            let entry = self.entries[at];
            if entry == Self::EMPTY {
                return NO_MERGE;
            }
            if entry >> RANK_BITS == key {
                return (entry & ((1 << RANK_BITS) - 1)) as u32;
            }
            at = (at + 1) & (self.entries.len() - 1);
        }
    }
}
