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
/// No merge: larger than every rank.
const NONE: u64 = u64::MAX;
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
    /// What two neighbouring bytes become.
    byte_pairs: Vec<u64>,
    /// What two neighbouring tokens become.
    pairs: PairTable,
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
        let mut list = Vec::new();
        let mut token = String::new();
        for (rank, (left, right)) in (0u32..).zip(merges) {
            token.clear();
            token.push_str(left);
            token.push_str(right);
            match (vocab.get(left), vocab.get(right), vocab.get(token.as_str())) {
                (Some(&l), Some(&r), Some(&new)) => list.push((l, r, u64::from(rank) << 32 | u64::from(new))),
                _ => return Err("a merge names a token that does not exist".to_owned()),
            }
        }
        let pairs = PairTable::new(&list);
        let byte_pairs = (0..1 << 16).map(|i: usize| pairs.get(bytes[i >> 8], bytes[i & 0xff])).collect();
        let whole = ignore_merges.then(|| whole_words(vocab, &alphabet));
        Ok(Self { bytes, byte_pairs, pairs, whole })
    }

    fn merge_small(&self, word: &[u8], out: &mut Vec<u32>) {
        let mut ids = [0u32; SMALL];
        // What the token here and the next one become; `NONE` at the end.
        let mut merges = [NONE; SMALL];
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
            ids[at] = best as u32;
            ids.copy_within(at + 2..len, at + 1);
            merges.copy_within(at + 1..len, at);
            len -= 1;
            merges[at] = if at + 1 < len { self.pairs.get(ids[at], ids[at + 1]) } else { NONE };
            if at > 0 {
                merges[at - 1] = self.pairs.get(ids[at - 1], ids[at]);
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
        // (merge, place): the rank stands in the high half of the merge, so the heap is ordered by rank, then place.
        let mut heap: BinaryHeap<Reverse<(u32, usize, u32)>> = BinaryHeap::with_capacity(ids.len());
        let entry = |merge: u64, at: usize| Reverse(((merge >> 32) as u32, at, merge as u32));
        for (at, pair) in word.windows(2).enumerate() {
            let merge = self.byte_pairs[(pair[0] as usize) << 8 | pair[1] as usize];
            if merge != NONE {
                heap.push(entry(merge, at));
            }
        }
        let mut gone = vec![false; ids.len()];
        while let Some(Reverse((rank, at, new))) = heap.pop() {
            let right = next[at];
            // The pair may have changed since: its place merged away, or one of its tokens grown.
            if gone[at] || right == END {
                continue;
            }
            if self.pairs.get(ids[at], ids[right]) != u64::from(rank) << 32 | u64::from(new) {
                continue;
            }
            ids[at] = new;
            gone[right] = true;
            let after = next[right];
            next[at] = after;
            if after != END {
                previous[after] = at;
                let merge = self.pairs.get(new, ids[after]);
                if merge != NONE {
                    heap.push(entry(merge, at));
                }
            }
            let before = previous[at];
            if before != END {
                let merge = self.pairs.get(ids[before], new);
                if merge != NONE {
                    heap.push(entry(merge, before));
                }
            }
        }
        out.extend(ids.iter().zip(&gone).filter(|(_, gone)| !**gone).map(|(id, _)| *id));
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

/// (left, right) → rank and new id, by open addressing.
///
/// Most pairs that are asked for are not there, and the table is larger than the caches near the processor: a small filter
/// in front of it answers for most of them.
struct PairTable {
    entries: Vec<(u64, u64)>,
    shift: u32,
    /// One bit per hash; a pair whose bit is not set is not in the table.
    filter: Vec<u64>,
    filter_shift: u32,
}

impl PairTable {
    /// Later entries for one pair replace earlier ones, as in the reference.
    fn new(list: &[(u32, u32, u64)]) -> Self {
        let capacity = (list.len() * 2 + 2).next_power_of_two();
        let bits = (list.len() * FILTER_BITS).next_power_of_two().max(64);
        let mut table = Self {
            entries: vec![(NONE, NONE); capacity],
            shift: 64 - capacity.trailing_zeros(),
            filter: vec![0; bits / 64],
            filter_shift: 64 - bits.trailing_zeros(),
        };
        for &(left, right, merge) in list {
            let key = u64::from(left) << 32 | u64::from(right);
            let hash = Self::hash(key);
            let bit = (hash >> table.filter_shift) as usize;
            table.filter[bit / 64] |= 1 << (bit % 64);
            let mut at = (hash >> table.shift) as usize;
            while table.entries[at].0 != NONE && table.entries[at].0 != key {
                at = (at + 1) & (capacity - 1);
            }
            table.entries[at] = (key, merge);
        }
        table
    }

    #[inline(always)]
    fn hash(key: u64) -> u64 {
        key.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xc2b2_ae3d_27d4_eb4f)
    }

    #[inline(always)]
    fn get(&self, left: u32, right: u32) -> u64 {
        let key = u64::from(left) << 32 | u64::from(right);
        let hash = Self::hash(key);
        let bit = (hash >> self.filter_shift) as usize;
        if self.filter[bit / 64] >> (bit % 64) & 1 == 0 {
            return NONE;
        }
        let mut at = (hash >> self.shift) as usize;
        loop {
            let (found, merge) = self.entries[at];
            if found == key || found == NONE {
                return merge;
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
