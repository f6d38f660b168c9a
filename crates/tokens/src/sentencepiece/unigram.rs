//! The Unigram model: the segmentation of a text into pieces with the largest sum of scores.
//!
//! SentencePiece adds the scores of the whole text in single precision. So the choice between two nearly equal
//! segmentations depends on everything before them. This module performs the same additions in the same order and
//! precision as version 0.2.3. Where 0.2.3 differs from the published sources of 0.2.0, its additions were determined
//! by comparing ids.

use super::normalizer::char_len;
use super::pieces::{PieceSink, Pieces};
use super::proto::PieceType;
use crate::engine::trie::{NO_PIECE, Trie};

/// Difference between the lowest score of a piece and the score of an unknown character.
const UNKNOWN_PENALTY: f32 = 10.0;
/// Below this sum, SentencePiece 0.2.3 restarts the sum at zero.
const MIN_SUM: f32 = -100_000.0;
/// Number of nodes after which the best path is flushed at the next position that every path passes through.
const FLUSH_NODES: usize = 1 << 12;

/// The Unigram model: the pieces in a trie, and their scores.
pub(super) struct Unigram {
    trie: Trie,
    /// Scores by id.
    scores: Vec<Score>,
    unknown_score: f32,
}

#[derive(Clone, Copy)]
enum Score {
    /// The score in the file.
    Fixed(f32),
    /// A user-defined symbol, whose score grows with its length so that it is always chosen.
    Symbol,
    /// A piece that is never chosen.
    Unused,
}

impl Score {
    /// Returns the score of a piece of `length` bytes.
    #[inline]
    fn of(self, length: usize) -> Option<f32> {
        match self {
            Score::Fixed(score) => Some(score),
            Score::Symbol => Some(((length - 1) as f64 * 0.1) as f32),
            Score::Unused => None,
        }
    }
}

/// The best path to a position in the text.
#[derive(Clone, Copy)]
pub(super) struct Node {
    id: u32,
    score: f32,
    /// Start of the last piece of the path.
    start: usize,
}

/// Node of a position that no path reaches yet.
const UNREACHED: Node = Node { id: 0, score: 0.0, start: usize::MAX };

/// Path buffers of one thread.
#[derive(Default)]
pub(super) struct Paths {
    nodes: Vec<Node>,
    /// Ids and ends of the pieces of the best path, last piece first.
    path: Vec<(u32, usize)>,
}

impl Unigram {
    /// Creates the model. The error describes the problem.
    pub(super) fn new(pieces: &Pieces) -> Result<Self, String> {
        let normal = pieces.all.iter().filter(|piece| piece.kind == PieceType::Normal);
        let least = normal.map(|piece| piece.score).fold(f32::MAX, f32::min);
        let mut trie = Trie::new();
        let mut scores = Vec::with_capacity(pieces.all.len());
        for (id, piece) in (0u32..).zip(&pieces.all) {
            if piece.is_textual() {
                trie.insert(piece.text.as_bytes(), id).ok_or("it has too many pieces")?;
            }
            scores.push(match piece.kind {
                PieceType::UserDefined => Score::Symbol,
                PieceType::Unused => Score::Unused,
                _ => Score::Fixed(piece.score),
            });
        }
        Ok(Self { trie, scores, unknown_score: least - UNKNOWN_PENALTY })
    }

    /// Passes the pieces of the normalized `text` to `sink`.
    pub(super) fn encode(&self, text: &[u8], paths: &mut Paths, sink: &mut PieceSink<'_>) {
        // `nodes` starts at `base`, a position that every path passes through.
        let (mut base, mut start, mut reached) = (0, 0, 0);
        let nodes = &mut paths.nodes;
        nodes.clear();
        nodes.push(UNREACHED);
        while start < text.len() {
            if start == reached && start - base >= FLUSH_NODES {
                let score = nodes[start - base].score;
                backtrack(nodes, text, base..start, &mut paths.path, sink);
                nodes.clear();
                nodes.push(Node { score, ..UNREACHED });
                base = start;
            }
            let mut so_far = nodes[start - base].score;
            if so_far < MIN_SUM {
                nodes[start - base..].iter_mut().for_each(|node| node.score -= so_far);
                so_far = 0.0;
            }
            let rest = &text[start..];
            let length = char_len(rest);
            let mut is_single = false;
            let mut state = Trie::ROOT;
            for (i, &byte) in rest.iter().enumerate() {
                let Some((next, id)) = self.trie.step(state, byte) else { break };
                state = next;
                if id == NO_PIECE {
                    continue;
                }
                let Some(score) = self.scores[id as usize].of(i + 1) else { continue };
                let end = start + i + 1;
                reached = reached.max(end);
                let node = reach(nodes, end - base);
                let sum = score + so_far;
                if node.start == usize::MAX || sum > node.score {
                    *node = Node { id, score: sum, start };
                }
                is_single |= i + 1 == length;
            }
            if !is_single {
                let end = start + length;
                reached = reached.max(end);
                let node = reach(nodes, end - base);
                let sum = self.unknown_score + so_far;
                if node.start == usize::MAX || sum > node.score {
                    *node = Node { id: sink.unknown, score: sum, start };
                }
            }
            start += length;
        }
        backtrack(nodes, text, base..text.len(), &mut paths.path, sink);
    }
}

#[inline]
fn reach(nodes: &mut Vec<Node>, at: usize) -> &mut Node {
    if nodes.len() <= at {
        nodes.resize(at + 1, UNREACHED);
    }
    &mut nodes[at]
}

/// Passes the pieces of the best path through `range` to `sink`.
fn backtrack(
    nodes: &[Node],
    text: &[u8],
    range: std::ops::Range<usize>,
    path: &mut Vec<(u32, usize)>,
    sink: &mut PieceSink<'_>,
) {
    path.clear();
    let mut end = range.end;
    while end > range.start {
        let node = nodes[end - range.start];
        path.push((node.id, end));
        end = node.start;
    }
    let mut start = range.start;
    for &(id, end) in path.iter().rev() {
        sink.push(id, &text[start..end]);
        start = end;
    }
}
