//! Byte-pair encoding of one word: merges the pair of lowest rank first, on ties the leftmost, until no pair can be
//! merged.
//!
//! Short words, which are nearly all words, are merged in place in a small array. Longer words use a heap, which takes
//! n log n steps instead of n². Very long words are merged one window at a time, so that a document that is a single
//! word needs little memory.
//!
//! Each window is merged as if it were the whole word, which may be wrong at the boundary of two windows. Merging
//! always joins the adjacent pair of lowest rank, on ties the leftmost. Consider only the merges inside two adjacent
//! tokens of the result, and across their boundary: they happen in the same order as if the word consisted only of
//! these two tokens. So a sequence of tokens is the result for a word if and only if every two adjacent tokens are the
//! result for their own symbols. At the boundary of two windows, tokens are merged again until this holds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::pair_table::{ID_BITS, NO_MERGE, PairTable, RANK_BITS};
use crate::bpe_file::ParsedBpe;
use crate::error::EncodeError;

/// Maximum number of symbols of a word that is merged in an array.
pub(super) const SMALL: usize = 48;
/// Number of elements that [`shift`] moves at a time.
const SHIFT_WIDTH: usize = 16;
/// An id that is in no pair.
pub(super) const NO_TOKEN: u32 = (1 << ID_BITS) - 1;
/// Number of symbols per window of a very long word.
const WINDOW: usize = 1 << 14;
/// Maximum size, in windows, of the part that is merged again at a boundary.
const MAX_REMERGED_WINDOWS: usize = 4;
/// Index of no symbol, at the ends of a linked list.
const END: u32 = u32::MAX;

/// One number per symbol of a short word, with padding.
pub(super) type SymbolArray = [u32; SMALL + SHIFT_WIDTH];

/// The merges of a model.
pub(super) struct Merges {
    /// The rank of the merge of each pair of tokens.
    pairs: PairTable,
    merged_ids: MergedIds,
    /// Number of symbols of each token. `None` if it may be smaller than the number of characters.
    lengths: Option<Vec<u32>>,
}

/// The ids that the merges of each rank produce.
enum MergedIds {
    /// Consecutive ids in the order of the merges, starting at this one, as in most tokenizers.
    From(u32),
    Each(Vec<u32>),
}

impl MergedIds {
    fn new(ids: Vec<u32>) -> Self {
        match ids.first() {
            Some(&first) if ids.iter().copied().eq(first..first + ids.len() as u32) => MergedIds::From(first),
            _ => MergedIds::Each(ids),
        }
    }

    /// Returns the id that the merge of this rank produces.
    #[inline(always)]
    fn by(&self, rank: u32) -> u32 {
        match self {
            MergedIds::From(first) => first + rank,
            MergedIds::Each(ids) => ids[rank as usize],
        }
    }
}

/// A model that determines the symbols of a word before merging.
pub(super) trait Symbols {
    /// Calls `each` with the tokens of the symbols of `word`, at most one per byte.
    fn symbols(&self, word: &str, each: impl FnMut(u32));
}

impl Merges {
    /// Creates the tables of `model`. The error states why the engines do not support them.
    pub(super) fn new(model: &ParsedBpe) -> Result<Self, String> {
        let ParsedBpe { vocab, merges, .. } = model;
        let max_id = vocab.max_id();
        if max_id >= NO_TOKEN {
            return Err(format!("the largest id is not below {NO_TOKEN}"));
        }
        if merges.len() >> RANK_BITS != 0 {
            return Err(format!("the model has {} merges or more", 1 << RANK_BITS));
        }
        // 0 for an id that no token has.
        let mut lengths = vec![0; max_id as usize + 1];
        for (_, id) in vocab.iter() {
            if std::mem::replace(&mut lengths[id as usize], 1) != 0 {
                // If merges of (a, b) and (a, bc) produce the same id, the reference applies the first, which it has
                // queued, to the second pair.
                return Err("two tokens have the same id".to_owned());
            }
        }
        let mut list = Vec::with_capacity(merges.len());
        let mut merged_ids = Vec::with_capacity(merges.len());
        let mut last = None;
        for merge in merges {
            let new = vocab.id(merge.result);
            list.push((vocab.id(merge.left), vocab.id(merge.right)));
            merged_ids.push(new);
            // Several merges in a row often produce the same token.
            if last.replace(merge.result) != Some(merge.result) {
                lengths[new as usize] = vocab.token(merge.result).chars().count() as u32;
            }
        }
        Ok(Self {
            pairs: PairTable::new(&list),
            merged_ids: MergedIds::new(merged_ids),
            lengths: Some(lengths),
        })
    }

    /// Discards the lengths of tokens, because the string of a token may have more characters than symbols.
    pub(super) fn forget_lengths(&mut self) {
        self.lengths = None;
    }

    /// Returns whether the lengths of tokens are known.
    #[cfg(test)]
    pub(super) fn has_lengths(&self) -> bool {
        self.lengths.is_some()
    }

    /// Returns the rank of the merge of two tokens, or [`NO_MERGE`].
    #[inline(always)]
    pub(super) fn rank(&self, left: u32, right: u32) -> u32 {
        self.pairs.get(left, right)
    }

    /// Merges the symbols of `word` and appends the ids.
    ///
    /// # Errors
    ///
    /// As [`Self::merge_large`].
    #[inline(always)]
    pub(super) fn merge_word(
        &self,
        model: &impl Symbols,
        word: &str,
        out: &mut Vec<u32>,
    ) -> Result<(), EncodeError> {
        if word.len() > SMALL {
            let mut ids = Vec::with_capacity(word.len());
            model.symbols(word, |id| ids.push(id));
            return self.merge_large(ids, out);
        }
        let (mut ids, mut ranks, mut len) = ([0; _], [NO_MERGE; _], 0);
        model.symbols(word, |id| {
            ids[len] = id;
            len += 1;
        });
        for at in 1..len {
            ranks[at - 1] = self.rank(ids[at - 1], ids[at]);
        }
        self.merge_small(&mut ids, &mut ranks, len, out);
        Ok(())
    }

    /// Merges the tokens `ids[..len]` and appends the result. `ranks` contains the rank of the merge of each token with
    /// the next one, and [`NO_MERGE`] at the end.
    #[inline(always)]
    pub(super) fn merge_small(
        &self,
        ids: &mut SymbolArray,
        ranks: &mut SymbolArray,
        mut len: usize,
        out: &mut Vec<u32>,
    ) {
        while len > 1 {
            let (mut best, mut at) = (NO_MERGE, 0);
            for (i, &rank) in ranks[..len - 1].iter().enumerate() {
                // A strictly lower rank is required, so the leftmost wins on ties.
                if rank < best {
                    (best, at) = (rank, i);
                }
            }
            if best == NO_MERGE {
                break;
            }
            let new = self.merged_ids.by(best);
            ids[at] = new;
            shift(ids, at + 1, len);
            shift(ranks, at, len);
            len -= 1;
            let right = if at + 1 < len { ids[at + 1] } else { NO_TOKEN };
            ranks[at] = self.rank(new, right);
            if at > 0 {
                ranks[at - 1] = self.rank(ids[at - 1], new);
            }
        }
        out.extend_from_slice(&ids[..len]);
    }

    /// Merges any number of tokens, each of which is one symbol, and appends the result.
    ///
    /// # Errors
    ///
    /// [`EncodeError::WordTooLong`] for more than 2³² - 1 tokens.
    pub(super) fn merge_large(&self, symbols: Vec<u32>, out: &mut Vec<u32>) -> Result<(), EncodeError> {
        let start = out.len();
        if symbols.len() > WINDOW && self.merge_windows(&symbols, WINDOW, out)? {
            return Ok(());
        }
        out.truncate(start);
        self.merge_heap(symbols, out)
    }

    /// Merges `symbols`, `window` of them at a time. Returns false when adjacent windows cannot be reconciled; the
    /// caller then truncates `out`.
    fn merge_windows(&self, symbols: &[u32], window: usize, out: &mut Vec<u32>) -> Result<bool, EncodeError> {
        let Some(lengths) = &self.lengths else { return Ok(false) };
        let start = out.len();
        for (number, part) in symbols.chunks(window).enumerate() {
            let boundary = WindowBoundary {
                merges: self,
                lengths,
                symbols,
                first_token: start,
                token: out.len(),
                symbol: number * window,
            };
            self.merge_heap(part.to_vec(), out)?;
            if boundary.token > start && !boundary.reconcile(MAX_REMERGED_WINDOWS * window, out)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn merge_heap(&self, mut ids: Vec<u32>, out: &mut Vec<u32>) -> Result<(), EncodeError> {
        let len = u32::try_from(ids.len()).map_err(|_| EncodeError::WordTooLong)?;
        let mut next: Vec<u32> = (1..=len).collect();
        let mut previous: Vec<u32> = (0..len).map(|at| at.wrapping_sub(1)).collect();
        if let Some(last) = next.last_mut() {
            *last = END;
        }
        // Rank and index in one number.
        let entry = |rank: u32, at: u32| Reverse(u64::from(rank) << 32 | u64::from(at));
        let pairs = (0..).zip(ids.windows(2)).map(|(at, pair)| (self.rank(pair[0], pair[1]), at));
        let mut heap: BinaryHeap<Reverse<u64>> =
            pairs.filter(|(rank, _)| *rank != NO_MERGE).map(|(rank, at)| entry(rank, at)).collect();
        while let Some(Reverse(lowest)) = heap.pop() {
            let (rank, place) = ((lowest >> 32) as u32, lowest as u32);
            let at = place as usize;
            let right = next[at] as usize;
            // The pair may have changed since, if one of its tokens was merged.
            if next[at] == END || self.rank(ids[at], ids[right]) != rank {
                continue;
            }
            let new = self.merged_ids.by(rank);
            (ids[at], ids[right]) = (new, NO_TOKEN);
            let after = next[right];
            next[at] = after;
            if after != END {
                previous[after as usize] = place;
                let rank = self.rank(new, ids[after as usize]);
                if rank != NO_MERGE {
                    heap.push(entry(rank, place));
                }
            }
            let before = previous[at];
            if before != END {
                let rank = self.rank(ids[before as usize], new);
                if rank != NO_MERGE {
                    heap.push(entry(rank, before));
                }
            }
        }
        out.extend(ids.into_iter().filter(|&id| id != NO_TOKEN));
        Ok(())
    }
}

/// The boundary of two windows of a word.
struct WindowBoundary<'a> {
    merges: &'a Merges,
    lengths: &'a [u32],
    symbols: &'a [u32],
    /// Index of the word's first token in the output.
    first_token: usize,
    /// Index of the second window's first token in the output.
    token: usize,
    /// Index of the second window's first symbol.
    symbol: usize,
}

impl WindowBoundary<'_> {
    /// Merges the tokens on both sides of the boundary again, as few as needed. Returns false if that takes more than
    /// `most` symbols.
    fn reconcile(&self, most: usize, out: &mut Vec<u32>) -> Result<bool, EncodeError> {
        let mut count = 1;
        loop {
            let from = self.token.saturating_sub(count).max(self.first_token);
            let to = (self.token + count).min(out.len());
            let (first, last) = (
                self.symbol - self.len(&out[from..self.token]),
                self.symbol + self.len(&out[self.token..to]),
            );
            if last - first > most {
                return Ok(false);
            }
            let mut merged = Vec::new();
            self.merges.merge_heap(self.symbols[first..last].to_vec(), &mut merged)?;
            let (before, after) = (&out[self.first_token..from], &out[to..]);
            if self.fits(before.last(), first, merged.first())?
                && self.fits(merged.last(), last, after.first())?
            {
                out.splice(from..to, merged);
                return Ok(true);
            }
            count *= 2;
        }
    }

    /// Returns whether merging the symbols of two tokens that meet at the symbol `at` gives the same tokens; true if a
    /// token is missing.
    fn fits(&self, left: Option<&u32>, at: usize, right: Option<&u32>) -> Result<bool, EncodeError> {
        let (Some(&left), Some(&right)) = (left, right) else { return Ok(true) };
        let mut merged = Vec::new();
        let symbols = &self.symbols[at - self.len(&[left])..at + self.len(&[right])];
        self.merges.merge_heap(symbols.to_vec(), &mut merged)?;
        Ok(merged == [left, right])
    }

    /// Returns the total number of symbols of `tokens`.
    fn len(&self, tokens: &[u32]) -> usize {
        tokens.iter().map(|&token| self.lengths[token as usize] as usize).sum()
    }
}

/// Moves the numbers after index `at`, up to `len`, down by one.
#[inline(always)]
fn shift(numbers: &mut SymbolArray, mut at: usize, len: usize) {
    while at < len {
        // Moves a constant number of elements, so that this compiles to no call.
        numbers.copy_within(at + 1..at + 1 + SHIFT_WIDTH, at);
        at += SHIFT_WIDTH;
    }
}

/// Returns a model with `symbols`, the tokens that merges produce, and the merges whose halves exist before them.
#[cfg(test)]
pub(super) fn vocabulary(
    symbols: impl IntoIterator<Item = String>,
    merges: &[(String, String)],
) -> ParsedBpe {
    let mut vocab: std::collections::HashMap<String, u32> = symbols.into_iter().zip(0..).collect();
    let mut usable = Vec::new();
    for (left, right) in merges {
        if vocab.contains_key(left) && vocab.contains_key(right) {
            let next = vocab.len() as u32;
            vocab.entry(format!("{left}{right}")).or_insert(next);
            usable.push((left.as_str(), right.as_str()));
        }
    }
    ParsedBpe::of(vocab, usable).unwrap()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokenizers::Model as _;

    use super::*;

    /// Merges over a, b, c that produce many tokens in many ways, in any order.
    fn merges(rules: &[(String, String)]) -> Merges {
        Merges::new(&vocabulary(["a", "b", "c"].map(str::to_owned), rules)).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        #[test]
        fn windows_have_the_tokens_of_the_whole_word(
            rules in prop::collection::vec(("[abc]{1,4}", "[abc]{1,4}"), 0..80),
            order in any::<u64>(),
            symbols in prop_oneof![
                prop::collection::vec(0u32..3, 1..120),
                (prop::collection::vec(0u32..3, 1..5), 1usize..40).prop_map(|(unit, times)| unit.repeat(times)),
            ],
            window in 1usize..20,
        ) {
            // Also tests merges whose halves are produced by later merges.
            let mut rules = rules;
            let len = rules.len().max(1);
            rules.rotate_left(order as usize % len);
            let merges = merges(&rules);
            let (mut whole, mut parts) = (vec![7], vec![7]);
            merges.merge_heap(symbols.clone(), &mut whole).unwrap();
            if merges.merge_windows(&symbols, window, &mut parts).unwrap() {
                prop_assert_eq!(&parts, &whole);
            } else {
                prop_assert!(symbols.len() > MAX_REMERGED_WINDOWS * window);
            }
        }
    }

    #[test]
    fn two_tokens_with_the_same_id_are_refused() {
        let new = |abc| {
            let tokens = ["a", "b", "c", "d", "ab", "bc", "bcd"].into_iter().zip(0..).chain([("abc", abc)]);
            let merges = [("b", "c"), ("a", "b"), ("bc", "d"), ("a", "bc")];
            ParsedBpe::of(tokens, merges).unwrap()
        };
        let reference = |model: &ParsedBpe| -> Vec<u32> {
            let token = |number| model.vocab.token(number).to_owned();
            let tokens = model.vocab.iter().map(|(token, id)| (token.to_owned(), id)).collect();
            let merges = model.merges.iter().map(|merge| (token(merge.left), token(merge.right))).collect();
            let reference = model.settings.build(tokens, merges).unwrap();
            reference.tokenize("abcd").unwrap().iter().map(|token| token.id).collect()
        };
        let distinct = new(7);
        let mut ids = Vec::new();
        Merges::new(&distinct).unwrap().merge_large(vec![0, 1, 2, 3], &mut ids).unwrap();
        assert_eq!((&ids, &reference(&distinct)), (&vec![0, 6], &ids));
        // `ab` and `abc` are both 4.
        let same = new(4);
        assert_eq!(reference(&same), [4, 3]);
        assert!(Merges::new(&same).err().unwrap().contains("same id"));
    }

    #[test]
    fn a_word_of_many_windows_has_the_same_tokens_as_a_whole() {
        let rule = |left: &str, right: &str| (left.to_owned(), right.to_owned());
        let merges =
            merges(&[rule("a", "b"), rule("b", "c"), rule("ab", "c"), rule("a", "a"), rule("aa", "a")]);
        let symbols: Vec<u32> = (0..3 * WINDOW as u64 + 5).map(|i| (i * i * 7 / 5 % 3) as u32).collect();
        let (mut whole, mut large, mut windows) = (Vec::new(), Vec::new(), Vec::new());
        merges.merge_heap(symbols.clone(), &mut whole).unwrap();
        merges.merge_large(symbols.clone(), &mut large).unwrap();
        assert!(merges.merge_windows(&symbols, WINDOW, &mut windows).unwrap());
        assert!(whole == large && whole == windows);
    }
}
