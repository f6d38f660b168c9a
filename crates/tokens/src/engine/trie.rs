//! Byte trie of the pieces of a vocabulary, to find the pieces that a text starts with.

use super::mix::mix;

/// No piece ends at this node.
pub(crate) const NO_PIECE: u32 = u32::MAX;

/// A trie over bytes in one hash table.
pub(crate) struct Trie {
    /// Key (node, byte) + 1, next node, and id of the piece that ends there.
    table: Vec<(u64, u32, u32)>,
    nodes: u32,
}

impl Trie {
    /// The root node.
    pub(crate) const ROOT: u32 = 0;

    /// Creates an empty trie.
    pub(crate) fn new() -> Self {
        Self { table: vec![(0, 0, NO_PIECE); 1024], nodes: 1 }
    }

    fn key(node: u32, byte: u8) -> u64 {
        (u64::from(node) << 8 | u64::from(byte)) + 1
    }

    #[inline]
    fn place(table: &[(u64, u32, u32)], key: u64) -> usize {
        let mut at = mix(key, 0x9e37_79b9_7f4a_7c15) as usize & (table.len() - 1);
        while table[at].0 != 0 && table[at].0 != key {
            at = (at + 1) & (table.len() - 1);
        }
        at
    }

    /// Follows `byte` from `node`. Returns the next node and the id of the piece that ends there, or [`NO_PIECE`].
    #[inline]
    pub(crate) fn step(&self, node: u32, byte: u8) -> Option<(u32, u32)> {
        let (key, next, id) = self.table[Self::place(&self.table, Self::key(node, byte))];
        (key != 0).then_some((next, id))
    }

    /// Adds `piece`. Returns `None` if there are more nodes than `u32` can number.
    pub(crate) fn insert(&mut self, piece: &[u8], id: u32) -> Option<()> {
        let mut node = Self::ROOT;
        for (i, &byte) in piece.iter().enumerate() {
            if self.nodes as usize * 2 >= self.table.len() {
                let mut larger = vec![(0, 0, NO_PIECE); self.table.len() * 2];
                for entry in self.table.iter().filter(|e| e.0 != 0) {
                    let at = Self::place(&larger, entry.0);
                    larger[at] = *entry;
                }
                self.table = larger;
            }
            let key = Self::key(node, byte);
            let at = Self::place(&self.table, key);
            if self.table[at].0 == 0 {
                self.table[at] = (key, self.nodes, NO_PIECE);
                self.nodes = self.nodes.checked_add(1)?;
            }
            if i + 1 == piece.len() {
                self.table[at].2 = id;
            }
            node = self.table[at].1;
        }
        Some(())
    }
}
