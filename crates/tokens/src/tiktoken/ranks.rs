//! The ranks in a tiktoken file, and the merges that make the same ids.
//!
//! tiktoken merges, of all neighbours that are a token together, those whose token has the lowest rank, the leftmost of equals. A
//! `tokenizer.json` lists which two tokens each merge joins. Both are the same if every token T that is ever made by merging is made of
//! the same two tokens A and B, which holds under the condition that `Ranks::merges` checks: merging the bytes of T by all lower ranks ends
//! with exactly two tokens, or no two tokens are T together.
//!
//! Why: say that the merges so far came in the order of their ranks. Before a merge to T, all merges of lower rank inside of its
//! bytes are done, and none reached across its ends, so what is merged is what the bytes of T become by themselves: A and B.
//! The next merge has a higher rank, too. If it made a token U, and U and a neighbour were a token V of lower rank than U,
//! then V would have been made of *its* two tokens before.

use std::collections::HashMap;

use ahash::RandomState;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::encodings::RankFile;

/// Bytes of the longest token: merging it takes quadratic time.
const MOST_TOKEN_BYTES: usize = 4096;

/// The two tokens that a merge joins.
pub(super) type Merge<'a> = (&'a [u8], &'a [u8]);

/// The tokens of a file by rank.
pub(super) struct Ranks {
    /// Sorted by rank.
    tokens: Vec<(Vec<u8>, u32)>,
}

impl Ranks {
    /// The ranks in `file`, or what is wrong with it.
    pub(super) fn read(file: &[u8], kind: RankFile) -> Result<Self, String> {
        let mut tokens = match kind {
            RankFile::Base64 => base64_lines(file)?,
            RankFile::VocabBpe => vocab_bpe(file)?,
        };
        tokens.sort_by_key(|(_, rank)| *rank);
        let mut seen = HashMap::<&[u8], u32, RandomState>::default();
        let mut last = None;
        for (token, rank) in &tokens {
            if token.is_empty() || token.len() > MOST_TOKEN_BYTES {
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

    /// Tokens with their ranks, lowest first.
    pub(super) fn tokens(&self) -> &[(Vec<u8>, u32)] {
        &self.tokens
    }

    /// The two tokens that each merge joins, in order. An error when no list of merges has the same ids.
    pub(super) fn merges(&self) -> Result<Vec<Merge<'_>>, String> {
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

/// Leaves in `starts` where the parts of `token` start after all merges of lower rank than `limit`.
fn merge_below(token: &[u8], limit: u32, ranks: &HashMap<&[u8], u32, RandomState>, starts: &mut Vec<usize>) {
    starts.clear();
    starts.extend(0..token.len());
    loop {
        let end_of = |part: usize| starts.get(part + 1).copied().unwrap_or(token.len());
        let pairs = (0..starts.len().saturating_sub(1)).filter_map(|left| {
            let rank = ranks.get(&token[starts[left]..end_of(left + 1)])?;
            (*rank < limit).then_some((*rank, left))
        });
        // The lowest rank, the leftmost of equals.
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

/// A token and its rank.
pub(super) fn base64_line(line: &[u8]) -> Option<(Vec<u8>, u32)> {
    let (token, rank) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    Some((STANDARD.decode(token).ok()?, rank.trim().parse().ok()?))
}

/// The bytes in the order of their printable characters, then what each line merges.
fn vocab_bpe(file: &[u8]) -> Result<Vec<(Vec<u8>, u32)>, String> {
    let text = std::str::from_utf8(file).map_err(|e| format!("it is not UTF-8: {e}"))?;
    let bytes_by_char: HashMap<char, u8> = (0..=255u8).map(|byte| (super::byte_char(byte), byte)).collect();
    let mut bytes: Vec<u8> = (0..=255).collect();
    bytes.sort_by_key(|byte| super::byte_char(*byte));
    let mut tokens: Vec<Vec<u8>> = bytes.into_iter().map(|byte| vec![byte]).collect();
    for (number, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.is_empty()) {
        let bad = || format!("line {} is not a merge of two tokens", number + 1);
        let (left, right) = line.split_once(' ').ok_or_else(bad)?;
        let token = left.chars().chain(right.chars()).map(|c| bytes_by_char.get(&c).copied());
        tokens.push(token.collect::<Option<_>>().ok_or_else(bad)?);
    }
    Ok(tokens.into_iter().zip(0u32..).collect())
}
