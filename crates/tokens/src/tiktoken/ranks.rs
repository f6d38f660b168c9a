//! The ranks in a tiktoken file, and the merges that produce the same ids.
//!
//! Among all adjacent pairs whose concatenation is a token, tiktoken merges the pair whose token has the lowest rank;
//! on ties, the leftmost. A `tokenizer.json` lists the two tokens that each merge joins. Both give the same ids if
//! every token T that is ever produced by merging is joined from the same two tokens A and B. This holds under the
//! condition that `Ranks::merges` checks: merging the bytes of T by all lower ranks ends with exactly two tokens, or T
//! is not the concatenation of two tokens.
//!
//! Proof: assume that the merges so far were in the order of their ranks. Before a merge to T, all merges of lower rank
//! inside its bytes are done, and none crossed its ends. So the merge joins what the bytes of T become in isolation: A
//! and B. The next merge also has a higher rank. If it produced a token U, and U and a neighbor formed a token V of
//! lower rank than U, then V would already have been joined from *its* two tokens.

use std::collections::HashMap;

use ahash::RandomState;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::encodings::RankFile;
use crate::engine::fast::bpe::{InverseAlphabet, byte_alphabet};

/// Maximum size of a token in bytes: merging takes quadratic time.
const MAX_TOKEN_BYTES: usize = 4096;

/// The two tokens that a merge joins.
pub(super) type TokenPair<'a> = (&'a [u8], &'a [u8]);

/// The tokens of a file with their ranks.
pub(super) struct Ranks {
    /// Sorted by rank.
    pub(super) tokens: Vec<(Vec<u8>, u32)>,
}

impl Ranks {
    /// Reads the ranks in `file`. The error describes the problem.
    pub(super) fn read(file: &[u8], kind: RankFile) -> Result<Self, String> {
        let mut tokens = match kind {
            RankFile::Base64 => base64_lines(file)?,
            RankFile::VocabBpe => vocab_bpe(file)?,
        };
        tokens.sort_by_key(|(_, rank)| *rank);
        let mut seen = HashMap::<&[u8], u32, RandomState>::default();
        let mut last = None;
        for (token, rank) in &tokens {
            if token.is_empty() || token.len() > MAX_TOKEN_BYTES {
                return Err(format!("the token of rank {rank} has {} bytes", token.len()));
            }
            if last.replace(*rank) == Some(*rank) {
                return Err(format!("two tokens have the rank {rank}"));
            }
            if let Some(first) = seen.insert(token, *rank) {
                return Err(format!("the ranks {first} and {rank} are of the same token"));
            }
        }
        if let Some(byte) = (0..=255u8).find(|byte| !seen.contains_key([*byte].as_slice())) {
            return Err(format!("no token is the single byte {byte:#04x}"));
        }
        Ok(Self { tokens })
    }

    /// Returns the two tokens that each merge joins, in order, or an error if no list of merges produces the same ids.
    pub(super) fn merges(&self) -> Result<Vec<TokenPair<'_>>, String> {
        let ranks: HashMap<&[u8], u32, RandomState> =
            self.tokens.iter().map(|(token, rank)| (token.as_slice(), *rank)).collect();
        let mut merges = Vec::with_capacity(self.tokens.len());
        let mut starts = Vec::new();
        for (token, rank) in self.tokens.iter().filter(|(token, _)| token.len() > 1) {
            merge_below(token, *rank, &ranks, &mut starts);
            if let [_, middle] = starts[..] {
                merges.push(token.split_at(middle));
                continue;
            }
            let halves = (1..token.len()).map(|at| token.split_at(at));
            let mut together = halves.filter(|(a, b)| ranks.contains_key(a) && ranks.contains_key(b));
            if together.next().is_some() {
                return Err(format!(
                    "the token of rank {rank} can be merged, but not by the tokens of lower rank; no tokenizer.json has \
                     exactly the ids of this file"
                ));
            }
        }
        Ok(merges)
    }
}

/// Merges the bytes of `token` with all ranks below `limit`, and stores the start offsets of the resulting parts in
/// `starts`.
fn merge_below(token: &[u8], limit: u32, ranks: &HashMap<&[u8], u32, RandomState>, starts: &mut Vec<usize>) {
    starts.clear();
    starts.extend(0..token.len());
    loop {
        let end_of = |part: usize| starts.get(part + 1).copied().unwrap_or(token.len());
        let pairs = (0..starts.len().saturating_sub(1)).filter_map(|left| {
            let rank = ranks.get(&token[starts[left]..end_of(left + 1)])?;
            (*rank < limit).then_some((*rank, left))
        });
        // The lowest rank; on ties, the leftmost pair.
        let Some((_, left)) = pairs.min() else { return };
        starts.remove(left + 1);
    }
}

fn base64_lines(file: &[u8]) -> Result<Vec<(Vec<u8>, u32)>, String> {
    let mut tokens = Vec::new();
    for (number, line) in file.split(|&byte| byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let token = base64_line(line);
        tokens.push(token.ok_or_else(|| format!("line {} is not a token in Base64 and a rank", number + 1))?);
    }
    Ok(tokens)
}

/// Parses a line into a token and its rank.
pub(super) fn base64_line(line: &[u8]) -> Option<(Vec<u8>, u32)> {
    let (token, rank) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    Some((STANDARD.decode(token).ok()?, rank.trim().parse().ok()?))
}

/// Reads a `vocab.bpe`. The tokens are the bytes in the order of their printable characters, then the results of the
/// merges.
fn vocab_bpe(file: &[u8]) -> Result<Vec<(Vec<u8>, u32)>, String> {
    let text = std::str::from_utf8(file).map_err(|e| format!("it is not UTF-8: {e}"))?;
    let alphabet = byte_alphabet();
    let byte_of = InverseAlphabet::new(&alphabet);
    let mut bytes: Vec<u8> = (0..=255).collect();
    bytes.sort_by_key(|byte| alphabet[usize::from(*byte)]);
    let mut tokens: Vec<Vec<u8>> = bytes.into_iter().map(|byte| vec![byte]).collect();
    for (number, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.is_empty()) {
        let bad = || format!("line {} is not a merge of two tokens", number + 1);
        let (left, right) = line.split_once(' ').ok_or_else(bad)?;
        let token = left.chars().chain(right.chars()).map(|c| byte_of.get(Some(c)));
        tokens.push(token.collect::<Option<_>>().ok_or_else(bad)?);
    }
    Ok(tokens.into_iter().zip(0u32..).collect())
}
