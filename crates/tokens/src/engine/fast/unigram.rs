//! Hand-written Unigram model: finds the best path through the pieces of a word. Scores are added in the same order as
//! in the reference, so ties are resolved the same way.

use std::collections::HashMap;

use tokenizers::models::unigram::Unigram as Model;

use super::bytemap::ByteMap;
use crate::engine::trie::{NO_PIECE, Trie};

/// Difference between the lowest score of a piece and the score of an unknown character.
const UNKNOWN_PENALTY: f64 = 10.0;

/// A Unigram model.
pub(super) struct Unigram {
    trie: Trie,
    scores: Vec<f64>,
    unknown_score: f64,
    unk: u32,
    /// The id of each piece, to look up joined unknown characters.
    pieces: ByteMap,
    /// The tokens of single bytes, for unknown characters, if the model has byte fallback.
    bytes: Option<Vec<Option<u32>>>,
}

#[derive(Clone, Copy)]
struct Node {
    id: u32,
    score: f64,
    start: usize,
}

/// Node of a position that no path reaches yet.
const UNREACHED: Node = Node { id: 0, score: 0.0, start: usize::MAX };

impl Unigram {
    /// Builds the tables of `model`; `None` if it has no unknown token. `unk` is the index of that token in the file.
    pub(super) fn new(model: &Model, unk: Option<usize>) -> Option<Self> {
        let mut scores = Vec::new();
        let mut ids = HashMap::new();
        let mut trie = Trie::new();
        for (id, (piece, score)) in (0u32..).zip(model.iter()) {
            scores.push(*score);
            // A later piece with the same string replaces the earlier one.
            ids.insert(piece.as_str(), id);
        }
        for (piece, id) in &ids {
            trie.insert(piece.as_bytes(), *id)?;
        }
        let bytes = model
            .byte_fallback()
            .then(|| (0..=255u8).map(|b| ids.get(format!("<0x{b:02X}>").as_str()).copied()).collect());
        Some(Self {
            trie,
            unknown_score: model.min_score - UNKNOWN_PENALTY,
            scores,
            unk: u32::try_from(unk?).ok()?,
            pieces: ByteMap::new(ids),
            bytes,
        })
    }

    /// Appends the ids of `word`.
    pub(super) fn encode(&self, word: &str, out: &mut Vec<u32>) {
        let bytes = word.as_bytes();
        let mut nodes = vec![UNREACHED; bytes.len() + 1];
        for (start, c) in word.char_indices() {
            let so_far = nodes[start].score;
            let mut reach = |end: usize, id: u32, score: f64| {
                let score = score + so_far;
                let node = &mut nodes[end];
                if node.start == usize::MAX || score > node.score {
                    *node = Node { id, score, start };
                }
            };
            let mut single = false;
            let mut state = Trie::ROOT;
            for (end, &byte) in bytes.iter().enumerate().skip(start) {
                let Some((next, id)) = self.trie.step(state, byte) else { break };
                state = next;
                if id != NO_PIECE {
                    reach(end + 1, id, self.scores[id as usize]);
                    single |= end + 1 - start == c.len_utf8();
                }
            }
            if !single {
                reach(start + c.len_utf8(), self.unk, self.unknown_score);
            }
        }
        let before = out.len();
        let mut end = bytes.len();
        while end > 0 {
            let Node { id, mut start, .. } = nodes[end];
            if id == self.unk {
                while start > 0 && nodes[start].id == self.unk {
                    start = nodes[start].start;
                }
                self.unknown(&bytes[start..end], out);
            } else {
                out.push(id);
            }
            end = start;
        }
        out[before..].reverse();
    }

    /// Appends the ids of joined unknown characters, last first.
    fn unknown(&self, text: &[u8], out: &mut Vec<u32>) {
        if let Some(id) = self.pieces.get(text) {
            out.push(id);
            return;
        }
        if let Some(tokens) = &self.bytes {
            let ids: Option<Vec<u32>> = text.iter().rev().map(|&b| tokens[b as usize]).collect();
            if let Some(ids) = ids {
                out.extend(ids);
                return;
            }
        }
        out.push(self.unk);
    }
}
