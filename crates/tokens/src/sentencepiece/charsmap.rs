//! The compiled character map of a normalizer: a double-array trie of strings, and what replaces each of them.
//!
//! The layout is that of Darts-clone 0.32: `u32` size of the trie in bytes, its units, then the replacements, each ended by a
//! zero byte. All numbers are little endian.

/// Replacements of strings, longest first.
pub(super) struct Charsmap {
    units: Vec<u32>,
    replacements: Vec<u8>,
}

/// One unit of the double array.
#[derive(Clone, Copy)]
struct Unit(u32);

impl Unit {
    fn has_leaf(self) -> bool {
        self.0 >> 8 & 1 == 1
    }

    fn value(self) -> usize {
        (self.0 & 0x7fff_ffff) as usize
    }

    /// A byte; larger for units that hold a value.
    fn label(self) -> u32 {
        self.0 & 0x8000_00ff
    }

    fn offset(self) -> usize {
        ((self.0 >> 10) << ((self.0 & 1 << 9) >> 6)) as usize
    }
}

impl Charsmap {
    /// The map in `blob`, or what is wrong with it.
    pub(super) fn new(blob: &[u8]) -> Result<Self, String> {
        let broken = || "its character map is damaged".to_owned();
        let (size, rest) = blob.split_first_chunk::<4>().ok_or_else(broken)?;
        let size = u32::from_le_bytes(*size) as usize;
        if size == 0 || !size.is_multiple_of(4) || size >= rest.len() {
            return Err(broken());
        }
        let (trie, replacements) = rest.split_at(size);
        let units = trie.as_chunks::<4>().0.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        Ok(Self { units, replacements: replacements.to_vec() })
    }

    fn unit(&self, at: usize) -> Option<Unit> {
        self.units.get(at).copied().map(Unit)
    }

    /// The replacement of the longest string of the map that `text` begins with, and the length of that string.
    pub(super) fn longest(&self, text: &[u8]) -> Option<(&[u8], usize)> {
        let mut at = self.unit(0)?.offset();
        let mut found = None;
        for (i, &byte) in text.iter().enumerate() {
            at ^= usize::from(byte);
            let Some(unit) = self.unit(at).filter(|unit| unit.label() == u32::from(byte)) else { break };
            at ^= unit.offset();
            if unit.has_leaf() {
                found = self.unit(at).map(|leaf| (leaf.value(), i + 1));
            }
        }
        let (value, length) = found?;
        let replacement = self.replacements.get(value..)?;
        let end = memchr::memchr(0, replacement).unwrap_or(replacement.len());
        Some((&replacement[..end], length))
    }

    /// Whether a string of the map begins with `byte`.
    pub(super) fn has_root(&self, byte: u8) -> bool {
        let unit = self.unit(0).and_then(|root| self.unit(root.offset() ^ usize::from(byte)));
        unit.is_some_and(|unit| unit.label() == u32::from(byte))
    }
}
