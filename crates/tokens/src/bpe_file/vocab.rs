//! The vocabulary of a BPE model: distinct strings and their ids, in the order of the file.

use std::fmt;

use ahash::RandomState;

/// Maximum length in bytes of a string that is its own key.
const SHORT: usize = 11;

/// A vocabulary. Its tokens are numbered in the order of the file; these numbers are not the ids.
pub(crate) struct BpeVocab {
    /// The strings of all tokens, one after the other.
    text: String,
    /// End of each string in `text`, and the id of the token.
    tokens: Vec<(u32, u32)>,
    table: Vec<VocabSlot>,
    hasher: RandomState,
}

/// A slot of the hash table. For most tokens, a lookup reads nothing else, so it misses the CPU cache only once.
#[derive(Clone, Copy, Default)]
#[repr(align(16))]
struct VocabSlot {
    key: TokenKey,
    /// Number of the token + 1, 0 for an empty slot.
    number: u32,
}

/// The bytes and the length of a short string, or the hash of a longer one.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct TokenKey(u64, u32);

impl TokenKey {
    fn new(token: &[u8], hasher: &RandomState) -> Self {
        let len = token.len();
        let last =
            |count: usize| len.checked_sub(count).and_then(|start| token.get(start..)).unwrap_or_default();
        let four = |bytes: &[u8]| bytes.first_chunk().map_or(0, |four| u32::from_le_bytes(*four));
        // Together with the length, overlapping bytes determine the string.
        let (low, high) = match (len, token.first_chunk()) {
            (0, _) => (0, 0),
            (1..4, _) => (u64::from(u32::from_le_bytes([token[0], token[len / 2], token[len - 1], 0])), 0),
            (4..8, _) => (u64::from(four(token)) | u64::from(four(last(4))) << 32, 0),
            (8..=SHORT, Some(first)) => (u64::from_le_bytes(*first), four(last(4)) >> 8),
            _ => (hasher.hash_one(token), 0),
        };
        Self(low, high | (len.min(SHORT + 1) as u32) << 24)
    }

    /// Returns whether different strings may have this key.
    fn is_shared(self) -> bool {
        self.1 >> 24 > SHORT as u32
    }
}

impl fmt::Debug for BpeVocab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl BpeVocab {
    pub(super) fn new() -> Self {
        let table = vec![VocabSlot::default(); 1 << 10];
        Self { text: String::new(), tokens: Vec::new(), table, hasher: RandomState::new() }
    }

    /// Adds a token. A later id for the same string replaces the earlier one, as in the reference. Returns `None` if
    /// the strings have 4 GiB or more in total.
    pub(super) fn insert(&mut self, token: &str, id: u32) -> Option<()> {
        let key = TokenKey::new(token.as_bytes(), &self.hasher);
        match self.find(token, key) {
            Ok(number) => self.tokens[number as usize].1 = id,
            Err(slot) => {
                self.text.push_str(token);
                self.tokens.push((u32::try_from(self.text.len()).ok()?, id));
                self.table[slot] = VocabSlot { key, number: self.tokens.len() as u32 };
                if self.tokens.len() * 2 > self.table.len() {
                    self.grow();
                }
            }
        }
        Some(())
    }

    fn grow(&mut self) {
        let table = vec![VocabSlot::default(); self.table.len() * 4];
        for filled in std::mem::replace(&mut self.table, table) {
            if filled.number != 0 {
                let mut slot = self.first_slot(filled.key);
                while self.table[slot].number != 0 {
                    slot = (slot + 1) & (self.table.len() - 1);
                }
                self.table[slot] = filled;
            }
        }
    }

    fn first_slot(&self, key: TokenKey) -> usize {
        let TokenKey(low, high) = key;
        self.hasher.hash_one(u128::from(high) << 64 | u128::from(low)) as usize & (self.table.len() - 1)
    }

    /// Returns the number of `token`, or the slot for it.
    fn find(&self, token: &str, key: TokenKey) -> Result<u32, usize> {
        let mut slot = self.first_slot(key);
        loop {
            let filled = self.table[slot];
            if filled.number == 0 {
                return Err(slot);
            }
            let number = filled.number - 1;
            if filled.key == key && (!key.is_shared() || self.token(number) == token) {
                return Ok(number);
            }
            slot = (slot + 1) & (self.table.len() - 1);
        }
    }

    /// Returns the number of a token.
    pub(crate) fn number(&self, token: &str) -> Option<u32> {
        self.find(token, TokenKey::new(token.as_bytes(), &self.hasher)).ok()
    }

    /// Returns the id of a token.
    pub(crate) fn get(&self, token: &str) -> Option<u32> {
        self.number(token).map(|number| self.id(number))
    }

    /// Returns the string of the token with this number.
    pub(crate) fn token(&self, number: u32) -> &str {
        let end = |number: usize| self.tokens.get(number).map_or(0, |(end, _)| *end as usize);
        let start = (number as usize).checked_sub(1).map_or(0, end);
        self.text.get(start..end(number as usize)).unwrap_or_default()
    }

    /// Returns the id of the token with this number.
    pub(crate) fn id(&self, number: u32) -> u32 {
        self.tokens[number as usize].1
    }

    /// Returns the number of tokens.
    pub(crate) fn len(&self) -> u32 {
        self.tokens.len() as u32
    }

    /// Iterates over the strings and ids of all tokens.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        let mut start = 0;
        self.tokens.iter().map(move |&(end, id)| {
            let token = self.text.get(start..end as usize).unwrap_or_default();
            start = end as usize;
            (token, id)
        })
    }

    /// Returns the largest id, 0 if there are no tokens.
    pub(crate) fn max_id(&self) -> u32 {
        self.tokens.iter().map(|(_, id)| *id).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn strings_of_all_lengths_are_told_apart(
            tokens in prop::collection::vec("[ab\u{0}\u{e9}]{0,14}", 0..2000),
            others in prop::collection::vec("[ab\u{0}\u{e9}]{0,14}", 0..200),
        ) {
            let mut vocab = BpeVocab::new();
            for (token, id) in tokens.iter().zip(0..) {
                vocab.insert(token, id).unwrap();
            }
            let expected: HashMap<&str, u32> = tokens.iter().map(String::as_str).zip(0..).collect();
            prop_assert_eq!(vocab.len() as usize, expected.len());
            for token in tokens.iter().chain(&others) {
                prop_assert_eq!(vocab.get(token), expected.get(token.as_str()).copied());
            }
        }
    }

    #[test]
    fn tokens_are_found_by_string_and_by_number() {
        let mut vocab = BpeVocab::new();
        for i in 0..5000u32 {
            vocab.insert(&format!("{i}"), 2 * i).unwrap();
        }
        vocab.insert("17", 7).unwrap();
        assert_eq!((vocab.len(), vocab.max_id()), (5000, 9998));
        for i in 0..10_000u32 {
            let token = format!("{i}");
            let id = if i == 17 { 7 } else { 2 * i };
            assert_eq!(vocab.get(&token), (i < 5000).then_some(id));
            if let Some(number) = vocab.number(&token) {
                assert_eq!((vocab.token(number), vocab.id(number)), (token.as_str(), id));
            }
        }
        assert!(vocab.iter().eq((0..vocab.len()).map(|number| (vocab.token(number), vocab.id(number)))));
        assert_eq!(vocab.get(""), None);
        vocab.insert("", 1).unwrap();
        assert_eq!(vocab.get(""), Some(1));
    }
}
