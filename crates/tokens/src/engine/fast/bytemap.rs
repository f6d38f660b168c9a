//! Map from the strings of tokens to ids, by open addressing over one arena. Immutable once built.

use super::cache::hash_bytes;

/// Filter bits per key.
const FILTER_BITS: usize = 8;

/// A map from byte strings to ids.
pub(super) struct ByteMap {
    /// End of each key in `bytes`, and its id.
    keys: Vec<(usize, u32)>,
    bytes: Vec<u8>,
    /// Number of the key + 1, with the upper half of its hash above it, which rejects most strings that are not in the
    /// map. 0 for an empty slot.
    table: Vec<u64>,
    /// One bit per hash; a string whose bit is not set is not in the map. Small enough to stay in the CPU cache.
    filter: Vec<u64>,
    longest: usize,
}

impl ByteMap {
    /// Creates a map of `entries`, whose keys are distinct.
    pub(super) fn new<K: AsRef<[u8]>>(entries: impl IntoIterator<Item = (K, u32)>) -> Self {
        Self::written(entries, |(key, id), bytes| {
            bytes.extend_from_slice(key.as_ref());
            Some(id)
        })
    }

    /// Creates a map of the keys that `write` appends for each of `entries`, and the ids it returns. Skips an entry for
    /// which it returns `None`.
    pub(super) fn written<T>(
        entries: impl IntoIterator<Item = T>,
        write: impl Fn(T, &mut Vec<u8>) -> Option<u32>,
    ) -> Self {
        let mut map =
            Self { keys: Vec::new(), bytes: Vec::new(), table: Vec::new(), filter: Vec::new(), longest: 0 };
        for entry in entries {
            let start = map.bytes.len();
            match write(entry, &mut map.bytes) {
                Some(id) => {
                    map.keys.push((map.bytes.len(), id));
                    map.longest = map.longest.max(map.bytes.len() - start);
                }
                None => map.bytes.truncate(start),
            }
        }
        let capacity = (map.keys.len() * 2 + 2).next_power_of_two();
        map.table = vec![0; capacity];
        map.filter = vec![0; (map.keys.len() * FILTER_BITS).next_power_of_two().div_ceil(64)];
        for number in 0..map.keys.len() {
            let hash = hash_bytes(map.key(number));
            let mut at = hash & (capacity - 1);
            while map.table[at] != 0 {
                at = (at + 1) & (capacity - 1);
            }
            map.table[at] = upper(hash) | (number as u64 + 1);
            let (word, bit) = map.filter_bit(hash);
            map.filter[word] |= bit;
        }
        map
    }

    fn key(&self, number: usize) -> &[u8] {
        let start = if number == 0 { 0 } else { self.keys[number - 1].0 };
        &self.bytes[start..self.keys[number].0]
    }

    /// Returns the position of the filter bit of a hash. It uses other bits of the hash than the slot in the table.
    #[inline(always)]
    fn filter_bit(&self, hash: usize) -> (usize, u64) {
        let bit = (hash as u64).rotate_left(32) as usize & (self.filter.len() * 64 - 1);
        (bit / 64, 1 << (bit % 64))
    }

    /// Iterates over all keys and their ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], u32)> {
        self.keys.iter().enumerate().map(|(number, (_, id))| (self.key(number), *id))
    }

    /// Returns the length of the longest key in bytes.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Returns the id of `key`.
    pub(super) fn get(&self, key: &[u8]) -> Option<u32> {
        if key.len() > self.longest {
            return None;
        }
        let hash = hash_bytes(key);
        let (word, bit) = self.filter_bit(hash);
        if self.filter[word] & bit == 0 {
            return None;
        }
        let mut at = hash & (self.table.len() - 1);
        loop {
            let entry = self.table[at];
            if entry == 0 {
                return None;
            }
            if upper(entry as usize) == upper(hash) {
                let number = (entry as u32 - 1) as usize;
                if self.key(number) == key {
                    return Some(self.keys[number].1);
                }
            }
            at = (at + 1) & (self.table.len() - 1);
        }
    }
}

/// Returns the upper half of a hash, with the lower half zero.
fn upper(hash: usize) -> u64 {
    hash as u64 >> 32 << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_inserted_keys_are_found() {
        let map = ByteMap::new((0..5000u32).map(|i| (format!("{i}"), i)));
        for i in 0..10_000 {
            assert_eq!(map.get(format!("{i}").as_bytes()), (i < 5000).then_some(i));
        }
        assert_eq!((map.get(b""), map.longest()), (None, 4));
        assert_eq!(ByteMap::new(Vec::<(&[u8], u32)>::new()).get(b"a"), None);
    }
}
