//! The vocabulary of a BPE model: distinct strings and their ids, in the order of the file.

use std::fmt;

use ahash::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// A vocabulary. Its tokens are numbered in the order of the file; these numbers are not the ids.
pub(crate) struct BpeVocab {
    /// The strings of all tokens, one after the other.
    text: String,
    /// End of each string in `text`, and the id of the token.
    tokens: Vec<(u32, u32)>,
    /// The numbers of the tokens, by their strings.
    numbers: HashTable<u32>,
    hasher: RandomState,
}

impl fmt::Debug for BpeVocab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Returns the string of the token with this number.
fn token<'t>(text: &'t str, tokens: &[(u32, u32)], number: u32) -> &'t str {
    let end = |number: usize| tokens.get(number).map_or(0, |(end, _)| *end as usize);
    let start = (number as usize).checked_sub(1).map_or(0, end);
    text.get(start..end(number as usize)).unwrap_or_default()
}

impl BpeVocab {
    pub(super) fn new() -> Self {
        Self {
            text: String::new(),
            tokens: Vec::new(),
            numbers: HashTable::new(),
            hasher: RandomState::new(),
        }
    }

    /// Adds a token. A later id for the same string replaces the earlier one, as in the reference. Returns `None` if
    /// the strings have 4 GiB or more in total.
    pub(super) fn insert(&mut self, string: &str, id: u32) -> Option<()> {
        let Self { text, tokens, numbers, hasher } = self;
        let entry = numbers.entry(
            hasher.hash_one(string),
            |&number| token(text, tokens, number) == string,
            |&number| hasher.hash_one(token(text, tokens, number)),
        );
        match entry {
            Entry::Occupied(entry) => tokens[*entry.get() as usize].1 = id,
            Entry::Vacant(entry) => {
                entry.insert(tokens.len() as u32);
                text.push_str(string);
                tokens.push((u32::try_from(text.len()).ok()?, id));
            }
        }
        Some(())
    }

    /// Returns the number of a token.
    pub(crate) fn number(&self, string: &str) -> Option<u32> {
        self.numbers.find(self.hasher.hash_one(string), |&number| self.token(number) == string).copied()
    }

    /// Returns the id of a token.
    pub(crate) fn get(&self, token: &str) -> Option<u32> {
        self.number(token).map(|number| self.id(number))
    }

    /// Returns the string of the token with this number.
    pub(crate) fn token(&self, number: u32) -> &str {
        token(&self.text, &self.tokens, number)
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

    /// Returns the largest id, or 0 for an empty vocabulary.
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
        fn strings_of_all_lengths_are_distinguished(
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
