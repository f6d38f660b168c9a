//! Byte-level BPE model: the initial symbols are the bytes of a word.

use tokenizers::models::bpe::Error::UnkTokenOutOfVocabulary;

use super::byte_pairs::BytePairs;
use super::bytemap::ByteMap;
use super::cache::WordEncoder;
use super::char_bpe::byte_token;
use super::merges::{Merges, SMALL};
use super::pair_table::NO_MERGE;
use super::unknown::{SymbolWriter, Unk};
use crate::bpe_file::{BpeVocab, ParsedBpe};
use crate::error::EncodeError;

/// A byte-level BPE model.
pub(super) struct Bpe {
    /// The token of each byte.
    bytes: [u32; 256],
    /// The rank of the merge of each pair of bytes.
    byte_pairs: Vec<u32>,
    /// Pairs of bytes that a merge may join: the last byte of its left token and the first byte of its right token.
    joints: BytePairs,
    merges: Merges,
    /// Tokens among which a whole word is looked up before merging (`ignore_merges`).
    whole: Option<ByteMap>,
    /// Tokens for the last byte of a word, if the model has an `end_of_word_suffix`.
    last: Option<Box<LastByte>>,
    /// Symbols of words with a byte that has no token. `None` if every byte has one.
    gaps: Option<Box<Gaps>>,
}

/// The tokens for the last byte of a word.
struct LastByte {
    bytes: [u32; 256],
    /// The rank of the merge of each byte with a last byte.
    pairs: Vec<u32>,
}

/// The symbols of each byte of a model in which bytes have no token: control characters, the first bytes of rare
/// scripts, and in some models the carriage return.
struct Gaps {
    bytes: Vec<ByteSymbols>,
    /// Symbols of the last byte of a word, if the model has an `end_of_word_suffix`.
    last: Option<Vec<ByteSymbols>>,
    /// What a byte without symbols becomes, or the error of the reference.
    unk: Result<Unk, EncodeError>,
}

enum ByteSymbols {
    Token(u32),
    /// The tokens of the UTF-8 bytes of the printable character that represents the byte (`byte_fallback`).
    Fallback(Vec<u32>),
    Unknown,
}

impl ByteSymbols {
    /// Returns the symbols of all bytes, whose tokens end with `suffix`.
    fn all(model: &ParsedBpe, suffix: &str) -> Vec<Self> {
        let fallback = |written: &str| -> Option<Vec<u32>> {
            let token = |byte| model.vocab.get(&byte_token(byte));
            model.settings.byte_fallback.filter(|is_on| *is_on)?;
            written.bytes().map(token).collect()
        };
        let symbols = |c: char| {
            let written = format!("{c}{suffix}");
            match model.vocab.get(&written) {
                Some(token) => ByteSymbols::Token(token),
                None => fallback(&written).map_or(ByteSymbols::Unknown, ByteSymbols::Fallback),
            }
        };
        byte_alphabet().into_iter().map(symbols).collect()
    }

    /// Returns the token of each byte, and 0 for a byte without a token.
    fn tokens(all: &[Self]) -> [u32; 256] {
        std::array::from_fn(|byte| match all.get(byte) {
            Some(ByteSymbols::Token(token)) => *token,
            _ => 0,
        })
    }
}

impl Gaps {
    /// Returns `None` if every byte that occurs in UTF-8 text has a token.
    fn new(
        model: &ParsedBpe,
        bytes: Vec<ByteSymbols>,
        last: Option<Vec<ByteSymbols>>,
        merges: &mut Merges,
    ) -> Result<Option<Box<Self>>, String> {
        let is_gap = |(byte, symbols): (usize, &ByteSymbols)| {
            !matches!((byte, symbols), (0xc0 | 0xc1 | 0xf5.., _) | (_, ByteSymbols::Token(_)))
        };
        let mut all = bytes.iter().enumerate().chain(last.iter().flat_map(|last| last.iter().enumerate()));
        if !all.any(is_gap) {
            return Ok(None);
        }
        let unk = match &model.settings.unk_token {
            Some(token) if !token.is_empty() && model.vocab.get(token).is_none() => {
                Err(EncodeError::Unsupported(UnkTokenOutOfVocabulary(token.clone()).to_string()))
            }
            _ => Ok(Unk::new(model)?),
        };
        let mut others: Vec<u32> = match unk {
            Ok(Unk::Token(unk) | Unk::Fused(unk)) => vec![unk],
            Ok(Unk::Drop) | Err(_) => Vec::new(),
        };
        for symbols in bytes.iter().chain(last.iter().flatten()) {
            if let ByteSymbols::Fallback(tokens) = symbols {
                others.extend(tokens);
            }
        }
        // The strings of these tokens have more characters than symbols, and so do those of their merges.
        let is_other = |number: u32| others.contains(&model.vocab.id(number));
        if !others.is_empty()
            && model.merges.iter().any(|m| is_other(m.left) || is_other(m.right) || is_other(m.result))
        {
            merges.forget_lengths();
        }
        Ok(Some(Self { bytes, last, unk }.into()))
    }

    fn symbols<'a>(&'a self, word: &[u8]) -> impl Iterator<Item = &'a ByteSymbols> {
        let end = word.len().saturating_sub(1);
        word.iter().enumerate().filter_map(move |(at, &byte)| match &self.last {
            Some(last) if at == end => last.get(usize::from(byte)),
            _ => self.bytes.get(usize::from(byte)),
        })
    }

    /// Returns whether a byte of the non-empty `word` has no token.
    fn are_in(&self, word: &[u8]) -> bool {
        self.symbols(word).any(|symbols| !matches!(symbols, ByteSymbols::Token(_)))
    }

    /// Appends the ids of the non-empty `word`.
    fn merge(&self, word: &[u8], merges: &Merges, out: &mut Vec<u32>) -> Result<(), EncodeError> {
        let mut ids = Vec::with_capacity(word.len());
        let is_unknown = |symbols: &ByteSymbols| matches!(symbols, ByteSymbols::Unknown);
        let unk = match &self.unk {
            Err(error) if self.symbols(word).any(is_unknown) => return Err(error.clone()),
            unk => unk.as_ref().copied().unwrap_or(Unk::Drop),
        };
        let mut writer = SymbolWriter::new(unk, |id| ids.push(id));
        for symbols in self.symbols(word) {
            match symbols {
                ByteSymbols::Token(token) => writer.token(*token),
                ByteSymbols::Fallback(tokens) => writer.fallback(tokens),
                ByteSymbols::Unknown => writer.unknown(),
            }
        }
        writer.finish();
        merges.merge_large(ids, out)
    }
}

impl Bpe {
    /// Creates a model from the one in a `tokenizer.json`, which writes bytes in the [`byte_alphabet`]. The error
    /// states why the engine does not support the model.
    pub(super) fn new(model: &ParsedBpe) -> Result<Self, String> {
        let vocab = &model.vocab;
        let ignore_merges = model.settings.ignore_merges == Some(true);
        let suffix = model.settings.end_of_word_suffix.as_deref().unwrap_or_default();
        let symbols = ByteSymbols::all(model, "");
        let bytes = ByteSymbols::tokens(&symbols);
        let byte_of = InverseAlphabet::new(&byte_alphabet());
        let mut merges = Merges::new(model)?;
        let ranks = |merges: &Merges, last: &[u32; 256]| -> Vec<u32> {
            (0..1 << 16).map(|i: usize| merges.rank(bytes[i >> 8], last[i & 0xff])).collect()
        };
        let byte_pairs = ranks(&merges, &bytes);
        let last_symbols = (!suffix.is_empty()).then(|| ByteSymbols::all(model, suffix));
        let last = if let Some(last_symbols) = &last_symbols {
            if ignore_merges {
                return Err("the model has both ignore_merges and an end_of_word_suffix".to_owned());
            }
            merges.forget_lengths();
            let bytes = ByteSymbols::tokens(last_symbols);
            Some(LastByte { pairs: ranks(&merges, &bytes), bytes }.into())
        } else {
            None
        };
        let gaps = Gaps::new(model, symbols, last_symbols, &mut merges)?;
        let joints = joints(model, &byte_of);
        let whole = ignore_merges.then(|| whole_words(vocab, &byte_of));
        Ok(Self { bytes, byte_pairs, joints, merges, whole, last, gaps })
    }

    /// Merges a part of a word whose ends no merge crosses. `ends`: whether it is the last part of the word.
    fn merge_small(&self, word: &[u8], ends: bool, out: &mut Vec<u32>) {
        let (mut ids, mut ranks) = ([0; _], [NO_MERGE; _]);
        for (i, &byte) in word.iter().enumerate() {
            ids[i] = self.bytes[byte as usize];
        }
        for (i, pair) in word.windows(2).enumerate() {
            ranks[i] = self.byte_pairs[(pair[0] as usize) << 8 | pair[1] as usize];
        }
        if let (Some(last), [before @ .., byte], true) = (&self.last, word, ends) {
            ids[before.len()] = last.bytes[*byte as usize];
            if let Some(left) = before.last() {
                ranks[before.len() - 1] = last.pairs[(*left as usize) << 8 | *byte as usize];
            }
        }
        self.merges.merge_small(&mut ids, &mut ranks, word.len(), out);
    }

    /// Merges a word of any length, cut at the positions that no merge crosses. The order of merges on each side of
    /// such a position does not depend on the other side.
    fn merge_parts(&self, word: &[u8], out: &mut Vec<u32>) -> Result<(), EncodeError> {
        let may_join = |left: &u8, right: &u8| self.joints.contains(*left, *right);
        let mut parts = word.chunk_by(may_join).peekable();
        while let Some(part) = parts.next() {
            let ends = parts.peek().is_none();
            if part.len() > SMALL {
                self.merge_large(part, ends, out)?;
            } else {
                self.merge_small(part, ends, out);
            }
        }
        Ok(())
    }

    fn merge_large(&self, word: &[u8], ends: bool, out: &mut Vec<u32>) -> Result<(), EncodeError> {
        let mut symbols: Vec<u32> = word.iter().map(|&byte| self.bytes[byte as usize]).collect();
        if let (Some(last), Some(symbol), Some(&byte), true) =
            (&self.last, symbols.last_mut(), word.last(), ends)
        {
            *symbol = last.bytes[byte as usize];
        }
        self.merges.merge_large(symbols, out)
    }
}

impl Bpe {
    /// Removes these ids from the lookup of whole words.
    pub(super) fn hide(&mut self, is_hidden: impl Fn(u32) -> bool) {
        if let Some(whole) = &mut self.whole {
            *whole = ByteMap::new(whole.iter().filter(|(_, id)| !is_hidden(*id)));
        }
    }
}

impl WordEncoder for Bpe {
    fn encode_word(&self, word: &[u8], out: &mut Vec<u32>) -> Result<(), EncodeError> {
        if let Some(id) = self.whole.as_ref().and_then(|whole| whole.get(word)) {
            out.push(id);
        } else if let Some(gaps) = self.gaps.as_deref().filter(|gaps| gaps.are_in(word)) {
            gaps.merge(word, &self.merges, out)?;
        } else if word.len() <= SMALL {
            self.merge_small(word, true, out);
        } else {
            self.merge_parts(word, out)?;
        }
        Ok(())
    }
}

/// Returns the pairs of bytes that a merge may join.
fn joints(model: &ParsedBpe, byte_of: &InverseAlphabet) -> BytePairs {
    // The first and the last byte of each token.
    let edges = |token: &str| (byte_of.get(token.chars().next()), byte_of.get(token.chars().next_back()));
    let edges: Vec<_> = model.vocab.iter().map(|(token, _)| edges(token)).collect();
    let mut joints = BytePairs::default();
    for merge in &model.merges {
        if let ((_, Some(left)), (Some(right), _)) = (edges[merge.left as usize], edges[merge.right as usize])
        {
            joints.insert(left, right);
        }
    }
    joints
}

/// Maps the bytes of each token to its id. A token with a character outside the alphabet matches no word.
fn whole_words(vocab: &BpeVocab, byte_of: &InverseAlphabet) -> ByteMap {
    ByteMap::written(vocab.iter(), |(token, id), bytes| {
        for c in token.chars() {
            bytes.push(byte_of.get(Some(c))?);
        }
        Some(id)
    })
}

/// Inverse of an alphabet: the byte that each character represents.
pub(crate) struct InverseAlphabet(Vec<Option<u8>>);

impl InverseAlphabet {
    pub(crate) fn new(alphabet: &[char; 256]) -> Self {
        let last = alphabet.iter().copied().max().map_or(0, |c| c as usize);
        let mut bytes = vec![None; last + 1];
        (0..=u8::MAX).zip(alphabet).for_each(|(byte, &c)| bytes[c as usize] = Some(byte));
        Self(bytes)
    }

    pub(crate) fn get(&self, c: Option<char>) -> Option<u8> {
        self.0.get(c? as usize).copied().flatten()
    }
}

/// Returns the printable character that represents each byte in a byte-level vocabulary: the byte itself if it is
/// printable, otherwise the next character from U+0100 on.
pub(crate) fn byte_alphabet() -> [char; 256] {
    let mut next = 0x100;
    std::array::from_fn(|byte| {
        let byte = byte as u8;
        if matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) {
            char::from(byte)
        } else {
            next += 1;
            char::from_u32(next - 1).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokenizers::Model as _;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    use super::*;
    use crate::engine::fast::merges::{NO_TOKEN, vocabulary};

    #[test]
    fn the_alphabet_is_that_of_the_reference() {
        let ours = byte_alphabet();
        assert_eq!(ours.iter().copied().collect::<ahash::AHashSet<_>>(), ByteLevel::alphabet());
        assert_eq!((ours[b' ' as usize], ours[b'\n' as usize], ours[0], ours[0xad]), ('Ġ', 'Ċ', 'Ā', 'Ń'));
    }

    /// A model over a, b, c whose merges produce many tokens in many ways.
    fn model(merges: &[(String, String)]) -> Bpe {
        Bpe::new(&vocabulary(byte_alphabet().map(String::from), merges)).unwrap()
    }

    #[test]
    fn ids_that_do_not_fit_the_pair_table_are_refused() {
        let build = |id| {
            let bytes = byte_alphabet().map(String::from).into_iter().zip(0..);
            Bpe::new(&ParsedBpe::of(bytes.chain([("ab".to_owned(), id)]), [("a", "b")]).unwrap())
        };
        let bpe = build(NO_TOKEN - 1).unwrap();
        let mut out = Vec::new();
        bpe.merge_small(b"ab", true, &mut out);
        assert_eq!(out, [NO_TOKEN - 1]);
        assert!(build(NO_TOKEN).is_err());
    }

    #[test]
    fn hidden_ids_are_not_looked_up() {
        let bytes = byte_alphabet().map(String::from).into_iter().zip(0..);
        let tokens = bytes.chain([("ab".to_owned(), 256), ("ba".to_owned(), 257)]);
        let mut model = ParsedBpe::of(tokens, []).unwrap();
        model.settings.ignore_merges = Some(true);
        let mut bpe = Bpe::new(&model).unwrap();
        let ids = |bpe: &Bpe| {
            let mut out = Vec::new();
            bpe.encode_word(b"ab", &mut out).unwrap();
            bpe.encode_word(b"ba", &mut out).unwrap();
            out
        };
        assert_eq!(ids(&bpe), [256, 257]);
        bpe.hide(|id| id == 256);
        let id = |token| model.vocab.get(token).unwrap();
        assert_eq!(ids(&bpe), [id("a"), id("b"), 257]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        /// Merges may join the unknown token and the tokens of the fallback.
        #[test]
        fn bytes_without_a_token_have_the_ids_of_the_reference(
            rules in prop::collection::vec(("([abx]|<u>|<0x78>){1,2}", "([abx]|<u>|<0x78>|</w>){1,2}"), 0..80),
            gaps in prop::sample::subsequence(vec!['x', 'y', 'z', '\u{100}'], 0..=4),
            end_gaps in prop::sample::subsequence(vec!['a', 'x', 'y'], 0..=3),
            fallback in prop::sample::subsequence(vec![0x78, 0x79, 0xc4, 0x80], 0..=4),
            unk in prop::sample::select(vec![None, Some("<u>"), Some("a"), Some("<gone>")]),
            (fuse_unk, byte_fallback) in any::<(Option<bool>, Option<bool>)>(),
            kind in 0..3,
            words in prop::collection::vec("[abxyz\\x00ß]{1,60}", 1..6),
        ) {
            let (ignore_merges, is_marked) = (kind == 1, kind == 2);
            let alphabet = byte_alphabet().into_iter();
            let inner = alphabet.clone().filter(|c| !gaps.contains(c)).map(String::from);
            let ends = alphabet.filter(|c| is_marked && !end_gaps.contains(c)).map(|c| format!("{c}</w>"));
            let bytes = fallback.into_iter().map(byte_token);
            let others = ["<u>", "xa", "xyx"].map(str::to_owned);
            let mut model = vocabulary(inner.chain(ends).chain(bytes).chain(others), &rules);
            let settings = &mut model.settings;
            settings.unk_token = unk.map(str::to_owned);
            (settings.fuse_unk, settings.byte_fallback) = (fuse_unk, byte_fallback);
            settings.ignore_merges = Some(ignore_merges);
            settings.end_of_word_suffix = is_marked.then(|| "</w>".to_owned());
            let token = |number| model.vocab.token(number).to_owned();
            let tokens = model.vocab.iter().map(|(token, id)| (token.to_owned(), id)).collect();
            let merges = model.merges.iter().map(|merge| (token(merge.left), token(merge.right))).collect();
            let reference = model.settings.build(tokens, merges).unwrap();
            let ours = Bpe::new(&model).unwrap();
            let alphabet = byte_alphabet();
            for word in &words {
                let written: String = word.bytes().map(|byte| alphabet[byte as usize]).collect();
                let expected = reference.tokenize(&written).map(|tokens| tokens.iter().map(|token| token.id).collect());
                let mut ids = Vec::new();
                let result = ours.encode_word(word.as_bytes(), &mut ids).map(|()| ids);
                let expected = expected.map_err(|error| EncodeError::Unsupported(error.to_string()));
                prop_assert_eq!(result, expected, "{:?}", word);
            }
        }
    }

    #[test]
    fn long_words_with_gaps_are_merged_in_windows() {
        let rule = |left: &str, right: &str| (left.to_owned(), right.to_owned());
        let symbols = byte_alphabet().into_iter().filter(|c| *c != 'x').map(String::from);
        let model = vocabulary(symbols, &[rule("a", "b"), rule("ab", "ab"), rule("b", "a")]);
        let (bpe, mut with, mut without) = (Bpe::new(&model).unwrap(), Vec::new(), Vec::new());
        bpe.encode_word("axbabax".repeat(30_000).as_bytes(), &mut with).unwrap();
        bpe.encode_word("ababa".repeat(30_000).as_bytes(), &mut without).unwrap();
        assert_eq!(with, without);
        assert!(bpe.gaps.is_some() && bpe.merges.has_lengths());
    }

    proptest! {
        #[test]
        fn heap_and_array_merge_alike(
            merges in prop::collection::vec(("[abc]{1,3}", "[abc]{1,3}"), 0..40),
            word in "[abc]{1,48}",
        ) {
            let bpe = model(&merges);
            let (mut small, mut large) = (Vec::new(), Vec::new());
            bpe.merge_small(word.as_bytes(), true, &mut small);
            bpe.merge_large(word.as_bytes(), true, &mut large).unwrap();
            prop_assert_eq!(&small, &large);
            let mut parts = Vec::new();
            bpe.merge_parts(word.as_bytes(), &mut parts).unwrap();
            prop_assert_eq!(small, parts);
        }
    }
}
