//! Byte-pair encoding of one word: the pair of lowest rank is merged first, the leftmost of equals, until none is left.
//!
//! Short words, nearly all of them, are merged in place in a small array; long ones through a heap, so that a word of a
//! megabyte takes n log n steps and not n².

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasher, Hash};

use crate::sample::{Reject, RejectCode};

/// Words of up to so many symbols are merged in an array.
pub(super) const SMALL: usize = 48;
/// Numbers that are moved together.
const ROOM: usize = 16;
/// A token that is in no pair.
pub(super) const NOBODY: u32 = (1 << ID_BITS) - 1;
/// No merge: larger than every rank.
pub(super) const NONE: u32 = u32::MAX;
/// Bits of an id, and of a rank, in an entry of the [`PairTable`].
const ID_BITS: u32 = 20;
/// See [`ID_BITS`].
const RANK_BITS: u32 = u64::BITS - 2 * ID_BITS;
/// Bits of the filter per pair.
const FILTER_BITS: usize = 8;
/// No symbol: the end of a linked list.
const END: u32 = u32::MAX;

/// A token of a vocabulary.
pub(super) trait Token: Borrow<str> + Hash + Eq {}

impl<T: Borrow<str> + Hash + Eq> Token for T {}

/// A number for each symbol of a short word.
pub(super) type Numbers = [u32; SMALL + ROOM];

/// The merges of a model.
pub(super) struct Merges {
    /// The rank of the merge of two neighbouring tokens.
    pairs: PairTable,
    /// What the merge of each rank makes.
    made: Vec<u32>,
}

impl Merges {
    /// The merges that join two tokens each, in order. The error says why they are not for these engines.
    pub(super) fn new<'a>(
        vocab: &HashMap<impl Token, u32, impl BuildHasher>,
        merges: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, String> {
        if vocab.values().any(|&id| id >= NOBODY) {
            return Err(format!("an id is not below {NOBODY}"));
        }
        let (mut list, mut made) = (Vec::new(), Vec::new());
        let mut token = String::new();
        for (left, right) in merges {
            token.clear();
            token.push_str(left);
            token.push_str(right);
            match (vocab.get(left), vocab.get(right), vocab.get(token.as_str())) {
                (Some(&left), Some(&right), Some(&new)) => {
                    list.push((left, right));
                    made.push(new);
                }
                _ => return Err("a merge names a token that does not exist".to_owned()),
            }
        }
        if list.len() >> RANK_BITS != 0 {
            return Err(format!("there are not less than {} merges", 1 << RANK_BITS));
        }
        Ok(Self { pairs: PairTable::new(&list), made })
    }

    /// The rank of the merge of two tokens, or [`NONE`].
    #[inline(always)]
    pub(super) fn rank(&self, left: u32, right: u32) -> u32 {
        self.pairs.get(left, right)
    }

    /// Merges the tokens `ids[..len]` and appends what comes of them. `ranks` has the rank of the merge of each token with
    /// the next one, and [`NONE`] at the end.
    #[inline(always)]
    pub(super) fn merge_small(
        &self,
        ids: &mut Numbers,
        ranks: &mut Numbers,
        mut len: usize,
        out: &mut Vec<u32>,
    ) {
        while len > 1 {
            let (mut best, mut at) = (NONE, 0);
            for (i, &rank) in ranks[..len - 1].iter().enumerate() {
                // Strictly lower rank: of equals the leftmost.
                if rank < best {
                    (best, at) = (rank, i);
                }
            }
            if best == NONE {
                break;
            }
            let new = self.made[best as usize];
            ids[at] = new;
            shift(ids, at + 1, len);
            shift(ranks, at, len);
            len -= 1;
            let right = if at + 1 < len { ids[at + 1] } else { NOBODY };
            ranks[at] = self.rank(new, right);
            if at > 0 {
                ranks[at - 1] = self.rank(ids[at - 1], new);
            }
        }
        out.extend_from_slice(&ids[..len]);
    }

    /// Merges any number of tokens, and appends what comes of them.
    ///
    /// # Errors
    ///
    /// A reject for more than 2³² - 1 of them.
    pub(super) fn merge_large(&self, mut ids: Vec<u32>, out: &mut Vec<u32>) -> Result<(), Reject> {
        let too_long =
            |_| Reject::new(RejectCode::TooLarge, "the document has a word of more than 2^32 - 1 bytes");
        let len = u32::try_from(ids.len()).map_err(too_long)?;
        // A whole document may be one word: 20 bytes for each of its symbols here, or more when the heap grows.
        let mut next: Vec<u32> = (1..=len).collect();
        let mut previous: Vec<u32> = (0..len).map(|at| at.wrapping_sub(1)).collect();
        if let Some(last) = next.last_mut() {
            *last = END;
        }
        // Rank and place in one number.
        let entry = |rank: u32, at: u32| Reverse(u64::from(rank) << 32 | u64::from(at));
        let pairs = (0..).zip(ids.windows(2)).map(|(at, pair)| (self.rank(pair[0], pair[1]), at));
        let mut heap: BinaryHeap<Reverse<u64>> =
            pairs.filter(|(rank, _)| *rank != NONE).map(|(rank, at)| entry(rank, at)).collect();
        while let Some(Reverse(lowest)) = heap.pop() {
            let (rank, place) = ((lowest >> 32) as u32, lowest as u32);
            let at = place as usize;
            let right = next[at] as usize;
            // The pair may have changed since: its place merged away, or one of its tokens grown.
            if next[at] == END || self.rank(ids[at], ids[right]) != rank {
                continue;
            }
            let new = self.made[rank as usize];
            (ids[at], ids[right]) = (new, NOBODY);
            let after = next[right];
            next[at] = after;
            if after != END {
                previous[after as usize] = place;
                let rank = self.rank(new, ids[after as usize]);
                if rank != NONE {
                    heap.push(entry(rank, place));
                }
            }
            let before = previous[at];
            if before != END {
                let rank = self.rank(ids[before as usize], new);
                if rank != NONE {
                    heap.push(entry(rank, before));
                }
            }
        }
        out.extend(ids.into_iter().filter(|&id| id != NOBODY));
        Ok(())
    }
}

/// Moves the numbers behind place `at`, up to `len`, one place down.
#[inline(always)]
fn shift(numbers: &mut Numbers, mut at: usize, len: usize) {
    while at < len {
        // As many each time, so that this is no call.
        numbers.copy_within(at + 1..at + 1 + ROOM, at);
        at += ROOM;
    }
}

/// (left, right) → rank, by open addressing.
///
/// Most pairs that are asked for are not there, and the table is larger than the caches near the processor: an entry is one
/// number, and a small filter in front of them answers for most pairs.
struct PairTable {
    /// Left, right and rank from the highest bit down; [`PairTable::EMPTY`] where nothing is.
    entries: Vec<u64>,
    shift: u32,
    /// One bit per hash; a pair whose bit is not set is not in the table.
    filter: Vec<u64>,
    filter_shift: u32,
}

impl PairTable {
    /// The entry of no pair: no rank has all its bits set.
    const EMPTY: u64 = u64::MAX;

    /// The rank of a pair is its place in the list. Later entries for one pair replace earlier ones, as in the reference.
    fn new(list: &[(u32, u32)]) -> Self {
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

    /// The rank, or [`NONE`].
    #[inline(always)]
    fn get(&self, left: u32, right: u32) -> u32 {
        let key = Self::key(left, right);
        let hash = Self::hash(key);
        let bit = (hash >> self.filter_shift) as usize;
        if self.filter[bit / 64] >> (bit % 64) & 1 == 0 {
            return NONE;
        }
        let mut at = (hash >> self.shift) as usize;
        loop {
            let entry = self.entries[at];
            if entry == Self::EMPTY {
                return NONE;
            }
            if entry >> RANK_BITS == key {
                return (entry & ((1 << RANK_BITS) - 1)) as u32;
            }
            at = (at + 1) & (self.entries.len() - 1);
        }
    }
}
