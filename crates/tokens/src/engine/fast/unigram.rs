//! Unigram, hand-written, for chunks that are not cached: the best path through the pieces of one word, with the
//! scores added in the order of the reference, so that ties end the same way.

use std::collections::HashMap;
use std::ops::ControlFlow;

use tokenizers::normalizers::{NormalizerWrapper, Precompiled};
use tokenizers::{ModelWrapper, Tokenizer};

use super::bytemap::ByteMap;
use crate::engine::trie::{NO_PIECE, Trie};
use crate::error::EncodeError;
use crate::growth::mapped;
use crate::outline::METASPACE;

/// How much worse than the worst piece an unknown character is.
const UNKNOWN_PENALTY: f64 = 10.0;

/// A `Precompiled` normalizer or none, Metaspace, and a Unigram model.
pub(super) struct Unigram {
    normalizer: Option<Precompiled>,
    trie: Trie,
    scores: Vec<f64>,
    unknown_score: f64,
    unk: u32,
    /// The id of each piece; unknown characters that were joined are looked up once more.
    pieces: ByteMap,
    /// The tokens of single bytes, for unknown characters.
    bytes: Option<Vec<Option<u32>>>,
    /// Bytes of the longest chunk that is encoded, before and after normalization.
    max_bytes: u64,
}

#[derive(Clone, Copy)]
struct Node {
    id: u32,
    score: f64,
    start: usize,
}

/// No path leads here yet.
const UNREACHED: Node = Node { id: 0, score: 0.0, start: usize::MAX };

impl Unigram {
    /// The parts of `tokenizer`, if they are those; its pre-tokenizer is known to be Metaspace. `unk` is the index of the
    /// unknown token, as the file has it.
    pub(super) fn new(tokenizer: &Tokenizer, unk: Option<usize>, max_bytes: u64) -> Option<Self> {
        let ModelWrapper::Unigram(model) = tokenizer.get_model() else { return None };
        let normalizer = match tokenizer.get_normalizer() {
            None => None,
            Some(normalizer) => precompiled(normalizer)?,
        };
        let mut scores = Vec::new();
        let mut ids = HashMap::new();
        let mut trie = Trie::new();
        for (id, (piece, score)) in (0u32..).zip(model.iter()) {
            scores.push(*score);
            // A later piece of the same string replaces the earlier one.
            ids.insert(piece.as_str(), id);
        }
        for (piece, id) in &ids {
            trie.insert(piece.as_bytes(), *id)?;
        }
        let bytes = model
            .byte_fallback()
            .then(|| (0..=255u8).map(|b| ids.get(format!("<0x{b:02X}>").as_str()).copied()).collect());
        Some(Self {
            normalizer,
            trie,
            unknown_score: model.min_score - UNKNOWN_PENALTY,
            scores,
            unk: u32::try_from(unk?).ok()?,
            pieces: ByteMap::new(ids),
            bytes,
            max_bytes,
        })
    }

    /// Appends the ids of `chunk` and returns true, if it is one word.
    ///
    /// # Errors
    ///
    /// [`EncodeError::TooLarge`] for a chunk that is too long, or becomes so.
    pub(super) fn encode(&self, chunk: &str, out: &mut Vec<u32>) -> Result<bool, EncodeError> {
        let mut word = String::from(METASPACE);
        let mut push = |part: &str| {
            word.push_str(part);
            let bytes = (word.len() - METASPACE.len_utf8()) as u64;
            if bytes <= self.max_bytes { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let pushed = match &self.normalizer {
            Some(normalizer) => mapped(normalizer, chunk, &mut push),
            None => push(chunk),
        };
        if pushed.is_break() || chunk.len() as u64 > self.max_bytes {
            return Err(EncodeError::too_large(chunk, self.max_bytes));
        }
        let text = &word[METASPACE.len_utf8()..];
        if text.is_empty() || text.contains(METASPACE) || text.contains(char::is_whitespace) {
            return Ok(false);
        }
        self.word(&word, out);
        Ok(true)
    }

    fn word(&self, word: &str, out: &mut Vec<u32>) {
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

/// The one `Precompiled` in a normalizer whose other parts do nothing to a single word; `None` for any other.
#[expect(clippy::option_option, reason = "no normalizer that matters is not the same as an unknown one")]
fn precompiled(normalizer: &NormalizerWrapper) -> Option<Option<Precompiled>> {
    match normalizer {
        NormalizerWrapper::Precompiled(p) => Some(Some(p.clone())),
        // Of runs of spaces, and of white space at the ends: the caller has seen the type and the pattern.
        NormalizerWrapper::Replace(_) | NormalizerWrapper::StripNormalizer(_) => Some(None),
        NormalizerWrapper::Sequence(parts) => {
            let mut found = None;
            for part in parts.as_ref() {
                match (precompiled(part)?, &found) {
                    (Some(_), Some(_)) => return None,
                    (Some(p), None) => found = Some(p),
                    (None, _) => {}
                }
            }
            Some(found)
        }
        _ => None,
    }
}
