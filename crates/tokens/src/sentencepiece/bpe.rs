//! The BPE model. Among all adjacent pairs whose concatenation is a piece, it merges the pair with the largest score
//! first; on ties, the leftmost.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;

use ahash::RandomState;

use super::normalizer::{SPACE_SYMBOL, SentencePieceNormalizer, char_len};
use super::pieces::{PieceSink, Pieces};
use super::proto::PieceType;
use crate::error::EncodeError;

/// Maximum size of a cached word in bytes.
const CACHED_BYTES: usize = 48;
/// Maximum number of words in the cache; a full cache is emptied.
const MAX_CACHED_WORDS: usize = 1 << 16;
/// Index of no symbol.
const NO_SYMBOL: usize = usize::MAX;

/// The BPE model; the pieces are in [`Pieces`].
pub(super) struct Bpe {
    /// Merges never cross words, so each word is merged separately.
    is_by_word: bool,
    has_unused: bool,
}

/// A part of the text that is a piece, or will be merged into one.
#[derive(Clone, Copy)]
struct Symbol {
    start: usize,
    /// Length in bytes; 0 if the symbol was merged into the previous one.
    length: usize,
    previous: usize,
    next: usize,
    /// A user-defined symbol, which is never merged.
    is_frozen: bool,
}

/// Two adjacent symbols whose concatenation is a piece.
struct Candidate {
    score: f32,
    left: usize,
    right: usize,
    /// Total length of both in bytes. If it no longer matches, one of them has been merged since.
    length: usize,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_score = self.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal);
        by_score.then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

/// Buffers and word cache of one thread.
#[derive(Default)]
pub(super) struct BpeBuffers {
    symbols: Vec<Symbol>,
    candidates: BinaryHeap<Candidate>,
    /// The pieces of a word, with their byte ranges.
    pieces: Vec<(u32, Range<usize>)>,
    cache: HashMap<Box<[u8]>, CachedWord, RandomState>,
}

/// The ids of the pieces of a word, with their lengths in bytes.
type CachedWord = Box<[(u32, u8)]>;

impl Bpe {
    /// Creates the model for `pieces`.
    pub(super) fn new(pieces: &Pieces) -> Self {
        let crosses = |text: &str| {
            text.match_indices('\u{2581}').any(|(at, _)| at > 0 && !text[..at].ends_with('\u{2581}'))
        };
        let has_unused = pieces.all.iter().any(|piece| piece.kind == PieceType::Unused);
        let mut textual = pieces.all.iter().filter(|piece| piece.is_textual());
        Self { is_by_word: !has_unused && !textual.any(|piece| crosses(&piece.text)), has_unused }
    }

    /// Passes the pieces of the normalized `text` to `sink`. Returns an error for a word of more than `max_bytes`
    /// bytes.
    pub(super) fn encode(
        &self,
        text: &[u8],
        pieces: &Pieces,
        normalizer: &SentencePieceNormalizer,
        max_bytes: u64,
        buffers: &mut BpeBuffers,
        sink: &mut PieceSink<'_>,
    ) -> Result<(), EncodeError> {
        let mut rest = text;
        while !rest.is_empty() {
            let length = if self.is_by_word { word_len(rest) } else { rest.len() };
            let (word, after) = rest.split_at(length);
            rest = after;
            if length as u64 > max_bytes {
                return Err(EncodeError::TooLarge { bytes: length as u64, limit: max_bytes });
            }
            if length <= CACHED_BYTES
                && let Some(cached) = buffers.cache.get(word)
            {
                let mut start = 0;
                for &(id, length) in cached {
                    let end = start + usize::from(length);
                    sink.push(id, &word[start..end]);
                    start = end;
                }
                continue;
            }
            self.merge(word, pieces, normalizer, buffers);
            for (id, range) in &buffers.pieces {
                if pieces.get(*id).is_some_and(|piece| piece.kind == PieceType::Control) {
                    let why = "it contains a control symbol of the SentencePiece model";
                    return Err(EncodeError::Unsupported(why.to_owned()));
                }
                sink.push(*id, &word[range.clone()]);
            }
            if length <= CACHED_BYTES {
                if buffers.cache.len() >= MAX_CACHED_WORDS {
                    buffers.cache.clear();
                }
                let found = buffers.pieces.iter().map(|(id, range)| (*id, range.len() as u8)).collect();
                buffers.cache.insert(word.into(), found);
            }
        }
        Ok(())
    }

    /// Merges `word` and stores its pieces in `buffers`.
    fn merge(
        &self,
        word: &[u8],
        pieces: &Pieces,
        normalizer: &SentencePieceNormalizer,
        buffers: &mut BpeBuffers,
    ) {
        let BpeBuffers { symbols, candidates, pieces: found, .. } = buffers;
        symbols.clear();
        candidates.clear();
        found.clear();
        let mut start = 0;
        while start < word.len() {
            let symbol = normalizer.symbol(&word[start..]);
            let length = if symbol > 0 { symbol } else { char_len(&word[start..]) };
            let index = symbols.len();
            let previous = index.checked_sub(1).unwrap_or(NO_SYMBOL);
            start += length;
            let next = if start < word.len() { index + 1 } else { NO_SYMBOL };
            symbols.push(Symbol { start: start - length, length, previous, next, is_frozen: symbol > 0 });
        }
        let mut unused = HashMap::new();
        let mut consider =
            |symbols: &[Symbol], candidates: &mut BinaryHeap<Candidate>, left: usize, right: usize| {
                let (Some(one), Some(other)) = (symbols.get(left), symbols.get(right)) else { return };
                if one.is_frozen || other.is_frozen {
                    return;
                }
                let length = one.length + other.length;
                let both = one.start..one.start + length;
                let Some(id) = pieces.textual(&word[both.clone()]) else { return };
                let score = pieces.get(id).map_or(0.0, |piece| piece.score);
                candidates.push(Candidate { score, left, right, length });
                if self.has_unused && pieces.get(id).is_some_and(|piece| piece.kind == PieceType::Unused) {
                    unused.insert(word[both.clone()].to_vec(), one.length);
                }
            };
        for right in 1..symbols.len() {
            consider(symbols, candidates, right - 1, right);
        }
        while let Some(Candidate { left, right, length, .. }) = candidates.pop() {
            let (one, other) = (symbols[left], symbols[right]);
            if one.length == 0 || other.length == 0 || one.length + other.length != length {
                continue;
            }
            symbols[left] = Symbol { length, next: other.next, ..one };
            symbols[right].length = 0;
            if let Some(next) = symbols.get_mut(other.next) {
                next.previous = left;
            }
            consider(symbols, candidates, one.previous, left);
            consider(symbols, candidates, left, other.next);
        }
        let mut at = 0;
        while let Some(symbol) = symbols.get(at) {
            push_divided(word, symbol.start..symbol.start + symbol.length, pieces, &unused, found);
            at = symbol.next;
        }
    }
}

/// Appends the piece `range`. Pieces marked unused are divided again into the parts they were merged from.
fn push_divided(
    word: &[u8],
    range: Range<usize>,
    pieces: &Pieces,
    unused: &HashMap<Vec<u8>, usize>,
    found: &mut Vec<(u32, Range<usize>)>,
) {
    // Ranges still to be processed, leftmost on top.
    let mut stack = vec![range];
    while let Some(range) = stack.pop() {
        let text = &word[range.clone()];
        let id = pieces.id(text);
        let is_unused = pieces.get(id).is_some_and(|piece| piece.kind == PieceType::Unused);
        match unused.get(text).filter(|_| is_unused) {
            Some(&left) => {
                stack.push(range.start + left..range.end);
                stack.push(range.start..range.start + left);
            }
            None => found.push((id, range)),
        }
    }
}

/// Returns the number of bytes up to the next space symbol after another character.
fn word_len(text: &[u8]) -> usize {
    let spaces = text.chunks_exact(SPACE_SYMBOL.len()).take_while(|part| *part == SPACE_SYMBOL).count();
    let from = spaces * SPACE_SYMBOL.len();
    let at = memchr::memmem::find(&text[from..], SPACE_SYMBOL);
    at.map_or(text.len(), |at| from + at)
}
