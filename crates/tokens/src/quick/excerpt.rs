//! An excerpt of a BPE model that gives the same ids as the whole model for given words.
//!
//! The reference looks up the characters of a word, and with `ignore_merges` the word itself. Then it joins adjacent
//! tokens. As long as the ids of tokens are distinct, every token is a substring of the word, and a merge is used only
//! if the token it produces is one, too. So all others can be left out. The excerpt keeps a token if each of its
//! sequences of [`GRAM`] bytes occurs in some word, which holds for every substring of a word. It keeps a merge if it
//! keeps the token that the merge produces, of which both halves are substrings. The order of the merges is the same.
//!
//! A character without a token becomes the tokens of its bytes, or the unknown token. These tokens are not substrings
//! of the word, so no merge may contain them. If the model has neither, the character is dropped before its neighbors
//! are joined. The excerpt is then made for the remaining characters of each word, too.

use ahash::{AHashMap, AHashSet};
use tokenizers::models::bpe::BPE;

use crate::bpe_file::{Merge, ParsedBpe};
use crate::special::hidden_name;

/// Length in bytes of the sequences that are compared.
const GRAM: usize = 4;
/// Bits of the hash of a sequence; the bitmap has 32 KiB.
const HASH_BITS: u32 = 18;
/// Upper bound of the ids of a supported model.
const MAX_IDS: u32 = 1 << 20;

/// Builds excerpts of a model.
pub(crate) struct Excerpt<'a> {
    model: &'a ParsedBpe,
}

impl<'a> Excerpt<'a> {
    /// Returns `None` if the module's argument does not hold for `model`.
    pub(super) fn new(model: &'a ParsedBpe) -> Option<Self> {
        let is_empty = |part: &Option<String>| part.as_ref().is_none_or(String::is_empty);
        let settings = &model.settings;
        let max_id = model.vocab.max_id();
        if !is_empty(&settings.continuing_subword_prefix)
            || !is_empty(&settings.end_of_word_suffix)
            || max_id >= MAX_IDS
        {
            return None;
        }
        let mut seen = vec![false; max_id as usize + 1];
        let is_distinct = |(_, id): (&str, u32)| !std::mem::replace(&mut seen[id as usize], true);
        model.vocab.iter().all(is_distinct).then_some(Self { model })
    }

    /// Builds the excerpt for `words`, with the tokens in `hidden` renamed. Returns `None` if there is none.
    pub(super) fn build(&self, words: &[String], hidden: &AHashSet<u32>) -> Option<BPE> {
        let ParsedBpe { vocab, merges, settings, .. } = self.model;
        let (isolated, remaining) = self.symbols(words, hidden)?;
        let mut grams = Grams::new(words);
        grams.add(&remaining);
        let mut kept = vec![false; vocab.len() as usize];
        let mut tokens = AHashMap::new();
        for (number, (token, id)) in (0..).zip(vocab.iter()) {
            let renamed = hidden.contains(&number).then(|| hidden_name(id as usize));
            let token = renamed.as_deref().unwrap_or(token);
            if grams.may_contain(token) || isolated.contains(&number) {
                kept[number as usize] = true;
                tokens.insert(token.to_owned(), id);
            }
        }
        let token = |number: u32| vocab.token(number).to_owned();
        let is_kept = |merge: &&Merge| kept[merge.result as usize];
        let merges = merges.iter().filter(is_kept).map(|merge| (token(merge.left), token(merge.right)));
        let mut model = settings.build(tokens, merges.collect()).ok()?;
        model.dropout = None;
        Some(model)
    }

    /// Returns the numbers of the tokens that characters without a token may become, and the words without characters
    /// that are dropped. Returns `None` if some may be dropped although the model has unknown tokens or byte fallback, or
    /// if a merge joins one of these tokens.
    fn symbols(&self, words: &[String], hidden: &AHashSet<u32>) -> Option<(AHashSet<u32>, Vec<String>)> {
        let ParsedBpe { vocab, merges, settings, .. } = self.model;
        let mut isolated = AHashSet::new();
        let mut is_never_dropped = false;
        if let Some(unk) = &settings.unk_token {
            isolated.insert(vocab.number(unk)?);
            is_never_dropped = true;
        }
        if settings.byte_fallback == Some(true) {
            let bytes = (0..=u8::MAX).map(|byte| vocab.number(&format!("<0x{byte:02X}>")));
            let before = isolated.len();
            isolated.extend(bytes.flatten());
            is_never_dropped |= isolated.len() - before == 256;
        }
        let chars: AHashSet<char> = words.iter().flat_map(|word| word.chars()).collect();
        let number = |c: &char| vocab.number(c.encode_utf8(&mut [0; 4]));
        let has_token = |c: &char| number(c).is_some_and(|number| !hidden.contains(&number));
        let is_joined = |merge: &Merge| isolated.contains(&merge.left) || isolated.contains(&merge.right);
        let dropped: AHashSet<char> = chars.into_iter().filter(|c| !has_token(c)).collect();
        let remaining = if dropped.is_empty() || is_never_dropped && !merges.iter().any(is_joined) {
            Vec::new()
        } else if isolated.is_empty() {
            let is_dropped = |c| dropped.contains(&c);
            let words = words.iter().filter(|word| word.contains(is_dropped));
            words.map(|word| word.replace(is_dropped, "")).collect()
        } else {
            return None;
        };
        Some((isolated, remaining))
    }
}

/// The sequences of [`GRAM`] bytes in some words, as a bitmap of their hashes.
struct Grams(Vec<u64>);

impl Grams {
    fn new(words: &[String]) -> Self {
        let mut grams = Self(vec![0; (1 << HASH_BITS) / 64]);
        grams.add(words);
        grams
    }

    fn add(&mut self, words: &[String]) {
        for gram in words.iter().flat_map(|word| word.as_bytes().windows(GRAM)) {
            let (word, bit) = Self::place(gram);
            self.0[word] |= bit;
        }
    }

    fn place(gram: &[u8]) -> (usize, u64) {
        let number = gram.iter().fold(0, |number: u32, &byte| number << 8 | u32::from(byte));
        let hash = (number.wrapping_mul(0x9e37_79b1) >> (u32::BITS - HASH_BITS)) as usize;
        (hash / 64, 1 << (hash % 64))
    }

    /// Returns whether `token` may occur in a word; true for every token that does.
    fn may_contain(&self, token: &str) -> bool {
        token.as_bytes().windows(GRAM).all(|gram| {
            let (word, bit) = Self::place(gram);
            self.0[word] & bit != 0
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokenizers::Model;

    use super::*;

    /// A model over a few characters whose merges produce many tokens in many ways, and its words.
    fn model() -> impl Strategy<Value = (ParsedBpe, AHashSet<u32>)> {
        let rules = prop::collection::vec(("[abcé語]{1,6}", "[abcé語]{1,6}"), 0..200);
        let more = prop::collection::vec("[abcé語]{1,9}", 0..40);
        let settings = (any::<bool>(), any::<bool>(), any::<bool>(), 0usize..3, any::<bool>());
        (rules, more, settings).prop_map(|(rules, more, (ignores, fuses, bytes, unk, has_all))| {
            let mut tokens: Vec<String> = ["a", "b", "c", "é"].map(str::to_owned).into();
            if has_all {
                tokens.push("語".to_owned());
            }
            if bytes {
                tokens.extend((0..=u8::MAX).map(|byte| format!("<0x{byte:02X}>")));
            }
            tokens.push("<unk>".to_owned());
            let mut merges = Vec::new();
            for (left, right) in &rules {
                if tokens.contains(left) && tokens.contains(right) {
                    merges.push((left.as_str(), right.as_str()));
                    let made = format!("{left}{right}");
                    if !tokens.contains(&made) {
                        tokens.push(made);
                    }
                }
            }
            let hidden: Vec<String> = more.into_iter().filter(|token| !tokens.contains(token)).collect();
            tokens.extend(hidden.iter().cloned());
            let tokens: AHashSet<String> = tokens.into_iter().collect();
            let mut model = ParsedBpe::of(tokens.iter().zip(0..), merges).unwrap();
            model.settings.ignore_merges = Some(ignores);
            model.settings.fuse_unk = Some(fuses);
            model.settings.byte_fallback = Some(bytes);
            model.settings.unk_token = [None, Some("<unk>"), Some("a")][unk].map(str::to_owned);
            let hidden = hidden.iter().step_by(2).filter_map(|token| model.vocab.number(token)).collect();
            (model, hidden)
        })
    }

    /// Returns the whole model.
    fn whole(model: &ParsedBpe, hidden: &AHashSet<u32>) -> BPE {
        let ParsedBpe { vocab, merges, settings, .. } = model;
        let name = |number: u32| match hidden.contains(&number) {
            true => hidden_name(vocab.id(number) as usize),
            false => vocab.token(number).to_owned(),
        };
        let tokens: AHashMap<String, u32> =
            (0..vocab.len()).map(|number| (name(number), vocab.id(number))).collect();
        let merges = merges.iter().map(|merge| (name(merge.left), name(merge.right))).collect();
        settings.build(tokens, merges).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        #[test]
        fn the_excerpt_gives_the_ids_of_the_whole_model(
            (model, hidden) in model(),
            words in prop::collection::vec("[abcé語<>unk]{0,20}", 0..4),
        ) {
            if let Some(excerpt) = Excerpt::new(&model).unwrap().build(&words, &hidden) {
                let whole = whole(&model, &hidden);
                for word in &words {
                    let ids = |model: &BPE| -> Vec<u32> {
                        model.tokenize(word).unwrap().iter().map(|token| token.id).collect()
                    };
                    prop_assert_eq!(ids(&excerpt), ids(&whole), "{:?}", word);
                }
            }
        }
    }

    #[test]
    fn tokens_that_no_word_contains_are_left_out() {
        let merges =
            [("a", "b"), ("ab", "c"), ("abc", "a"), ("abca", "b"), ("b", "c"), ("a", "a"), ("aa", "aa")];
        let tokens = ["a", "b", "c", "ab", "abc", "abca", "abcab", "bc", "aa", "aaaa", "<unk>", "语"];
        let model = ParsedBpe::of(tokens.into_iter().zip(0..), merges).unwrap();
        let build = |model: &ParsedBpe, word: &str| {
            let excerpt = Excerpt::new(model).and_then(|e| e.build(&[word.to_owned()], &AHashSet::new()));
            excerpt.map(|model| model.get_vocab_size())
        };
        // Tokens of fewer than four bytes are always kept.
        assert_eq!(build(&model, "abca"), Some(9));
        assert_eq!(build(&model, "abcab"), Some(10));
        // Without the unknown character.
        assert_eq!(build(&model, "xabxca"), Some(9));
        assert_eq!(build(&model, "abxcxab"), Some(10));
        let mut with_unk = ParsedBpe::of(tokens.into_iter().zip(0..), merges).unwrap();
        with_unk.settings.unk_token = Some("<unk>".to_owned());
        assert_eq!(build(&with_unk, "xabca"), Some(10));
        with_unk.settings.unk_token = Some("a".to_owned());
        assert_eq!(build(&with_unk, "xabca"), None);
        with_unk.settings.end_of_word_suffix = Some("</w>".to_owned());
        assert_eq!(build(&with_unk, "abca"), None);
        let same_ids = ParsedBpe::of([("a", 0), ("b", 0)], []).unwrap();
        assert!(Excerpt::new(&same_ids).is_none());
    }
}
