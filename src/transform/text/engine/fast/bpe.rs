//! Byte-pair encoding of one word: the pair of lowest rank is merged first, the leftmost of equals, until none is left.
//!
//! Short words, nearly all of them, are merged in place in a small array; long ones through a heap, so that a word of a
//! megabyte takes n log n steps and not n².

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasher, Hash};

use super::bytemap::ByteMap;
use super::cache::Words;
use crate::sample::Reject;

/// Words up to so many bytes are merged in an array.
const SMALL: usize = 48;
/// Numbers that are moved together.
const ROOM: usize = 16;
/// A token that is in no pair.
const NOBODY: u32 = (1 << ID_BITS) - 1;
/// No merge: larger than every rank.
const NONE: u32 = u32::MAX;
/// Bits of an id, and of a rank, in an entry of the [`PairTable`].
const ID_BITS: u32 = 20;
/// See [`ID_BITS`].
const RANK_BITS: u32 = u64::BITS - 2 * ID_BITS;
/// Bits of the filter per pair.
const FILTER_BITS: usize = 8;
/// No symbol: the end of a linked list.
const END: usize = usize::MAX;

/// A token of a vocabulary.
pub(super) trait Token: Borrow<str> + Hash + Eq {}

impl<T: Borrow<str> + Hash + Eq> Token for T {}

/// A byte-level BPE model.
pub(super) struct Bpe {
    /// The token of each byte.
    bytes: [u32; 256],
    /// The rank of the merge of two neighbouring bytes.
    byte_pairs: Vec<u32>,
    /// The rank of the merge of two neighbouring tokens.
    pairs: PairTable,
    /// What the merge of each rank makes.
    made: Vec<u32>,
    /// Tokens that a whole word is looked up in before anything is merged (`ignore_merges`).
    whole: Option<ByteMap>,
}

impl Bpe {
    /// A model from its vocabulary and merges as a `tokenizer.json` writes them, in the alphabet of byte-level models.
    /// The error says why this model is not for this engine.
    pub(super) fn new<'a>(
        vocab: &HashMap<impl Token, u32, impl BuildHasher>,
        merges: impl IntoIterator<Item = (&'a str, &'a str)>,
        ignore_merges: bool,
    ) -> Result<Self, String> {
        let alphabet = byte_alphabet();
        let mut bytes = [0; 256];
        for (byte, c) in alphabet.iter().enumerate() {
            let mut buffer = [0; 4];
            let token: &str = c.encode_utf8(&mut buffer);
            bytes[byte] = match vocab.get(token) {
                Some(&id) => id,
                // Bytes that no UTF-8 text has.
                None if matches!(byte, 0xc0 | 0xc1 | 0xf5..) => 0,
                None => return Err("a byte has no token".to_owned()),
            };
        }
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
        let pairs = PairTable::new(&list);
        let byte_pairs = (0..1 << 16).map(|i: usize| pairs.get(bytes[i >> 8], bytes[i & 0xff])).collect();
        let whole = ignore_merges.then(|| whole_words(vocab, &alphabet));
        Ok(Self { bytes, byte_pairs, pairs, made, whole })
    }

    fn merge_small(&self, word: &[u8], out: &mut Vec<u32>) {
        let mut ids = [0u32; SMALL + ROOM];
        // The rank of the merge of the token here with the next one; `NONE` at the end.
        let mut merges = [NONE; SMALL + ROOM];
        let mut len = word.len();
        for (i, &byte) in word.iter().enumerate() {
            ids[i] = self.bytes[byte as usize];
        }
        for (i, pair) in word.windows(2).enumerate() {
            merges[i] = self.byte_pairs[(pair[0] as usize) << 8 | pair[1] as usize];
        }
        while len > 1 {
            let (mut best, mut at) = (NONE, 0);
            for (i, &merge) in merges[..len - 1].iter().enumerate() {
                // Strictly lower rank: of equals the leftmost.
                if merge < best {
                    (best, at) = (merge, i);
                }
            }
            if best == NONE {
                break;
            }
            let new = self.made[best as usize];
            ids[at] = new;
            shift(&mut ids, at + 1, len);
            shift(&mut merges, at, len);
            len -= 1;
            let right = if at + 1 < len { ids[at + 1] } else { NOBODY };
            merges[at] = self.pairs.get(new, right);
            if at > 0 {
                merges[at - 1] = self.pairs.get(ids[at - 1], new);
            }
        }
        out.extend_from_slice(&ids[..len]);
    }

    fn merge_large(&self, word: &[u8], out: &mut Vec<u32>) {
        let mut ids: Vec<u32> = word.iter().map(|&b| self.bytes[b as usize]).collect();
        let mut next: Vec<usize> = (1..=ids.len()).collect();
        let mut previous: Vec<usize> = (0..ids.len()).map(|i| i.wrapping_sub(1)).collect();
        if let Some(last) = next.last_mut() {
            *last = END;
        }
        // Rank and place.
        let mut heap: BinaryHeap<Reverse<(u32, usize)>> = BinaryHeap::with_capacity(ids.len());
        for (at, pair) in word.windows(2).enumerate() {
            let merge = self.byte_pairs[(pair[0] as usize) << 8 | pair[1] as usize];
            if merge != NONE {
                heap.push(Reverse((merge, at)));
            }
        }
        let mut gone = vec![false; ids.len()];
        while let Some(Reverse((rank, at))) = heap.pop() {
            let right = next[at];
            // The pair may have changed since: its place merged away, or one of its tokens grown.
            if gone[at] || right == END {
                continue;
            }
            if self.pairs.get(ids[at], ids[right]) != rank {
                continue;
            }
            let new = self.made[rank as usize];
            ids[at] = new;
            gone[right] = true;
            let after = next[right];
            next[at] = after;
            if after != END {
                previous[after] = at;
                let merge = self.pairs.get(new, ids[after]);
                if merge != NONE {
                    heap.push(Reverse((merge, at)));
                }
            }
            let before = previous[at];
            if before != END {
                let merge = self.pairs.get(ids[before], new);
                if merge != NONE {
                    heap.push(Reverse((merge, before)));
                }
            }
        }
        out.extend(ids.iter().zip(&gone).filter(|(_, gone)| !**gone).map(|(id, _)| *id));
    }
}

impl Bpe {
    /// Looks no whole word up to one of these ids any more.
    pub(super) fn hide(&mut self, is_hidden: impl Fn(u32) -> bool) {
        if let Some(whole) = &mut self.whole {
            *whole = ByteMap::new(whole.iter().filter(|(_, id)| !is_hidden(*id)));
        }
    }
}

impl Words for Bpe {
    fn encode_word(&self, word: &[u8], out: &mut Vec<u32>) -> Result<(), Reject> {
        if let Some(id) = self.whole.as_ref().and_then(|whole| whole.get(word)) {
            out.push(id);
        } else if word.len() <= SMALL {
            self.merge_small(word, out);
        } else {
            self.merge_large(word, out);
        }
        Ok(())
    }
}

/// Moves the numbers behind place `at`, up to `len`, one place down.
#[inline(always)]
fn shift(numbers: &mut [u32; SMALL + ROOM], mut at: usize, len: usize) {
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

/// The bytes of each token. A token with a character outside the alphabet is the string of no word.
fn whole_words(vocab: &HashMap<impl Token, u32, impl BuildHasher>, alphabet: &[char; 256]) -> ByteMap {
    let byte_of: HashMap<char, u8> = (0..=255).map(|b: u8| (alphabet[b as usize], b)).collect();
    let bytes = |token: &str| token.chars().map(|c| byte_of.get(&c).copied()).collect::<Option<Vec<u8>>>();
    ByteMap::new(vocab.iter().filter_map(|(token, &id)| Some((bytes(token.borrow())?, id))))
}

/// The printable character that stands for each byte in a byte-level vocabulary: itself where it is printable, otherwise
/// the next one from U+0100 on.
fn byte_alphabet() -> [char; 256] {
    let mut next = 0x100;
    std::array::from_fn(|byte| {
        let byte = byte as u8;
        if matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) {
            char::from(byte)
        } else {
            next += 1;
            char::from_u32(next - 1).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    use super::*;

    #[test]
    fn the_alphabet_is_that_of_the_reference() {
        let ours = byte_alphabet();
        assert_eq!(ours.iter().copied().collect::<ahash::AHashSet<_>>(), ByteLevel::alphabet());
        assert_eq!((ours[b' ' as usize], ours[b'\n' as usize], ours[0], ours[0xad]), ('Ġ', 'Ċ', 'Ā', 'Ń'));
    }

    /// A model over a, b, c whose merges make many tokens in many ways.
    fn model(merges: &[(String, String)]) -> Bpe {
        let mut vocab: HashMap<String, u32> = HashMap::new();
        for c in byte_alphabet() {
            vocab.insert(c.to_string(), vocab.len() as u32);
        }
        let mut usable = Vec::new();
        for (l, r) in merges {
            if vocab.contains_key(l) && vocab.contains_key(r) {
                let next = vocab.len() as u32;
                vocab.entry(format!("{l}{r}")).or_insert(next);
                usable.push((l.as_str(), r.as_str()));
            }
        }
        Bpe::new(&vocab, usable, false).unwrap()
    }

    #[test]
    fn ids_that_do_not_fit_an_entry_are_refused() {
        let mut vocab: HashMap<String, u32> = byte_alphabet().iter().map(char::to_string).zip(0..).collect();
        let mut build = |id| {
            vocab.insert("ab".to_owned(), id);
            Bpe::new(&vocab, [("a", "b")], false)
        };
        let bpe = build(NOBODY - 1).unwrap();
        let mut out = Vec::new();
        bpe.merge_small(b"ab", &mut out);
        assert_eq!(out, [NOBODY - 1]);
        assert!(build(NOBODY).is_err());
    }

    #[test]
    fn a_hidden_id_is_that_of_no_word() {
        let mut vocab: HashMap<String, u32> = byte_alphabet().iter().map(char::to_string).zip(0..).collect();
        vocab.extend([("ab".to_owned(), 256), ("ba".to_owned(), 257)]);
        let mut bpe = Bpe::new(&vocab, [], true).unwrap();
        let ids = |bpe: &Bpe| {
            let mut out = Vec::new();
            bpe.encode_word(b"ab", &mut out).unwrap();
            bpe.encode_word(b"ba", &mut out).unwrap();
            out
        };
        assert_eq!(ids(&bpe), [256, 257]);
        bpe.hide(|id| id == 256);
        assert_eq!(ids(&bpe), [vocab["a"], vocab["b"], 257]);
    }

    proptest! {
        #[test]
        fn the_heap_and_the_array_agree(
            merges in prop::collection::vec(("[abc]{1,3}", "[abc]{1,3}"), 0..40),
            word in "[abc]{1,48}",
        ) {
            let bpe = model(&merges);
            let (mut small, mut large) = (Vec::new(), Vec::new());
            bpe.merge_small(word.as_bytes(), &mut small);
            bpe.merge_large(word.as_bytes(), &mut large);
            prop_assert_eq!(small, large);
        }
    }
}
