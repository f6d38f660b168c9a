//! The vocabulary of a BPE model: distinct strings and their ids, in the order of the file.

use ahash::RandomState;

/// A vocabulary. Its tokens are numbered in the order of the file; these numbers are not the ids.
pub(crate) struct BpeVocab {
    /// The strings of all tokens, one after the other.
    text: String,
    /// End of each string in `text`, and the id of the token.
    tokens: Vec<(u32, u32)>,
    /// Number of the token + 1, with the upper half of its hash above it. 0 for an empty slot.
    table: Vec<u64>,
    hasher: RandomState,
}

impl BpeVocab {
    pub(super) fn new() -> Self {
        Self { text: String::new(), tokens: Vec::new(), table: vec![0; 1 << 10], hasher: RandomState::new() }
    }

    /// Adds a token. A later id for the same string replaces the earlier one, as in the reference. Returns `None` if
    /// the strings have 4 GiB or more in total.
    pub(super) fn insert(&mut self, token: &str, id: u32) -> Option<()> {
        let hash = self.hasher.hash_one(token);
        match self.find(token, hash) {
            Ok(number) => self.tokens[number as usize].1 = id,
            Err(slot) => {
                self.text.push_str(token);
                self.tokens.push((u32::try_from(self.text.len()).ok()?, id));
                self.table[slot] = upper(hash) | self.tokens.len() as u64;
                if self.tokens.len() * 2 > self.table.len() {
                    self.grow();
                }
            }
        }
        Some(())
    }

    fn grow(&mut self) {
        let capacity = self.table.len() * 4;
        let mut table = vec![0; capacity];
        for number in 0..self.len() {
            let hash = self.hasher.hash_one(self.token(number));
            let mut slot = hash as usize & (capacity - 1);
            while table[slot] != 0 {
                slot = (slot + 1) & (capacity - 1);
            }
            table[slot] = upper(hash) | (u64::from(number) + 1);
        }
        self.table = table;
    }

    /// Returns the number of `token`, or the slot for it.
    fn find(&self, token: &str, hash: u64) -> Result<u32, usize> {
        let mask = self.table.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let entry = self.table[slot];
            if entry == 0 {
                return Err(slot);
            }
            let number = (entry as u32).wrapping_sub(1);
            if upper(entry) == upper(hash) && self.token(number) == token {
                return Ok(number);
            }
            slot = (slot + 1) & mask;
        }
    }

    /// Returns the number of a token.
    pub(crate) fn number(&self, token: &str) -> Option<u32> {
        self.find(token, self.hasher.hash_one(token)).ok()
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

fn upper(hash: u64) -> u64 {
    hash >> 32 << 32
}

#[cfg(test)]
mod tests {
    use super::*;

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
