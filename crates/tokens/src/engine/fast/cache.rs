//! The word cache: a bounded per-thread map from words to their ids.
//!
//! Lookups compare whole words, never only hashes. A word of up to [`SHORT`] bytes is its own key, as a 128-bit number.
//! Longer words are stored in an arena; words longer than [`LONG`] are not cached. The shortest words, most of a text,
//! are also stored in slots of a quarter of a cache line, few enough to stay in the L2 cache. The size is bounded: a
//! word overwrites another word in the same slot, and full arenas are emptied. The content of the cache affects speed,
//! but never the ids.

use std::ops::Range;

use crate::engine::mix::mix;
use crate::error::EncodeError;

/// Maximum size in bytes of a word in a tiny slot.
const TINY: usize = 7;
/// Number of slots for tiny words, which are most of a text; few enough to stay in the L2 cache.
const TINY_SLOTS: usize = 1 << 15;
/// Not an id of any vocabulary.
const NO_ID: u32 = u32::MAX;
/// Maximum size in bytes of a word in a short slot.
const SHORT: usize = 15;
/// Maximum size in bytes of a cached word.
const LONG: usize = 1024;
/// Number of slot pairs for short words, 64 bytes each.
const SHORT_PAIRS: usize = 1 << 16;
/// Number of slots for longer words.
const LONG_SLOTS: usize = 1 << 16;
/// Capacity of the id arena, for longer words and short words with more than [`INLINE`] ids.
const IDS: usize = 1 << 20;
/// Capacity in bytes of the arena for longer words.
const BYTES: usize = 6 << 20;
/// Maximum number of ids in a slot.
const INLINE: usize = 3;
/// [`ShortSlot::count`] of a word whose ids are in the arena.
const SPILLED: u32 = u32::MAX;

/// Encodes words that are not in the cache.
pub(super) trait WordEncoder {
    /// Appends the ids of `word`.
    fn encode_word(&self, word: &[u8], out: &mut Vec<u32>) -> Result<(), EncodeError>;
}

/// The two possible slots of a word, on one cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct SlotPair([ShortSlot; 2]);

#[derive(Clone, Copy, Default)]
struct ShortSlot {
    /// The bytes of the word, with its length in the highest byte; 0 if the slot is empty.
    key: u128,
    count: u32,
    /// The ids, or their start in the arena and their count.
    ids: [u32; INLINE],
}

/// The slot of a word of up to [`TINY`] bytes with one or two ids.
#[derive(Clone, Copy, Default)]
#[repr(align(16))]
struct TinySlot {
    /// The bytes of the word, with its length in the highest byte; 0 if the slot is empty.
    key: u64,
    /// The second is [`NO_ID`] if there is only one.
    ids: [u32; 2],
}

#[derive(Clone, Copy, Default)]
struct LongSlot {
    /// Start and length of the word in the arena; length 0 if the slot is empty.
    key: (u32, u32),
    ids: (u32, u32),
}

/// The word cache.
pub(crate) struct WordCache {
    tiny: Box<[TinySlot; TINY_SLOTS]>,
    short: Vec<SlotPair>,
    long: Vec<LongSlot>,
    bytes: Vec<u8>,
    ids: Vec<u32>,
}

impl WordCache {
    /// Creates an empty cache of about 6 MiB, which grows to at most 16 MiB.
    pub(crate) fn new() -> Self {
        Self {
            tiny: Box::new([TinySlot::default(); TINY_SLOTS]),
            short: vec![SlotPair::default(); SHORT_PAIRS],
            long: vec![LongSlot::default(); LONG_SLOTS],
            bytes: Vec::new(),
            ids: Vec::new(),
        }
    }

    /// Appends the ids of consecutive words that start at `text[start..]`. The bits of `ends` are the ends of the
    /// words, in bytes from `start`. Returns the end of the last word.
    #[inline(always)]
    pub(super) fn append_words<W: WordEncoder>(
        &mut self,
        words: &W,
        text: &[u8],
        start: usize,
        mut ends: u64,
        out: &mut Vec<u32>,
    ) -> Result<usize, EncodeError> {
        let mut at = start;
        while ends != 0 {
            let end = start + ends.trailing_zeros() as usize;
            ends &= ends - 1;
            if end - at <= TINY
                && let Some(window) = text.get(at..at + 8).and_then(|window| window.first_chunk::<8>())
            {
                let key = tiny_key(*window, end - at);
                let TinySlot { key: found, ids } = self.tiny[tiny_home(key)];
                if found == key {
                    let len = out.len() + 1 + usize::from(ids[1] != NO_ID);
                    out.extend_from_slice(&ids);
                    out.truncate(len);
                } else {
                    self.miss_tiny(words, key, text, at..end, out)?;
                }
                at = end;
                continue;
            }
            self.append(words, text, at, end, out)?;
            at = end;
        }
        Ok(at)
    }

    #[inline(never)]
    fn miss_tiny<W: WordEncoder>(
        &mut self,
        words: &W,
        key: u64,
        text: &[u8],
        word: Range<usize>,
        out: &mut Vec<u32>,
    ) -> Result<(), EncodeError> {
        let before = out.len();
        self.append(words, text, word.start, word.end, out)?;
        let ids = match *out.get(before..).unwrap_or_default() {
            [one] => [one, NO_ID],
            [one, two] => [one, two],
            _ => return Ok(()),
        };
        self.tiny[tiny_home(key)] = TinySlot { key, ids };
        Ok(())
    }

    /// Appends the ids of the non-empty word `text[start..end]`.
    #[inline(always)]
    pub(super) fn append<W: WordEncoder>(
        &mut self,
        words: &W,
        text: &[u8],
        start: usize,
        end: usize,
        out: &mut Vec<u32>,
    ) -> Result<(), EncodeError> {
        let len = end - start;
        if len > SHORT {
            return self.append_long(words, &text[start..end], out);
        }
        let key = short_key(text, start, len);
        let home = hash(key) & (SHORT_PAIRS - 1);
        let pair = &self.short[home].0;
        let slot = &pair[usize::from(pair[1].key == key)];
        if slot.key == key {
            if slot.count == SPILLED {
                let (at, count) = (slot.ids[0] as usize, slot.ids[1] as usize);
                out.extend_from_slice(&self.ids[at..at + count]);
            } else {
                // Appends the whole slot and truncates: a branch on the count would be mispredicted every few words.
                let len = out.len() + slot.count as usize;
                out.extend_from_slice(&slot.ids);
                out.truncate(len);
            }
            return Ok(());
        }
        self.miss_short(words, key, home, &text[start..end], out)
    }

    #[cold]
    #[inline(never)]
    fn miss_short<W: WordEncoder>(
        &mut self,
        words: &W,
        key: u128,
        home: usize,
        word: &[u8],
        out: &mut Vec<u32>,
    ) -> Result<(), EncodeError> {
        let before = out.len();
        words.encode_word(word, out)?;
        let ids = &out[before..];
        let mut slot = ShortSlot { key, ..ShortSlot::default() };
        if ids.len() <= INLINE {
            slot.count = ids.len() as u32;
            slot.ids[..ids.len()].copy_from_slice(ids);
        } else {
            let Some((at, count)) = self.keep_ids(ids) else { return Ok(()) };
            slot.count = SPILLED;
            slot.ids = [at, count, 0];
        }
        // The first word moves to the second slot, and the second word is evicted.
        let SlotPair([first, second]) = &mut self.short[home];
        (*first, *second) = (slot, *first);
        Ok(())
    }

    #[inline(never)]
    fn append_long<W: WordEncoder>(
        &mut self,
        words: &W,
        word: &[u8],
        out: &mut Vec<u32>,
    ) -> Result<(), EncodeError> {
        if word.len() > LONG {
            return words.encode_word(word, out);
        }
        let home = hash_bytes(word) & (LONG_SLOTS - 1);
        let LongSlot { key, ids } = self.long[home];
        if key.1 as usize == word.len() && self.bytes[key.0 as usize..][..key.1 as usize] == *word {
            out.extend_from_slice(&self.ids[ids.0 as usize..][..ids.1 as usize]);
            return Ok(());
        }
        let before = out.len();
        words.encode_word(word, out)?;
        if self.bytes.len() + word.len() > BYTES {
            self.clear();
        }
        if let Some(ids) = self.keep_ids(&out[before..]) {
            let key = (self.bytes.len() as u32, word.len() as u32);
            self.bytes.extend_from_slice(word);
            self.long[home] = LongSlot { key, ids };
        }
        Ok(())
    }

    /// Stores `ids` in the arena, which is emptied first if they do not fit. Returns their start and count.
    fn keep_ids(&mut self, ids: &[u32]) -> Option<(u32, u32)> {
        if ids.len() > IDS / 4 {
            return None;
        }
        if self.ids.len() + ids.len() > IDS {
            self.clear();
        }
        let at = self.ids.len() as u32;
        self.ids.extend_from_slice(ids);
        Some((at, ids.len() as u32))
    }

    fn clear(&mut self) {
        self.short.fill(SlotPair::default());
        self.long.fill(LongSlot::default());
        self.bytes.clear();
        self.ids.clear();
    }
}

/// Masks of the lowest n bytes of a number.
const MASKS: [u128; 16] = {
    let mut masks = [0; 16];
    let mut len = 1;
    while len < 16 {
        masks[len] = masks[len - 1] << 8 | 0xff;
        len += 1;
    }
    masks
};

/// Returns the `len` bytes at `start`, at most [`SHORT`], with `len` in the highest byte.
#[inline(always)]
fn short_key(text: &[u8], start: usize, len: usize) -> u128 {
    let word = if let Some(window) = text.get(start..start + 16).and_then(|w| w.first_chunk::<16>()) {
        u128::from_le_bytes(*window) & MASKS[len & 15]
    } else {
        let mut padded = [0; 16];
        padded[..len].copy_from_slice(&text[start..start + len]);
        u128::from_le_bytes(padded)
    };
    word | u128::from(len as u8) << 120
}

/// Returns the first `len` bytes of `window`, at most [`TINY`], with `len` in the highest byte.
#[inline(always)]
fn tiny_key(window: [u8; 8], len: usize) -> u64 {
    u64::from_le_bytes(window) & (MASKS[len & 15] as u64) | (len as u64) << 56
}

/// Returns the slot index of a tiny word.
#[inline(always)]
fn tiny_home(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (TINY_SLOTS - 1)
}

#[inline(always)]
fn hash(key: u128) -> usize {
    mix(key as u64 ^ 0x9e37_79b9_7f4a_7c15, (key >> 64) as u64 ^ 0xc2b2_ae3d_27d4_eb4f) as usize
}

pub(super) fn hash_bytes(word: &[u8]) -> usize {
    let mut state = word.len() as u64 ^ 0x9e37_79b9_7f4a_7c15;
    for chunk in word.chunks(8) {
        let mut padded = [0; 8];
        padded[..chunk.len()].copy_from_slice(chunk);
        state = mix(state ^ u64::from_le_bytes(padded), 0xc2b2_ae3d_27d4_eb4f);
    }
    state as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Encoder whose ids are the bytes of the word, and so identify it.
    struct Echo;

    impl WordEncoder for Echo {
        fn encode_word(&self, word: &[u8], out: &mut Vec<u32>) -> Result<(), EncodeError> {
            out.extend(word.iter().map(|&b| u32::from(b)));
            Ok(())
        }
    }

    fn append(cache: &mut WordCache, word: &[u8]) -> Vec<u32> {
        let mut text = b"..".to_vec();
        text.extend_from_slice(word);
        let mut out = Vec::new();
        cache.append(&Echo, &text, 2, text.len(), &mut out).unwrap();
        out
    }

    proptest! {
        #[test]
        fn consecutive_words_are_distinguished(
            words in prop::collection::vec(prop::collection::vec(b'a'..b'd', 1..10), 1..60),
        ) {
            let (text, mut cache) = (words.concat(), WordCache::new());
            for _ in 0..2 {
                let (mut out, mut start, mut at, mut ends) = (Vec::new(), 0, 0, 0u64);
                for word in &words {
                    if at + word.len() - start > 63 {
                        start = cache.append_words(&Echo, &text, start, ends, &mut out).unwrap();
                        prop_assert_eq!(start, at);
                        ends = 0;
                    }
                    at += word.len();
                    ends |= 1 << (at - start);
                }
                cache.append_words(&Echo, &text, start, ends, &mut out).unwrap();
                prop_assert_eq!(out, text.iter().map(|&b| u32::from(b)).collect::<Vec<_>>());
            }
        }

        #[test]
        fn every_word_has_its_own_ids(words in prop::collection::vec(prop::collection::vec(0u8..3, 1..40), 1..200)) {
            let mut cache = WordCache::new();
            for word in words.iter().chain(&words) {
                prop_assert_eq!(append(&mut cache, word), word.iter().map(|&b| u32::from(b)).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn consecutive_words_have_the_same_ids_as_single_words() {
        let text = b"one three a incomprehensibilities twenty one three fourth ";
        let lengths = [3, 6, 2, 23, 7, 4, 6, 7];
        let ends = lengths.iter().scan(0, |at, len| {
            *at += len;
            Some(1u64 << *at)
        });
        let ends = ends.sum();
        let mut cache = WordCache::new();
        for _ in 0..2 {
            let mut out = Vec::new();
            assert_eq!(cache.append_words(&Echo, text, 0, ends, &mut out), Ok(58));
            assert_eq!(out, text.iter().map(|&b| u32::from(b)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn words_that_do_not_fit_are_evicted_not_mixed_up() {
        let mut cache = WordCache::new();
        for round in 0..2u32 {
            for i in 0..200_000u32 {
                let word = format!("{i}{}", "x".repeat((i % 30) as usize));
                assert_eq!(append(&mut cache, word.as_bytes()).len(), word.len(), "{round}");
            }
        }
        assert!(cache.bytes.len() <= BYTES && cache.ids.len() <= IDS);
    }
}
