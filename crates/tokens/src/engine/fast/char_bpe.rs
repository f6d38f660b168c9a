//! BPE over characters, as in SentencePiece: a space is written as `▁`, and a character without a token becomes the
//! tokens of its bytes.
//!
//! Such a model merges a whole text as one word. But a merge only joins characters that are adjacent in some token.
//! Nothing is joined between two characters that are adjacent in no token, and the order of merges on each side does
//! not depend on the other side. So the text is cut at such positions, and the ids of the parts are cached.

use super::cache::WordEncoder;
use super::char_tokens::CharTokens;
use super::classes::decode;
use super::merges::{Merges, NO_TOKEN, Symbols};
use crate::bpe_file::{Merge, ParsedBpe};
use crate::error::EncodeError;
use crate::outline::METASPACE;

/// A space, which also represents [`METASPACE`] in [`Neighbors`].
const SPACE: u32 = b' ' as u32;
/// Bits of the hash of a pair of neighbors beyond ASCII; the bitmap has 32 KiB.
const HASH_BITS: u32 = 18;

/// A character-level BPE model.
pub(super) struct CharBpe {
    chars: CharTokens,
    /// The tokens of bytes.
    bytes: [u32; 256],
    merges: Merges,
    /// The characters that may be joined.
    pub(super) neighbors: Neighbors,
}

impl CharBpe {
    /// Creates a model from the one in a `tokenizer.json`. The error states why the engine does not support the model.
    pub(super) fn new(model: &ParsedBpe) -> Result<Self, String> {
        let vocab = &model.vocab;
        let mut bytes = [NO_TOKEN; 256];
        for (byte, token) in bytes.iter_mut().enumerate() {
            let id = vocab.get(&byte_token(byte as u8));
            *token = id.ok_or("a byte has no token, so a character may have none")?;
        }
        let is_byte = |(token, id): (&str, u32)| token.starts_with("<0x") && bytes.contains(&id);
        let is_byte: Vec<bool> = vocab.iter().map(is_byte).collect();
        let names_byte = |merge: &Merge| {
            [merge.left, merge.right, merge.result].iter().any(|&token| is_byte[token as usize])
        };
        if model.merges.iter().any(names_byte) {
            return Err("a merge names the token of a byte".to_owned());
        }
        let mut chars = CharTokens::new(vocab, "");
        match chars.get(METASPACE) {
            NO_TOKEN => return Err("a space has no token".to_owned()),
            id => chars.set(' ', id),
        }
        Ok(Self { chars, bytes, merges: Merges::new(model)?, neighbors: Neighbors::new(model) })
    }
}

impl Symbols for CharBpe {
    fn symbols(&self, word: &str, mut each: impl FnMut(u32)) {
        for char in word.chars() {
            let token = self.chars.get(char);
            if token == NO_TOKEN {
                let mut utf8 = [0; 4];
                char.encode_utf8(&mut utf8).bytes().for_each(|byte| each(self.bytes[byte as usize]));
            } else {
                each(token);
            }
        }
    }
}

impl WordEncoder for CharBpe {
    fn encode_word(&self, word: &[u8], out: &mut Vec<u32>) -> Result<(), EncodeError> {
        let text = std::str::from_utf8(word).map_err(|_| EncodeError::SplitCharacter("a word"))?;
        self.merges.merge_word(self, text, out)
    }
}

/// Returns the token of a byte, with SentencePiece's name.
pub(super) fn byte_token(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

/// The pairs of characters that merges may join.
pub(super) struct Neighbors {
    /// For each ASCII character, the ASCII characters that may follow it.
    ascii: Box<[[u64; 2]; 128]>,
    /// Bitmap of hashes of pairs with a non-ASCII character, so a pair may be included by a hash collision.
    others: Vec<u64>,
    /// Whether characters are never joined with the space after them.
    cuts_before_spaces: bool,
}

impl Neighbors {
    fn new(model: &ParsedBpe) -> Self {
        let mut neighbors = Self {
            ascii: Box::new([[0; 2]; 128]),
            others: vec![0; (1 << HASH_BITS) / 64],
            cuts_before_spaces: false,
        };
        // Characters adjacent inside one half are joined by other merges.
        for merge in &model.merges {
            let (left, right) = (model.vocab.token(merge.left), model.vocab.token(merge.right));
            let (Some(left), Some(right)) = (left.chars().next_back(), right.chars().next()) else {
                continue;
            };
            let (left, right) = (plain(u32::from(left)), plain(u32::from(right)));
            match neighbors.ascii.get_mut(left as usize) {
                Some(followers) if right < 128 => followers[right as usize / 64] |= 1 << (right % 64),
                _ => {
                    let (word, bit) = place(left, right);
                    neighbors.others[word] |= bit;
                }
            }
        }
        neighbors
    }

    /// Prevents merges of a character with the space after it, because the pre-tokenizer cuts before every space.
    pub(super) fn cut_before_spaces(&mut self) {
        self.cuts_before_spaces = true;
        self.ascii.iter_mut().for_each(|followers| followers[0] &= !(1 << SPACE));
    }

    /// Returns whether a merge may join two adjacent characters, given as returned by [`next`](Self::next).
    #[inline(always)]
    pub(super) fn may_join(&self, left: u32, right: u32) -> bool {
        if left < 128 && right < 128 {
            return self.joins_ascii(left as usize, right as usize);
        }
        let (word, bit) = place(left, right);
        self.others[word] & bit != 0 && !(self.cuts_before_spaces && right == SPACE)
    }

    #[inline(always)]
    fn joins_ascii(&self, left: usize, right: usize) -> bool {
        self.ascii[left][right / 64] >> (right % 64) & 1 != 0
    }

    /// Returns the positions in a text of ASCII where nothing is joined, as bits. Returns 0 if there are others.
    #[inline(always)]
    pub(super) fn ends_in<const N: usize>(&self, text: &[u8; N]) -> u64 {
        if !text.is_ascii() {
            return 0;
        }
        let mut ends = 0;
        // Without branches: most ends of words are hard to predict.
        for at in 1..N {
            let [left, right] = [text[at - 1], text[at]].map(|byte| usize::from(byte & 127));
            ends |= u64::from(!self.joins_ascii(left, right)) << at;
        }
        ends
    }

    /// Returns the character at `at`, which must not be the end of the text, and its length in bytes.
    #[inline(always)]
    pub(super) fn next(bytes: &[u8], at: usize) -> (u32, usize) {
        let first = bytes[at];
        if first < 128 {
            return (u32::from(first), 1);
        }
        let (code, len) = decode(bytes, at, first);
        (plain(code), len)
    }
}

/// Maps [`METASPACE`] to a space.
#[inline(always)]
fn plain(code: u32) -> u32 {
    if code == METASPACE as u32 { SPACE } else { code }
}

/// Returns the position of the bit of a pair.
#[inline(always)]
fn place(left: u32, right: u32) -> (usize, u64) {
    let hash = (u64::from(left) << 32 | u64::from(right)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let bit = (hash.wrapping_mul(0xc2b2_ae3d_27d4_eb4f) >> (u64::BITS - HASH_BITS)) as usize;
    (bit / 64, 1 << (bit % 64))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::fast::merges::vocabulary;

    /// Bytes, a space, `a` to `c` and `é`.
    fn symbols() -> impl Iterator<Item = String> {
        (0..=255).map(byte_token).chain(["\u{2581}", "a", "b", "c", "é"].map(str::to_owned))
    }

    fn ids(model: &CharBpe, word: &str) -> Vec<u32> {
        let mut out = Vec::new();
        model.encode_word(word.as_bytes(), &mut out).unwrap();
        out
    }

    /// Splits a text between characters that are never joined.
    fn parts<'a>(model: &CharBpe, text: &'a str) -> Vec<&'a str> {
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        let (mut parts, mut rest) = (Vec::new(), text);
        for pair in places.windows(2).rev() {
            let char = |at| Neighbors::next(text.as_bytes(), at).0;
            if !model.neighbors.may_join(char(pair[0]), char(pair[1])) {
                let (before, part) = rest.split_at(pair[1]);
                parts.push(part);
                rest = before;
            }
        }
        parts.push(rest);
        parts.reverse();
        parts
    }

    proptest! {
        #[test]
        fn cuts_between_unjoined_characters_keep_the_ids(
            merges in prop::collection::vec(("[abcé\u{2581}]{1,3}", "[abcé\u{2581}]{1,3}"), 0..60),
            text in "[abcéx \u{2581}]{1,70}",
        ) {
            let model = CharBpe::new(&vocabulary(symbols(), &merges)).unwrap();
            let cut: Vec<u32> = parts(&model, &text).into_iter().flat_map(|part| ids(&model, part)).collect();
            prop_assert_eq!(cut, ids(&model, &text), "{:?}", parts(&model, &text));
        }
    }

    #[test]
    fn a_text_is_cut_where_no_merge_joins_characters() {
        let merges = [("a", "b"), ("\u{2581}", "ab"), ("é", "a"), ("\u{2581}", "\u{2581}")]
            .map(|(left, right)| (left.to_owned(), right.to_owned()));
        let mut model = CharBpe::new(&vocabulary(symbols(), &merges)).unwrap();
        assert_eq!(parts(&model, " abab  ab\u{2581}bcéa"), [" ab", "ab", "  ab", "\u{2581}", "b", "c", "éa"]);
        assert_eq!(ids(&model, " ab"), ids(&model, "\u{2581}ab"));
        assert_eq!(ids(&model, "ñ"), [0xc3, 0xb1]);
        model.neighbors.cut_before_spaces();
        assert_eq!(parts(&model, " ab  ab"), [" ab", " ", " ab"]);
    }

    #[test]
    fn models_without_byte_and_space_tokens_are_refused() {
        let why = |merges: &[(&str, &str)], without: &str| {
            let tokens = symbols().zip(0..).chain([("<0x41>a".to_owned(), 300), ("aa".to_owned(), 301)]);
            let tokens = tokens.filter(|(token, _)| token != without);
            CharBpe::new(&ParsedBpe::of(tokens, merges.iter().copied()).unwrap()).err()
        };
        assert_eq!(why(&[("a", "a")], ""), None);
        assert!(why(&[], "<0x7F>").unwrap().contains("byte has no token"));
        assert!(why(&[], "\u{2581}").unwrap().contains("space has no token"));
        assert!(why(&[("<0x41>", "a")], "").unwrap().contains("token of a byte"));
    }
}
